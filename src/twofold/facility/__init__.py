"""The building: racks, cooling, power, fabric, storage, sites, and what rules ask of them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
