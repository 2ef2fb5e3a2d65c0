"""Levers: where machines are bought, within what the shop allows and what waits for them."""

import pytest

from twofold.answer.context import Context
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import load_catalog
from twofold.contracts.spec.reader import parse_spec
from twofold.money.levers import Pulled, lever, ranked, sourcing
from twofold.perf.constants import load_constants

PART = "H100-SXM5-80GB"
SPEC = """
name: both
model: llama-3.1-8b
training: {tokens: 20 Gtok, global_batch: 256 seq, deadline: 14 d, on: 4x8xH100-SXM}
serving:
  on: 2x8xH100-SXM
  classes:
    chat:
      traffic: {rate: 5 /s, peak: 2x, input: {mean: 500 tok}, output: {mean: 200 tok, p95: 500 tok}}
      slo: SLO
supply: {shop: SHOP}
"""
WAITED, BATCH = "{ttft_p95: 500 ms, tpot_p95: 50 ms}", "{finish_within: 6 h}"


def ways(half: str, slo: str, shop: str) -> list[str]:
    constants = load_constants()
    spec = parse_spec(SPEC.replace("SLO", slo).replace("SHOP", shop), "twofold.yaml")
    context = Context(spec, load_catalog(), constants, draw_factors(constants, 2, 0), None)
    entry = spec.training[0] if half == "training" else spec.services[0]
    return [lever.how for lever in sourcing(entry, PART, 3.0, 1e6, context)]


@pytest.mark.parametrize(
    ("half", "slo", "offered"),
    [("serving", WAITED, False), ("serving", BATCH, True), ("training", WAITED, True)],
)
def test_machines_that_may_vanish_are_offered_to_runs_and_batch_alone(
    half: str, slo: str, offered: bool
) -> None:
    found = ways(half, slo, "{terms: [on_demand, reserved_1y, reserved_3y]}")
    assert any(" spot " in how or " community " in how for how in found) is offered


@pytest.mark.parametrize("shop", ["{providers: [lambda]}", "{exclude: [aws, azure, gcp, oci]}"])
def test_a_provider_that_the_shop_leaves_out_is_no_source(shop: str) -> None:
    found = " ".join(ways("serving", BATCH, shop))
    assert not any(name in found for name in ("aws ", "azure ", "gcp ", "oci "))


def test_a_region_of_the_shop_binds_the_sources() -> None:
    free, bound = (ways("training", WAITED, shop)[0] for shop in ("{}", "{regions: [eu-north-1]}"))
    assert free != bound


def test_the_largest_saving_stands_first_whether_open_or_in_use() -> None:
    levers = [
        lever("batch", "serve", Pulled.IN_USE, 5.0, 10.0, ""),
        lever("cache", "serve", Pulled.OPEN, -1.0, 10.0, ""),
        lever("source", "serve", Pulled.OPEN, 7.0, 10.0, ""),
    ]
    assert [each.name for each in ranked(levers)] == ["source", "batch", "cache"]
    assert levers[0].saves_fraction == 0.5
