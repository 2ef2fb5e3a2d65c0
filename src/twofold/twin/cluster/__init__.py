"""The world of a training cluster: nodes, jobs, faults, the pool shared with serving, and its figures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
