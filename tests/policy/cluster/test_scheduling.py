"""The queue in a small world whose jobs take as long as they said, or not, and that does what it is told."""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.events import (
    CheckpointWritten,
    ClusterEvent,
    JobFinished,
    JobStarted,
    JobSubmitted,
    NodeAdded,
    ResizeJob,
    SaveCheckpoint,
    StartJob,
    StopJob,
    StopReason,
)
from twofold.policy.cluster.settings import (
    ClusterSettings,
    FaultSettings,
    GangQueueSettings,
    PreemptionSettings,
    TeamQuota,
)
from twofold.policy.machine import Woke

NO_SPARES = FaultSettings(spare_count=0)
FIRST_COME = ClusterSettings(faults=NO_SPARES, preemption=None)
WRITE_S, RESTART_S = 10.0, 20.0


def a_job(name: str, size: int, expected_s: float = 1000.0, **other: object) -> JobSubmitted:
    asked = {"team": "red", "minimum_count": size, "priority": 0, "preemptible": True, **other}
    return JobSubmitted(
        name,
        accelerator_count=size,
        expected_s=expected_s,
        checkpoint_write_s=WRITE_S,
        restart_s=RESTART_S,
        **asked,  # type: ignore[arg-type]
    )


@dataclass(slots=True)
class World:
    """Runs a brain's jobs. Writing a checkpoint takes no work away here. Mutable: its state is the run."""

    brain: ClusterBrain
    sizes: dict[str, int] = field(default_factory=dict)
    work_s: dict[str, float] = field(default_factory=dict)  # left, at full size
    full: dict[str, int] = field(default_factory=dict)
    team: dict[str, str] = field(default_factory=dict)
    since_s: dict[str, float] = field(default_factory=dict)
    saved_s: dict[str, float] = field(default_factory=dict)  # work left as of the last checkpoint
    attempts: dict[str, int] = field(default_factory=dict)
    started: list[tuple[float, str]] = field(default_factory=list)
    finished: dict[str, float] = field(default_factory=dict)
    stopped: list[tuple[float, str, StopReason]] = field(default_factory=list)
    reserved: dict[str, float] = field(default_factory=dict)  # the first time that was reserved for a head
    used_s: Counter[str] = field(default_factory=Counter)  # accelerator-seconds by team
    waiting: list[tuple[float, int, ClusterEvent, int]] = field(default_factory=list)
    order: "count[int]" = field(default_factory=count)

    def nodes(self, number: int, size: int = 4, rails: int = 1) -> None:
        for index in range(number):
            self.later(0.0, NodeAdded(f"n{index}", size, ("zone", f"rail-{index % rails}")))

    def submit(self, at_s: float, asked: JobSubmitted, true_s: float | None = None) -> None:
        self.work_s[asked.job_id] = self.saved_s[asked.job_id] = (
            asked.expected_s if true_s is None else true_s
        )
        self.full[asked.job_id], self.team[asked.job_id] = asked.accelerator_count, asked.team
        self.later(at_s, asked)

    def later(self, at_s: float, event: ClusterEvent, attempt: int = 0) -> None:
        heapq.heappush(self.waiting, (at_s, next(self.order), event, attempt))

    def run(self, end_s: float = 1e7) -> None:
        while self.waiting:
            wake_s = self.brain.wake_at_s()
            if min(self.waiting[0][0], wake_s if wake_s is not None else end_s) >= end_s:
                return
            if wake_s is not None and wake_s < self.waiting[0][0]:
                self.tell(Woke(), wake_s)
                continue
            at_s, _, event, attempt = heapq.heappop(self.waiting)
            if not attempt or self.attempts.get(event.job_id) == attempt:
                self.tell(event, at_s)

    def tell(self, event: ClusterEvent, now_s: float) -> None:
        match event:
            case JobStarted(name):
                self.since_s[name] = now_s
                rest_s = self.saved_s[name] * self.full[name] / self.sizes[name]
                self.later(now_s + rest_s, JobFinished(name, event.attempt), event.attempt)
            case CheckpointWritten(name):
                done_s = (now_s - WRITE_S - self.since_s[name]) * self.sizes[name] / self.full[name]
                self.saved_s[name] -= done_s
                self.since_s[name] = now_s - WRITE_S
            case JobFinished(name):
                self.finished[name] = now_s
                self.end(name, now_s)
        for effect in self.brain.handle(event, now_s):
            match effect:
                case StartJob() | ResizeJob():
                    if isinstance(effect, ResizeJob):
                        self.end(effect.job_id, now_s)
                    self.started.append((now_s, effect.job_id))
                    self.attempts[effect.job_id] = effect.attempt
                    self.sizes[effect.job_id] = sum(size for _, size in effect.placement)
                    self.used_s[self.team[effect.job_id]] -= now_s * self.sizes[effect.job_id]
                    self.later(now_s + RESTART_S, JobStarted(effect.job_id, effect.attempt), effect.attempt)
                case SaveCheckpoint(name):
                    attempt = self.attempts[name]
                    self.later(now_s + WRITE_S, CheckpointWritten(name, WRITE_S, attempt), attempt)
                case StopJob(name, reason):
                    self.stopped.append((now_s, name, reason))
                    self.end(name, now_s)
        kept = self.brain.view.reservation
        if kept is not None:
            self.reserved.setdefault(kept.job_id, kept.at_s)

    def end(self, name: str, now_s: float) -> None:
        self.used_s[self.team[name]] += now_s * self.sizes[name]
        self.attempts[name] = -1


