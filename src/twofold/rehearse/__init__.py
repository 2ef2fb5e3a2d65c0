"""A plan in the digital twin: from plan and scenario to worlds, and from runs to figures and verdicts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
