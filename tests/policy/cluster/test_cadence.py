import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.cluster.cadence import FailureRate, next_interval_s, prior_rate, smoothed_write_s
from twofold.policy.cluster.settings import CadenceSettings

WRITE_S = 60.0
DAY_S = 86_400.0
Rate = Callable[[float], float]  # failures per second at a time


def test_the_case_of_llama_3_is_nineteen_minutes() -> None:
    settings = CadenceSettings()
    interval_s = next_interval_s(settings.prior_failures_per_accelerator_s, 16_384, WRITE_S, settings)
    assert round(interval_s / 60) == 19


@given(st.floats(1e-9, 1e-3), st.integers(1, 10_000), st.floats(0.1, 1e3))
def test_an_interval_stays_within_its_bounds_and_falls_with_size(
    rate: float, size: int, write_s: float
) -> None:
    settings = CadenceSettings()
    one, other = (next_interval_s(rate, n, write_s, settings) for n in (size, 2 * size))
    assert settings.interval_s_min <= other <= one <= settings.interval_s_max


def test_a_fixed_interval_asks_for_nothing() -> None:
    assert next_interval_s(1.0, 1, 1.0, CadenceSettings(fixed_interval_s=7.0)) == 7.0


def test_before_anything_is_seen_the_prior_holds() -> None:
    assert prior_rate(1e-4, 2.0, 16.0).failures_per_s == pytest.approx(1e-4)


@given(st.floats(1e-7, 1e-2), st.integers(0, 3))
def test_a_steady_rate_is_found_from_any_prior(rate: float, seed: int) -> None:
    random = Random(seed)
    found = prior_rate(1e-4, 2.0, 200.0)
    for _ in range(2000):
        found.advance(random.expovariate(rate))
        found.fail()
    assert found.failures_per_s == pytest.approx(rate, rel=0.3)  # four deviations of 200 failures


def test_a_long_time_without_failures_lowers_the_rate() -> None:
    found = FailureRate(16.0, 16.0 * 1000.0, 16.0)
    found.advance(16.0 * 1000.0)
    assert found.failures_per_s == pytest.approx(0.5e-3)


def test_old_failures_are_forgotten() -> None:
    found = FailureRate(16.0, 16.0 * 1000.0, 16.0)
    for _ in range(64):
        found.advance(100.0)
        found.fail()
    assert found.failures_per_s == pytest.approx(0.01, rel=0.15)


def test_a_slower_storage_shows_within_a_few_writes() -> None:
    write_s = 10.0
    for _ in range(8):
        write_s = smoothed_write_s(write_s, 100.0)
    assert 90.0 < write_s <= 100.0


# --- lost work, against somebody who knows the rate ---


def lost_s(failures_s: list[float], end_s: float, interval_s: Callable[[float, bool], float]) -> float:
    """Seconds that were not work, up to `end_s`: writes, and what failures undid. Restarts take none here.

    `interval_s(now, failed)`: how long to work before the next write; asked after each write and failure.
    """
    now_s = safe_s = wasted_s = 0.0  # safe: when the last write ended, or the last failure was
    upcoming = iter([*failures_s, math.inf])
    next_failure_s = next(upcoming)
    due_s = interval_s(0.0, False)
    while now_s < end_s:
        written_s = safe_s + due_s + WRITE_S
        if next_failure_s < written_s:
            now_s = next_failure_s
            wasted_s += now_s - safe_s
            next_failure_s = next(upcoming)
            due_s = interval_s(now_s, True)
        else:
            now_s = written_s
            wasted_s += WRITE_S
            due_s = interval_s(now_s, False)
        safe_s = now_s
    return wasted_s


def failures_of(rate: Rate, rate_max: float, end_s: float, seed: int) -> list[float]:
    """A Poisson process whose rate drifts, by thinning."""
    random, at_s, found = Random(seed), 0.0, []
    while at_s < end_s:
        at_s += random.expovariate(rate_max)
        if random.random() < rate(at_s) / rate_max:
            found.append(at_s)
    return found


HOUR_RATE = 1 / 3600.0
DRIFTS: dict[str, Rate] = {
    "steady": lambda _: HOUR_RATE / 3,
    "ages fivefold in a month": lambda at_s: HOUR_RATE / 10 * (1 + 4 * (at_s % (30 * DAY_S)) / (30 * DAY_S)),
    "comes and goes by the fortnight": lambda at_s: (
        HOUR_RATE / 4 * 3 ** math.sin(at_s / (14 * DAY_S) * math.tau)
    ),
    "jumps and is mended": lambda at_s: HOUR_RATE / (2 if (at_s // (20 * DAY_S)) % 2 else 8),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_lost_work_is_within_a_twentieth_of_who_knows_the_rate(drift: str) -> None:
    """Paired: the same failures, for the policy and for Daly's interval of the true rate (issue's bound)."""
    rate, settings, end_s = DRIFTS[drift], CadenceSettings(), 365 * DAY_S
    policy_s = oracle_s = 0.0
    for seed in range(2):
        failures_s = failures_of(rate, HOUR_RATE, end_s, seed)
        assert len(failures_s) > 800
        believed = prior_rate(HOUR_RATE / 3.1, settings.prior_count, settings.memory_count)
        seen_s = 0.0

        def by_policy(now_s: float, failed: bool, believed: FailureRate = believed) -> float:
            nonlocal seen_s
            believed.advance(now_s - seen_s)
            seen_s = now_s
            if failed:
                believed.fail()
            return next_interval_s(believed.failures_per_s, 1, WRITE_S, settings)

        policy_s += lost_s(failures_s, end_s, by_policy)
        oracle_s += lost_s(
            failures_s, end_s, lambda now_s, _: next_interval_s(rate(now_s), 1, WRITE_S, settings)
        )
    assert policy_s <= 1.05 * oracle_s
