"""Hosted interfaces are offers of a portfolio where the spec asks for them and its rules allow them."""

from math import inf

import pytest

from twofold.answer.context import Context
from twofold.answer.serving_choice import choose_serving
from twofold.answer.uncertainty import draw_factors
from twofold.catalog import Catalog
from twofold.contracts.spec import parse_spec
from twofold.perf import Constants
from twofold.portfolio.demand import class_demands
from twofold.portfolio.hosted import hosted
from twofold.supply import CapacityOffer, ServingRate

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
        ("supply: {shop: {hosted: true}}\ncompliance: fedramp-high", "no hosted interface that may be used"),
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
