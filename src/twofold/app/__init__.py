"""One function per verb, typed, without printing; the command line calls them, `twofold` re-exports them.

The door is lazy, so that `check` does not wait for numpy: a module is imported when one of its names is asked
for. No module here has the name of a function: an imported module would hide it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
