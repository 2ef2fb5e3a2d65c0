"""Offers from list prices: term, place, interruptions, egress, and requests of a hosted API."""

from dataclasses import replace

import pytest

from twofold.catalog import ApiPrice, Observation, load_catalog
from twofold.supply import (
    api_offer,
    api_usd_per_request,
    interruptions_by_place,
    kept_fraction,
    offer_of_price,
    own_offer,
)

CATALOG = load_catalog()


def listed(term: str, provider: str = "aws") -> object:
    return next(price for price in CATALOG.prices() if price.term == term and price.provider == provider)


@pytest.mark.parametrize(
    ("term", "weeks"), [("on_demand", 0), ("spot", 0), ("reserved_1y", 52), ("reserved_3y", 156)]
)
def test_a_term_binds_for_its_weeks(term: str, weeks: int) -> None:
    made = offer_of_price(listed(term), CATALOG, virtualised=True)  # type: ignore[arg-type]
    assert made.minimum_weeks == weeks and made.source.startswith("prices: ") and made.date
    assert made.tenure == "virtual" and made.egress_usd_per_tb > 0


def test_only_what_may_be_taken_away_is_interrupted() -> None:
    spot = offer_of_price(listed("spot"), CATALOG, virtualised=True, interrupted_per_month=0.25)  # type: ignore[arg-type]
    sure = offer_of_price(listed("on_demand"), CATALOG, virtualised=True)  # type: ignore[arg-type]
    assert spot.interruptions_per_unit_h == pytest.approx(0.25 / 730)
    assert kept_fraction(spot) < 1.0 == kept_fraction(sure)


def test_published_interruptions_are_found_by_place_and_instance() -> None:
    found = interruptions_by_place(CATALOG.rows(Observation))
    assert found["aws", "us-east-1", "p4d.24xlarge"] == pytest.approx(0.125)


def test_own_machines_cost_no_rent_and_are_as_many_as_they_are() -> None:
    made = own_offer("DGX-H100", "H100-SXM5-80GB", 8, 3, "", CATALOG)
    assert (made.usd_per_unit_h, made.unit_limit, made.tenure) == (0.0, 3, "owned")


def test_a_hosted_request_costs_its_tokens() -> None:
    price = CATALOG.rows(ApiPrice)[0]
    usd = api_usd_per_request(price, 1e6, 0.0, 0.0)
    assert usd == pytest.approx(price.input_usd_per_mtok)
    assert api_usd_per_request(price, 0.0, 1e6, 0.0) == pytest.approx(price.output_usd_per_mtok)
    assert api_offer(price, "chat").tenure == "api"


@pytest.mark.parametrize(("region", "stated"), [("moon-1", "moon-1"), ("all", ""), ("", "")])
def test_the_region_of_an_offer_is_what_its_price_states_whatever_it_is_called(
    region: str, stated: str
) -> None:
    price = replace(listed("spot"), region=region, instance="spot")  # type: ignore[type-var]
    made = offer_of_price(price, CATALOG, virtualised=True)  # type: ignore[arg-type]
    assert (made.stated_region, made.region) == (stated, "")
    assert api_offer(CATALOG.rows(ApiPrice)[0], "chat").stated_region == ""


@pytest.mark.parametrize(("provider", "kind"), [("azure", "a hyperscaler"), ("oci", "a specialised cloud")])
def test_egress_and_support_are_those_of_the_table_of_economics(provider: str, kind: str) -> None:
    made = offer_of_price(listed("on_demand", provider), CATALOG, virtualised=True)  # type: ignore[arg-type]
    assert made.egress_usd_per_tb == CATALOG.economic(f"egress from {kind}").value
    assert made.support_fraction == CATALOG.economic(f"support by {kind}").value
