"""The solver against brute force, against bounds, and against a checker that shares nothing with it."""

from collections.abc import Callable
from itertools import product
from math import ceil, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.portfolio.check import violations
from twofold.portfolio.problem import (
    Batch,
    Campaign,
    CampaignOption,
    CapacityOffer,
    Demand,
    PortfolioProblem,
    ServingRate,
)
from twofold.portfolio.solve import Effort, Leased, bound_usd, solve

from .conftest import make_demand, make_offer

Case = tuple[PortfolioProblem, float]


def exhaustive_usd(problem: PortfolioProblem) -> float:
    """Every number of held units in every week, every start of the run; hours one by one."""
    offers, weeks = problem.offers, problem.week_count
    speed = {rate.offer: rate.rate_per_unit_per_s for rate in problem.rates}
    wanted = problem.demands[0].rate_per_s
    slowest = min(speed[offer.name] for offer in offers if offer.minimum_weeks)
    most = ceil(wanted.max() / slowest) + 2  # and what a run takes
    counts = [range(most + 1) for offer in offers if offer.minimum_weeks for _ in range(weeks)]
    starts: list[object] = [
        (option, week)
        for campaign in problem.campaigns
        for option in campaign.options
        for week in range(campaign.first_week, campaign.end_week - option.weeks + 1)
    ]
    starts = starts if problem.campaigns else [None]
    best = inf
    held_offers = [offer for offer in offers if offer.minimum_weeks]
    for choice in product(*counts):
        held = {
            offer.name: choice[index * weeks : (index + 1) * weeks] for index, offer in enumerate(held_offers)
        }
        rent = sum(_lease_usd(offer, held[offer.name], weeks) for offer in held_offers)
        if rent >= best:
            continue
        for start in starts:
            best = min(best, rent + _rest_usd(problem, held, start, speed, wanted))
    return best


def _lease_usd(offer: CapacityOffer, held: tuple[int, ...], weeks: int) -> float:
    """Rent of units by week, the weeks bound beyond the end too; infinite where a lease is too short."""
    started = [max(0, units - (held[week - 1] if week else 0)) for week, units in enumerate(held)]
    for week in range(weeks):
        bound = sum(started[max(0, week - offer.minimum_weeks + 1) : week + 1])
        if held[week] < bound:
            return inf
    beyond = [max(0, week + min(offer.minimum_weeks, weeks) - weeks) for week in range(weeks)]
    paid = sum(held) + sum(a * b for a, b in zip(started, beyond, strict=True))
    return paid * 168 * offer.usd_per_unit_h


def _rest_usd(problem, held, start, speed, wanted) -> float:  # type: ignore[no-untyped-def]
    """The run where it is put, and each hour the cheapest whole units for what held ones do not carry."""
    total = 0.0
    taken = np.zeros((len(problem.offers), problem.week_count))
    if start is not None:
        option, week = start
        index = next(i for i, offer in enumerate(problem.offers) if offer.name == option.offer)
        total += option.extra_usd
        if problem.offers[index].minimum_weeks:
            taken[index, week : week + option.weeks] = option.units
        else:
            total += problem.offers[index].usd_per_unit_h * option.unit_h
    hourly = [offer for offer in problem.offers if not offer.minimum_weeks]
    for week in range(problem.week_count):
        carried = 0.0
        for index, offer in enumerate(problem.offers):
            if offer.minimum_weeks:
                free = held[offer.name][week] - taken[index, week]
                if free < 0:
                    return inf
                carried += free * speed[offer.name]
        for hour in (0, 23):  # the two halves of a day are flat
            total += 12 * 7 * _hour_usd(wanted[week, hour] - carried, hourly, speed)
    return total


