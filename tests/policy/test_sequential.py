import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.sequential import (
    Errors,
    Evidence,
    FailureTest,
    MeanSums,
    MeanTest,
    Verdict,
    alarm_at,
    cleared_at,
)

ERRORS = Errors(0.01, 0.01)
VALUES = st.lists(st.floats(-3.0, 3.0), min_size=3, max_size=12)


def sums_of(y: list[float], u: list[float] | None = None, v: list[float] | None = None) -> MeanSums:
    sums = MeanSums()
    for row in zip(y, u or [0.0] * len(y), v or [0.0] * len(y), strict=True):
        sums.add(*row)
    return sums


@given(VALUES, VALUES)
def test_the_first_block_weighs_its_difference_as_two_samples_of_one_spread(
    canary: list[float], baseline: list[float]
) -> None:
    test = MeanTest(0.1, ERRORS)
    test.close_block(sums_of(canary), sums_of(baseline))
    freedom = len(canary) + len(baseline) - 2
    scatter = np.var(canary) * len(canary) + np.var(baseline) * len(baseline)
    variance = max(scatter, 1e-12) / freedom * (1 / len(canary) + 1 / len(baseline))
    if scatter > 1e-6:
        difference = np.mean(canary) - np.mean(baseline)
        ratio = 0.1 * (float(difference) - 0.05) / float(variance)
        ratio = min(max(ratio, cleared_at(ERRORS)), alarm_at(ERRORS) / test.blocks_min_count)
        assert test.log_ratio() == pytest.approx(ratio, rel=1e-6, abs=1e-6)


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_failure_speaks_for_worse_and_an_answer_against_it(failed: int, served: int) -> None:
    def after(canary_failed: int, canary_served: int) -> float:
        test = FailureTest(0.01, ERRORS, base_count=10_000, base_failed_count=50)
        test.close_block(canary_failed + canary_served, canary_failed, 1000, 5)
        return test.log_ratio()

    assert after(failed + 1, served) > after(failed, served)
    assert after(failed, served + 1) <= after(failed, served)


def test_a_load_that_differs_between_the_arms_is_not_taken_for_the_release() -> None:
    """Times grow by 40 % from an empty to a full replica; the canary is nearly empty, the baseline is not."""
    draws = np.random.default_rng(3)
    test = MeanTest(math.log(1.15), ERRORS)
    slower = MeanTest(math.log(1.15), ERRORS)
    for _ in range(30):
        arms = {}
        for name, count, middle in (("canary", 50, 0.45), ("baseline", 300, 0.6)):
            load = np.clip(draws.normal(middle, 0.12, count), 0, 1)
            arms[name] = (0.4 * load + draws.normal(0, 0.2, count), load)
        y, u = arms["baseline"]
        baseline = sums_of(list(y), list(u))
        y, u = arms["canary"]
        test.close_block(sums_of(list(y), list(u)), baseline)
        slower.close_block(sums_of(list(y + math.log(1.15)), list(u)), baseline)
    assert test.verdict() is Verdict.CLEARED
    assert slower.verdict() is Verdict.WORSE


def arms_apart(
    draws: np.random.Generator, gap: float, slope: float, between: float, slower: float = 0.0
) -> tuple[MeanSums, MeanSums]:
    """A canary and a baseline whose loads lie `gap` apart; what load costs inside arms and between them."""
    arms = []
    for count, y_shift, u_shift in ((50, slower, 0.0), (300, between * gap, gap)):
        u = draws.normal(0.0, 1.0, count)
        y = slope * u + draws.normal(0, 0.2, count) + y_shift
        u += u_shift
        sums = (float(value) for value in (y.sum(), u.sum(), y @ y, u @ u, u @ y))
        y_sum, u_sum, yy, uu, uy = sums
        arms.append(MeanSums(count, y_sum, u_sum, yy_value=yy, uu_value=uu, uy_value=uy))
    return arms[0], arms[1]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.floats(5.0, 20.0), st.floats(0.05, 0.2))
