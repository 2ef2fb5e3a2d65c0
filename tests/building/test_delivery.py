"""Delivery of power: breakers within 80 %, steps that become ramps, caps that cost what physics says."""

from itertools import pairwise
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.building.delivery import (
    Tier,
    Year,
    capped,
    carbon_by_hour,
    cleanest_hours,
    provision,
    rack_feed,
    redundancy,
    step_load,
    year_of,
)
from twofold.catalog.catalog import load_catalog
from twofold.catalog.figures import figure
from twofold.contracts.results.premises import Feed

CATALOG = load_catalog()


def _side_w(feed: Feed) -> float:
    """The rating of one side: three phases of 415 V with a power factor of 0.98."""
    return sqrt(3.0) * 415.0 * 0.98 * feed.amps * feed.strip_count


@given(st.floats(100.0, 600e3))
def test_either_side_alone_stays_within_80_percent_of_its_rating(rack_w: float) -> None:
    feed = rack_feed(CATALOG, "base", rack_w)
    assert feed.load_alone_fraction <= 0.8 + 1e-12
    assert feed.load_fraction == pytest.approx(feed.load_alone_fraction / 2)
    assert feed.load_alone_fraction * _side_w(feed) == pytest.approx(rack_w)


def test_a_strip_is_rated_by_three_phases() -> None:
    """32 A at 415 V and a power factor of 0.98 carry 22.5 kW: 18 kW of continuous load."""
    feed = rack_feed(CATALOG, "base", 17_900.0)
    assert (feed.amps, feed.strip_count) == (32, 1)
    assert _side_w(feed) == pytest.approx(feed.rack_w / feed.load_alone_fraction)
    assert _side_w(feed) == pytest.approx(22_541, abs=2)


def test_a_jump_becomes_a_ramp_that_a_buffer_fills() -> None:
    step = step_load(CATALOG, "base", 2e6, 0.5e6, synchronous=True)
    assert step.swing_w == 1.5e6
    assert step.ramp_s == pytest.approx(450.0)  # a tenth of 2 MW each minute
    assert step.buffer_j == pytest.approx(step.swing_w * step.ramp_s / 2)
    assert step.phase_swing_w == pytest.approx(0.3 * 2e6)  # what fleets reported
    assert step_load(CATALOG, "base", 2e6, 0.5e6, synchronous=False).phase_swing_w == 0.0


@given(st.floats(1e4, 1e8), st.floats(0.0, 1.0))
def test_a_smaller_swing_takes_a_smaller_buffer(busy_w: float, rest: float) -> None:
    step, whole = (
        step_load(CATALOG, "base", busy_w, busy_w * share, synchronous=True) for share in (rest, 0.0)
    )
    assert 0 <= step.buffer_j <= whole.buffer_j and step.swing_w <= busy_w


def test_serving_leaves_more_headroom_than_training() -> None:
    (training_w, ride_through_j), (serving_w, _) = provision(CATALOG, 1e6, 0.0), provision(CATALOG, 0.0, 1e6)
    assert 1 - training_w / 1e6 == pytest.approx(0.03)
    assert 1 - serving_w / 1e6 == pytest.approx(0.21)
    assert ride_through_j == pytest.approx(1e6 * 300)


@given(st.floats(0.3, 1.2), st.floats(0.0, 1.0))
def test_a_cap_never_gains_throughput_and_memory_bound_work_loses_least(cap: float, compute: float) -> None:
    (some, _), (none, _), (clock, _) = (capped(cap, 0.9, 0.1, each) for each in (compute, 0.0, 1.0))
    assert 0.0 < clock <= some <= none <= 1.0  # what only computes is as fast as the clock


def test_a_fifth_less_power_costs_a_few_percent() -> None:
    """POLCA measured about a fifth less power for a few percent of throughput."""
    throughput, energy = capped(0.8 * 0.9, 0.9, 0.1, 0.7)
    assert 0.90 < throughput < 0.98 and energy < 1.0
    assert capped(0.05, 0.9, 0.1, 0.7)[0] == 0.0  # below idle


def test_higher_tiers_are_down_less_and_cost_more() -> None:
    tiers: tuple[Tier, ...] = ("I", "II", "III", "IV")
    found = [redundancy(CATALOG, tier) for tier in tiers]
    assert all(less.down_h_per_year > more.down_h_per_year for less, more in pairwise(found))
    assert all(less.capex_factor <= more.capex_factor for less, more in pairwise(found))
    assert found[2].down_h_per_year == pytest.approx(1.6, abs=0.05)  # as the tier standard is quoted


def test_conversion_loses_a_few_percent() -> None:
    names = ("UPS double conversion", "distribution and transformers")
    ups, wires = (figure(CATALOG, "efficiency", name) for name in names)
    assert 0.9 < ups.low * wires.low <= ups.value * wires.value <= ups.high * wires.high < 1.0


def a_year(mean_w: float = 1e6, **more: object) -> Year:
    usual = {"pue_ratio": 1.2, "wue_l_per_kwh": 0.2, "usd_per_kwh": 0.08, "grid_gco2_per_kwh": 300.0}
    return year_of(CATALOG, mean_w, 1.2 * mean_w, **(usual | more))  # type: ignore[arg-type]  # by name


def test_a_megawatt_for_a_year() -> None:
    year = a_year()
    assert year.it_kwh == pytest.approx(8.76e6)
    assert year.meter_kwh == pytest.approx(1.2 * 8.76e6)
    assert year.energy_usd == pytest.approx(1.2 * 8.76e6 * 0.08)
    assert year.water_l == pytest.approx(0.2 * 8.76e6)
    assert year.carbon_g == pytest.approx(1.2 * 8.76e6 * 300.0)  # a flat load meets the mean of the grid


@given(st.floats(1e3, 1e9), st.floats(1.0, 3.0))
def test_everything_scales_with_the_load(mean_w: float, factor: float) -> None:
    one, more = a_year(mean_w), a_year(mean_w * factor)
    for name in ("it_kwh", "meter_kwh", "energy_usd", "demand_usd", "water_l", "carbon_g"):
        assert getattr(more, name) == pytest.approx(factor * getattr(one, name))


@given(st.floats(1.0, 900.0))
def test_the_hours_of_a_grid_have_its_mean(grid: float) -> None:
    hours = carbon_by_hour(CATALOG, grid)
    assert len(hours) == 24 and sum(hours) / 24 == pytest.approx(grid)
    assert hours.index(min(hours)) == 13


def test_work_that_waits_for_clean_hours_emits_less() -> None:
    waiting = cleanest_hours(CATALOG, 300.0, 6)
    shaped = tuple(1.0 if hour in waiting else 0.0 for hour in range(24))
    assert a_year(hourly_shape=shaped).carbon_g < 0.9 * a_year().carbon_g
    evening = tuple(1.0 if hour in (19, 20, 21) else 0.0 for hour in range(24))
    assert a_year(hourly_shape=evening).carbon_g > a_year().carbon_g


def test_a_landlord_bills_no_demand() -> None:
    assert a_year(demand_charge=False).demand_usd == 0.0 < a_year().demand_usd
