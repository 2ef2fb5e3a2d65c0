"""Releases that are worse are rolled back, equal ones promoted: how often, over a thousand seeds."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.canary import BANNED_MAX, Canary, Outcome, measured_every
from twofold.policy.gate.events import PromoteRelease, RollBackRelease, StageRelease
from twofold.policy.gate.sequential import MeanSums
from twofold.policy.gate.settings import CanarySettings, Stage

SETTINGS = CanarySettings()
SEEDS = 1000  # seconds each: this is what is promised
# What a release is like: added failures, log of the ratio of its times per token, points of quality lost.
KINDS = {
    "equal": (0.0, 0.0, 0.0),
    "15 % slower": (0.0, math.log(1.15), 0.0),
    "1 point more failures": (0.01, 0.0, 0.0),
    "5 points less quality": (0.0, 0.0, 0.05),
}
SPREADS = {"ttft": 1.0, "tpot": 0.3, "quality": 0.4}  # of logs of times, and of scores
BASE_FAILED = 0.005
BLOCKS_MIN = 3  # of a stage, before its times say anything


def baseline_counts(settings: CanarySettings) -> list[int]:
    """Baseline outcomes beside each block of canary outcomes, stage by stage, up to the request limit."""
    counts = []
    for stage in settings.stages:
        beside = round(settings.block_count * (1 / stage.share_fraction - 1))
        counts += [beside] * max(stage.requests_count // settings.block_count, BLOCKS_MIN)
    blocks = settings.request_limit_count // settings.block_count
    return counts + [counts[-1]] * (blocks - len(counts))


def drawn_sums(
    draws: np.random.Generator, mean: float, spread: float, counts: list[int]
) -> list[list[MeanSums]]:
    """Of SEEDS trials, per block, the sums over `counts` normal outcomes, without drawing each of them."""
    n = np.array(counts, dtype=float)
    means = draws.normal(mean, spread / np.sqrt(n), (SEEDS, n.size))
    scatters = spread**2 * draws.chisquare(n - 1, (SEEDS, n.size))
    totals = (means * n).tolist()
    squares = (scatters + means**2 * n).tolist()
    return [
        [
            MeanSums(count, [y, 0.0, 0.0], [yy, 0.0, 0.0, 0.0, 0.0, 0.0])
            for count, y, yy in zip(counts, row, row_squares, strict=True)
        ]
        for row, row_squares in zip(totals, squares, strict=True)
    ]


def judged(kind: str, seed: int) -> list[tuple[bool, int]]:
    """Of SEEDS trials of a release: whether it was promoted, and after how many canary requests."""
    failures, slower, lost = KINDS[kind]
    draws = np.random.default_rng(seed)
    block, beside = SETTINGS.block_count, baseline_counts(SETTINGS)
    shifts = {"ttft": 0.0, "tpot": slower, "quality": lost}
    canary = {n: drawn_sums(draws, shifts[n], s, [block] * len(beside)) for n, s in SPREADS.items()}
    shares = [round(block / (block + count), 6) for count in beside]
    measured = [count // measured_every(share) for count, share in zip(beside, shares, strict=True)]
    baseline = {n: drawn_sums(draws, 0.0, s, measured) for n, s in SPREADS.items()}
    failed = draws.binomial(block, BASE_FAILED + failures, (SEEDS, len(beside))).tolist()
    base_failed = draws.binomial(beside, BASE_FAILED, (SEEDS, len(beside))).tolist()
    results = []
    for index in range(SEEDS):
        machine = Canary(SETTINGS)
        machine.offered("new", "", 0.0)
        trial = machine.trials[""]
        for number, base_count in enumerate(beside):
            trial.block = [block, failed[index][number], base_count, base_failed[index][number]]
            for name, metric in trial.metrics.items():
                metric.canary, metric.baseline = canary[name][index][number], baseline[name][index][number]
            trial.canary_count += block
            trial.close_blocks(float(number))
            machine.tick(float(number))
            if not machine.trials:
                break
        results.append((machine.promoted == {"": "new"}, trial.canary_count))
        assert not machine.trials, "undecided at the request limit"
    return results


def upper_bound(failed: int, count: int) -> float:
    """The rate that explains so few failures with 2.5 % chance (Wilson's interval)."""
    z, rate = 1.96, failed / count
    middle = rate + z * z / (2 * count)
    return (middle + z * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count**2))) / (1 + z * z / count)


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_seeds_are_judged_rightly_within_2000_canary_requests(kind: str) -> None:
    results = judged(kind, seed=6)
    wrong = sum(promoted != (kind == "equal") for promoted, _ in results)
    assert upper_bound(wrong, SEEDS) <= 0.05, wrong
    assert max(count for _, count in results) <= 2000


