"""Where capacity comes from and what it costs: offers, the portfolio, economics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
