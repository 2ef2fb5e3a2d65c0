"""Quantities in and out, estimates, and the tree of errors."""

from twofold.core.errors import (
    CatalogError,
    InfeasibleError,
    InputError,
    InputErrors,
    ModelConfigError,
    Place,
    QuantityError,
    TwofoldError,
    UnitError,
    UnknownNameError,
)
from twofold.core.estimate import Estimate, Source, exact

__all__ = [
    "CatalogError",
    "Estimate",
    "InfeasibleError",
    "InputError",
    "InputErrors",
    "ModelConfigError",
    "Place",
    "QuantityError",
    "Source",
    "TwofoldError",
    "UnitError",
    "UnknownNameError",
    "exact",
]
