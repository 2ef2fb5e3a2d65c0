"""Merging and leaving out change no answer."""

from dataclasses import replace

import numpy as np
import pytest

from twofold.portfolio.problem import Campaign, CampaignOption, PortfolioProblem, ServingRate
from twofold.portfolio.programme import run
from twofold.portfolio.prune import calendar_of, pruned, with_mean_hours
from twofold.portfolio.solve import bound_usd, solve
from twofold.portfolio.solve_model import case_of

from .conftest import make_demand, make_offer


def problem_with(*offers: object, **changes: object) -> PortfolioProblem:
    values: dict[str, object] = {
        "offers": offers,
        "demands": (make_demand("chat", [1.0, 2.0, 4.0, 2.0], weeks=6),),
        "batches": (),
        "campaigns": (),
        "rates": tuple(ServingRate(each.name, "chat", "v", 1.0) for each in offers),  # type: ignore[attr-defined]
        "week_count": 6,
    }
    return PortfolioProblem(**(values | changes))  # type: ignore[arg-type]


def kept(problem: PortfolioProblem) -> set[str]:
    return {offer.name for offer in pruned(problem).offers}


def test_a_dearer_offer_that_does_no_more_is_left_out() -> None:
    cheap, dear = make_offer("cheap", 1.0), make_offer("dear", 2.0, provider="p2")
    assert kept(problem_with(cheap, dear)) == {"cheap"}


@pytest.mark.parametrize(
    "cheap",
    [
        make_offer("cheap", 1.0, unit_limit=3),
        make_offer("cheap", 1.0, minimum_weeks=2),
        make_offer("cheap", 1.0, first_week=2),
        make_offer("cheap", 1.0, until_week=4),
    ],
    ids=["limited", "bound", "later", "sooner gone"],
)
def test_an_offer_with_an_advantage_stays(cheap: object) -> None:
    assert kept(problem_with(cheap, make_offer("dear", 2.0))) == {"cheap", "dear"}


def test_platforms_and_providers_are_compared_where_their_number_counts() -> None:
    cheap, dear = make_offer("cheap", 1.0), make_offer("dear", 2.0, accelerator="L40S", provider="p2")
    assert kept(problem_with(cheap, dear)) == {"cheap"}
    assert kept(problem_with(cheap, dear, platform_limit=2)) == {"cheap", "dear"}
    assert kept(problem_with(cheap, dear, provider_limit=2)) == {"cheap", "dear"}


def test_equal_hours_and_weeks_are_one() -> None:
    calendar = calendar_of(problem_with(make_offer("one", 1.0)))
    assert calendar.blocks == ((0, 6),)
    assert sorted(len(hours) for hours in calendar.hour_groups) == [6, 6, 12]


def test_weeks_stay_apart_where_a_run_may_begin_or_a_lease_may_end() -> None:
    option = (CampaignOption("one", 1, 100.0),)
    held = make_offer("one", 1.0, minimum_weeks=6)
    problem = problem_with(held, campaigns=(Campaign("run", 1, 3, option),))
    assert calendar_of(problem).blocks == ((0, 1), (1, 1), (2, 1), (3, 3))
    leased = problem_with(make_offer("one", 1.0, minimum_weeks=2))
    assert len(calendar_of(leased).blocks) == 6


@pytest.mark.parametrize("seed", range(4))
def test_the_merged_problem_costs_what_the_whole_one_costs(seed: int) -> None:
    random = np.random.default_rng(seed)
    offers = tuple(
        make_offer(
            f"o{i}",
            float(random.integers(2, 9)),
            minimum_weeks=int(random.choice([0, 6])),
            unit_limit=None if i else 4,
        )
        for i in range(5)
    )
    rates = tuple(ServingRate(each.name, "chat", "v", float(random.integers(1, 4))) for each in offers)
    options = tuple(CampaignOption(each.name, 1, float(random.integers(20, 60))) for each in offers[1:])
    campaigns = (
        Campaign("tune", 1, 5, options, dense=False),
        Campaign("base", 0, 3, tuple(replace(option, wall_h=200.0) for option in options)),
    )
    problem = problem_with(*offers, rates=rates, campaigns=campaigns)
    merged = solve(problem, gap_fraction=0.0)
    # Every week and hour its own: made so by a rate that no two hours share, as small as no unit notices.
    nudge = 1e-7 * np.arange(6 * 24).reshape(6, 24)
    demand = replace(problem.demands[0], rate_per_s=problem.demands[0].rate_per_s - nudge)
    apart = replace(problem, demands=(demand,))
    whole = run(case_of(apart).programme, 0.0, 20.0)
    assert merged and whole.usd == pytest.approx(whole.bound_usd, rel=1e-6)
    assert merged.usd == pytest.approx(whole.usd, rel=1e-4)


def test_a_run_that_nobody_disturbs_splits_no_weeks() -> None:
    option = (CampaignOption("one", 1, 100.0),)
    problem = problem_with(make_offer("one", 1.0), campaigns=(Campaign("run", 1, 3, option),))
    assert calendar_of(problem).blocks == ((0, 6),)


def test_mean_hours_ask_no_more_and_cost_no_more() -> None:
    offers = (make_offer("hour", 2.0), make_offer("lease", 1.2, minimum_weeks=3))
    rates = tuple(ServingRate(each.name, "chat", "v", 1.0) for each in offers)
    day = [float(hour % 11) for hour in range(24)]
    problem = problem_with(*offers, rates=rates, demands=(make_demand("chat", day, weeks=6),))
    rough = with_mean_hours(problem)
    assert rough.demands[0].rate_per_s.sum() == pytest.approx(problem.demands[0].rate_per_s.sum())
    assert len(calendar_of(rough).hour_groups) < len(calendar_of(problem).hour_groups)
    fine, coarse = bound_usd(problem), bound_usd(rough)
    assert fine is not None and coarse is not None and coarse <= fine * (1 + 1e-9)


def test_small_units_take_the_place_of_a_large_one_that_is_dearer() -> None:
    large, small = make_offer("large", 8.1), make_offer("small", 1.0)
    rates = (ServingRate("large", "chat", "v", 8.0), ServingRate("small", "chat", "v", 1.0))
    assert kept(problem_with(large, small, rates=rates)) == {"small"}
    assert kept(problem_with(make_offer("large", 7.9), small, rates=rates)) == {"large", "small"}


def test_of_rented_hours_without_a_limit_a_run_keeps_the_cheapest() -> None:
    options = tuple(CampaignOption(name, 1, 100.0) for name in ("cheap", "dear", "few"))
    offers = (make_offer("cheap", 2.0), make_offer("dear", 3.0), make_offer("few", 1.0, unit_limit=1))
    small = pruned(problem_with(*offers, rates=(), demands=(), campaigns=(Campaign("run", 1, 3, options),)))
    assert [option.offer for option in small.campaigns[0].options] == ["cheap", "few"]
