"""Runs the plan for real on this machine: trainer, artefacts, engines, gateway, load generator.

Below this door are child processes and the code that starts, watches and measures them. Heavy libraries are
imported by the children, or inside functions.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
