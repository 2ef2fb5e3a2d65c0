"""What training constants are before any row is seen: values, bounds, and which constant is whose parent."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np

from fits.robust import Ridge, Values


@dataclass(frozen=True, slots=True)
class Prior:
    """One constant before the fit, with physical bounds; `fitted` says by which fit, if any."""

    name: str
    scope: str
    value: float
    low: float
    high: float
    unit: str
    fitted: str  # yes memory interval no
    note: str

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The scope as a set of key-value pairs."""
        parts = (part.partition("=") for part in self.scope.split(";") if part)
        return frozenset((key, value) for key, _, value in parts)


def read_priors() -> list[Prior]:
    """The table of priors beside this module."""
    content = Path(__file__).with_name("training_priors.csv").read_text(encoding="utf-8")
    return [
        Prior(
            name=row["name"],
            scope=row["scope"],
            value=float(row["value"]),
            low=float(row["low"]),
            high=float(row["high"]),
            unit=row["unit"],
            fitted=row["fitted"],
            note=row["note"],
        )
        for row in csv.DictReader(StringIO(content))
    ]


def narrowest(priors: Sequence[Prior], name: str, scope: set[tuple[str, str]]) -> int:
    """The place of the prior of `name` that fits `scope` and says most."""
    fitting = [i for i, prior in enumerate(priors) if prior.name == name and prior.pairs <= scope]
    return max(fitting, key=lambda i: len(priors[i].pairs))


def ridge_of(priors: Sequence[Prior], free: Sequence[int]) -> Ridge:
    """How the free constants hang on their parents and on their priors.

    Formula  ((log v − log parent) − (log prior − log parent's prior)) / spread, a quarter of the bounds
    Why      A constant that the rows do not tell goes where the same constant of all others goes.
    """
    chosen = [priors[i] for i in free]
    value, low, high = (np.log([getattr(prior, end) for prior in chosen]) for end in ("value", "low", "high"))
    spread: Values = (high - low) / 4
    matrix = np.diag(1 / spread)
    for place, prior in enumerate(chosen):
        parent = _parent(chosen, prior)
        if parent is not None:
            matrix[place, parent] = -1 / spread[place]
    return Ridge(np.clip(value, low, high), matrix, matrix @ value, low, high)


def _parent(chosen: Sequence[Prior], prior: Prior) -> int | None:
    """The place of the same constant with the longest scope inside this one's, where it is free too."""
    wider = [
        (len(other.pairs), place)
        for place, other in enumerate(chosen)
        if other.name == prior.name and other.pairs < prior.pairs
    ]
    return max(wider)[1] if wider else None
