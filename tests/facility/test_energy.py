"""A year of a building: energy through PUE, water, money, and carbon by hour that adds up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog import load_catalog
from twofold.facility import cleanest_hours, year_of
from twofold.facility.energy import Year, carbon_by_hour

CATALOG = load_catalog()


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
