"""The two honest alternatives: sizes by hand, prices all year, and the load at which they cross."""

import numpy as np
import pytest

from twofold.portfolio.alternatives import break_even_ratio, one_cluster, two_fleets
from twofold.portfolio.problem import Campaign, CampaignOption, PortfolioProblem, ServingRate

from .conftest import make_demand, make_offer

YEAR_H = 168 * 52


def problem(rate: float = 6.0) -> PortfolioProblem:
    """A dear kind that does both halves, and a cheap one that only serves."""
    offers = (make_offer("both", 10.0), make_offer("serves", 4.0, accelerator="L40S"))
    rates = tuple(ServingRate(each.name, "chat", "v", 1.0) for each in offers)
    base = Campaign("base", 0, 8, (CampaignOption("both", 4, 900.0),))
    return PortfolioProblem(offers, (make_demand("chat", [1.0, rate]),), (), (base,), rates)


def test_two_fleets_hold_each_half_on_its_cheapest_machines_all_year() -> None:
    fleet = two_fleets(problem())
    assert fleet and fleet.usd == pytest.approx((4 * 10.0 + 6 * 4.0) * YEAR_H)


def test_one_cluster_is_as_large_as_the_harder_half_and_short_while_it_trains() -> None:
    fleet = one_cluster(problem())
    assert fleet and fleet.usd == pytest.approx(6 * 10.0 * YEAR_H)
    assert fleet.short_weeks == 6  # 900 h are six weeks, in which two units are left to serve


def test_the_crossing_lies_where_both_cost_the_same() -> None:
    cluster, apart = one_cluster(problem()), two_fleets(problem())
    assert cluster and apart
    ratio = break_even_ratio(cluster, apart)
    assert ratio is not None
    below, above = (cluster.usd_at(ratio * step) - apart.usd_at(ratio * step) for step in (0.9, 1.1))
    assert below * above <= 0


def test_discounts_and_limits_are_no_part_of_a_list_price() -> None:
    offers = (make_offer("some", 1.0, unit_limit=1), make_offer("cut", 8.0, discount_fraction=0.5))
    rates = tuple(ServingRate(each.name, "chat", "v", 1.0) for each in offers)
    asked = PortfolioProblem(offers, (make_demand("chat", [2.0]),), (), (), rates)
    fleet = two_fleets(asked)
    assert fleet and fleet.usd == pytest.approx(2 * 8.0 * YEAR_H)
    assert np.isfinite(fleet.usd_at(20.0)) and one_cluster(asked) is None


def trains(*campaigns: Campaign, **changes: float) -> PortfolioProblem:
    offers = (make_offer("both", 10.0, **changes),)
    return PortfolioProblem(offers, (), (), campaigns, ())


def run(name: str, first: int, end: float, units: int = 4, wall_h: float = 4 * 168.0) -> Campaign:
    return Campaign(name, first, end, (CampaignOption("both", units, wall_h),))


def test_runs_that_must_overlap_need_the_sum_of_their_units() -> None:
    fleet = two_fleets(trains(run("a", 0, 4), run("b", 0, 4)))
    assert fleet and fleet.what.startswith("8 × ")
    assert fleet.usd == pytest.approx(8 * 10.0 * YEAR_H)


def test_runs_that_can_follow_each_other_need_no_more_than_the_larger() -> None:
    fleet = two_fleets(trains(run("a", 0, 8), run("b", 0, 8, units=3), run("c", 20, 24, units=2)))
    assert fleet and fleet.what.startswith("4 × ")


def test_a_run_that_no_size_ends_within_its_window_is_named() -> None:
    fleet = two_fleets(trains(run("a", 0, 4), run("b", 0, 3)))
    assert fleet and fleet.missed == ("b",) and fleet.what.startswith("4 × ")
