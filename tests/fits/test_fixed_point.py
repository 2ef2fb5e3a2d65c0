"""The committed constants are those that the fits find: `make soak` asks, since it takes minutes."""

import os
from importlib import import_module
from pathlib import Path

import pytest

from fits.fitted import Fitted
from twofold.perf.constants import ConstantRow, load_constants

TRUTH = Path(__file__).parents[3] / "shared" / "truth"
SOAKED = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
DIGITS = 1e-4  # of what is compared: a processor may round the last one otherwise


@pytest.mark.skipif(not SOAKED, reason="minutes: `make soak` runs it")
@pytest.mark.skipif(not TRUTH.exists(), reason="the measured rows are not beside this checkout")
@pytest.mark.parametrize("name", ["kernels", "power", "training", "inference"])
def test_a_fit_finds_the_constants_that_are_there(name: str) -> None:
    constants = load_constants()
    found: Fitted = import_module(f"fits.{name}").fit(TRUTH, constants)
    there = {(row.name, row.scope): row for row in constants.rows if row.fitted_by == name}
    assert {(row.name, row.scope) for row in found.rows} == set(there)
    moved = {
        (row.name, row.scope): (_ends(row), _ends(there[row.name, row.scope]))
        for row in found.rows
        if _ends(row) != pytest.approx(_ends(there[row.name, row.scope]), rel=DIGITS)
    }
    assert not moved


def _ends(row: ConstantRow) -> tuple[float, float, float]:
    return row.value, row.low, row.high
