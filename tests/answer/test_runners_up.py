"""Ways to serve that a spec leaves open: never taken, never against what is said, never overstated."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.answer import loads
from twofold.answer.context import Context
from twofold.answer.runners_up import _hit_fraction
from twofold.answer.serving_choice import choose_serving
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import Catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import parse_spec
from twofold.inference.choices import apart
from twofold.inference.fleet import ReplicaCount
from twofold.perf.constants import Constants
from twofold.perf.types import one

SPEC = """
name: open
model: {model}
serving:
  quantisation: fp8
  zones: 2
  {more}
  classes:
    documents:
      traffic: {{{traffic}, input: {{mean: 6000 tok, p95: 9000 tok}}, output: 300 tok}}
      slo: {{e2e_p95: 12 s}}
"""
RATE = "rate: 8 /s, peak: 2x"


GIVEN = "on: 8xH200"


def spec(more: str = "", traffic: str = RATE, model: str = "llama-3.1-70b") -> str:
    return SPEC.format(more=more, traffic=traffic, model=model)


@pytest.fixture(scope="module")
def plan(planned: Callable[[str], Plan]) -> Plan:
    return planned(spec())


def names(plan: Plan) -> list[str]:
    return [each.name for each in plan.serving[0].choices]


def test_choices_are_ranked_and_agree_with_themselves(plan: Plan) -> None:
    service = plan.serving[0]
    saved = [each.saved_fraction.value for each in service.choices]
    assert set(names(plan)) == {"disaggregation", "drafts"} and saved == sorted(saved, reverse=True)
    for each in service.choices:
        share = 1 - each.accelerator_count / service.machine.accelerator_count
        assert each.saved_fraction.value == pytest.approx(share, abs=1e-9)
        assert each.saved_usd_per_year.value == pytest.approx(share * service.cost_usd_per_year.value)
        assert each.needs


def test_no_choice_claims_more_than_the_same_way_gives_when_it_is_asked_for(
    catalog: Catalog, constants: Constants
) -> None:
    """Counts that the plan shows carry the peak within every goal, by `loads` alone."""
    text = parse_spec(spec(), "twofold.yaml")
    context = Context(text, catalog, constants, draw_factors(constants, 8), None)
    choice = choose_serving(text.services[0], context)
    (pool,), (load,) = choice.fleet.pools, choice.loads

    def sized(peak: float, rate: float, servers: int = 1) -> ReplicaCount:
        return ReplicaCount.of(peak, rate, servers, zones=2, availability_fraction=0.999)

    way = apart(pool, (load.traffic,), sized, 8)
    assert way is not None
    workers = way.prefill_count.needed, way.decode_count.needed
    asked = loads.OpenDisaggregated(pool.peak_per_s, way.prefill, *workers)
    found = loads.served(way.decode, load.traffic.lengths, asked)
    assert one(found.e2e.p95_s) <= 12.0
    # In a closed loop as many clients as are in flight at the peak get through as many requests.
    clients = pool.peak_per_s * one(found.e2e.mean_s)
    closed = loads.Disaggregated(clients, way.prefill, *workers)
    again = loads.served(way.decode, load.traffic.lengths, closed)
    assert one(again.requests_per_s) > 0.8 * pool.peak_per_s


def test_what_is_decided_against_is_not_weighed_and_the_plan_stays(
    planned: Callable[[str], Plan], plan: Plan
) -> None:
    without = planned(spec("weigh: []"))
    assert names(without) == []
    one_way = planned(spec("weigh: disaggregation"))
    assert names(one_way) == ["disaggregation"]
    for other in (without, one_way):
        assert replace(other.serving[0], choices=()) == replace(plan.serving[0], choices=())


def test_given_machines_stay_the_size_of_every_worker(planned: Callable[[str], Plan]) -> None:
    for each in planned(spec(GIVEN)).serving[0].choices:
        assert each.name != "disaggregation" or all(" × 8 " in need for need in each.needs)


def test_the_head_of_a_model_drafts_and_is_named(planned: Callable[[str], Plan]) -> None:
    found = planned(spec(GIVEN, model="deepseek-v3", traffic="rate: 20 /s, peak: 2x"))
    drafts = next(each for each in found.serving[0].choices if each.name == "drafts")
    assert "the head that came with the model" in drafts.needs
    assert drafts.saved_fraction.low <= drafts.saved_fraction.value <= drafts.saved_fraction.high


TRACE = "arrival_s,input_tokens,output_tokens,hash_ids\n" + "".join(
    f"{number / 8},6000,300,{' '.join(str(1000 * (number % 40) + block) for block in range(10))}\n"
    for number in range(800)
)


def test_prefixes_of_a_trace_are_weighed_unless_the_spec_says_how_many_are_found(
    planned: Callable[[str], Plan], tmp_path
) -> None:
    (tmp_path / "trace.csv").write_text(TRACE, "utf-8")
    classes = "classes:\n    documents: {traffic: {TRAFFIC}, slo: {e2e_p95: 12 s}}"
    text = spec(traffic="TRAFFIC")
    text = text[: text.index("classes:")] + classes
    trace = f"trace: {tmp_path / 'trace.csv'}, scale: 3x"
    found = planned(text.replace("TRAFFIC", trace)).serving[0].choices
    cache = next(each for each in found if each.name == "prefix_cache")
    assert cache.saved_fraction.value > 0.2 and "requests routed by prefix" in cache.needs
    said = planned(text.replace("TRAFFIC", f"{trace}, shared_prefix: 5 %")).serving[0]
    assert "prefix_cache" not in [each.name for each in said.choices]
    assert said.classes[0].shared_prefix_fraction == 0.05


def test_a_smaller_cache_finds_less(catalog: Catalog, constants: Constants) -> None:
    text = parse_spec(spec(), "twofold.yaml")
    context = Context(text, catalog, constants, draw_factors(constants, 8), None)
    load = choose_serving(text.services[0], context).loads[0]
    load = replace(load, prefix_hits=((1e5, 0.1), (1e6, 0.4), (1e7, 0.5)))
    none, *found = (_hit_fraction(load, tokens) for tokens in (0.0, 1e3, 1e5, 3e5, 1e6, 1e8))
    assert none == found[0] == 0.0 and found[1] == pytest.approx(0.1) and found == sorted(found)
    assert 0.1 < found[2] < 0.4 and found[-1] == 0.5
