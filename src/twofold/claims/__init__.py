"""Claims that circulate about infrastructure, judged by what the product's own tables and models compute."""

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
    "unknown_quantities",
]
