import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.gate.sequential import (
    DOUBT_FRACTION,
    TOGETHER_BLOCKS,
    Errors,
    Evidence,
    MeanSums,
    MeanTest,
    Verdict,
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
    variance = max(float(scatter), 1e-12) / freedom * (1 / len(canary) + 1 / len(baseline))
    if scatter > 1e-6:
        seen = test.evidence
        difference = float(np.mean(canary) - np.mean(baseline))
        assert seen.weight_value == pytest.approx(1 / float(variance), rel=1e-6)
        assert seen.wd_value / seen.weight_value == pytest.approx(difference, abs=1e-9)


Blocks = list[tuple[float, float, float]]  # weight, difference, adjustment
BLOCKS = st.lists(
    st.tuples(st.floats(0.1, 900.0), st.floats(-1, 1), st.floats(-1, 1)), min_size=3, max_size=12
)


def evidence_of(blocks: Blocks) -> Evidence:
    evidence = Evidence()
    for block in blocks:
        evidence.add(*block)
    return evidence


@given(BLOCKS, st.floats(0.01, 0.5))
def test_no_difference_and_the_margin_are_alike_seen_from_either_end(blocks: Blocks, margin: float) -> None:
    mirrored = [(weight, margin - difference, leaned) for weight, difference, leaned in blocks]
    one, other = (
        evidence_of(blocks),
        evidence_of([(weight, difference, -leaned) for weight, difference, leaned in mirrored]),
    )
    assert one.log_ratio(margin) == pytest.approx(-other.log_ratio(margin), rel=1e-4, abs=1e-4)


def test_where_blocks_vary_as_their_outcomes_predict_the_ratio_is_that_of_normal_means() -> None:
    """Wald's: margin · Σ w (d - margin/2), for a difference between 0 and the margin."""
    evidence = evidence_of([(100.0, d, 0.0) for d in (0.02, 0.04, 0.03, 0.05)])
    assert evidence.spread() == 1.0
    assert evidence.log_ratio(0.1) == pytest.approx(0.1 * 100.0 * (0.14 - 4 * 0.05))


def test_one_odd_block_raises_no_alarm() -> None:
    calm = [(3600.0, d, 0.0) for d in (0.0, 0.02, -0.02, 0.01)]
    odd = evidence_of([*calm, (3600.0, 1.0, 0.0)])
    assert odd.spread() > 100.0
    assert odd.log_ratio(math.log(1.15)) < 1.0


def test_a_load_that_differs_between_the_arms_is_not_taken_for_the_release() -> None:
    """Times grow by 40 % from an empty to a full replica; the canary is nearly empty, the baseline is not."""
    draws = np.random.default_rng(3)
    test = MeanTest(math.log(1.15), ERRORS)
    slower = MeanTest(math.log(1.15), ERRORS)
    for _ in range(30):
        arms = {}
        for name, count, middle in (("canary", 50, 0.35), ("baseline", 300, 0.6)):
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
        arms.append(MeanSums(count, [y_sum, u_sum, 0.0], [yy, uu, 0.0, 0.0, uy, 0.0]))
    return arms[0], arms[1]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 20.0), st.floats(0.01, 0.25))
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
    for gap in (10.0, 0.0):
        for _ in range(20):
            test.close_block(*arms_apart(draws, gap, 0.1, between=0.05, slower=slower))
        if gap:
            test.next_stage()
    assert test.verdict() is verdict


@given(BLOCKS)
def test_what_is_known_is_the_mean_of_the_blocks_less_what_is_doubted_of_their_adjustment(
    blocks: Blocks,
) -> None:
    evidence = evidence_of(blocks)
    weight, difference, adjustment = np.array(blocks).T
    mean, leaned = np.average(difference, weights=weight), np.average(adjustment, weights=weight)
    assert evidence.squares() == pytest.approx(float(weight @ (difference - mean) ** 2), rel=1e-6, abs=1e-6)
    variance = evidence.spread() / weight.sum() + (DOUBT_FRACTION * leaned) ** 2
    assert evidence.known_weight() / evidence.spread() == pytest.approx(1 / float(variance), rel=1e-6)


@given(BLOCKS)
def test_the_spread_is_what_is_left_over_per_block_and_at_least_one(
    blocks: Blocks,
) -> None:
    evidence = evidence_of(blocks)
    count = TOGETHER_BLOCKS + len(blocks) - 1
    assert evidence.spread() == pytest.approx(max(1.0, (TOGETHER_BLOCKS + evidence.squares()) / count))


def test_a_fault_that_a_larger_share_brings_out_is_found_though_all_was_well_for_long() -> None:
    draws = np.random.default_rng(8)
    test = MeanTest(math.log(1.15), ERRORS)
    for _ in range(30):
        test.close_block(*arms_apart(draws, 0.0, 0.1, 0.0))
    assert test.verdict() is Verdict.CLEARED and test.log_ratio() == cleared_at(ERRORS)
    test.next_stage()
    blocks = 0
    while test.verdict() is not Verdict.WORSE:
        test.close_block(*arms_apart(draws, 0.0, 0.1, 0.0, slower=math.log(1.15)))
        blocks += 1
    assert test.blocks_min_count <= blocks <= 8


def test_what_stages_before_said_still_counts_in_the_next() -> None:
    draws = np.random.default_rng(5)
    test = MeanTest(math.log(1.15), ERRORS)
    for _ in range(4):
        test.close_block(*arms_apart(draws, 0.0, 0.1, 0.0, slower=0.08))
    before = test.log_ratio(), test.expected_log_ratio()
    test.next_stage()
    assert (test.log_ratio(), test.expected_log_ratio()) == before != (0.0, 0.0)


def test_requests_that_are_slow_together_count_as_fewer() -> None:
    draws = np.random.default_rng(4)
    alone, together = MeanTest(0.14, ERRORS), MeanTest(0.14, ERRORS)
    for _ in range(40):
        noise = draws.normal(0, 0.3, (2, 50))
        weather = draws.normal(0, 0.15, 2)
        alone.close_block(sums_of(list(noise[0])), sums_of(list(noise[1])))
        together.close_block(sums_of(list(noise[0] + weather[0])), sums_of(list(noise[1] + weather[1])))
    assert alone.evidence.spread() < 1.6 and together.evidence.spread() > 3 * alone.evidence.spread()


@pytest.mark.parametrize("wrong", [(0.0, 0.1), (0.1, 1.0)])
def test_errors_are_between_never_and_always(wrong: tuple[float, float]) -> None:
    with pytest.raises(AssertionError):
        Errors(*wrong)


def test_what_was_cleared_is_open_again_once_the_odds_turn() -> None:
    test, seen = MeanTest(0.1, ERRORS), []
    for shift in [0.0] * 20 + [0.1] * 60:
        y = [0.0, 0.2] * 10
        test.close_block(sums_of([each + shift for each in y]), sums_of(y))
        seen.append(test.verdict())
        assert test.log_ratio() <= 0 or test.verdict() is not Verdict.CLEARED
    assert seen[19] is Verdict.CLEARED and Verdict.OPEN in seen[20:]
