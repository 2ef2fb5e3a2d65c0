import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.warm import SAMPLES_MAX, Rises, WarmSettings, warm_count

MANY = WarmSettings(max_count=1000)


@given(st.floats(0.0, 50.0), st.floats(0.0, 2.0), st.floats(1.0, 3.0))
def test_a_worse_forecast_and_a_greater_need_ask_for_more(needed: float, miss: float, factor: float) -> None:
    count = warm_count(needed, miss, MANY)
    assert count <= warm_count(needed * factor, miss, MANY) and count <= warm_count(
        needed, miss * factor, MANY
    )
    assert warm_count(needed, 0.0, MANY) == 0


def test_surer_is_more_and_bounds_hold() -> None:
    assert warm_count(10.0, 0.2, WarmSettings(0.5, max_count=99)) == 0
    assert warm_count(10.0, 0.2, WarmSettings(0.99, max_count=99)) == 5  # 2.33 · 2
    assert warm_count(100.0, 1.0, WarmSettings(max_count=3)) == 3
    assert warm_count(0.0, 0.0, WarmSettings(min_count=2)) == 2


def test_rises_are_measured_over_one_start_up_time() -> None:
    rises = Rises(MANY)
    for step in range(200):
        rises.observe(step * 10.0, 4.0 + (step % 2), 120.0)
    calm = rises.spread_count()
    for step in range(200, 400):
        rises.observe(step * 10.0, 5.0 * (step // 12 % 2), 120.0)
    assert calm < 1.0 < rises.spread_count() <= 5.0


def test_a_need_that_only_falls_has_no_rises_and_samples_are_bounded() -> None:
    rises = Rises(MANY)
    for step in range(3 * SAMPLES_MAX):
        rises.observe(step * 0.001, 100.0 - step * 0.001, 120.0)
    assert rises.spread_count() == 0.0 and len(rises._samples) <= SAMPLES_MAX


@pytest.mark.parametrize(
    "wrong", [{"covered_fraction": 1.0}, {"min_count": 3, "max_count": 2}, {"rise_window_s": 0.0}]
)
def test_settings_that_could_not_work_are_our_mistake(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        WarmSettings(**wrong)  # type: ignore[arg-type]
