"""One spec becomes one plan: both halves, with ranges, derivations and reasons."""

from twofold.plan.diff import Change, diff
from twofold.plan.explain import explain

__all__ = ["Change", "diff", "explain"]
