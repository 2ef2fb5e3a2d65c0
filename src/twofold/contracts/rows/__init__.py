"""Rows that users bring: traces of requests and jobs, measurements, and what a calibration found."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
