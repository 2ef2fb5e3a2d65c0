"""Tries a release on a growing share of requests, and promotes it or rolls it back.

A trial compares the release with what runs beside it, in the same minutes: time to first token, time per
output token (as logs of ratios, at like load and input), failures, and quality scores where answers are
judged, those of clients or those to questions that both versions are asked on the side. Each
is a sequential test (`sequential.py`): one that finds "worse by the margin" rolls
back at once; the last stage promotes when all have refuted it. A stage lasts until the tests of times have
blocks enough to say something (three, of two answers' times each at least), unless those before have
told what is to be known.

At the request limit a test that is still open decides for what is likelier, and one that hardly knows
anything rolls back: that is not a proof of harmlessness. So where answers are so long and requests so many
that the limit comes before three blocks, even an equal release is rolled back, as undecided: it needs a first
stage of a smaller share. Only what fewer than half of the answers tell (a score, mostly) is left out if it
was too little, and the promotion says so.

What it can see, within 2,000 canary requests and in over 95 % of trials (tests/policy/gate/test_canary.py):
+15 % time per output token, +1 point of failures on 0.5 %, or 5 points of quality are rolled back, and an
equal release is promoted; on engines that batch as well (bench/canary.py). Failures on a base above 1 % need
more requests: see `sequential.Errors`.
"""

import math
from dataclasses import dataclass, field

from twofold.policy.gate.chance import mixed, number_of, uniform_fraction
from twofold.policy.gate.events import Effect, PromoteRelease, RollBackRelease, StageRelease
from twofold.policy.gate.sequential import ALONE_BLOCKS, Evidence, FailureTest, MeanSums, MeanTest, Verdict
from twofold.policy.gate.settings import CanarySettings

BASELINE_RATIO = 10  # measured outcomes of the baseline for each of the canary's: more would tell little
BANNED_MAX = 64  # versions that are remembered as rolled back
ANSWERS_APART = 2.0  # answers' times that a block lasts: those that share a batch are in one block mostly


@dataclass(slots=True)
class Outcome:
    """How an attempt ended, on either side; what is not known is None.

    `beside_count`: requests that its replica had on average while it wrote, this one included;
    `beside_sent_count`: when it was sent; `ahead_tokens`: that had to be read then before its first token,
    its own prompt included. A release on one replica queues where the others choose the idlest of many.
    """

    failed: bool = False
    ttft_s: float | None = None
    tpot_s: float | None = None
    quality_score_value: float | None = None
    beside_count: float = 0.0
    input_tokens: int = 0
    beside_sent_count: int = 0
    ahead_tokens: int = 0
    residence_s: float = 0.0  # from when it was sent until its end


@dataclass(slots=True)
class _Metric:
    """A mean's test and its unfinished block.

    Times hang on what shares a replica: a block of them lasts a few answers' times, and a stage's blocks are
    of one load. What an answer is worth hangs on neither.
    """

    name: str
    test: MeanTest
    of_times: bool
    since_s: float  # when the block began
    canary: MeanSums = field(default_factory=MeanSums)
    baseline: MeanSums = field(default_factory=MeanSums)
    told_count: int = 0  # outcomes of the canary that told it, in all

    def next_stage(self, now_s: float) -> None:
        """The share grows: what is measured from now on is of another load."""
        if not self.of_times:
            return
        self.test.next_stage()
        self.canary, self.baseline, self.since_s = MeanSums(), MeanSums(), now_s

    def close_if_full(self, block_count: int, now_s: float, least_s: float) -> None:
        """A block has outcomes enough of both arms, and lasted long enough."""
        full = self.canary.count >= block_count and self.baseline.count >= block_count // 2
        if full and (now_s - self.since_s >= least_s or not self.of_times):
            self.test.close_block(self.canary, self.baseline)
            self.canary, self.baseline, self.since_s = MeanSums(), MeanSums(), now_s


