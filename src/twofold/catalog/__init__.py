"""What can be bought and run: accelerators, nodes, fabrics, prices, regions and model shapes, as tables."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
