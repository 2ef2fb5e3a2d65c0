"""The world of a serving fleet: engines, clients, faults, traffic, and what was measured of them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