def _hour_usd(missing: float, hourly: list[CapacityOffer], speed: dict[str, float]) -> float:
    if missing <= 1e-9:
        return 0.0
    best = inf
    limits = [
        min(ceil(missing / speed[offer.name]), inf if offer.unit_limit is None else offer.unit_limit)
        for offer in hourly
    ]
    for units in product(*(range(int(limit) + 1) for limit in limits)):
        if sum(n * speed[offer.name] for n, offer in zip(units, hourly, strict=True)) >= missing - 1e-9:
            best = min(best, sum(n * offer.usd_per_unit_h for n, offer in zip(units, hourly, strict=True)))
    return best


@st.composite
def small_problems(draw: st.DrawFn) -> PortfolioProblem:
    weeks = draw(st.integers(2, 3))
    whole = st.integers(1, 9)
    offers = [
        make_offer("hour", 1.0 + draw(whole) / 4, unit_limit=draw(st.sampled_from([None, 1, 3]))),
        make_offer("other", 1.0 + draw(whole) / 4, provider="second"),
        make_offer("lease", 0.5 + draw(whole) / 8, minimum_weeks=draw(st.integers(1, 3)), term="reserved_1y"),
    ]
    day = [float(draw(st.integers(0, 3))) for _ in range(2)]
    table = np.stack([np.repeat(np.array(day) * draw(st.sampled_from([1, 2])), 12) for _ in range(weeks)])
    rates = tuple(ServingRate(each.name, "chat", "v", float(draw(st.integers(2, 5)))) for each in offers)
    campaigns = ()
    if draw(st.booleans()):
        first = draw(st.integers(0, 1))
        options = tuple(
            CampaignOption(each.name, draw(st.integers(1, 2)), float(draw(st.sampled_from([100, 168, 200]))))
            for each in offers
            if each.unit_limit is None and draw(st.booleans())
        ) or (CampaignOption("other", 1, 90.0),)
        campaigns = (Campaign("run", first, weeks, options),)
    return PortfolioProblem(
        tuple(offers), (Demand("chat", table, None),), (), campaigns, rates, week_count=weeks
    )


@settings(max_examples=20, deadline=None)
@given(small_problems())
def test_a_portfolio_costs_what_trying_everything_costs(problem: PortfolioProblem) -> None:
    answer = solve(problem, gap_fraction=0.0)
    expected = exhaustive_usd(problem)
    if answer is None:
        assert expected == inf  # no start of the run ends in time
        return
    assert answer.usd == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert violations(problem, answer) == ()


def year(offers: int = 12, **changes: object) -> PortfolioProblem:
    """A year of two classes, nightly work, a run and fine-tuning, on offers of three kinds."""
    random = np.random.default_rng(offers)
    listed = tuple(
        make_offer(
            f"o{i}",
            float(10 + 5 * (i % 3) + 3 * random.random()) * (0.7 if i % 2 else 1.0),
            accelerator="ABC"[i % 3],
            provider=f"p{i % 4}",
            minimum_weeks=52 if i % 2 else 0,
            unit_limit=4 if i % 4 == 3 else None,
        )
        for i in range(offers)
    )
    speeds = {"chat": 6.0, "search": 9.0, "night": 12.0}
    values: dict[str, object] = {
        "offers": listed,
        "demands": (
            make_demand("chat", [300, 500, 1200, 1900], reserve_ratio=1.4),
            make_demand("search", [700, 500, 1800, 1300], reserve_ratio=1.2),
        ),
        "batches": (Batch("night", np.full(52, 2.4e7), hours=(0, 1, 2, 3, 4, 5)),),
        "campaigns": (
            Campaign("base", 3, 12, tuple(CampaignOption(f"o{i}", 8, 600.0) for i in range(offers))),
            Campaign("tune", 20, 24, tuple(CampaignOption(f"o{i}", 1, 30.0) for i in range(offers)), False),
        ),
        "rates": tuple(
            ServingRate(f"o{i}", name, "v", speed * (1 + 0.3 * (i % 3)))
            for i in range(offers)
            for name, speed in speeds.items()
        ),
    }
    return PortfolioProblem(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [{}, {"platform_limit": 1}, {"provider_limit": 1, "offers_count": 6}],
    ids=["free", "platforms", "providers"],
)
def test_a_year_lies_between_its_bound_and_its_gap_and_breaks_nothing(changes: dict[str, object]) -> None:
    problem = year(int(changes.pop("offers_count", 12)), **changes)  # type: ignore[call-overload]
    answer, bound = solve(problem), bound_usd(problem)
    assert answer is not None and bound is not None
    assert bound <= answer.usd * (1 + 1e-9)
    assert answer.finished and answer.gap_fraction <= 0.005
    assert answer.bound_usd >= bound * (1 - 1e-6)
    assert violations(problem, answer) == ()


