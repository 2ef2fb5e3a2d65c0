"""The building of a plan: racks, cooling, networks, power, sites, and what rules ask of them."""
