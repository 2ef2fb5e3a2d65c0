"""A replica built again from a plan is the one that the search chose."""

from dataclasses import fields

import numpy as np
import pytest

from twofold.catalog import load_catalog
from twofold.contracts import Machine, Supply, parse_spec
from twofold.perf import load_constants
from twofold.plan.context import Context
from twofold.plan.rehearse_pools import RehearsalTables, planned_node, planned_replica, pool_world
from twofold.plan.serving_choice import choose_serving
from twofold.plan.serving_plan import service_plan
from twofold.plan.uncertainty import draw_factors

SPEC = """\
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  on: {on}
  classes:
    chat:
      traffic: {{rate: 2 /s, input: 500 tok, output: 100 tok}}
      slo: {{ttft_p95: 2 s, tpot_p95: 100 ms}}
"""


@pytest.mark.parametrize("on", ["2xL4", "1xH100-SXM"])
def test_a_plan_says_enough_to_build_its_replica_again(on: str) -> None:
    catalog, constants = load_catalog(), load_constants()
    spec = parse_spec(SPEC.format(on=on), "spec.yaml")
    context = Context(spec, catalog, constants, draw_factors(constants, 8, 0), None)
    choice = choose_serving(spec.services[0], context)
    plan = service_plan(choice, context)
    tables = RehearsalTables(catalog, constants, Supply(), catalog.model)
    (pool,), (chosen,) = plan.pools, choice.fleet.pools
    built = planned_replica(plan, pool, tables)
    for field in fields(built):
        if field.name != "max_batch":  # the plan states what the cache holds of it
            ours, theirs = getattr(built, field.name), getattr(chosen.replica, field.name)
            assert np.all(ours == theirs), field.name
    world = pool_world(plan, pool, tables)
    assert 0 < world.beliefs.input_token_s < world.beliefs.output_token_s
    assert world.model.busy_w > world.model.idle_w > 0
    assert world.model.accelerator_count == pool.replica.accelerator_count
    assert world.context_tokens <= catalog.model("llama-3.1-8b").max_context_tokens


def test_a_node_that_no_table_has_is_the_one_of_its_size() -> None:
    catalog = load_catalog()
    machine = Machine("H100-SXM5-80GB", "a rack of ours", 1, 3, 3, "infiniband", None)
    node = planned_node(machine, catalog)
    assert (node.accelerator, node.accelerator_count) == ("H100-SXM5-80GB", 3)
