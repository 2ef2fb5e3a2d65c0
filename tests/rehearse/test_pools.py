"""A replica built again from a plan is the one that the search chose, and the plan's steps are its own."""

from dataclasses import fields
from functools import cache

import numpy as np
import pytest

from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice, choose_serving
from twofold.answer.serving_plan import service_plan
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.parts import Machine
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.supply import Supply
from twofold.inference.iteration import iteration_s
from twofold.perf.constants import load_constants
from twofold.rehearse.pools import RehearsalTables, planned_node, planned_replica, pool_world

SPEC = """\
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  on: {on}
  classes:
    chat:
      traffic: {{rate: 2 /s, input: 500 tok, output: {{mean: 100 tok, p95: 350 tok}}}}
      slo: {{ttft_p95: 2 s, tpot_p95: 100 ms}}
"""


@cache
def made(
    on: str, model: str = "llama-3.1-8b", engine: str = "vllm"
) -> tuple[ServicePlan, ServingChoice, RehearsalTables]:
    """A plan and what it was made from; the same machines once."""
    catalog, constants = load_catalog(), load_constants()
    text = SPEC.replace("llama-3.1-8b", model).replace("serving:", f"serving:\n  engine: {engine}")
    spec = parse_spec(text.format(on=on), "spec.yaml")
    context = Context(spec, catalog, constants, draw_factors(constants, 8, 0), None)
    choice = choose_serving(spec.services[0], context)
    tables = RehearsalTables(catalog, constants, Supply(), catalog.model)
    return service_plan(choice, context), choice, tables


@pytest.mark.parametrize(
    "asked", [("2xL4",), ("1xH100-SXM",), ("4x8xH100-SXM", "deepseek-v3", "sglang")], ids=lambda each: each[0]
)
def test_a_plan_says_enough_to_build_its_replica_again(asked: tuple[str, ...]) -> None:
    plan, choice, tables = made(*asked)
    (pool,), (chosen,) = plan.pools, choice.fleet.pools
    built = planned_replica(plan, pool, tables)
    for field in fields(built):
        if field.name != "rank_batch":  # the plan states what the cache holds of it
            ours, theirs = getattr(built, field.name), getattr(chosen.replica, field.name)
            assert np.all(ours == theirs), field.name
    world = pool_world(plan, pool, tables)
    assert 0 < world.beliefs.input_token_s < world.beliefs.output_token_s
    assert world.model.busy_w > world.model.idle_w > 0
    assert world.model.accelerator_count == pool.replica.accelerator_count
    assert world.context_tokens <= tables.catalog.model(pool.model).max_context_tokens


def test_a_node_that_no_table_has_is_the_one_of_its_size() -> None:
    catalog = load_catalog()
    machine = Machine("H100-SXM5-80GB", "a rack of ours", 1, 3, 3, "infiniband", None)
    node = planned_node(machine, catalog)
    assert (node.accelerator, node.accelerator_count) == ("H100-SXM5-80GB", 3)


def test_a_step_is_looked_at_with_the_answers_that_are_met_in_it() -> None:
    """A sequence met decoding is half through an answer of E[n²]/E[n] tokens: long ones last."""
    plan, choice, _ = made("2xL4")
    (pool,), lengths = choice.fleet.pools, choice.loads[0].traffic.lengths
    replica, served, spread = pool.replica, pool.served, float(lengths.output_spread)
    assert spread > 0.8
    met_tokens = 500.0 + 100.0 * (1.0 + spread**2) / 2.0

    step = iteration_s(replica, 0.0, 0.0, served.batch_sequences, met_tokens)
    exposed = float(step.communication_s / step.total_s)
    assert 0.0 < plan.communication_exposed_fraction == pytest.approx(exposed, rel=1e-6)

    sizes = replica.shape.weights_bytes("fp8").total_bytes, replica.shape.kv_bytes_per_token("bf16")
    weights, per_token = map(float, sizes)
    moved = weights + float(served.batch_sequences) * met_tokens * per_token
    ideal_s = moved / float(replica.accelerator_count) / float(replica.cluster.device.memory_bytes_per_s)
    assert plan.peak_ratio.value == pytest.approx(ideal_s / float(served.step_s), rel=1e-6)
