"""Claims that circulate about infrastructure, judged by what the product's own tables and models compute.

The door is lazy: the table of claims can be read, and a name that it lacks refused, without any model.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twofold.claims.answer_units import unit_of_expression, unit_of_name
    from twofold.claims.quantities import QUANTITIES
    from twofold.claims.table import Claim, load_claims, read_claim
    from twofold.claims.verdicts import Case, Judged, Verdict, compute, judge, judge_all, unknown_quantities
    from twofold.claims.world import World

__all__ = [
    "QUANTITIES",
    "Case",
    "Claim",
    "Judged",
    "Verdict",
    "World",
    "compute",
    "judge",
    "judge_all",
    "load_claims",
    "read_claim",
    "unit_of_expression",
    "unit_of_name",
    "unknown_quantities",
]

_MODULES = {
    "answer_units": ("unit_of_expression", "unit_of_name"),
    "quantities": ("QUANTITIES",),
    "table": ("Claim", "load_claims", "read_claim"),
    "verdicts": ("Case", "Judged", "Verdict", "compute", "judge", "judge_all", "unknown_quantities"),
    "world": ("World",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'twofold.claims' has no attribute '{name}'")
    return getattr(import_module(f"twofold.claims.{_HOME[name]}"), name)
