"""What a portfolio is asked, from the spec."""

from dataclasses import replace

import numpy as np

from twofold.portfolio.join import conflict
from twofold.portfolio.problem import Batch, Campaign, CampaignOption, PortfolioProblem, ServingRate
from twofold.portfolio.solve import is_possible

from .conftest import make_demand, make_offer


def crowded() -> PortfolioProblem:
    """Two units for a class that needs both, and a run that wants one of them."""
    return PortfolioProblem(
        (make_offer("two", 1.0, unit_limit=2), make_offer("dear", 50.0, accelerator="B200")),
        (make_demand("chat", [2.0]), make_demand("search", [0.5])),
        (Batch("night", np.full(52, 1000.0)),),
        (Campaign("base", 0, 4, (CampaignOption("two", 1, 300.0),)),),
        (
            ServingRate("two", "chat", "v", 1.0),
            ServingRate("dear", "search", "v", 1.0),
            ServingRate("dear", "night", "v", 1.0),
        ),
    )


def test_only_what_contradicts_is_named() -> None:
    assert set(conflict(crowded())) == {"class chat", "run base", "units of two"}


def test_without_any_one_of_a_conflict_the_rest_can_be_met() -> None:
    problem = crowded()
    found = conflict(problem)
    kept = problem
    for requirement in problem.requirements:
        kept = kept if requirement in found else kept.without(requirement)
    assert not is_possible(kept)
    assert all(is_possible(kept.without(requirement)) for requirement in found)


def test_a_demand_that_no_offer_serves_conflicts_alone() -> None:
    problem = replace(crowded(), demands=(*crowded().demands, make_demand("video", [1.0])))
    assert conflict(problem) == ("class video",)


def test_a_promise_that_no_offer_keeps_is_a_demand_without_an_offer() -> None:
    slow = ServingRate("two", "chat", "v", 1.0, p95_s=2.0)
    problem = PortfolioProblem(
        (make_offer("two", 1.0),), (make_demand("chat", [1.0], limit_s=0.5),), (), (), (slow,)
    )
    assert conflict(problem) == ("class chat",)
    assert conflict(replace(problem, rates=(replace(slow, p95_s=0.4),))) == ()
