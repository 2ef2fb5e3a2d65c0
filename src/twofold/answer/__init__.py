"""One way to ask how fast, how much, whether it fits: this work on that machine, with ranges and reasons."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