def test_limits_never_make_a_portfolio_cheaper() -> None:
    free, limited = solve(year()), solve(year(platform_limit=1))
    assert free and limited
    assert limited.usd >= free.bound_usd


def test_an_answer_that_ran_out_of_time_says_so() -> None:
    answer = solve(year(), gap_fraction=0.0, limit_s=1e-3)
    assert answer is None or (not answer.finished and answer.usd >= answer.bound_usd)


def test_no_answer_is_given_where_a_demand_has_no_offer(
    offer: Callable[..., CapacityOffer], demand: Callable[..., Demand]
) -> None:
    problem = PortfolioProblem((offer("one", 1.0),), (demand("chat", [1.0]),), (), (), ())
    assert solve(problem) is None and bound_usd(problem) is None


def test_idle_hours_of_a_lease_are_used_before_new_ones_are_rented(
    offer: Callable[..., CapacityOffer], demand: Callable[..., Demand]
) -> None:
    """One unit leased for the day's peak tunes at night for nothing."""
    offers = (offer("lease", 1.0, minimum_weeks=52), offer("hour", 4.0))
    rates = tuple(ServingRate(each.name, "chat", "v", 1.0) for each in offers)
    tune = Campaign("tune", 0, 4, (CampaignOption("lease", 1, 50.0), CampaignOption("hour", 1, 50.0)), False)
    peak = demand("chat", [0.0] * 12 + [1.0] * 12)
    without = solve(PortfolioProblem(offers, (peak,), (), (), rates), gap_fraction=0.0)
    shared = solve(PortfolioProblem(offers, (peak,), (), (tune,), rates), gap_fraction=0.0)
    assert without and shared
    assert shared.usd == pytest.approx(without.usd)
    assert shared.rented_unit_h.sum() == pytest.approx(0.0)
    assert shared.paused_units[0].sum() * 7 == pytest.approx(50.0)


def test_a_run_on_rented_hours_is_released_when_it_is_over(offer: Callable[..., CapacityOffer]) -> None:
    offers = (offer("lease", 1.0, minimum_weeks=52), offer("hour", 2.0))
    options = tuple(CampaignOption(each.name, 4, 400.0) for each in offers)
    problem = PortfolioProblem(offers, (), (), (Campaign("base", 0, 6, options),), ())
    answer = solve(problem, gap_fraction=0.0)
    assert answer and answer.placements[0].option.offer == "hour"
    assert answer.usd == pytest.approx(4 * 400 * 2.0)


def test_unmet_demand_is_told_where_a_shortage_has_a_price(
    offer: Callable[..., CapacityOffer], demand: Callable[..., Demand]
) -> None:
    problem = PortfolioProblem(
        (offer("one", 1.0, unit_limit=1),),
        (demand("chat", [0.5, 3.0]),),
        (),
        (),
        (ServingRate("one", "chat", "v", 1.0),),
        shortage_usd_per_request=10.0,
    )
    answer = solve(problem)
    assert answer
    assert answer.shortage_per_s[0, 0, 1] == pytest.approx(2.0) and answer.shortage_per_s[0, 0, 0] == 0.0
    assert violations(problem, answer) == ()