def test_an_adjustment_that_is_wholly_wrong_raises_no_alarm_however_often_it_is_made(
    seed: int, gap: float, slope: float
) -> None:
    draws = np.random.default_rng(seed)
    test = MeanTest(math.log(1.15), Errors())
    for _ in range(60):
        test.close_block(*arms_apart(draws, gap, slope, between=0.0))
        assert test.verdict() is not Verdict.WORSE


@pytest.mark.parametrize(("slower", "verdict"), [(0.0, Verdict.CLEARED), (math.log(1.15), Verdict.WORSE)])
def test_blocks_at_like_load_decide_whatever_came_before(slower: float, verdict: Verdict) -> None:
    draws = np.random.default_rng(9)
    test = MeanTest(math.log(1.15), ERRORS)
    for gap in [10.0] * 20 + [0.0] * 20:
        test.close_block(*arms_apart(draws, gap, 0.1, between=0.05, slower=slower))
    assert test.verdict() is verdict


@given(st.lists(st.tuples(st.floats(0.1, 9.0), st.floats(-2, 2), st.floats(-2, 2)), min_size=3, max_size=9))
def test_what_is_known_is_the_least_squares_solution_with_the_doubt_as_prior(
    blocks: list[tuple[float, float, float]],
) -> None:
    evidence = Evidence()
    for block in blocks:
        evidence.add(*block)
    weight, difference, adjustment = np.array(blocks).T
    design = np.stack([np.ones(len(blocks)), adjustment], axis=1)
    matrix = design.T * (weight / 2.0) @ design + np.diag([0.0, 1.0 / 0.3])
    value = design.T @ (weight / 2.0 * difference)
    known, weighed = evidence.known(2.0, 0.3)
    inverse = np.linalg.inv(matrix)
    assert known == pytest.approx(1.0 / inverse[0, 0])
    assert weighed / known == pytest.approx((inverse @ value)[0], abs=1e-9)
    fit = design.T * weight @ design + np.diag([0.0, 1.0 / 0.3])
    best = np.linalg.solve(fit, design.T @ (weight * difference))
    left = float(weight @ (difference - design @ best) ** 2 + best[1] ** 2 / 0.3)
    assert evidence.beyond(0.3) == pytest.approx(left, abs=1e-9)


def test_requests_that_are_slow_together_count_as_fewer() -> None:
    draws = np.random.default_rng(4)
    alone, together = MeanTest(0.14, ERRORS), MeanTest(0.14, ERRORS)
    for _ in range(40):
        noise = draws.normal(0, 0.3, (2, 50))
        weather = draws.normal(0, 0.15, 2)
        alone.close_block(sums_of(list(noise[0])), sums_of(list(noise[1])))
        together.close_block(sums_of(list(noise[0] + weather[0])), sums_of(list(noise[1] + weather[1])))
    assert alone.spread() < 1.6 and together.spread() > 3 * alone.spread()


def test_old_good_evidence_delays_an_alarm_by_a_bounded_amount() -> None:
    test = FailureTest(0.01, ERRORS)
    for _ in range(1000):
        test.close_block(50, 0, 950, 5)
    assert test.verdict() is Verdict.CLEARED and test.log_ratio() == cleared_at(ERRORS)
    blocks = 0
    while test.verdict() is not Verdict.WORSE:
        test.close_block(50, 5, 950, 5)
        blocks += 1
    assert blocks <= 3


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_a_fault_that_strikes_both_arms_says_nothing(seed: int) -> None:
    draws = np.random.default_rng(seed)
    test = FailureTest(0.01, ERRORS)
    for block in range(30):
        rate = 0.3 if block % 10 == 9 else 0.005
        test.close_block(50, draws.binomial(50, rate), 500, draws.binomial(500, rate))
    assert test.log_ratio() < alarm_at(ERRORS)


def test_what_never_fails_at_the_baseline_is_not_condemned_by_two_failures() -> None:
    test = FailureTest(0.01, ERRORS)
    test.close_block(50, 2, 100_000, 0)
    assert test.verdict() is Verdict.OPEN


@pytest.mark.parametrize("wrong", [(0.0, 0.1), (0.1, 1.0)])
def test_errors_are_between_never_and_always(wrong: tuple[float, float]) -> None:
    with pytest.raises(AssertionError):
        Errors(*wrong)
