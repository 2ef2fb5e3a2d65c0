"""Screens as lines of text, at most 100 columns wide: a plan, an estimate, a rehearsal, a claim."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