def run_requests(slower: float, failed: float, seed: int) -> tuple[list[Any], int]:
    """One trial, request by request: all effects, and how many canary requests it took."""
    settings = replace(SETTINGS, stages=(Stage(0.2, 200), Stage(0.5, 300)))
    machine = Canary(settings)
    effects = machine.offered("new", "", 0.0)
    draws = np.random.default_rng(seed)
    canaries = 0
    for request_id in range(1, 12_000):
        version = machine.version_for("", "", request_id) or "old"
        canaries += version == "new"
        new = version == "new"
        load = draws.uniform(0.2, 0.8)
        outcome = Outcome(
            failed=bool(draws.random() < (failed if new else BASE_FAILED)),
            ttft_s=draws.lognormal(-2 + load, 0.5),
            tpot_s=draws.lognormal(-4 + 0.3 * load + slower * new, 0.3),
            beside_count=load,
            input_tokens=100,
        )
        if machine.observe("", version, outcome, float(request_id)):
            effects += machine.tick(float(request_id))
        if not machine.trials:
            break
    return effects, canaries


def test_an_equal_release_goes_through_its_stages_request_by_request() -> None:
    effects, _ = run_requests(0.0, BASE_FAILED, seed=1)
    assert effects == [StageRelease("new", 0.2), StageRelease("new", 0.5), PromoteRelease("new")]


def test_a_slow_release_is_rolled_back_request_by_request() -> None:
    effects, canaries = run_requests(math.log(1.15), BASE_FAILED, seed=2)
    assert effects[-1] == RollBackRelease("new", "tpot worse") and canaries <= 500


def test_a_release_that_always_fails_is_found_within_a_few_blocks_of_failures() -> None:
    effects, canaries = run_requests(0.0, 1.0, seed=3)
    assert effects == [StageRelease("new", 0.2), RollBackRelease("new", "failures worse")]
    assert canaries <= 30


def test_ten_times_as_many_outcomes_of_the_baseline_are_measured_at_most_twice_over() -> None:
    for share in (0.01, 0.05, 0.09, 0.25, 0.5):
        measured = (1 / share - 1) / measured_every(share)
        assert measured >= min(1 / share - 1, 10) - 1e-9 and measured < 20


@given(st.integers(0, 10**9), st.text(max_size=12))
def test_a_session_that_tried_the_release_goes_on_as_its_share_grows(request_id: int, session: str) -> None:
    machine = Canary(CanarySettings(stages=tuple(Stage(share, 1) for share in (0.01, 0.2, 0.6, 0.99))))
    machine.offered("new", "", 0.0)
    chosen = []
    for index in range(4):
        machine.trials[""].stage_index_value = index
        chosen.append(machine.version_for("", session, request_id) is not None)
    assert chosen == sorted(chosen)


def test_the_share_is_as_staged_and_no_more_than_the_replicas_can_take() -> None:
    machine = Canary(CanarySettings(stages=(Stage(0.25, 1),)))
    machine.offered("new", "", 0.0)

    def share() -> float:
        return sum(machine.version_for("", "", number) is not None for number in range(4000)) / 4000

    assert share() == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / 4000))
    machine.trials[""].capacity_fraction = 0.1
    assert share() == pytest.approx(0.1, abs=4 * math.sqrt(0.1 * 0.9 / 4000))


LONG = replace(
    SETTINGS, stages=(Stage(0.25, 50), Stage(0.5, 50)), block_count=10, request_limit_count=400
)  # fmt: skip


