"""A trial of a few dozen requests: what it promotes, what it rolls back, and how soon, over seeds."""

from collections import Counter

import numpy as np
import pytest

from twofold.policy.gate.canary import Canary, Outcome
from twofold.policy.gate.events import Effect, PromoteRelease, RollBackRelease
from twofold.policy.gate.settings import CanarySettings
from twofold.policy.gate.small_trial import SCORE_SPREAD, requests_within, small_trial

SEEDS = 200
# What a release is like: its times per token over those beside it, share of failures, points of quality lost.
KINDS = {
    "equal": (1.0, 0.0, 0.0),
    "twice as slow": (2.0, 0.0, 0.0),
    "fails one in three": (1.0, 0.33, 0.0),
    "says other things": (1.0, 0.0, 0.25),
}
COUNT = requests_within(2.0, 75.0)


def ended(settings: CanarySettings, kind: str, seed: int) -> tuple[Effect, int]:
    """The gate's decision, and the requests that the release got until then."""
    slower, failing, worse = KINDS[kind]
    draws, canary, now_s = np.random.default_rng(seed), Canary(settings, seed), 0.0
    canary.offered("new", "", now_s)
    sent = 0
    while True:
        trial = canary.trials[""]
        trial.capacity_fraction = 1.0
        is_new = draws.random() < trial.share_fraction()
        sent += is_new
        now_s += 0.5
        ratio = slower if is_new else 1.0
        outcome = Outcome(
            bool(is_new and draws.random() < failing),
            0.1 * ratio * float(np.exp(draws.normal(0.0, 0.5))),
            0.02 * ratio * float(np.exp(draws.normal(0.0, 0.25))),
            residence_s=1.0,
        )
        due = canary.observe("", "new" if is_new else "old", outcome, now_s)
        if is_new:
            due |= trial.scored(float(np.clip(draws.normal(-worse, SCORE_SPREAD), -1.0, 1.0)), now_s)
        effects = canary.tick(now_s) if due or now_s % 5.0 == 0.0 else []
        for effect in effects:
            if isinstance(effect, PromoteRelease | RollBackRelease):
                return effect, sent


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_dozen_requests_tell_a_plainly_worse_release_from_an_equal_one(kind: str) -> None:
    settings = small_trial(2.0, 75.0)
    ends = [ended(settings, kind, seed) for seed in range(SEEDS)]
    promoted = sum(isinstance(effect, PromoteRelease) for effect, _ in ends)
    reasons = Counter(getattr(effect, "reason", "") for effect, _ in ends)
    if kind == "equal":
        assert promoted >= 0.95 * SEEDS, reasons
        assert np.quantile([sent for _, sent in ends], 0.95) <= 1.5 * COUNT
    else:
        assert promoted <= 0.05 * SEEDS, reasons
        assert np.mean([sent for _, sent in ends]) < 0.6 * COUNT  # it is found before the trial's end


def test_stages_margins_and_blocks_follow_from_how_many_requests_there_are() -> None:
    few, many = small_trial(2.0, 75.0), small_trial(10_000.0, 75.0)
    usual = CanarySettings()
    for name in ("ttft", "tpot", "failure", "quality"):
        margin = f"{name}_margin_fraction"
        assert getattr(few, margin) > getattr(many, margin) == getattr(usual, margin)
    assert sum(stage.requests_count for stage in few.stages) == COUNT
    assert few.stages[0].requests_count == 3 * few.block_count
    # At 2 requests/s: the first stage at a quarter, the second at half of them, in 75 s together.
    times = [stage.requests_count / (2.0 * stage.share_fraction) for stage in few.stages]
    assert sum(times) == pytest.approx(75.0, rel=0.05)
