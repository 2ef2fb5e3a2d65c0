"""The brain of a training cluster: queues gangs, places, preempts, checkpoints, recovers. Sans-IO."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
