"""What verbs answer, as data: the plan with its parts, a rehearsal, a sweep, the live loop."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
