"""Twofold plans both halves of AI infrastructure, training and serving, from one spec.

    import twofold
    plan = twofold.plan("twofold.yaml")               # a path, YAML text, a mapping
    plan.training[0].step_s                           # an estimate: value, 80 % range, unit, source
    twofold.explain(plan, "training.pretrain.step_s")
    twofold.estimate.train("llama-3.1-70b", "64x8xH100-SXM", batch="512 seq")

Every function stands in `twofold.app` with its types, and is imported when first asked for; what it returns
shows itself in a terminal and in a notebook.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twofold.app import catalog_rows as catalog_rows
    from twofold.app import check as check
    from twofold.app import claims as claims
    from twofold.app import compare as compare
    from twofold.app import diff as diff
    from twofold.app import estimate as estimate
    from twofold.app import explain as explain
    from twofold.app import infer as infer
    from twofold.app import partitions as partitions
    from twofold.app import plan as plan
    from twofold.app import predict as predict
    from twofold.app import rehearsed_plan as rehearsed_plan
    from twofold.app import search_fleets as search_fleets
    from twofold.app import search_layouts as search_layouts
    from twofold.app import simulate as simulate
    from twofold.app import starter as starter
    from twofold.app import validate as validate

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "catalog_rows",
    "check",
    "claims",
    "compare",
    "diff",
    "estimate",
    "explain",
    "infer",
    "partitions",
    "plan",
    "predict",
    "rehearsed_plan",
    "search_fleets",
    "search_layouts",
    "simulate",
    "starter",
    "validate",
]


class _Package(ModuleType):
    """`twofold.plan` is the verb, and also a room: importing the room must not hide the verb."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'twofold' has no attribute '{name}'")
    from twofold import app

    return getattr(app, name)


sys.modules[__name__].__class__ = _Package
