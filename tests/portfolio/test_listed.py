"""Which offers a portfolio may choose from: quotes under a regime."""

from dataclasses import replace
from pathlib import Path

import pytest

from twofold.answer.context import Context
from twofold.answer.supply_rules import authorised
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.figures import economic_by_provider
from twofold.catalog.types import ApiPrice, Observation
from twofold.contracts.spec.reader import parse_spec
from twofold.perf.constants import Constants
from twofold.portfolio.hosted import api_offer, usd_per_request
from twofold.portfolio.listed import interruptions_by_place, kept_fraction, offer_of_price, own_offer
from twofold.portfolio.offers import NodeOffer, node_offers, refused_quotes

ACCELERATOR = "H100-SXM5-80GB"
HEADER = "provider,instance,accelerator,accelerator_count,region,term,usd_per_h,quoted"
DISCOUNT = "supply: {economics: {discount: 10%}}"
INSIDE = f"aws,inside,{ACCELERATOR},8,us-gov-west-1,on_demand,12.40,2026-11-10"
OUTSIDE = f"deepinfra,outside,{ACCELERATOR},8,all,on_demand,1.40,2026-11-10"


def context_of(folder: Path, text: str, catalog: Catalog, constants: Constants) -> Context:
    file = folder / "quotes.csv"
    file.write_text("\n".join([HEADER, INSIDE, OUTSIDE]) + "\n")
    run = "training: {model: llama-3.1-8b, tokens: 1 Gtok}\n"
    spec = parse_spec(f"{run}{text}", "twofold.yaml")
    spec = spec.model_copy(update={"supply": spec.supply.model_copy(update={"quotes": file})})
    return Context(spec, authorised(spec, catalog), constants, draw_factors(constants, 2, 0), None)


def offered(context: Context) -> tuple[NodeOffer, ...]:
    return node_offers(context, [ACCELERATOR], [], None)


def quoted(context: Context) -> set[str]:
    return {each.offer.instance for each in offered(context) if each.offer.source.startswith("quote")}


def test_a_quote_of_a_provider_that_a_regime_does_not_authorise_is_left_out_and_named(
    tmp_path: Path, catalog: Catalog, constants: Constants
) -> None:
    context = context_of(tmp_path, "compliance: fedramp-high", catalog, constants)
    assert quoted(context) == {"inside"}
    (refused,) = refused_quotes(context)
    assert "quotes.csv:3 deepinfra outside" in refused
    assert "no authorisation of deepinfra for fedramp-high is known" in refused


def test_without_rules_every_quote_may_be_taken(
    tmp_path: Path, catalog: Catalog, constants: Constants
) -> None:
    context = context_of(tmp_path, "", catalog, constants)
    assert quoted(context) == {"inside", "outside"} and refused_quotes(context) == ()


def test_the_specs_discount_comes_off_list_prices_and_not_off_quotes(
    tmp_path: Path, catalog: Catalog, constants: Constants
) -> None:
    offers = [each.offer for each in offered(context_of(tmp_path, DISCOUNT, catalog, constants))]
    listed = [each for each in offers if each.source.startswith("prices")]
    assert listed and {each.discount_fraction for each in listed} == {0.1}
    assert {each.discount_fraction for each in offers if each.source.startswith("quote")} == {0.0}


@pytest.mark.parametrize("provider", ["aws", "Azure", "google", "ibm"])
def test_large_clouds_bill_what_leaves_them_and_specialised_ones_less(
    provider: str, catalog: Catalog
) -> None:
    small = economic_by_provider("egress from", "lambda", catalog)
    assert economic_by_provider("egress from", provider, catalog).value > small.value


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
    usd = usd_per_request(price, 1e6, 0.0, 0.0)
    assert usd == pytest.approx(price.input_usd_per_mtok)
    assert usd_per_request(price, 0.0, 1e6, 0.0) == pytest.approx(price.output_usd_per_mtok)
    assert api_offer(price, "chat").tenure == "api"
    cached = replace(price, input_usd_per_mtok=2.0, cached_input_usd_per_mtok=0.2)
    assert usd_per_request(cached, 1e6, 0.0, 0.5) == pytest.approx(1.1)
    both = usd_per_request(cached, 2e6, 3e6, 0.5)
    alone = usd_per_request(cached, 2e6, 0.0, 0.5), usd_per_request(cached, 0.0, 3e6, 0.5)
    assert both == pytest.approx(sum(alone)), "input and output are billed apart"
    without = replace(cached, cached_input_usd_per_mtok=None)
    assert usd_per_request(without, 1e6, 0.0, 0.5) == pytest.approx(2.0)


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
