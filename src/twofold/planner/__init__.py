"""One spec becomes one plan: answers, portfolio, money, building, rehearsal; compares and explains."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
