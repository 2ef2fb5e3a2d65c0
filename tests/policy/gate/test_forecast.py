import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.forecast import SAMPLES_MAX, Forecast, Rises, warm_count
from twofold.policy.gate.settings import ForecastSettings, WarmSettings

SETTINGS = ForecastSettings(bin_s=60.0, season_s=3600.0)


def day(at_s: float) -> float:
    """A rate that repeats each hour."""
    return 10.0 + 6.0 * math.sin(2 * math.pi * at_s / 3600.0)


def fed(until_s: float, scale: float = 1.0, noise: float = 0.0, lead_s: float = 300.0) -> Forecast:
    forecast, draws = Forecast(SETTINGS, lead_s), np.random.default_rng(1)
    for step in range(int(until_s / 10.0)):
        at_s = step * 10.0
        factor = scale if at_s > 3600.0 else 1.0
        forecast.observe(at_s, day(at_s) * 10.0 * factor * draws.lognormal(0, noise))
    return forecast


def per_s(forecast: Forecast, ahead_s: float) -> float | None:
    """The rate that is foretold for one bin."""
    bin_s = forecast.settings.bin_s
    return forecast.bin_ahead(round(ahead_s / bin_s)) / bin_s if forecast.known() else None


def test_there_is_no_forecast_before_a_whole_season() -> None:
    assert per_s(fed(3590.0), 0.0) is None and fed(3590.0).highest_per_s(600.0) is None
    assert per_s(fed(3700.0), 0.0) is not None


@pytest.mark.parametrize("ahead_s", [0.0, 300.0, 1200.0])
@pytest.mark.parametrize("until_s", [7200.0, 7900.0, 9500.0])
def test_a_rate_that_repeats_is_foretold(until_s: float, ahead_s: float) -> None:
    forecast = fed(until_s)
    forecast.advance(until_s)
    said = per_s(forecast, ahead_s)
    assert said == pytest.approx(day(until_s // 60.0 * 60.0 + ahead_s + 30.0), rel=0.05)


def test_a_day_that_is_busier_as_a_whole_is_foretold_busier() -> None:
    said = per_s(fed(9000.0, scale=1.5), 300.0)
    assert said == pytest.approx(1.5 * day(9330.0), rel=0.1)


def test_the_highest_rate_ahead_sees_a_peak_between() -> None:
    forecast = fed(7200.0)
    said = forecast.highest_per_s(1800.0)
    assert said == pytest.approx(16.0, rel=0.03) and said > (per_s(forecast, 1800.0) or 0.0)


def test_the_error_is_what_forecasts_missed() -> None:
    assert (fed(4 * 3600.0).error_fraction() or 0.0) < 0.05
    rough = Forecast(SETTINGS, 300.0)
    draws = np.random.default_rng(2)
    for number in range(400):
        rough.observe(number * 60.0, 100.0 * (1 + draws.choice([-0.3, 0.3])))
    assert rough.error_fraction() == pytest.approx(0.3, rel=0.3)
    assert fed(3700.0).error_fraction() is None


def test_after_two_seasons_of_silence_it_begins_anew() -> None:
    forecast = fed(7200.0)
    forecast.advance(7200.0 + 3 * 3600.0)
    assert not forecast.known() and per_s(forecast, 0.0) is None


@given(st.lists(st.tuples(st.floats(0.0, 900.0), st.floats(0.0, 1e6)), max_size=60))
def test_forecasts_are_never_negative_nor_nan_whatever_comes(steps: list[tuple[float, float]]) -> None:
    forecast, now_s = Forecast(ForecastSettings(bin_s=60.0, season_s=600.0), 120.0), 5.0
    for gap_s, amount in steps:
        now_s += gap_s
        forecast.observe(now_s, amount)
        for said in (per_s(forecast, 60.0), forecast.highest_per_s(600.0), forecast.error_fraction()):
            assert said is None or 0.0 <= said < math.inf


@pytest.mark.parametrize(
    "wrong",
    [{"bin_s": 0.0}, {"season_s": 30.0}, {"bin_s": 1.0, "season_s": 1e6}, {"level_gain": 0.0}],
)
def test_bins_that_could_not_work_are_our_mistake(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        ForecastSettings(**wrong)


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
