"""What can be bought and run: accelerators, nodes, fabrics, prices, regions and model shapes, as tables."""
