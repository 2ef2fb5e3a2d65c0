"""Serving: what fits, how long a step takes, what a load costs, how many replicas meet an objective."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
