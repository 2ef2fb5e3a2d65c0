"""What a spec's regions cover, and how the place of a price lies to them."""

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.catalog.places import Fit, country_of, fit_of, places_in, region_names

CATALOG = load_catalog()
INSIDE, WIDER, OUTSIDE = Fit.INSIDE, Fit.WIDER, Fit.OUTSIDE


@pytest.mark.parametrize(
    ("asked", "place", "fit"),
    [
        ("FIN-03", "verda:FIN-03", INSIDE),
        ("FIN-03", "verda:FIN-01", OUTSIDE),
        ("FIN-03", "nebius:eu-north1", OUTSIDE),  # the same country, another city
        ("FIN-03", "crusoe:all", OUTSIDE),  # a list of a provider that has no region there
        ("FIN-03", "lium:FI", WIDER),
        ("FIN-03", "vast:US", OUTSIDE),
        ("fi", "nebius:eu-north1", INSIDE),
        ("FI", "verda:FIN-01", INSIDE),  # no row of the table: named as FIN-03, which is in Finland
        ("us-east", "gcp:us-east4", INSIDE),
        ("us-east", "azure:eastus2", INSIDE),
        ("us-east", "oci:us-ashburn-1", INSIDE),  # the city of aws:us-east-1
        ("us-east", "gcp:us-central1", OUTSIDE),
        ("us-east", "crusoe:all", WIDER),
        ("us-east", "runpod:all", OUTSIDE),  # nobody says where its machines stand
        ("us-east", "lium:US", WIDER),
        ("us-east", "aws:us-gov-east-1", OUTSIDE),
        ("gcp:us-east4", "own:us-east-1", INSIDE),  # your own machines, in the same city
        ("eu", "own:FI", INSIDE),
        ("us", "vast:US-TX", INSIDE),
        ("us", "aws:us-gov-east-1", OUTSIDE),
        ("us-gov-west", "aws:us-gov-west-1", INSIDE),
        ("us-gov-west", "aws:us-west-2", OUTSIDE),  # the same city, not closed
        ("gcp:europe-west1", "gcp:europe-west10", OUTSIDE),  # Berlin, though its name begins so
        ("us-east1", "primeintellect:us-east1-a", INSIDE),  # a zone
        ("eu", "gcp:europe-west3", INSIDE),
        ("eu", "primeintellect:eu-north1", INSIDE),  # Sweden or Finland, both members
        ("eu", "aws:eu-west-2", OUTSIDE),  # London
        ("uk", "aws:eu-west-2", INSIDE),
        ("sa", "azure:brazilsouth", INSIDE),  # South America, as clouds name it
        ("atlantis", "aws:us-east-1", OUTSIDE),
    ],
)
def test_a_price_counts_where_its_place_is_asked(asked: str, place: str, fit: Fit) -> None:
    provider, _, region = place.partition(":")
    assert fit_of(CATALOG, provider, region, (asked,)) is fit


def test_every_region_is_inside_itself_and_its_country() -> None:
    for region in CATALOG.regions():
        place = f"{region.provider}:{region.name}"
        assert fit_of(CATALOG, region.provider, region.name, (place,)) is INSIDE, place
        if not region.government:
            assert fit_of(CATALOG, region.provider, region.name, (region.country,)) is not WIDER, place


def test_more_regions_never_take_an_offer_away() -> None:
    places = {(price.provider, price.region) for price in CATALOG.prices()}
    for place in places:
        one, both = (fit_of(CATALOG, *place, asked) for asked in [("us-east",), ("us-east", "eu")])
        assert one is OUTSIDE or both is not OUTSIDE, place


def test_without_a_region_everything_counts_but_what_governments_have() -> None:
    assert fit_of(CATALOG, "runpod", "all", ()) is INSIDE
    assert fit_of(CATALOG, "aws", "us-gov-west-1", ()) is OUTSIDE


def test_countries_are_known_of_places_that_no_table_lists() -> None:
    assert country_of(CATALOG, "verda", "FIN-01") == "FI" and country_of(CATALOG, "spheron", "oslo") == "NO"
    assert country_of(CATALOG, "runpod", "all") == ""


def test_words_for_regions_cover_places() -> None:
    assert {"us-east-1", "verda:FIN-03", "FIN-01", "FI", "eu"} <= region_names(CATALOG)
    assert "verda:fin-03" in places_in(CATALOG, ("FI",))
