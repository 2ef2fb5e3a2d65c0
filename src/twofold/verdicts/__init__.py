"""Claims that circulate as predicates over named quantities, their language, and computed verdicts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
