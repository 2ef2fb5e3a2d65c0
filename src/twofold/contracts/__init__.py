"""Every outside schema as data without behaviour, and the readers that say where a file is wrong."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
