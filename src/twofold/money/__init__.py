"""What a plan costs and why: bills, units, levers, owning against renting, hosted APIs, downtime."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
