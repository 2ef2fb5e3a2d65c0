"""The price of a plan is the cheapest list price that its terms allow, and its age is told."""

import datetime
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.app.catalogue import age_days, is_stale
from twofold.catalog.catalog import load_catalog
from twofold.catalog.places import Fit, best_price, fit_of
from twofold.core.errors import UnknownNameError

CATALOG = load_catalog()
TERMS = ("on_demand", "spot", "reserved_1y", "reserved_3y", "community")


@pytest.mark.parametrize("name", ["H100 SXM", "A100-80GB", "L40S", "MI300X", "B200", "H200"])
def test_nothing_listed_is_cheaper_than_the_best_price(name: str) -> None:
    best = best_price(CATALOG, name, ["on_demand"])
    assert best is not None and best.term == "on_demand"
    listed = [price for price in CATALOG.prices_for(name) if price.term == "on_demand"]
    assert best.usd_per_accelerator_h == min(price.usd_per_accelerator_h for price in listed)


@given(st.sets(st.sampled_from(TERMS), min_size=1), st.sets(st.sampled_from(TERMS)))
def test_more_terms_never_cost_more(terms: set[str], more: set[str]) -> None:
    few, many = best_price(CATALOG, "h100", terms), best_price(CATALOG, "h100", terms | more)
    assert few is None or (many is not None and many.usd_per_accelerator_h <= few.usd_per_accelerator_h)


def test_community_offers_count_only_when_asked_for() -> None:
    for term in ("on_demand", "spot"):
        price = best_price(CATALOG, "h100", [term])
        assert price is not None and price.term != "community"
    community = best_price(CATALOG, "h100", ["community"])
    assert community is not None and community.term == "community"
    assert best_price(CATALOG, "h100", ["community"], exclude_providers=["community"]) is None


def test_regions_and_providers_narrow_the_choice() -> None:
    here = best_price(CATALOG, "h100", ["on_demand"], regions=["us-east"])
    assert here is not None and fit_of(CATALOG, here.provider, here.region, ("us-east",)) is not Fit.OUTSIDE
    other = best_price(CATALOG, "h100", ["on_demand"], exclude_providers=[here.provider])
    assert other is None or other.provider != here.provider
    with pytest.raises(UnknownNameError):
        best_price(CATALOG, "h100", ["on_demand"], regions=["atlantis"])


def test_a_part_without_a_price_has_none() -> None:
    assert best_price(CATALOG, "Gaudi3", TERMS) is None


def test_age_counts_days_and_turns_stale_after_a_year() -> None:
    price = CATALOG.prices()[0]
    day = replace(price, date="2025-11-20", date_precision="day")
    assert age_days(day, datetime.date(2026, 11, 20)) == 365
    assert not is_stale(day, datetime.date(2026, 11, 20))
    assert is_stale(day, datetime.date(2026, 11, 22))
    year = replace(price, date="2024", date_precision="year")
    assert age_days(year, datetime.date(2024, 7, 1)) == 0
    assert age_days(year, datetime.date(2024, 1, 1)) == 0  # never negative
    assert age_days(replace(price, date="2026-03"), datetime.date(2026, 4, 15)) == 31
