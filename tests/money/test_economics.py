"""Money per token, query and joule."""

from itertools import pairwise
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.money.economics import (
    Failing,
    OwnCost,
    available_fraction,
    break_even_months,
    break_even_mtok_per_month,
    cheapest_redundancy,
    cost_ratio,
    crossing_days,
    energy_usd,
    enough_fraction,
    lifetime_curve,
    nines,
    redundancy_steps,
    usd_per_mtok,
)


def test_work_that_does_not_happen_has_no_finite_price() -> None:
    assert usd_per_mtok(1.0, 0.0) == float("inf")


def test_energy_costs_its_kilowatt_hours() -> None:
    assert energy_usd(3.6e9, 0.1) == pytest.approx(100.0)


@pytest.mark.parametrize(("training", "verdict"), [(1.0, "below"), (8.0, "within"), (30.0, "above")])
def test_a_ratio_is_held_against_its_claim(training: float, verdict: str) -> None:
    row = cost_ratio("per GPU", training, 1.0, (5.0, 10.0), "a node of each")
    assert (row.ratio, row.verdict) == (training, verdict)


COSTS = st.builds(
    OwnCost,
    least_usd_per_month=st.floats(1.0, 1e6),
    usd_per_mtok=st.floats(0.001, 10.0),
    once_usd=st.floats(0.0, 1e7),
    months=st.floats(1.0, 60.0),
)
PRICE = st.floats(0.01, 20.0)


@given(COSTS, PRICE)
def test_at_the_break_even_both_cost_the_same_and_below_it_the_api_is_cheaper(
    own: OwnCost, price: float
) -> None:
    volume = break_even_mtok_per_month(own, price)
    if volume is None:
        assert price <= own.usd_per_mtok
        assert own.running_usd_per_month(1e9) + own.once_usd_per_month >= price * 1e9 or own.once_usd == 0
        return
    at, below = (own.running_usd_per_month(each) + own.once_usd_per_month for each in (volume, volume / 2))
    assert at == pytest.approx(price * volume, rel=1e-9)
    assert below >= price * volume / 2


@given(COSTS, PRICE, st.floats(1.0, 1e6))
def test_a_run_is_paid_back_when_the_savings_add_up_to_it(own: OwnCost, price: float, volume: float) -> None:
    months = break_even_months(own, price, volume)
    saved = price * volume - own.running_usd_per_month(volume)
    if months is None:
        assert saved <= 0
    else:
        assert months * saved == pytest.approx(own.once_usd)


@given(COSTS, PRICE, st.floats(1.01, 10.0))
def test_a_dearer_api_breaks_even_sooner(own: OwnCost, price: float, factor: float) -> None:
    first, then = (break_even_mtok_per_month(own, each) for each in (price, price * factor))
    assert first is None or (then is not None and then <= first * (1 + 1e-9))


def test_an_api_that_costs_nothing_is_never_beaten() -> None:
    assert break_even_mtok_per_month(OwnCost(1.0, 0.1), 0.0) is None


def test_serving_more_crosses_the_run_sooner_and_costs_more_a_year() -> None:
    curve = lifetime_curve(1e6, 0.001, (1e3, 1e4, 1e6), least_usd_per_day=100.0)
    assert [point.serving_usd_per_year for point in curve] == [36500.0, 36500.0, 365000.0]
    assert [point.crossing_days for point in curve] == [10000.0, 10000.0, 1000.0]
    assert crossing_days(1.0, 0.0, 1.0) is None


CALM = Failing(0.995, 0.9998, zones=1)


@given(st.integers(1, 20), st.integers(0, 10), st.floats(0.5, 0.999))
def test_enough_is_the_binomial_tail_counted_one_by_one(needed: int, spare: int, up: float) -> None:
    total = needed + spare
    counted = sum(comb(total, k) * up**k * (1 - up) ** (total - k) for k in range(needed, total + 1))
    assert enough_fraction(needed, total, up) == pytest.approx(counted, abs=1e-12)


def test_a_hundred_thousand_machines_do_not_underflow() -> None:
    assert 0.4 < enough_fraction(99_500, 100_000, 0.995) < 0.6
    assert enough_fraction(2, 1, 0.9) == 0.0 and enough_fraction(1, 1, 1.0) == 1.0


@given(st.integers(1, 40), st.integers(1, 3))
def test_a_spare_never_makes_an_outage_longer(needed: int, zones: int) -> None:
    steps = redundancy_steps(needed, 1e4, 1e3, Failing(0.995, 0.9998, zones), range(12))
    hours = [step.outage_h_per_year for step in steps]
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(hours))
    assert all(
        step.total_usd_per_year == step.fleet_usd_per_year + step.outage_usd_per_year for step in steps
    )


@given(st.integers(1, 40), st.floats(10.0, 1e6), st.floats(1e3, 1e6), st.integers(1, 3))
def test_the_choice_has_the_least_sum_of_both_costs(
    needed: int, outage: float, price: float, zones: int
) -> None:
    failing = Failing(0.995, 0.9998, zones)
    best = cheapest_redundancy(needed, price, outage, failing)
    around = redundancy_steps(needed, price, outage, failing, range(best.spare_count + 6))
    assert best.total_usd_per_year == pytest.approx(min(step.total_usd_per_year for step in around))


def test_a_dearer_hour_buys_more_spares() -> None:
    counts = [cheapest_redundancy(20, 5e4, usd, CALM).spare_count for usd in (1.0, 1e3, 1e5, 1e7)]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] > 2


def test_losing_a_zone_takes_its_replicas() -> None:
    two = Failing(1.0, 0.999, zones=2)
    assert available_fraction(2, 2, two) == pytest.approx(0.998)
    assert available_fraction(2, 4, two) == pytest.approx(1.0)


def test_each_nine_is_worth_a_tenth_of_the_one_before() -> None:
    steps = nines(100.0)
    assert [step.to_fraction for step in steps] == pytest.approx([0.999, 0.9999, 0.99999])
    assert steps[0].worth_usd_per_year == pytest.approx(100.0 * 78.84)
    assert steps[1].worth_usd_per_year == pytest.approx(steps[0].worth_usd_per_year / 10)
