"""The checker finds what is broken: an answer with one number changed breaks something."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from twofold.portfolio.check import violations
from twofold.portfolio.problem import (
    Batch,
    Campaign,
    CampaignOption,
    PortfolioAnswer,
    PortfolioProblem,
    ServingRate,
)
from twofold.portfolio.solve import Effort, solve

from .conftest import make_demand, make_offer


@pytest.fixture(scope="module")
def case() -> tuple[PortfolioProblem, PortfolioAnswer]:
    offers = (
        make_offer("hour", 2.0, unit_limit=6),
        make_offer("lease", 1.0, minimum_weeks=52, provider="other"),
        make_offer("month", 1.5, minimum_weeks=4),
    )
    problem = PortfolioProblem(
        offers,
        (make_demand("chat", [1.0, 3.0], limit_s=1.0),),
        (Batch("night", np.full(52, 4e4), hours=(0, 1, 2)),),
        (Campaign("base", 2, 8, (CampaignOption("month", 2, 300.0), CampaignOption("hour", 2, 300.0))),),
        tuple(ServingRate(each.name, name, "v", 1.0, 0.9) for each in offers for name in ("chat", "night")),
    )
    answer = solve(problem, effort=Effort.USUAL)
    assert answer is not None and violations(problem, answer) == ()
    return problem, answer


CHANGES: dict[str, tuple[Callable[[PortfolioAnswer], PortfolioAnswer], str]] = {
    "less is served": (lambda a: replace(a, served_per_s=a.served_per_s * 0.9), "/s of"),
    "more is served": (lambda a: replace(a, served_per_s=a.served_per_s * 1.1), "units of work"),
    "units are missing": (
        lambda a: replace(a, held_units=a.held_units * 0, hourly_units=a.hourly_units * 0),
        "units of work",
    ),
    "half a unit": (lambda a: replace(a, hourly_units=a.hourly_units + 0.5), "units in week"),
    "too many": (lambda a: replace(a, hourly_units=a.hourly_units + 7), "units of 6"),
    "no lease": (lambda a: replace(a, started_units=a.started_units * 0), "without a lease"),
    "no run": (lambda a: replace(a, placements=()), "placed 0 times"),
    "a late run": (
        lambda a: replace(a, placements=tuple(replace(each, start_week=7) for each in a.placements)),
        "not among its options",
    ),
    "cheaper than it is": (lambda a: replace(a, usd=a.usd * 0.9), "are added up"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_answer_that_was_changed_is_found_out(
    change: str, case: tuple[PortfolioProblem, PortfolioAnswer]
) -> None:
    problem, answer = case
    spoil, words = CHANGES[change]
    assert any(words in text for text in violations(problem, spoil(answer)))


def test_limits_of_the_problem_are_checked_too(case: tuple[PortfolioProblem, PortfolioAnswer]) -> None:
    problem, answer = case
    slow = replace(problem, rates=tuple(replace(rate, p95_s=2.0) for rate in problem.rates))
    assert any("keep its promise" in text for text in violations(slow, answer))
