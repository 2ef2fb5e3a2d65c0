"""What both worlds of the digital twin share: the heap of events, histograms, shared storage."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
