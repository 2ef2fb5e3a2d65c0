"""A region that is asked is kept: what is offered elsewhere does not count, and says where it is."""

import re

import pytest

from twofold.answer.supply_rules import offered_where_asked
from twofold.catalog.catalog import Catalog
from twofold.contracts.spec.reader import parse_spec
from twofold.core.errors import InfeasibleError

SERVICE = """serving:
  model: llama-3.1-8b
  regions: [REGIONS]
  classes:
    chat:
      traffic: {rate: 1 /s, input: {mean: 500 tok}, output: {mean: 100 tok}}
      slo: {ttft_p95: 1 s}
"""
RUN = "training: {model: llama-3.1-8b, tokens: 1 Gtok, deadline: 30 d}\n"


def checked(text: str, catalog: Catalog) -> Catalog:
    return offered_where_asked(parse_spec(text, "twofold.yaml"), catalog)


def refusal(text: str, catalog: Catalog) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        checked(text, catalog)
    return caught.value


def test_a_region_without_an_offer_is_refused_with_what_is_nearest(catalog: Catalog) -> None:
    shop = "supply: {shop: {accelerators: [L40S], terms: [on_demand]}}\n"
    error = refusal(SERVICE.replace("REGIONS", "FIN-03") + shop, catalog)
    assert error.exit_code == 3 and "FIN-03 can serve `serve`" in error.message
    near = dict(error.lines)["nearest"]
    assert near.startswith("primeintellect FIN-02 (FI)") and "nebius eu-north1 (FI, " in near
    assert "`regions: [FIN-02]`" in error.hint and "[FI]" in error.hint
    for other in ("FIN-02", "nebius:eu-north1", "FI"):
        assert checked(SERVICE.replace("REGIONS", other) + shop, catalog) is catalog


def test_a_run_is_bound_by_the_shops_regions(catalog: Catalog) -> None:
    shop = "supply: {shop: {accelerators: [MI300X], regions: [FIN-03]}}\n"
    assert "can train `pretrain`" in refusal(RUN + shop, catalog).message
    assert checked(RUN + shop.replace("FIN-03", "us"), catalog) is catalog


def test_what_a_refusal_says_to_write_is_taken(catalog: Catalog) -> None:
    """It told to ask for a place that sells only inference parts, and then again for that same place."""
    run = RUN + "supply: {shop: {regions: [REGION]}}\n"
    error = refusal(run.replace("REGION", "me-central1"), catalog)
    written = re.findall(r"`regions: \[(.+?)\]`", error.hint)
    assert written and not {"me-central1", "gcp:me-central1", "gcp:me-central2"} & set(written)
    assert " L4 " not in dict(error.lines)["nearest"] and " A30 " not in dict(error.lines)["cheapest"]
    for region in written:
        assert checked(run.replace("REGION", region), catalog) is catalog
