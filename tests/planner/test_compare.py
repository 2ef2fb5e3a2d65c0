"""The 2×2 of a plan: pairs, penalties, and half a plan."""

from dataclasses import replace

import pytest

from twofold.contracts.results.plan import Plan
from twofold.planner.compare import compare_halves


def test_every_run_and_service_stands_on_both_fleets(examples: dict[str, Plan]) -> None:
    for plan in examples.values():
        answer = compare_halves(plan)
        if not plan.cross:
            assert answer.rows == ()
            assert answer.warnings
            continue
        names = {("training", run.name) for run in plan.training}
        names |= {("serving", service.name) for service in plan.serving}
        assert {(row.half, row.name) for row in answer.rows} == names
        for row in answer.rows:
            assert row.own.fleet == row.half
            assert row.other.fleet != row.half


def test_penalties_are_ratios_of_the_cells(examples: dict[str, Plan]) -> None:
    rows = [row for plan in examples.values() for row in compare_halves(plan).rows]
    priced = [row for row in rows if row.cost_penalty_fraction is not None]
    assert priced
    for row in priced:
        assert row.own.cost_usd and row.other.cost_usd
        ratio = row.other.cost_usd.value / row.own.cost_usd.value
        assert row.cost_penalty_fraction == pytest.approx(ratio - 1)


def test_a_cell_without_price_or_time_has_no_penalty(examples: dict[str, Plan]) -> None:
    plan = examples["assistant"]
    bare = tuple(replace(cell, cost_usd=None, wall_s=None, latency_s=None) for cell in plan.cross)
    for row in compare_halves(replace(plan, cross=bare)).rows:
        assert row.cost_penalty_fraction is None
        assert row.time_penalty_fraction is None


def test_half_a_plan_says_why_there_is_nothing(examples: dict[str, Plan]) -> None:
    half = replace(examples["assistant"], cross=())
    assert "one half only" in compare_halves(half).warnings[0]


def test_the_fleets_that_are_compared_have_the_accelerators_of_the_plan(examples: dict[str, Plan]) -> None:
    for plan in examples.values():
        for service, text in zip(plan.serving, compare_halves(plan).serving_fleets, strict=True):
            counts = (part.split()[:3:2] for part in text.split(" + "))
            total = sum(int(count) * int(size) for count, size in counts)
            by_hours = any(each.slos and each.slos[0].metric == "finish_within" for each in service.classes)
            whole = total <= service.machine.accelerator_count < total + service.machine.accelerators_per_node
            assert whole or by_hours  # work of a day has its machines in quiet hours
