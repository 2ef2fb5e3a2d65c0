"""Operators, collectives and energy of one device and its network, from fitted constants."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