@dataclass(slots=True)
class Trial:
    """One release under trial: constant memory. Mutable."""

    version: str
    pool: str
    offered_s: float
    settings: CanarySettings
    failures: FailureTest
    metrics: dict[str, _Metric]
    stage_since_s: float
    stage_index_value: int = 0
    stage_from_count: int = 0  # canary outcomes when the stage began
    canary_count: int = 0
    block: list[int] = field(default_factory=lambda: [0, 0, 0, 0])  # outcomes, failures; canary, baseline
    capacity_fraction: float = 1.0  # of the pool's places that the release's replicas have
    due: bool = False  # a look may decide something
    every_count: int = field(init=False)  # one in so many outcomes of the baseline is measured
    answers_s: float = 0.0  # times that the canary's answers took, together …
    answers_count: int = 0  # … of so many

    def __post_init__(self) -> None:
        self.every_count = measured_every(self.settings.stages[0].share_fraction)

    def log_ratios(self) -> dict[str, float]:
        """By test that something was measured for: ln of the odds of "worse by the margin"."""
        return {name: test.log_ratio() for name, test in _tests(self)}

    def share_fraction(self) -> float:
        """The share by now: the stage's, but not more than the release's replicas can take."""
        return min(self.settings.stages[self.stage_index_value].share_fraction, self.capacity_fraction)

    def observe(self, canary: bool, outcome: Outcome, now_s: float) -> None:
        """Fold one outcome in; a look is due when a block is full."""
        side = 0 if canary else 2
        self.block[side] += 1
        self.block[side + 1] += outcome.failed
        self.canary_count += canary
        if not outcome.failed and (canary or self.block[2] % self.every_count == 0):
            score = outcome.quality_score_value
            ahead, size = math.log1p(outcome.ahead_tokens), math.log1p(outcome.input_tokens)
            for name, value, load, length in (
                ("ttft", _log(outcome.ttft_s), outcome.beside_sent_count, ahead),
                ("tpot", _log(outcome.tpot_s), outcome.beside_count, size),
                # What an answer is worth does not hang on the load.
                ("quality", None if score is None else -score, 0.0, 0.0),
            ):
                if value is not None:
                    metric = self.metrics[name]
                    metric.told_count += canary
                    (metric.canary if canary else metric.baseline).add(value, load, length)
        if canary:
            settings = self.settings
            self.answers_s += outcome.residence_s
            self.answers_count += not outcome.failed
            weighed = self.block[0] + (settings.failure_weight_count - 1) * self.block[1]
            if weighed >= settings.block_count or self.canary_count >= settings.request_limit_count:
                self.close_blocks(now_s)

    def scored(self, difference: float, now_s: float) -> bool:
        """Fold in by how much an answer on the side was better than that of what runs beside it. It tells of
        quality alone, since it was nobody's request. Whether `tick` should look now.

        Why     of answers to one question the difference scatters far less than their worth does.
        """
        metric = self.metrics["quality"]
        metric.told_count += 1
        metric.canary.add(-difference, 0.0, 0.0)
        metric.baseline.add(0.0, 0.0, 0.0)
        before = metric.test.block_count
        metric.close_if_full(self.settings.block_count, now_s, 0.0)
        self.due = self.due or metric.test.block_count > before
        return self.due

    def is_common(self, metric: _Metric) -> bool:
        """Whether most of the canary's answers tell it."""
        return 0 < metric.told_count >= self.answers_count / 2

    def is_known(self, test: MeanTest | FailureTest) -> bool:
        """Whether what was measured could tell a worse release from an equal one."""
        least = math.log(self.settings.limit_known_ratio)
        return test.verdict() is Verdict.CLEARED or test.expected_log_ratio() >= least

    def close_blocks(self, now_s: float) -> None:
        """Hand what was gathered to the tests; a look is due."""
        self.failures.close_block(*self.block)
        self.block = [0, 0, 0, 0]
        last = self.canary_count >= self.settings.request_limit_count
        least_s = 0.0 if last else ANSWERS_APART * self.answers_s / max(self.answers_count, 1)
        for metric in self.metrics.values():
            metric.close_if_full(self.settings.block_count, now_s, least_s)
        self.due = True


