"""The spec: its typed models, its reader with places, its defaults, schema, starters and reference page."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
