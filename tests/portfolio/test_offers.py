"""Which offers a portfolio may choose from: quotes under a regime."""

from pathlib import Path

import pytest

from twofold.answer.context import Context
from twofold.answer.supply_rules import authorised
from twofold.answer.uncertainty import draw_factors
from twofold.catalog import Catalog
from twofold.contracts.spec import parse_spec
from twofold.perf import Constants
from twofold.portfolio.offers import NodeOffer, node_offers, refused_quotes
from twofold.supply import economic_by_provider

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