def tried(slower: float, answers_s: float, seed: int, told: float = 1.0, scored: float = 0.0) -> list[Any]:
    """How a release ends at 8 requests/s whose answers take so long; a part tells times per token, scores."""
    machine = Canary(LONG)
    machine.offered("new", "", 0.0)
    draws, now_s, effects = np.random.default_rng(seed), 0.0, []
    while machine.trials and now_s < 2000.0:
        now_s += 0.125
        new = bool(draws.random() < machine.trials[""].share_fraction())
        ttft_s, tpot_s = draws.lognormal((-2.0, -4.0 + slower * new), 0.1)
        score = float(draws.random() < 0.8) if draws.random() < scored else None
        tells = bool(draws.random() < told)
        outcome = Outcome(
            ttft_s=ttft_s,
            tpot_s=tpot_s if tells else None,
            quality_score_value=score,
            residence_s=answers_s,
        )
        if machine.observe("", "new" if new else "old", outcome, now_s):
            effects += [e for e in machine.tick(now_s) if not isinstance(e, StageRelease)]
    return effects


@pytest.mark.parametrize("answers_s", [0.0, 2.0, 10.0, 20.0, 40.0, 90.0, 400.0])
def test_however_long_answers_take_times_are_judged_or_the_release_is_rolled_back(answers_s: float) -> None:
    """A block lasts two answers' times: 90 s are too long for three of them within the request limit."""
    slow, equal = tried(math.log(2.0), answers_s, 1), tried(0.0, answers_s, 2)
    judged = answers_s < 60.0
    assert slow == [RollBackRelease("new", "tpot worse" if judged else "ttft undecided")]
    assert equal == [PromoteRelease("new") if judged else RollBackRelease("new", "ttft undecided")]


def test_a_stage_lasts_as_many_blocks_as_its_times_need_to_say_something() -> None:
    machine = Canary(LONG)
    machine.offered("new", "", 0.0)
    for number in range(1, 400):
        outcome = Outcome(tpot_s=0.02, residence_s=15.0)
        stage = machine.trials[""].stage_index_value
        due = machine.observe("", "new" if number % 2 else "old", outcome, float(number))
        if due and machine.tick(float(number)):
            assert stage == 0 and number > 3 * 2 * 15.0  # and the 50 requests came by second 99
            return
    raise AssertionError("the share never grew")


def test_a_new_stage_forgets_what_was_measured_of_another_load_and_keeps_the_scores() -> None:
    machine = Canary(LONG)
    machine.offered("new", "", 0.0)
    for metric in machine.trials[""].metrics.values():
        for y in (1.0, 2.0):
            metric.canary.add(y, 0.0, 0.0)
            metric.baseline.add(y, 0.0, 0.0)
        metric.close_if_full(2, 1.0, 0.0)
        metric.canary.add(1.0, 0.0, 0.0)
        metric.next_stage(5.0)
        kept = not metric.of_times
        assert metric.test.evidence.count == metric.canary.count == kept
        assert metric.test.block_count == 1 and metric.since_s == (1.0 if kept else 5.0)


@pytest.mark.parametrize("scored", [0.02, 0.1, 0.3])
def test_what_few_answers_tell_is_left_out_at_the_limit_and_the_promotion_says_so(scored: float) -> None:
    assert tried(0.0, 1.0, 3, scored=scored) == [PromoteRelease("new", "not judged: quality")]


def test_a_fault_that_few_answers_tell_plainly_is_rolled_back_all_the_same() -> None:
    assert tried(math.log(2.0), 1.0, 4, told=0.3) == [RollBackRelease("new", "tpot worse")]
    assert tried(math.log(2.0), 1.0, 4, told=0.02) == [PromoteRelease("new", "not judged: tpot")]


def test_too_few_scores_to_judge_quality_are_no_proof_of_it() -> None:
    machine = Canary(replace(SETTINGS, request_limit_count=100, stages=(Stage(0.5, 50),)))
    machine.offered("new", "", 0.0)
    draws = np.random.default_rng(5)
    for number in range(200):
        outcome = Outcome(quality_score_value=float(draws.random() < 0.8))
        machine.observe("", "new" if number % 2 else "old", outcome, float(number))
    (effect,) = machine.tick(1.0)
    assert isinstance(effect, RollBackRelease) and effect.reason.endswith("undecided")


