"""A rehearsal runs in the world of the confidence's quantile: steps as slow as the plan is sized for."""

import numpy as np
import pytest

from twofold.answer.context import Context
from twofold.answer.serving_choice import choose_serving
from twofold.answer.serving_plan import service_plan
from twofold.answer.serving_pools import drawn_fleet, goal_figures, latency_with
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import Catalog
from twofold.contracts.spec.reader import parse_spec
from twofold.perf.constants import Constants
from twofold.rehearse.peak import on_twin, slow_ratios, tables_of

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
    (ratio,), (pool,) = ratios.values(), choice.fleet.pools
    figure, _ = goal_figures(drawn_fleet(choice, context))["chat", "tpot_p95"]
    late = float(np.quantile(figure.samples, asked / 100, method="inverted_cdf")) / figure.middle
    usual, slow = (
        latency_with(choice, pool, pool.count.needed / each, "chat", "tpot_p95") for each in (1, ratio)
    )
    assert usual and slow and ratio * slow / usual == pytest.approx(late, rel=0.01)
    assert 1.0 < ratio < late  # fuller batches make up the rest


def test_tokens_of_the_slow_world_take_as_long_as_their_quantile(
    catalog: Catalog, constants: Constants
) -> None:
    """Not longer: a fleet that keeps its goals with four in five is not to be refused by its rehearsal."""
    found, late = {}, 1.0
    for asked in (50, 80):
        spec = parse_spec(SPEC.replace("ASKED", f"{asked} %"), "spec.yaml")
        context = Context(spec, catalog, constants, draw_factors(constants, 200, 0), None)
        choice = choose_serving(spec.services[0], context)
        classes = on_twin(service_plan(choice, context), tables_of(choice, context))
        found[asked] = next(slo.simulated_s for slo in classes[0].slos if slo.metric == "tpot_p95") or 0.0
        figure, _ = goal_figures(drawn_fleet(choice, context))["chat", "tpot_p95"]
        late = float(np.quantile(figure.samples, 0.8, method="inverted_cdf")) / figure.middle
    assert found[80] / found[50] == pytest.approx(late, rel=0.1)
