"""Fits, predictions, device benchmarks, the doctor's rules: files and records in, files and records out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
