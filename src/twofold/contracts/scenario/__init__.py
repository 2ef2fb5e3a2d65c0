"""A scenario of the twin: traffic, faults, policies, clusters; its reader, and those that are shipped."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