def test_a_run_that_may_pause_pays_for_the_sizes_it_ran_in(offer: Callable[..., CapacityOffer]) -> None:
    """Two sizes on one offer: each has its own work and its own cost beside the hours."""
    sizes = (CampaignOption("hour", 1, 400.0, 40.0), CampaignOption("hour", 4, 110.0, 10.0))
    tune = Campaign("tune", 0, 1, sizes, dense=False)
    problem = PortfolioProblem((offer("hour", 0.01),), (), (), (tune,), (), 4)
    answer = solve(problem, gap_fraction=0.0)
    assert answer and violations(problem, answer) == ()
    assert answer.usd == pytest.approx(440 * 0.01 + 10.0)
    assert [(part.option.units, part.done_fraction) for part in answer.portions] == [(4, pytest.approx(1.0))]


def test_what_is_leased_stays_whatever_would_be_cheaper() -> None:
    problem = year()
    free = solve(problem, effort=Effort.USUAL)
    units = np.full(52, 2.0)
    begins = np.where(np.arange(52) == 0, 2.0, 0.0)
    bound = solve(problem, effort=Effort.USUAL, leased={"o5": Leased(units, begins)})
    assert free and bound
    held = {offer.name: row for offer, row in zip(problem.offers, bound.held_units, strict=True)}
    assert np.array_equal(held.pop("o5"), units) and all(not row.any() for row in held.values())
    assert bound.usd >= free.bound_usd and violations(problem, bound) == ()


def test_the_usual_effort_keeps_the_gap_and_bounds_what_a_thorough_search_finds() -> None:
    problem = year()
    usual, thorough = solve(problem, effort=Effort.USUAL), solve(problem, gap_fraction=0.001)
    assert usual and thorough
    assert usual.finished and violations(problem, usual) == ()
    assert usual.bound_usd <= thorough.usd * (1 + 1e-9)


@given(
    st.lists(st.tuples(st.floats(1.0, 9.0), st.floats(1.0, 9.0)), min_size=3, max_size=4),
    st.floats(5.0, 60.0),
)
@settings(max_examples=8)
def test_a_day_without_hours_of_its_own_is_solved_to_the_end(
    kinds: list[tuple[float, float]], rate_per_s: float
) -> None:
    """Few columns: a limit of two of them holds a large part of all, and still is one of machines."""
    offers = tuple(make_offer(f"o{number}", usd) for number, (usd, _) in enumerate(kinds))
    rates = tuple(ServingRate(f"o{n}", "chat", "v", speed) for n, (_, speed) in enumerate(kinds))
    weeks = 2
    problem = PortfolioProblem(offers, (make_demand("chat", [rate_per_s], weeks),), (), (), rates, weeks)
    answer = solve(problem, effort=Effort.USUAL)
    cheapest = [inf] * (int(rate_per_s * 1000) + 1)  # by what is still to be served, in thousandths
    cheapest[0] = 0.0
    for wanted in range(1, len(cheapest)):
        cheapest[wanted] = min(usd + cheapest[max(0, wanted - int(speed * 1000))] for usd, speed in kinds)
    assert answer and violations(problem, answer) == ()
    assert answer.usd <= cheapest[-1] * weeks * 168 * 1.01


def test_a_run_on_machines_that_serve_nothing_leaves_the_hours_of_others_their_bound(
    offer: Callable[..., CapacityOffer],
) -> None:
    """A run on one's own nodes hid that whole hours of other machines were the cheapest: the gap was 5 %."""
    own = offer("own", tenure="owned", term="owned", usd_per_unit_h=0.0, unit_limit=2)
    rented = offer("rented", usd_per_unit_h=10.0, minimum_weeks=0)
    run = Campaign("run", 0, 2, (CampaignOption("own", 2, 100.0),))
    demand = Demand("chat", np.full((2, 24), 1.1), None)
    problem = PortfolioProblem(
        (own, rented), (demand,), (), (run,), (ServingRate("rented", "chat", "v", 1.0),), week_count=2
    )
    answer = solve(problem, effort=Effort.USUAL)
    assert answer is not None and answer.usd == answer.bound_usd == pytest.approx(2 * 10.0 * 2 * 168)
