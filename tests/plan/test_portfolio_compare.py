"""Deadlines of a portfolio and of what it is held against come from where runs were put."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from twofold.plan.portfolio_answered import Answered
from twofold.plan.portfolio_compare import fleet_options, late_runs
from twofold.supply import Campaign, CampaignOption, CapacityOffer, PortfolioProblem, solve

WALL_H = 4 * 168.0


def offer(name: str = "machines") -> CapacityOffer:
    where = ("prov", name, "H100-SXM5-80GB", 8, "", "on_demand", "virtual")
    return CapacityOffer(name, *where, 10.0, 0, None, 0.0, 0.0, 0.0, 0.0, "a list", "2026", "vendor")


def solved(*dropped: str) -> Answered:
    run = Campaign("base", 2, 8, (CampaignOption("machines", 4, WALL_H),))
    problem = PortfolioProblem((offer(),), (), (), (run,), ())
    answer = solve(problem)
    assert answer is not None
    return Answered(problem, answer, (), (), None, (), (), dropped)


def deadlines(case: Answered) -> dict[str, str]:
    return {row.name: row.deadline for row in fleet_options(case, "what it is", 0.0)}


def test_runs_that_end_in_their_windows_are_on_time() -> None:
    assert deadlines(solved()) == {"portfolio": "on time", "two fleets": "on time"}


def test_runs_that_were_dropped_are_named_for_the_portfolio_and_for_fleets() -> None:
    assert deadlines(solved("huge")) == {"portfolio": "without huge", "two fleets": "without huge"}


@pytest.mark.parametrize("change", [{"start_week": 5}, {"wall_h": 7 * 168.0}])
def test_a_run_that_is_not_over_with_its_window_is_late(change: dict[str, Any]) -> None:
    case = solved()
    moved = tuple(replace(each, **change) for each in case.answer.placements)
    late = replace(case, answer=replace(case.answer, placements=moved))
    assert late_runs(case.problem, case.answer) == () and late_runs(late.problem, late.answer) == ("base",)
    assert deadlines(late)["portfolio"] == "misses base"
    assert late_runs(case.problem, replace(case.answer, placements=())) == ("base",)


def test_a_run_that_pauses_is_late_in_the_first_week_after_its_window() -> None:
    case = solved()
    pausing = replace(case.problem, campaigns=(replace(case.problem.campaigns[0], dense=False),))
    used = np.zeros_like(case.answer.paused_units)
    used[0, 0, 7] = 1.0
    assert late_runs(pausing, replace(case.answer, paused_units=used)) == ()
    used[0, 0, 8] = 1.0
    assert late_runs(pausing, replace(case.answer, paused_units=used)) == ("base",)


def test_the_specs_discount_comes_off_the_fleets_too() -> None:
    _, listed = fleet_options(solved(), "what it is", 0.0)
    _, less = fleet_options(solved(), "what it is", 0.1)
    assert less.usd == pytest.approx(0.9 * listed.usd) and less.what == f"{listed.what} less 10 %"
    assert less.saving_fraction < listed.saving_fraction
