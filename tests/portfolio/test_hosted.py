"""Hosted interfaces are offers of a portfolio where the spec asks for them and its rules allow them."""

from dataclasses import replace
from math import inf

import pytest

from twofold.answer.context import Context
from twofold.answer.serving_choice import choose_serving
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.types import ApiPrice
from twofold.contracts.spec.reader import parse_spec
from twofold.perf.constants import Constants
from twofold.portfolio.demand import class_demands
from twofold.portfolio.hosted import api_model, api_offers, hosted, known_names
from twofold.portfolio.problem import CapacityOffer, ServingRate

SERVING = """serving:
  name: desk
  model: llama-3.1-8b
  on: 1xH100-SXM
  classes:
    chat:
      traffic: {rate: 5 /s, input: 400 tok, output: 80 tok}
      slo: {ttft_p95: 600 ms, tpot_p95: 50 ms}
"""
TUNE = "training: {name: tune, kind: finetune, model: llama-3.1-8b, tokens: 1 Gtok, deadline: 60 d}"


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ("supply: {shop: {hosted: true}}", ""),
        ("supply: {shop: {accelerators: [H100-SXM]}}", ""),
        ("supply: {shop: {hosted: true}}\ncompliance: fedramp-high", "no hosted API that may be used"),
        ("supply: {shop: {hosted: true, regions: [EU]}}", "in which region"),
        ("supply: {shop: {hosted: true, exclude: [deepinfra]}}", ""),
        (f"supply: {{shop: {{hosted: true}}}}\n{TUNE}", "it serves what `tune` trains"),
    ],
    ids=["asked", "not asked", "rules", "region", "excluded", "tuned"],
)
def test_hosted_interfaces_count_where_they_are_asked_and_allowed(
    rest: str, says: str, catalog: Catalog, constants: Constants
) -> None:
    spec = parse_spec(f"{SERVING}{rest}\n", "twofold.yaml")
    context = Context(spec, catalog, constants, draw_factors(constants, 2, 0), None)
    choice = choose_serving(spec.services[0], context)
    offers, rates, notes = hosted(class_demands(choice), {"desk": choice}, context)
    assert says in " ".join(notes)
    if says or "hosted" not in rest:
        assert offers == () == rates
        return
    check(offers, rates)
    assert ("deepinfra" in {offer.provider for offer in offers}) == ("exclude" not in rest)


def check(offers: tuple[CapacityOffer, ...], rates: tuple[ServingRate, ...]) -> None:
    """Offers of the class alone, by price, each with its date."""
    prices = [rate.usd_per_request for rate in rates]
    assert [offer.name for offer in offers] == [rate.offer for rate in rates]
    assert prices == sorted(prices) and min(prices) > 0
    assert all(rate.demand == "desk.chat" and rate.rate_per_unit_per_s == inf for rate in rates)
    assert all(offer.tenure == "api" and offer.date for offer in offers)


CATALOG = load_catalog()
PRICES = CATALOG.rows(ApiPrice)
KNOWN = known_names(CATALOG)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta.llama3-3-70b-instruct-v1:0", "llama-3.3-70b"),
        ("llama-v3p1-405b-instruct", "llama-3.1-405b"),
        ("Meta-Llama-3.1-8B-Instruct-Turbo", "llama-3.1-8b"),
        ("Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
        ("Llama-4-Maverick-17B-128E-Instruct-FP8", "llama-4-maverick"),
        ("openai.gpt-oss-120b-1:0", "gpt-oss-120b"),
    ],
)
def test_a_providers_spelling_is_the_catalogues_model(name: str, model: str) -> None:
    price = replace(PRICES[0], model=name, open_weights=True)
    found = api_model(price, CATALOG, KNOWN)
    assert found is not None and found.name == model


def test_closed_and_unknown_models_have_no_shape() -> None:
    assert api_model(replace(PRICES[0], model="llama-3.1-8b", open_weights=False), CATALOG, KNOWN) is None
    assert api_model(replace(PRICES[0], model="no-such-model-7", open_weights=True), CATALOG, KNOWN) is None


def test_most_open_models_are_known() -> None:
    known = [bool(api_model(price, CATALOG, KNOWN)) for price in PRICES if price.open_weights]
    assert sum(known) / len(known) > 0.75


def test_offers_come_by_price_and_carry_their_date() -> None:
    offers = api_offers(CATALOG.model("llama-3.1-8b"), CATALOG)
    assert len(offers) > 2 and all(offer.same_model and offer.price.date for offer in offers)
    asked = [offer.price.input_usd_per_mtok + offer.price.output_usd_per_mtok for offer in offers]
    assert asked == sorted(asked)


def test_a_model_that_nobody_hosts_is_compared_with_one_as_large() -> None:
    offers = api_offers(CATALOG.model("llama-3.1-70b"), CATALOG)
    assert offers and not any(offer.same_model for offer in offers)
    assert {offer.model for offer in offers} == {"llama-3.3-70b"}
