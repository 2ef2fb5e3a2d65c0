"""A rehearsal runs in the world of the confidence's quantile: steps as slow as the plan is sized for."""

import pytest

from twofold.answer.context import Context
from twofold.answer.serving_choice import choose_serving
from twofold.answer.serving_plan import service_plan
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import Catalog
from twofold.contracts.spec.reader import parse_spec
from twofold.perf.constants import Constants
from twofold.rehearse.fleets import on_twin, slow_ratios, tables_of

SPEC = """
name: s
confidence: ASKED
model: llama-3.1-8b
serving:
  on: 1xL4
  classes:
    chat:
      traffic: {rate: 4 /s, input: {mean: 300 tok, p95: 900 tok}, output: {mean: 100 tok, p95: 200 tok}}
      slo: {ttft_p95: 3 s, tpot_p95: 150 ms}
"""


@pytest.mark.parametrize("asked", [50, 80, 95])
def test_true_steps_are_as_slow_as_the_quantile_of_a_token(
    catalog: Catalog, constants: Constants, asked: int
) -> None:
    spec = parse_spec(SPEC.replace("ASKED", f"{asked} %"), "spec.yaml")
    context = Context(spec, catalog, constants, draw_factors(constants, 200, 0), None)
    choice = choose_serving(spec.services[0], context)
    ratios = slow_ratios(choice, context)
    if asked == 50:
        assert ratios == {}
        return
    (ratio,) = ratios.values()
    range_90 = service_plan(choice, context).classes[0].percentiles["tpot_p95"]
    top = range_90.high / range_90.value
    assert 1.0 < ratio < top if asked == 80 else ratio > top


def test_the_slow_world_is_slower_and_the_middle_is_what_it_was(
    catalog: Catalog, constants: Constants
) -> None:
    found = {}
    for asked in (50, 80):
        spec = parse_spec(SPEC.replace("ASKED", f"{asked} %"), "spec.yaml")
        context = Context(spec, catalog, constants, draw_factors(constants, 200, 0), None)
        choice = choose_serving(spec.services[0], context)
        classes = on_twin(service_plan(choice, context), tables_of(choice, context))
        found[asked] = next(slo.simulated_s for slo in classes[0].slos if slo.metric == "tpot_p95")
    assert found[50] and found[80] and 1.1 < found[80] / found[50] < 2.0
