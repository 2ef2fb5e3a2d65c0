"""One function per verb, typed, without printing; the command line calls them, `twofold` re-exports them.

The door is lazy, so that `check` does not wait for numpy: a module is imported when one of its names is asked
for. No module here has the name of a function: an imported module would hide it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twofold.app.checking import Checked, check, infer, starter
    from twofold.app.figures import ranged
    from twofold.app.lines import field, heading, table
    from twofold.app.planning import ShownPlan, diff, explain, plan
    from twofold.app.sources import Loaded, SpecSource, load

__all__ = [
    "Checked",
    "Loaded",
    "ShownPlan",
    "SpecSource",
    "check",
    "diff",
    "explain",
    "field",
    "heading",
    "infer",
    "load",
    "plan",
    "ranged",
    "starter",
    "table",
]

_MODULES = {
    "checking": ("Checked", "check", "infer", "starter"),
    "figures": ("ranged",),
    "lines": ("field", "heading", "table"),
    "planning": ("ShownPlan", "diff", "explain", "plan"),
    "sources": ("Loaded", "SpecSource", "load"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'twofold.app' has no attribute '{name}'")
    return getattr(import_module(f"twofold.app.{_HOME[name]}"), name)
