"""Training: layouts, memory and step time of candidates, the search over them, the run around a step."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