def test_a_gang_starts_whole_or_not_at_all() -> None:
    """Two gangs that each need more than half: one runs, the other has nothing until then (R-015)."""
    world = World(ClusterBrain(FIRST_COME))
    world.nodes(4)
    world.submit(1.0, a_job("first", 12))
    world.submit(1.0, a_job("second", 12))
    world.run(500.0)
    assert world.started == [(1.0, "first")]
    assert world.brain.view.jobs["second"].placement == ()
    world.run()
    assert world.started[1] == (world.finished["first"], "second") and "second" in world.finished


SIZES = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16])
ARRIVALS = st.lists(
    st.tuples(st.integers(0, 3000), SIZES, st.integers(1, 4000), st.integers(0, 2)), min_size=1, max_size=14
)


@settings(max_examples=40, deadline=None)
@given(ARRIVALS, st.sampled_from([1, 2]))
def test_where_estimates_hold_backfill_never_delays_the_head(
    arrivals: list[tuple[int, int, int, int]], rails: int
) -> None:  # INV-35
    world = World(ClusterBrain(FIRST_COME))
    world.nodes(4, rails=rails)
    for index, (at_s, size, expected_s, _) in enumerate(sorted(arrivals)):
        world.submit(float(at_s), a_job(f"j{index}", size, float(expected_s)))
    world.run()
    assert len(world.finished) == len(arrivals)
    began_s = {name: at_s for at_s, name in reversed(world.started)}
    for name, at_s in world.reserved.items():
        assert began_s[name] <= at_s + 1e-6


