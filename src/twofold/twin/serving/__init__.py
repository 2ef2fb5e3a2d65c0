"""The world of a serving fleet: engines, clients, faults, traffic, and what was measured of them."""
