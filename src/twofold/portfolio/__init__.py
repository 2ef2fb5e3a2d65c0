"""A year of runs and services on one portfolio of capacity: demands, offers, the solved lease, its bill."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