class Canary:
    """All trials of a gate, at most one per pool."""

    def __init__(self, settings: CanarySettings, seed: int = 0) -> None:
        self.settings = settings
        self._seed = seed
        self.trials: dict[str, Trial] = {}  # by pool
        self.latest: dict[str, Trial] = {}  # by pool: the one that runs, else the one that ran last
        self.promoted: dict[str, str] = {}  # by pool: the version that runs there
        self.banned: dict[str, None] = {}  # versions that were rolled back, oldest first

    def offered(self, version: str, pool: str, now_s: float) -> list[Effect]:
        """Begin a trial; one that runs in the same pool is rolled back first."""
        effects: list[Effect] = []
        if pool in self.trials:
            effects = self._rolled_back(self.trials[pool], "another release was offered")
        self.banned.pop(version, None)
        settings, errors = self.settings, self.settings.errors
        tests = {
            "ttft": MeanTest(math.log1p(settings.ttft_margin_fraction), errors),
            "tpot": MeanTest(math.log1p(settings.tpot_margin_fraction), errors),
            "quality": MeanTest(settings.quality_margin_fraction, errors, evidence=Evidence(ALONE_BLOCKS)),
        }
        metrics = {name: _Metric(name, test, name != "quality", now_s) for name, test in tests.items()}
        failures = FailureTest(settings.failure_margin_fraction, errors)
        self.trials[pool] = self.latest[pool] = Trial(
            version, pool, now_s, settings, failures, metrics, now_s
        )
        return [*effects, StageRelease(version, settings.stages[0].share_fraction)]

    def withdrawn(self, version: str) -> list[Effect]:
        """Call a trial off."""
        trial = next((t for t in self.trials.values() if t.version == version), None)
        return self._rolled_back(trial, "withdrawn") if trial else []

    def version_for(self, pool: str, session_id: str, request_id: int) -> str | None:
        """The release that a request tries, or None. As shares grow, a session that tries it goes on to."""
        trial = self.trials.get(pool)
        if trial is None:
            return None
        key = number_of(session_id) if session_id else request_id
        seed = mixed(self._seed, number_of(trial.version))
        return trial.version if uniform_fraction(seed, key) < trial.share_fraction() else None

    def observe(self, pool: str, version: str, outcome: Outcome, now_s: float) -> bool:
        """Fold one attempt's end in, whichever side it was on. Whether `tick` should look now."""
        trial = self.trials.get(pool)
        if trial is None:
            return False
        trial.observe(version == trial.version, outcome, now_s)
        return trial.due

    def tick(self, now_s: float) -> list[Effect]:
        """Look at every trial: roll back, go a stage further, promote, or wait."""
        effects: list[Effect] = []
        for trial in list(self.trials.values()):
            trial.due = False
            why = _why_worse(trial, now_s)
            if why is not None:
                effects += self._rolled_back(trial, why)
            elif not _may_grow(trial, now_s):
                continue
            elif trial.stage_index_value + 1 < len(trial.settings.stages):
                trial.stage_index_value += 1
                trial.stage_since_s, trial.stage_from_count = now_s, trial.canary_count
                share = trial.settings.stages[trial.stage_index_value].share_fraction
                trial.every_count = measured_every(share)
                for metric in trial.metrics.values():
                    metric.next_stage(now_s)
                effects.append(StageRelease(trial.version, share))
            else:
                del self.trials[trial.pool]
                self.promoted[trial.pool] = trial.version
                few = [m.name for m in trial.metrics.values() if m.told_count and not trial.is_known(m.test)]
                why_not = f"not judged: {', '.join(few)}" if few else ""
                effects.append(PromoteRelease(trial.version, why_not))
        return effects

    def _rolled_back(self, trial: Trial, why: str) -> list[Effect]:
        del self.trials[trial.pool]
        self.banned[trial.version] = None
        if len(self.banned) > BANNED_MAX:
            del self.banned[next(iter(self.banned))]
        return [RollBackRelease(trial.version, why)]


def measured_every(share_fraction: float) -> int:
    """One in how many outcomes of the baseline is measured beside a canary of this share.

    The variance of a difference is that of the canary's mean times 1 + canary / baseline: with ten times as
    many it is a tenth above the least, and a trial at 1 % costs a tenth of the time.
    """
    return max(int((1 / share_fraction - 1) / BASELINE_RATIO), 1)


def _tests(trial: Trial) -> list[tuple[str, MeanTest | FailureTest]]:
    """The tests of what was measured at all, by name: in whole blocks, or of most answers."""
    told = [m for m in trial.metrics.values() if m.test.block_count or trial.is_common(m)]
    return [("failures", trial.failures), *((metric.name, metric.test) for metric in told)]


def _why_worse(trial: Trial, now_s: float) -> str | None:
    """The reason to roll back, or None."""
    tests = _tests(trial)
    for name, test in tests:
        if test.verdict() is Verdict.WORSE:
            return f"{name} worse"
    if trial.canary_count >= trial.settings.request_limit_count:
        for name, test in tests:
            metric = trial.metrics.get(name)
            if not trial.is_known(test):
                if metric is None or trial.is_common(metric):
                    return f"{name} undecided"
            elif test.log_ratio() >= math.log(trial.settings.limit_odds_ratio):
                return f"{name} likely worse"
    if now_s - trial.offered_s >= trial.settings.trial_s_max:
        return "too few requests"
    return None


def _may_grow(trial: Trial, now_s: float) -> bool:
    """Whether the stage has lasted, and, before promotion, every test has refuted "worse" or run out.

    It has not lasted while a test of times has too few of its blocks to say anything, and knows too little.
    """
    stage = trial.settings.stages[trial.stage_index_value]
    if now_s - trial.stage_since_s < stage.least_s:
        return False
    if trial.canary_count >= trial.settings.request_limit_count:
        return True
    if trial.canary_count - trial.stage_from_count < stage.requests_count:
        return False
    for metric in trial.metrics.values():
        few = metric.test.evidence.count < metric.test.blocks_min_count
        if few and metric.of_times and trial.is_common(metric) and not trial.is_known(metric.test):
            return False
    last = trial.stage_index_value + 1 == len(trial.settings.stages)
    return not last or all(test.verdict() is Verdict.CLEARED for _, test in _tests(trial))


def _log(seconds: float | None) -> float | None:
    return math.log(seconds) if seconds is not None and seconds > 0 else None
