"""What outages cost and which spares pay."""

from itertools import pairwise
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.supply import Failing, cheapest_redundancy, nines, redundancy_steps
from twofold.supply.downtime import available_fraction, enough_fraction

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
