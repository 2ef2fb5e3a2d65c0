"""Ways to cool: denser ones carry more, cold places need less, a wrong word names the kinds."""

from itertools import pairwise

import pytest

from twofold.building.cooling import (
    COOLING_KINDS,
    Climate,
    CoolingKind,
    capex_usd_per_w,
    climate_of,
    cooling_limit_w,
    pue,
    wue_l_per_kwh,
)
from twofold.catalog.catalog import load_catalog
from twofold.core.errors import UnknownNameError

CATALOG = load_catalog()


def test_each_kind_carries_more_than_the_one_before_it() -> None:
    limits = [cooling_limit_w(CATALOG, kind).value for kind in COOLING_KINDS]
    assert all(less < more for less, more in pairwise(limits))


@pytest.mark.parametrize("kind", COOLING_KINDS)
def test_a_hot_place_takes_more_energy_and_water_than_a_cold_one(kind: CoolingKind) -> None:
    climates: tuple[Climate, ...] = ("cold", "temperate", "hot")
    for of in (pue, wue_l_per_kwh):
        cold, mild, hot = (of(CATALOG, kind, climate) for climate in climates)
        assert cold <= mild <= hot and cold < hot
    assert pue(CATALOG, kind) > 1.0
    assert capex_usd_per_w(CATALOG, kind).value > 0


def test_climates_follow_latitude_on_both_halves_of_the_globe() -> None:
    assert [climate_of(degrees) for degrees in (60.2, 48.9, 1.3, -33.9, -54.0)] == [
        "cold",
        "temperate",
        "hot",
        "temperate",
        "cold",
    ]


def test_an_unknown_kind_names_those_there_are() -> None:
    with pytest.raises(UnknownNameError) as refused:
        pue(CATALOG, "snow")  # type: ignore[arg-type]  # what the test is about
    assert "contained_air" in refused.value.hint
