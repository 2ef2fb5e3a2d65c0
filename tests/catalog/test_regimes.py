"""Who is authorised for what: prices outside are refused with the reason, and nothing is both."""

from dataclasses import replace

import pytest

from twofold.building.compliance import places_of
from twofold.building.compliance_system import asks
from twofold.catalog.catalog import load_catalog
from twofold.catalog.figures import figure_of
from twofold.catalog.regimes import find_regime, permits
from twofold.catalog.types import Regime
from twofold.core.errors import UnknownNameError, ValueRefusedError

CATALOG = load_catalog()
REGIMES = CATALOG.named(Regime)


@pytest.mark.parametrize("name", sorted(REGIMES))
def test_every_price_is_permitted_or_refused_with_a_reason(name: str) -> None:
    regime = REGIMES[name]
    permitted, refused = places_of(CATALOG.prices(), CATALOG, regime)
    counted = sum(place.offer_count for place in (*permitted, *refused))
    assert counted == len(CATALOG.prices())
    assert {place.where for place in permitted} & {place.where for place in refused} == set()
    assert all(place.reason for place in refused)


def test_what_is_authorised_for_il5_is_authorised_somewhere_in_the_states() -> None:
    may = permits(CATALOG, REGIMES["il5"])
    allowed = {place for each in CATALOG.prices() if may(*(place := (each.provider, each.region)))}
    assert ("aws", "us-gov-west-1") in allowed
    assert ("aws", "us-east-1") not in allowed
    assert all(region.startswith(("us-", "usgov", "usdod")) for _, region in allowed)


def test_a_higher_regime_permits_no_more_of_a_provider_than_a_lower_one() -> None:
    moderate, high = (permits(CATALOG, REGIMES[name]) for name in ("fedramp-moderate", "fedramp-high"))
    places = {(price.provider, price.region) for price in CATALOG.prices()}
    assert all(moderate(*place) for place in places if high(*place))


def test_reasons_say_where_a_provider_is_authorised() -> None:
    _, refused = places_of(CATALOG.prices(), CATALOG, REGIMES["il5"])
    reasons = {place.where: place.reason for place in refused}
    assert "us-gov-west-1" in reasons["aws:us-east-1"]
    assert "no authorisation of lambda" in reasons["lambda:us-east-1"]
    assert "names no region" in reasons["oci:all"]


def test_nothing_of_the_public_catalogue_is_rented_into_a_closed_system() -> None:
    may = permits(CATALOG, REGIMES["air-gapped"])
    assert not any(may(price.provider, price.region) for price in CATALOG.prices())


def test_custom_is_a_row_of_the_users() -> None:
    with pytest.raises(ValueRefusedError, match="needs rules of yours"):
        find_regime(CATALOG, "custom")
    with pytest.raises(UnknownNameError):
        find_regime(CATALOG, "fedramp-medium")
    custom = replace(REGIMES["fedramp-moderate"], name="custom")
    assert asks(custom) == {"custom", "fedramp-moderate"}
    assert asks(REGIMES["il5"]) == {"il5"}


def test_a_figure_that_no_table_has_is_named() -> None:
    with pytest.raises(UnknownNameError, match="hsm: weight"):
        figure_of(CATALOG, "hsm", "weight")
