"""`plan --rehearse` finds the fewest replicas that hold, however many were planned, and takes no others."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial

import pytest

from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.serving_plan import service_plan
from twofold.answer.serving_pools import sure_serving
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import Catalog
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.scenario import Scenario
from twofold.perf.constants import Constants
from twofold.rehearse.fleets import rehearsed_service
from twofold.rehearse.peak import PLAIN, missed_goals, on_twin, tables_of
from twofold.rehearse.run import RehearsalSettings, pool_tasks
from twofold.rehearse.sizes import resized
from twofold.report.serving import rehearsed_text

SPEC = """
name: s
confidence: 80 %
model: llama-3.1-8b
serving:
  on: 1xL4
  zones: 2
  classes:
    chat:
      traffic: {rate: 6 /s, input: {mean: 300 tok, p95: 900 tok}, output: {mean: 100 tok, p95: 200 tok}}
      slo: {ttft_p95: 3 s, tpot_p95: 110 ms}
"""


def service_of(catalog: Catalog, constants: Constants, text: str = SPEC) -> tuple[ServingChoice, Context]:
    spec = parse_spec(text, "spec.yaml")
    context = Context(spec, catalog, constants, draw_factors(constants, 200, 0), None)
    return sure_serving(spec.services[0], context), context


def rehearsed(choice: ServingChoice, context: Context) -> tuple[ServingChoice, ServicePlan]:
    return rehearsed_service(choice, partial(service_plan, context=context), context, lambda _: None)


@pytest.fixture(scope="module")
def planned(catalog: Catalog, constants: Constants) -> tuple[ServingChoice, Context]:
    return service_of(catalog, constants)


@pytest.fixture(scope="module")
def outcomes(planned: tuple[ServingChoice, Context]) -> Sequence[tuple[int, ServingChoice, ServicePlan]]:
    """From fewer than are planned, and from more."""
    choice, context = planned
    (pool,) = choice.fleet.pools
    counts = [round(pool.count.needed * ratio) for ratio in (0.7, 1.5)]
    starts = [(count, resized(choice, {"chat": count}, context)) for count in counts]
    return [(count, *rehearsed(start, context)) for count, start in starts]


def test_the_fewest_that_hold_do_not_depend_on_how_many_were_planned(
    outcomes: Sequence[tuple[int, ServingChoice, ServicePlan]],
) -> None:
    found = [plan.replica_needs[0].holding_count for *_, plan in outcomes]
    assert None not in found
    assert max(found) - min(found) <= 1


def test_a_plan_takes_the_fewest_that_hold_where_it_missed_and_keeps_its_own_where_they_hold(
    outcomes: Sequence[tuple[int, ServingChoice, ServicePlan]],
) -> None:
    for count, choice, plan in outcomes:
        (need,), (pool,) = plan.replica_needs, choice.fleet.pools
        assert need.closed_form_count == count
        assert pool.count.needed == (need.holding_count if need.planned_missed else count)
        assert plan.replica_count - plan.spare_count == pool.count.needed
        assert need.missing_count is None or need.missing_count < need.holding_count
        assert (need.holding_count > count) == bool(need.planned_missed)
        assert all(each.value > each.limit for each in need.planned_missed)
    assert outcomes[0][2].replica_needs[0].planned_missed, "seven of ten replicas are to be too few"


def test_what_more_or_fewer_replicas_cost_is_the_difference_of_their_plans(
    outcomes: Sequence[tuple[int, ServingChoice, ServicePlan]], planned: tuple[ServingChoice, Context]
) -> None:
    for count, choice, plan in outcomes:
        (need,) = plan.replica_needs
        costs = [
            service_plan(resized(choice, {"chat": each}, planned[1]), planned[1]).cost_usd_per_year
            for each in (need.holding_count, count)
        ]
        assert costs[0] and costs[1]
        assert need.usd_per_year == pytest.approx(costs[0].value - costs[1].value, abs=1.0)
        assert (need.usd_per_year > 0) == (need.holding_count > count)


def test_a_rehearsal_and_simulate_ask_the_same_fleet_behind_the_same_gate(
    outcomes: Sequence[tuple[int, ServingChoice, ServicePlan]], planned: tuple[ServingChoice, Context]
) -> None:
    """But for the spares, which `simulate` has as planned, and for steps that are slow."""
    for _, choice, plan in outcomes:
        tables = tables_of(choice, planned[1])
        plain = RehearsalSettings(Scenario.model_validate(PLAIN))
        (asked,) = pool_tasks(plan, plain, tables)
        (told,) = pool_tasks(plan, RehearsalSettings(), replace(tables, slow_ratios={}))
        counts = [sum(group.count for group in each.world.replicas) for each in (asked, told)]
        assert counts == [choice.fleet.pools[0].count.needed, plan.replica_count]
        for left, right in ((asked.pool, told.pool), (asked.world.gate, told.world.gate)):
            same = {
                "replica",
                "in_flight_limit",
                "routes",
                "classes",
                "queue",
                "cache_tokens",
                "retry_budget",
            }
            for name in same & {field.name for field in fields(left)}:
                assert getattr(left, name) == getattr(right, name), name
        assert asked.pool.pool.replica == told.pool.pool.replica
        assert asked.pool.model.in_flight_limit == told.pool.model.in_flight_limit
        again = on_twin(plan, tables)
        shown = [slo.rehearsed for each in plan.classes for slo in each.slos]
        assert [each.value_s for each in shown if each] == [slo.simulated_s for slo in again[0].slos]
        assert not missed_goals(again)


def test_a_machine_that_cannot_hold_gives_way_and_the_plan_says_what_it_missed(
    catalog: Catalog, constants: Constants
) -> None:
    choice, context = service_of(catalog, constants, SPEC.replace("  on: 1xL4\n", ""))
    first = choice.offer.accelerator.name

    def strict(own: ServingChoice) -> ServicePlan:
        """On the first machine as if its goal were beyond reach."""
        plan = service_plan(own, context)
        if own.offer.accelerator.name != first:
            return plan
        (chat,) = plan.classes
        slos = tuple(replace(slo, limit_s=1e-3) if slo.metric == "tpot_p95" else slo for slo in chat.slos)
        return replace(plan, classes=(replace(chat, slos=slos),))

    best, plan = rehearsed_service(choice, strict, context, lambda _: None)
    lost, need = plan.replica_needs
    assert (lost.accelerator, lost.holding_count) == (first, None)
    assert [goal.metric for goal in lost.planned_missed] == ["tpot_p95"]
    assert need.accelerator == plan.machine.accelerator == best.offer.accelerator.name != first
    text = rehearsed_text(lost, plan)
    assert f"{lost.closed_form_count} {first} miss TPOT p95 (" in text and "of 1.0 ms)" in text
    assert text.endswith(f"nor do {lost.missing_count} hold: now {plan.machine.accelerator}")