def test_a_release_without_requests_is_not_tried_for_ever() -> None:
    machine = Canary(SETTINGS)
    machine.offered("new", "", 10.0)
    assert machine.tick(10.0 + SETTINGS.trial_s_max - 1.0) == []
    assert machine.tick(10.0 + SETTINGS.trial_s_max) == [RollBackRelease("new", "too few requests")]
    assert list(machine.banned) == ["new"]


def test_one_trial_per_pool_and_a_withdrawn_one_ends() -> None:
    machine = Canary(SETTINGS)
    machine.offered("a", "chat", 0.0)
    assert machine.offered("b", "chat", 1.0) == [
        RollBackRelease("a", "another release was offered"),
        StageRelease("b", 0.01),
    ]
    machine.offered("c", "bulk", 1.0)
    assert set(machine.trials) == {"chat", "bulk"}
    assert machine.withdrawn("b") == [RollBackRelease("b", "withdrawn")]
    assert machine.withdrawn("b") == [] and set(machine.trials) == {"bulk"}


def test_what_is_remembered_of_old_releases_is_bounded_and_a_new_offer_forgives() -> None:
    machine = Canary(SETTINGS)
    for number in range(BANNED_MAX + 10):
        machine.offered(f"v{number}", "", 0.0)
        machine.withdrawn(f"v{number}")
    assert len(machine.banned) == BANNED_MAX and f"v{BANNED_MAX + 9}" in machine.banned
    machine.offered(f"v{BANNED_MAX + 9}", "", 0.0)
    assert f"v{BANNED_MAX + 9}" not in machine.banned


@pytest.mark.parametrize(
    "wrong",
    [
        {"stages": ()},
        {"stages": (Stage(0.5, 1), Stage(0.1, 1))},
        {"stages": (Stage(1.0, 1),)},
        {"request_limit_count": 0},
        {"block_count": 1},
    ],
)
def test_stages_that_could_not_work_are_our_mistake(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        CanarySettings(**wrong)


@pytest.mark.parametrize(("worse", "ends"), [(0.0, PromoteRelease), (0.15, RollBackRelease)])
def test_answers_on_the_side_decide_of_a_release_that_is_as_fast_and_never_fails(worse: float, ends) -> None:
    """By the difference to what runs beside it: clients' answers are not judged at all."""
    settings = replace(SETTINGS, stages=(Stage(0.5, 400),), request_limit_count=800)
    draws, canary, effects = np.random.default_rng(3), Canary(settings), list[Any]()
    canary.offered("new", "", 0.0)
    trial = canary.trials[""]
    trial.capacity_fraction = 1.0
    for number in range(1600):
        version = "new" if number % 2 else "old"
        outcome = Outcome(False, float(draws.lognormal(-2, 0.3)), float(draws.lognormal(-4, 0.2)))
        canary.observe("", version, replace(outcome, residence_s=1.0), float(number))
        if number % 2:
            trial.scored(float(np.clip(draws.normal(-worse, 0.2), -1, 1)), float(number))
        effects = canary.tick(float(number))
        if effects:
            break
    assert isinstance(effects[0], ends), effects
    if worse:
        assert effects[0].reason == "quality worse" and trial.canary_count < 400


def test_too_few_answers_on_the_side_are_left_out_and_said() -> None:
    settings = replace(SETTINGS, stages=(Stage(0.5, 400),))
    canary, effects = Canary(settings), list[Any]()
    canary.offered("new", "", 0.0)
    trial = canary.trials[""]
    trial.capacity_fraction = 1.0
    for number in range(4000):
        now_s = float(number)
        canary.observe("", "new" if number % 2 else "old", Outcome(False, 0.1, 0.02, residence_s=1.0), now_s)
        if number < 40:
            trial.scored(-0.9, now_s)
        effects = canary.tick(now_s)
        if effects:
            break
    assert effects == [PromoteRelease("new", "not judged: quality")]
