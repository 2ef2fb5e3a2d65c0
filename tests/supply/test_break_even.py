"""Where own and hosted cross, and a run and its serving."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.supply import OwnCost, break_even_months, break_even_mtok_per_month, lifetime_curve
from twofold.supply.break_even import crossing_days, own_usd_per_month

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
        assert own_usd_per_month(own, 1e9) >= price * 1e9 or own.once_usd == 0
        return
    assert own_usd_per_month(own, volume) == pytest.approx(price * volume, rel=1e-9)
    assert own_usd_per_month(own, volume / 2) >= price * volume / 2


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
