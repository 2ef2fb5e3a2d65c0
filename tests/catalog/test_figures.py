"""Figures about buildings: in SI units, within their range, and a wrong name says what there is."""

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.catalog.figures import UNITS, figure
from twofold.core.errors import UnknownNameError

CATALOG = load_catalog()
ROWS = CATALOG.table("facility").rows


def test_every_row_has_a_unit_that_is_known() -> None:
    assert {str(row["unit"]) for row in ROWS} <= set(UNITS)
    for row in ROWS:
        found = figure(CATALOG, str(row["category"]), str(row["item"]))
        assert found.low <= found.value <= found.high


def test_kilowatts_and_their_prices_become_watts() -> None:
    rack = figure(CATALOG, "rack_kw", "DGX B300 x4 standard rack")
    assert (rack.low, rack.value, rack.high, rack.unit) == (50e3, 56e3, 60e3, "W")
    shell = figure(CATALOG, "capex_facility", "powered shell only")
    assert shell.value * 1e6 == pytest.approx(3.5e6)  # of a megawatt


def test_an_unknown_row_names_the_others() -> None:
    with pytest.raises(UnknownNameError) as refused:
        figure(CATALOG, "availability", "Tier V")
    assert "Tier IV" in refused.value.hint
