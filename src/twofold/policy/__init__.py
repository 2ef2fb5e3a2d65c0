"""What both sans-IO machines share: the protocol of a machine, records, and lines of a log."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
