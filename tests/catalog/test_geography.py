"""Distances behave as on a sphere, and the round trips they suggest are near the measured ones."""

from statistics import mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.catalog.geography import distance_m, distance_rtt_s
from twofold.catalog.types import Region

CATALOG = load_catalog()
REGIONS = st.sampled_from(CATALOG.regions())


@given(REGIONS, REGIONS, REGIONS)
def test_distance_is_symmetric_and_detours_are_not_shorter(one: Region, other: Region, third: Region) -> None:
    assert distance_m(one, other) == pytest.approx(distance_m(other, one), abs=1e-3)
    assert distance_m(one, third) <= distance_m(one, other) + distance_m(other, third) + 1.0
    assert distance_m(one, one) == pytest.approx(0.0, abs=1e-3)


def test_distances_are_those_of_the_map() -> None:
    virginia, dublin = CATALOG.region("aws:us-east-1"), CATALOG.region("aws:eu-west-1")
    assert distance_m(virginia, dublin) == pytest.approx(5.45e6, rel=0.03)


def test_suggested_round_trips_are_near_the_measured() -> None:
    errors = []
    for row in CATALOG.table("rtt").rows:
        start, end = CATALOG.region(str(row["from"])), CATALOG.region(str(row["to"]))
        if start != end:
            errors.append(distance_rtt_s(start, end) / (float(row["rtt_ms"] or 1) / 1e3) - 1)
    assert mean(abs(error) for error in errors) < 0.2
    assert abs(median(errors)) < 0.1
