"""Power lies between idle and the limit, and energy is power over time."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.perf import Device, energy_j, power_w


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0.0, 1.0), more=st.floats(0.0, 1.0))
def test_power_rises_from_idle_to_the_limit(h100: Device, share: float, more: float) -> None:
    low, high = sorted((share, more))
    assert h100.idle_w <= power_w(h100, low) <= power_w(h100, high) <= h100.tdp_w


def test_an_hour_at_the_limit_is_the_limit_in_watt_hours(h100: Device) -> None:
    assert energy_j(h100, 3600.0, 1.0) / 3600 == pytest.approx(700.0)
