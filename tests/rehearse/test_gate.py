"""Pools stand behind the gates that a scenario wants, and what befalls one befalls no other."""

from dataclasses import replace

import pytest

from twofold.answer.context import Context
from twofold.answer.serving_choice import choose_serving
from twofold.answer.serving_plan import service_plan
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.scenario import Scenario, parse_scenario
from twofold.contracts.spec.supply import Supply
from twofold.core.errors import InputErrors, ValueRefusedError
from twofold.perf.constants import load_constants
from twofold.policy.gate.settings import ClassKind
from twofold.rehearse.gate import pool_groups
from twofold.rehearse.pools import RehearsalTables
from twofold.rehearse.run import PoolTask, RehearsalSettings, pool_tasks
from twofold.twin.serving.fault_types import RandomCrashes, ReplicaCrash, ZoneLoss

SPEC = """\
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  zones: 2
  on: 1xL4
  classes:
    chat:
      traffic: {rate: 2 /s, input: 500 tok, output: 100 tok}
      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}
    night:
      traffic: {tokens_per_day: 50 Mtok, input: 2000 tok, output: 300 tok}
"""
CLASSES = frozenset({"chat", "night"})


@pytest.fixture(scope="module")
def made() -> tuple[ServicePlan, RehearsalTables]:
    catalog, constants = load_catalog(), load_constants()
    spec = parse_spec(SPEC, "spec.yaml")
    context = Context(spec, catalog, constants, draw_factors(constants, 8, 0), None)
    plan = service_plan(choose_serving(spec.services[0], context), context)
    return plan, RehearsalTables(catalog, constants, Supply(), catalog.model)


def scenario(text: str) -> Scenario:
    return parse_scenario(f"horizon: 1 min\n{text}", "scenario.yaml")


def tasks(made: tuple[ServicePlan, RehearsalTables], text: str) -> tuple[PoolTask, ...]:
    plan, tables = made
    return pool_tasks(plan, RehearsalSettings(scenario(text)), tables)


def test_every_arrangement_has_all_replicas_and_all_classes(
    made: tuple[ServicePlan, RehearsalTables],
) -> None:
    plan, _ = made
    assert len(plan.pools) == 2
    for pools in ("planned", "shared", "priority", "split"):
        found = pool_groups(plan, plan.pools, scenario(f"policies: {{pools: {pools}}}").policies)
        assert {name for pools, _ in found for pool in pools for name in pool.classes} == CLASSES
        assert sum(pool.replica_count for pools, _ in found for pool in pools) == plan.replica_count
        assert len(found) == (2 if pools == "planned" else 1)


def test_a_gate_knows_who_can_wait_unless_the_pool_is_shared(
    made: tuple[ServicePlan, RehearsalTables],
) -> None:
    kinds = {}
    for pools in ("shared", "priority", "split"):
        (task,) = tasks(made, f"policies: {{pools: {pools}}}")
        night = next(each for each in task.world.gate.classes if each.name == "night")
        kinds[pools] = (night.kind, night.priority)
        rules = task.world.gate.routes.pools
        assert (rules is not None) == (pools == "split")
        assert {name for name, _ in task.world.models} == ({"chat", "night"} if rules else {""})
    assert kinds["shared"] == (ClassKind.LATENCY, 0)
    assert kinds["priority"] == kinds["split"] == (ClassKind.BULK, 1)


def test_each_of_two_pools_behind_a_gate_is_scaled(made: tuple[ServicePlan, RehearsalTables]) -> None:
    (task,) = tasks(made, "policies: {pools: split, scaling: on}")
    scaling = task.world.gate.scaling
    assert scaling is not None
    assert [pool.pool for pool in scaling.pools] == ["chat", "night"]


def test_a_fault_of_a_pool_leaves_the_others_alone(made: tuple[ServicePlan, RehearsalTables]) -> None:
    plan, _ = made
    text = "faults: [{kind: replica-crash, at: 10 s, pool: night}]"
    assert [len(task.world.faults) for task in tasks(made, text)] == [0, 1]
    (task,) = tasks(made, f"policies: {{pools: split}}\n{text}")
    before = plan.pools[0].replica_count
    assert task.world.faults == (ReplicaCrash(10.0, f"r{before}", "process", None),)
    assert sum(group.count for group in task.world.replicas if group.order.pool == "chat") == before
    (task,) = tasks(
        made, "policies: {pools: split}\nfaults: [{kind: random-crashes, rate: 60 /h, pool: night}]"
    )
    assert [fault.pool for fault in task.world.faults if isinstance(fault, RandomCrashes)] == ["night"]


def test_a_lost_zone_takes_the_replicas_of_every_pool(made: tuple[ServicePlan, RehearsalTables]) -> None:
    (task,) = tasks(made, "policies: {pools: split}\nfaults: [{kind: zone-loss, at: 10 s, zone: 2}]")
    assert task.world.faults == (ZoneLoss(10.0, "zone-2", None),)
    with pytest.raises(InputErrors) as caught:
        scenario("faults: [{kind: zone-loss, at: 10 s, pool: night}]")
    assert "means nothing for `zone-loss`" in str(caught.value.errors[0])


def test_what_cannot_be_put_together_or_parted_is_refused(made: tuple[ServicePlan, RehearsalTables]) -> None:
    plan, _ = made
    other = replace(plan.pools[1], replica=replace(plan.pools[1].replica, weights_format="int4"))
    for pools in ("shared", "split"):
        change = scenario(f"policies: {{pools: {pools}}}").policies
        with pytest.raises(ValueRefusedError, match="are of different replicas"):
            pool_groups(plan, (plan.pools[0], other), change)
    with pytest.raises(ValueRefusedError, match="has no pool for bulk work"):
        pool_groups(plan, plan.pools[:1], scenario("policies: {pools: split}").policies)
    with pytest.raises(InputErrors) as caught:
        scenario("policies: {pools: {kind: shared, borrow: 50 %}}")
    assert "belongs to `kind: split`" in str(caught.value.errors[0])


def test_a_warm_up_is_as_long_as_the_scenario_says(made: tuple[ServicePlan, RehearsalTables]) -> None:
    (task, *_) = tasks(made, "warm_up: 40 s")
    assert (task.world.warm_up_s, task.world.horizon_s) == (40.0, 60.0)
    (usual, *_) = tasks(made, "")
    assert usual.world.warm_up_s <= 12.0
