"""The gate of a serving fleet: admits, queues, routes, breaks, retries, scales and releases. Sans-IO."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