@settings(max_examples=40, deadline=None)
@given(ARRIVALS, st.sampled_from([0.1, 1.0, 7.0]), st.sampled_from([0, 3]))
def test_when_nothing_fails_every_job_finishes_however_wrong_it_was(
    arrivals: list[tuple[int, int, int, int]], wrong: float, backfill_count: int
) -> None:
    quotas = (TeamQuota("red", 8, None), TeamQuota("blue", 6, 4))
    queue = GangQueueSettings(backfill_count=backfill_count)
    preemption = PreemptionSettings(minimum_run_s=100.0)
    world = World(ClusterBrain(ClusterSettings(quotas, queue, preemption)))
    world.nodes(4, rails=2)
    for index, (at_s, size, expected_s, kind) in enumerate(sorted(arrivals)):
        asked = a_job(
            f"j{index}", size, float(expected_s),
            team=("red", "blue", "green")[kind],
            minimum_count=max(size // 2, 1) if expected_s % 2 else size,
            priority=at_s % 3,
            preemptible=bool(expected_s % 5),
        )  # fmt: skip
        world.submit(float(at_s), asked, true_s=expected_s * wrong)
    world.run()
    counts = world.brain.view.counts
    assert len(world.finished) == counts.finished == len(arrivals) - counts.refused
    assert not world.brain.view.jobs and not world.brain.view.ends
    assert world.brain.view.free.free_count == 16 - 4 * len(world.brain.view.spares)


@settings(max_examples=30, deadline=None)
@given(ARRIVALS)
def test_without_backfill_jobs_of_a_line_start_in_order(arrivals: list[tuple[int, int, int, int]]) -> None:
    queue = GangQueueSettings(backfill_count=0)
    world = World(ClusterBrain(ClusterSettings(queue=queue, faults=NO_SPARES, preemption=None)))
    world.nodes(4)
    lines: dict[tuple[str, int], list[str]] = {}
    for index, (at_s, size, expected_s, kind) in enumerate(sorted(arrivals)):
        team, priority = ("red", "blue", "green")[kind], size % 2
        lines.setdefault((team, priority), []).append(f"j{index}")
        world.submit(float(at_s), a_job(f"j{index}", size, float(expected_s), team=team, priority=priority))
    world.run()
    order = [name for _, name in world.started]
    for names in lines.values():
        assert [name for name in order if name in names] == names


def test_a_short_job_goes_ahead_and_a_long_one_does_not() -> None:
    world = World(ClusterBrain(FIRST_COME))
    world.nodes(4)
    world.submit(0.0, a_job("runs", 12, 1000.0))
    world.submit(1.0, a_job("head", 16, 1000.0))
    world.submit(2.0, a_job("long", 4, 5000.0))
    world.submit(3.0, a_job("short", 4, 500.0))
    world.run(900.0)
    assert [name for _, name in world.started] == ["runs", "short"]
    assert world.brain.view.counts.backfilled == 1


def test_a_job_of_the_whole_cluster_starts_amid_a_stream_of_small_ones() -> None:
    world = World(ClusterBrain(FIRST_COME))
    world.nodes(4)
    for index in range(200):
        world.submit(50.0 * index, a_job(f"small-{index}", 4, 400.0, team=f"team-{index % 3}", priority=1))
    world.submit(100.0, a_job("large", 16, 400.0))
    queue = world.brain.view.settings.queue
    world.run(queue.aging_s)
    assert "large" in {name for _, name in world.started}


def test_teams_that_always_want_more_get_their_weights() -> None:
    quotas = (TeamQuota("red", weight_ratio=2.0), TeamQuota("blue"), TeamQuota("green"))
    settings = ClusterSettings(quotas, GangQueueSettings(share_half_life_s=50_000.0), None, faults=NO_SPARES)
    world = World(ClusterBrain(settings))
    world.nodes(8)
    random = Random(1)
    for index in range(900):
        team = ("red", "blue", "green")[index % 3]
        size = random.choice([1, 2, 4, 4] if team == "blue" else [4, 8])
        world.submit(0.0, a_job(f"j{index}", size, random.uniform(200.0, 1500.0), team=team))
    end_s = 20_000.0
    world.run(end_s)
    busy: Counter[str] = Counter()
    for job in world.brain.view.running():
        busy[job.submitted.team] += job.size_count
    used = {team: world.used_s[team] + end_s * busy[team] for team in ("red", "blue", "green")}
    total = sum(used.values())
    assert total > 0.9 * 32 * end_s
    for team, share in (("red", 0.5), ("blue", 0.25), ("green", 0.25)):
        assert used[team] / total == pytest.approx(share, rel=0.1)


def test_a_lent_quota_comes_back_after_a_checkpoint() -> None:
    quotas = (TeamQuota("red", 8), TeamQuota("blue", 8))
    world = World(ClusterBrain(ClusterSettings(quotas, faults=NO_SPARES)))
    world.nodes(4)
    world.submit(0.0, a_job("own", 8, 50_000.0, team="blue"))
    world.submit(0.0, a_job("lent", 8, 50_000.0, team="blue"))
    world.submit(5000.0, a_job("claims", 8, 1000.0, team="red"))
    world.run(6000.0)
    assert [reason for _, _, reason in world.stopped] == [StopReason.RECLAIMED]
    assert world.stopped[0][1] in {"own", "lent"}
    stopped_s = world.stopped[0][0]
    assert stopped_s == 5000.0 + WRITE_S and (stopped_s, "claims") in world.started
    world.run()
    # It lost no work: only a write and two more starts.
    longest_s = max(world.finished["own"], world.finished["lent"])
    assert longest_s == pytest.approx(50_000.0 + 1000.0 + 3 * RESTART_S + WRITE_S, abs=1.0)


def test_nobody_is_stopped_for_a_job_of_lower_or_equal_priority() -> None:
    world = World(ClusterBrain(ClusterSettings(faults=NO_SPARES)))
    world.nodes(4)
    world.submit(0.0, a_job("low", 8, 50_000.0))
    world.submit(0.0, a_job("firm", 4, 50_000.0, preemptible=False))
    world.submit(0.0, a_job("equal", 4, 50_000.0, priority=1))
    world.submit(5000.0, a_job("asks", 12, 1000.0, priority=1))
    world.submit(5001.0, a_job("asks-less", 8, 1000.0, priority=1))
    world.run(8000.0)
    assert world.stopped == []
    world.submit(8000.0, a_job("small", 4, 1000.0, priority=2))
    world.run(8100.0)
    assert [(name, reason) for _, name, reason in world.stopped] == [("low", StopReason.PREEMPTED)]


def test_a_job_beyond_its_quota_waits_and_lets_others_pass() -> None:
    quotas = (TeamQuota("red", 4, 0), TeamQuota("blue", 12, 0))
    world = World(ClusterBrain(ClusterSettings(quotas, faults=NO_SPARES)))
    world.nodes(4)
    world.submit(0.0, a_job("one", 4))
    world.submit(1.0, a_job("two", 4))
    world.submit(2.0, a_job("other", 12, team="blue"))
    world.run(500.0)
    assert [name for _, name in world.started] == ["one", "other"]
    world.run()
    assert (world.finished["one"], "two") in world.started


def test_a_preempted_job_loses_less_than_an_interval() -> None:
    world = World(ClusterBrain(ClusterSettings(faults=NO_SPARES)))
    world.nodes(4)
    world.submit(0.0, a_job("low", 16, 20_000.0))
    world.submit(7000.0, a_job("high", 16, 500.0, priority=1))
    world.run()
    wasted_s = world.finished["low"] - 20_000.0 - 500.0
    assert wasted_s == pytest.approx(3 * RESTART_S + WRITE_S, abs=1.0)


def test_what_is_over_is_forgotten() -> None:
    queue = GangQueueSettings(share_half_life_s=100.0)
    world = World(ClusterBrain(ClusterSettings(queue=queue, faults=NO_SPARES, preemption=None)))
    world.nodes(4)
    view, most = world.brain.view, 0
    for index in range(600):
        world.submit(110.0 * index, a_job(f"j{index}", 1 + index % 16, 60.0, team=f"team-{index}"))
        world.run(110.0 * (index + 1))
        most = max(most, len(view.timers._heap), len(view.jobs), len(view.teams._uses), len(view.ends))
    assert view.counts.finished == 600 and not view.jobs and most < 200
