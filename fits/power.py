"""Fit what a device draws while it serves: the share of its power range above idle, by family.

One share for every load is what the rows bear, not what physics says: on H100 the share of most models rises
from about 0.6 at 8 sequences to 0.9 at 500, on B200 it differs more between models than with the batch. A
term in the batch that is fitted without a model predicts that model's power little better (mean error of
watts 10 % for 13 % on H100, 26 % for 29 % on B200), so it is left in the range, which plans show. Each
family's rows are of one source: how far another one would lie is not known.
"""

from pathlib import Path

import numpy as np

from fits.fitted import Fitted
from twofold.catalog.catalog import load_catalog
from twofold.core.errors import TwofoldError
from twofold.core.estimate import Source
from twofold.measure.truth import number, read_tables, text
from twofold.perf.constants import ConstantRow, Constants
from twofold.perf.device import device

FITTED_BY = "power"
NAME = "serving_power_fraction"
FEWEST_ROWS = 20
FITTED_TIERS = {"A", "B"}


def fit(truth: Path, constants: Constants) -> Fitted:
    """The median share per family and over all rows that measured power, with its 10 % and 90 % quantiles."""
    catalog = load_catalog()
    shares: dict[str, list[float]] = {}
    for row in read_tables(truth, "inference.csv"):
        watts = number(row, "watts_per_gpu")
        if watts is None or row["tier"] not in FITTED_TIERS:
            continue
        try:
            part = device(catalog.benchmark_accelerator(text(row, "gpu")), constants)
        except TwofoldError:
            continue
        share = (watts - part.idle_w) / (part.tdp_w - part.idle_w)
        shares.setdefault(part.family, []).append(min(max(share, 0.01), 1.0))
    rows = [_row(f"family={family}", found) for family, found in shares.items() if len(found) >= FEWEST_ROWS]
    return Fitted([_row("", [share for found in shares.values() for share in found]), *rows])


def _row(scope: str, shares: list[float]) -> ConstantRow:
    low, middle, high = (float(value) for value in np.quantile(shares, (0.1, 0.5, 0.9)))
    note = "power of serving devices, tiers A and B"
    ends = middle, low, high, "fraction", Source.FITTED
    return ConstantRow(*ends, name=NAME, scope=scope, rows=len(shares), fitted_by=FITTED_BY, note=note)
