"""The laws of the brain, against an onlooker that sees only its events and effects."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from twofold.live.gateway.replays import first_difference
from twofold.live.jobs.job_log import LINES, READER
from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.events import (
    CheckpointFailed,
    CheckpointWritten,
    ClusterEvent,
    FaultCause,
    GrantServing,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobProgressed,
    JobRefusal,
    JobStarted,
    JobSubmitted,
    NodeAdded,
    NodeFailed,
    NodeRepaired,
    QuarantineNode,
    ReclaimServing,
    RefuseJob,
    ReleaseNode,
    RepairKind,
    ResizeJob,
    SaveCheckpoint,
    ServingDemand,
    StartJob,
    StopJob,
    StopReason,
    SwapNode,
)
from twofold.policy.cluster.settings import (
    ClusterSettings,
    FaultSettings,
    GangQueueSettings,
    PreemptionSettings,
    SharingSettings,
    TeamQuota,
    WatchSettings,
)
from twofold.policy.cluster.view import ClusterCounts
from twofold.policy.machine import Entry, Woke

QUOTAS = {"red": (12, 4), "blue": (8, None)}
SETTINGS = ClusterSettings(
    teams=tuple(TeamQuota(team, quota, borrow) for team, (quota, borrow) in QUOTAS.items()),
    queue=GangQueueSettings(limit_count=6, backfill_count=4, aging_s=3600.0, grow_after_s=100.0),
    preemption=PreemptionSettings(minimum_run_s=60.0, patience_s=30.0),
    faults=FaultSettings(
        restart_limit=3, lemon_failure_count=2, lemon_chance_fraction=0.9, quarantine_s=500.0
    ),
    sharing=SharingSettings(release_hold_s=300.0, lead_s=60.0, serving_count_max=12),
    watch=WatchSettings(slow_count=2),
)
NODES = st.sampled_from([f"n{index}" for index in range(8)])
JOBS = st.sampled_from([f"j{index}" for index in range(12)])
CAUSES = st.sampled_from(FaultCause)
WAIT_S = SETTINGS.cadence.wait_s  # longer than any job's own bound here
TURNS_MAX = 12  # of starts and ends: more than jobs can wait
LEAVING = {StopReason.PREEMPTED, StopReason.RECLAIMED, StopReason.SERVING}


@dataclass
class SeenNode:
    """A node as an onlooker knows it."""

    count: int
    up: bool = True
    quarantined: bool = False
    serving: bool = False


@dataclass
class SeenJob:
    """A job that is not over, as an onlooker knows it."""

    asked: JobSubmitted
    placement: dict[str, int] = field(default_factory=dict)
    attempt: int = 0
    lost: bool = False  # the attempt has failed: what it had is free, or kept for it
    saving_s: float | None = None  # since when

    @property
    def size(self) -> int:
        return sum(self.placement.values())


class BrainAgainstOnlooker(RuleBasedStateMachine):
    """Every order of events, late, twice, about nobody and at odd times."""

    settings = SETTINGS

    def __init__(self) -> None:
        super().__init__()
        self.brain, self.twin = ClusterBrain(self.settings), ClusterBrain(self.settings)
        self.lines: list[str] = []
        self.now_s = 0.0
        self.nodes: dict[str, SeenNode] = {}
        self.jobs: dict[str, SeenJob] = {}
        self.over: Counter[str] = Counter()
        for index in range(6):
            self.node_added(f"n{index}", 4, index % 2)

    # --- what the world does ---

    @rule(node_id=NODES, count=st.sampled_from([4, 4, 4, 2]), rail=st.integers(0, 1))
    def node_added(self, node_id: str, count: int, rail: int) -> None:
        self.nodes.setdefault(node_id, SeenNode(count))
        self.tell(NodeAdded(node_id, count, ("zone", f"rail-{rail}")))

    @rule(
        again=st.sampled_from([False, False, False, True]),
        job_id=JOBS,
        team=st.sampled_from(["red", "blue", "green"]),
        count=st.sampled_from([4, 8, 1, 2, 3, 6, 12, 16, 20, 0, 40]),
        less=st.sampled_from([0, 0, 0, 1, 4, 8]),
        priority=st.integers(0, 2),
        expected_s=st.sampled_from([5000.0, 100.0, 50_000.0, 0.0, -1.0]),
        preemptible=st.sampled_from([True, True, False]),
    )
    def submitted(self, again: bool, job_id: str, count: int, less: int, **asked: Any) -> None:
        if not again:
            job_id = next(name for name in map("j{}".format, range(999)) if not self.known(name))
        least = count - less if count > less else count
        event = JobSubmitted(
            job_id,
            accelerator_count=count,
            minimum_count=least,
            checkpoint_write_s=20.0,
            restart_s=30.0,
            **asked,
        )
        if not self.known(job_id):
            self.jobs[job_id] = SeenJob(event)
        self.tell(event)

    @rule()
    def all_start(self) -> None:
        for job_id, job in list(self.jobs.items()):
            if job.placement and not job.lost:
                self.tell(JobStarted(job_id, job.attempt))

    @rule(write_s=st.sampled_from([5.0, 30.0]))
    def all_are_written(self, write_s: float) -> None:
        self.now_s += write_s
        for job_id, job in list(self.jobs.items()):
            if job.saving_s is not None:
                self.tell(CheckpointWritten(job_id, write_s, job.attempt))

    @rule(job_id=JOBS, late=st.sampled_from([0, 0, 1, -1]))
    def started(self, job_id: str, late: int) -> None:
        self.tell(JobStarted(job_id, max(self.attempt_of(job_id) + late, 0)))

    @rule(job_id=JOBS, late=st.sampled_from([0, 0, 0, 1, -1]))
    def finished(self, job_id: str, late: int) -> None:
        job = self.jobs.get(job_id)
        attempt = max(self.attempt_of(job_id) + late, 0)
        if job is not None and job.attempt and attempt in (0, job.attempt):
            self.forget(job_id)
        self.tell(JobFinished(job_id, attempt))

    @rule(job_id=JOBS, cause=CAUSES, node_id=NODES | st.just(""), late=st.sampled_from([0, 0, 0, -1]))
    def failed(self, job_id: str, cause: FaultCause, node_id: str, late: int) -> None:
        self.tell(JobFailed(job_id, cause, node_id, max(self.attempt_of(job_id) + late, 0)))

    @rule(job_id=JOBS)
    def cancelled(self, job_id: str) -> None:
        self.tell(JobCancelled(job_id))
        if job_id in self.jobs:
            self.forget(job_id)

    @rule(
        job_id=JOBS,
        write_s=st.sampled_from([0.0, 15.0, 400.0, float("nan"), -1.0]),
        late=st.sampled_from([0, 0, 1, -1]),
    )
    def written(self, job_id: str, write_s: float, late: int) -> None:
        if write_s == write_s:  # a log has no NaN
            self.tell(CheckpointWritten(job_id, write_s, max(self.attempt_of(job_id) + late, 0)))
        else:
            assert self.brain.handle(CheckpointWritten(job_id, write_s), self.now_s) == []
            assert self.twin.handle(CheckpointWritten(job_id, write_s), self.now_s) == []

    @rule(slow=st.sampled_from([1.0, 1.0, 3.0]), late=st.sampled_from([0, 0, 1, -1]))
    def all_report(self, slow: float, late: int) -> None:
        """Of each gang the last node works so much longer than the others."""
        for job_id, job in list(self.jobs.items()):
            if job.placement and not job.lost:
                node_s = tuple((node_id, 1.0) for node_id in job.placement)
                node_s = (*node_s[:-1], (node_s[-1][0], slow))
                self.tell(JobProgressed(job_id, 1.0, node_s, max(job.attempt + late, 0)))

    @rule(job_id=JOBS, late=st.sampled_from([0, 0, 1, -1]))
    def not_written(self, job_id: str, late: int) -> None:
        self.tell(CheckpointFailed(job_id, max(self.attempt_of(job_id) + late, 0)))

    @rule(node_id=NODES, cause=CAUSES)
    def node_failed(self, node_id: str, cause: FaultCause) -> None:
        if node_id in self.nodes:
            self.nodes[node_id].up = False
        self.tell(NodeFailed(node_id, cause))

    @rule(node_id=NODES, kind=st.sampled_from(RepairKind))
    def node_repaired(self, node_id: str, kind: RepairKind) -> None:
        if node_id in self.nodes:
            self.nodes[node_id].up = True
        self.tell(NodeRepaired(node_id, kind))

    @rule(count=st.integers(0, 20))
    def serving_needs(self, count: int) -> None:
        self.tell(ServingDemand(count))

    @rule(past_s=st.sampled_from([0.1, 10.0, 61.0, 700.0, 4000.0, 90_000.0]))
    def time_passes(self, past_s: float) -> None:
        self.now_s += past_s
        self.tell(Woke())

    @rule()
    def woken_when_it_asked(self) -> None:
        wake_s = self.brain.wake_at_s()
        if wake_s is not None:
            self.now_s = wake_s
            self.tell(Woke())

    # --- what the onlooker sees ---

    def attempt_of(self, job_id: str) -> int:
        return self.jobs[job_id].attempt if job_id in self.jobs else 1

    def known(self, job_id: str) -> bool:
        return job_id in self.jobs or self.over[job_id] > 0

    def forget(self, job_id: str) -> None:
        del self.jobs[job_id]
        self.over[job_id] += 1

    def tell(self, event: ClusterEvent) -> None:
        ignored_count = self.brain.view.counts.ignored
        late = self.is_late(event)
        effects = self.brain.handle(event, self.now_s)
        self.lines.append(LINES.to_line(Entry(self.now_s, event, tuple(effects))))
        assert self.twin.handle(event, self.now_s) == effects  # INV-15
        wake_s = self.brain.wake_at_s()
        assert wake_s is None or wake_s > self.now_s
        if isinstance(event, JobFailed) and self.brain.view.counts.ignored == ignored_count:
            self.jobs[event.job_id].lost = True
        for effect in effects:
            self.see(effect, event)
        if late:
            assert self.brain.view.counts.ignored == ignored_count + 1
        elif isinstance(event, CheckpointWritten | CheckpointFailed) and event.job_id in self.jobs:
            again = SaveCheckpoint(event.job_id) in effects
            self.jobs[event.job_id].saving_s = self.now_s if again else None

    def is_late(self, event: ClusterEvent) -> bool:
        """Whether it tells of a checkpoint of an attempt that does not run."""
        return isinstance(event, CheckpointWritten | CheckpointFailed) and event.attempt not in (
            0,
            self.attempt_of(event.job_id),
        )

    def see(self, effect: Any, event: ClusterEvent) -> None:
        match effect:
            case StartJob() | ResizeJob():
                self.begun(effect.job_id, dict(effect.placement), effect.attempt)
                assert len(dict(effect.placement)) == len(effect.placement)
            case SwapNode():
                placement = self.jobs[effect.job_id].placement
                count = placement.pop(effect.failed_node_id)
                spare_id = effect.spare_node_id
                self.begun(
                    effect.job_id, {**placement, spare_id: placement.get(spare_id, 0) + count}, effect.attempt
                )
            case SaveCheckpoint():
                job = self.jobs[effect.job_id]
                waited = job.saving_s is not None and self.now_s >= job.saving_s + WAIT_S
                assert job.placement and (job.saving_s is None or waited)
                job.saving_s = self.now_s
            case StopJob():
                self.stopped(effect, event)
            case RefuseJob():
                if effect.reason is not JobRefusal.DUPLICATE:
                    del self.jobs[effect.job_id]
            case QuarantineNode():
                assert effect.until_s > self.now_s
                self.nodes[effect.node_id].quarantined = True
            case ReleaseNode():
                self.nodes[effect.node_id].quarantined = False
            case GrantServing():
                for node_id in effect.node_ids:
                    node = self.nodes[node_id]
                    assert node.up and not node.quarantined and not node.serving and not self.used(node_id)
                    node.serving = True
            case ReclaimServing():
                for node_id in effect.node_ids:
                    assert self.nodes[node_id].serving
                    self.nodes[node_id].serving = False

    def begun(self, job_id: str, placement: dict[str, int], attempt: int) -> None:
        job = self.jobs[job_id]
        job.placement, job.saving_s, job.lost = {}, None, False
        asked = job.asked
        assert attempt == job.attempt + 1
        assert asked.minimum_count <= sum(placement.values()) <= asked.accelerator_count
        for node_id, count in placement.items():
            node = self.nodes[node_id]
            assert node.up and not node.quarantined and not node.serving
            assert 0 < count <= node.count - self.used(node_id)
        job.placement, job.attempt = placement, attempt

    def stopped(self, effect: StopJob, event: ClusterEvent) -> None:
        if effect.reason is StopReason.CANCELLED:
            assert event == JobCancelled(effect.job_id)
            self.jobs[effect.job_id].placement = {}
            return
        job = self.jobs[effect.job_id]
        if effect.reason in LEAVING:  # INV-34
            assert job.asked.preemptible and job.placement
            assert isinstance(event, CheckpointWritten) and event.job_id == effect.job_id
            assert event.attempt in (0, job.attempt)
        if effect.reason is StopReason.HUNG:
            assert job.placement and not job.lost and isinstance(event, Woke)
            job.lost, job.saving_s = True, None
            return
        job.placement, job.saving_s, job.lost = {}, None, False
        if effect.reason is StopReason.GAVE_UP:
            self.forget(effect.job_id)

    def used(self, node_id: str) -> int:
        return sum(job.placement.get(node_id, 0) for job in self.jobs.values() if not job.lost)

    # --- what always holds ---

    @invariant()
    def every_job_is_somewhere(self) -> None:  # INV-31
        view, counts = self.brain.view, self.brain.view.counts
        assert view.jobs.keys() == self.jobs.keys()
        ended = counts.refused + counts.finished + counts.failed + counts.cancelled
        assert counts.submitted == ended + len(view.jobs)
        waiting = [job for job in view.jobs.values() if not job.placement]
        assert len(view.queue) == sum(job.state.value == "queued" for job in waiting) <= len(waiting)

    @invariant()
    def no_accelerator_is_in_two_jobs(self) -> None:  # INV-32
        for job_id, job in self.brain.view.jobs.items():
            held = dict(job.placement)
            assert sum(held.values()) == job.size_count
            seen = self.jobs[job_id]
            assert seen.placement == held or seen.lost
        for node_id, node in self.brain.view.nodes.items():
            used = {
                job.job_id: dict(job.placement)[node_id]
                for job in self.brain.view.running()
                if node_id in dict(job.placement)
            }
            assert used == node.job_counts
            assert node.free_count == node.accelerator_count - sum(used.values()) >= 0
            assert node.free_count == self.nodes[node_id].count - sum(used.values())

    @invariant()
    def quotas_hold(self) -> None:  # INV-33
        for team, (quota, borrow) in QUOTAS.items():
            of_team = [job for job in self.brain.view.running() if job.submitted.team == team]
            assert sum(job.size_count for job in of_team if not job.submitted.preemptible) <= quota
            assert borrow is None or sum(job.size_count for job in of_team) <= quota + borrow

    @invariant()
    def what_is_free_is_filed(self) -> None:
        view = self.brain.view
        filed = [node for node in view.nodes.values() if node.usable and node.free_count]
        assert view.free.free_count + view.held.free_count == sum(node.free_count for node in filed)
        whole = sum(node.free_count for node in filed if node.whole)
        assert view.free.whole_count + view.held.whole_count == whole
        serving = {node_id for node_id, node in self.nodes.items() if node.serving}
        assert view.serving.keys() == serving

    @invariant()
    def what_is_remembered_is_bounded(self) -> None:
        view = self.brain.view
        assert len(view.timers._at_s) <= 2 * len(view.jobs) + len(view.nodes) + 2
        assert view.leaving.keys() <= view.jobs.keys() and len(view.ends) <= len(view.jobs)

    def teardown(self) -> None:
        self.nobody_blocks_anybody()
        entries = (READER.entry_from_line(line) for line in self.lines)
        assert first_difference(ClusterBrain(self.settings), entries) is None  # INV-15

    def nobody_blocks_anybody(self) -> None:
        """Once nothing fails and who runs ends, every gang has run but those larger than the fleet.

        What serving needed on the days before is kept for it, and not of the fleet.
        """
        self.tell(ServingDemand(0))
        for node_id in self.nodes:
            self.node_repaired(node_id, RepairKind.REPLACED)
        for _ in range(TURNS_MAX):
            self.all_start()
            self.all_are_written(5.0)
            for job_id, job in list(self.jobs.items()):
                if job_id in self.jobs and job.placement and not job.lost:
                    self.finished(job_id, 0)
            if not self.jobs:
                return
            self.time_passes(700.0)
        count = sum(node.count for node in self.nodes.values() if not node.serving)
        assert all(job.asked.minimum_count > count for job in self.jobs.values()), self.jobs


class PreemptsAtOnce(BrainAgainstOnlooker):
    """As above, where an attempt may be asked for room at once, with one spare and long pauses."""

    settings = ClusterSettings(
        **{name: getattr(SETTINGS, name) for name in ("teams", "queue", "sharing")},
        preemption=PreemptionSettings(minimum_run_s=0.0),
        faults=FaultSettings(spare_count=1, backoff_s=200.0, hold_s=300.0),
        watch=WatchSettings(slow_count=2, start_wait_s=2000.0),
    )


def live_on(life: BrainAgainstOnlooker, random: Random, steps: int) -> ClusterCounts:
    """A longer life than hypothesis tries, where jobs mostly get on: every law holds at every step."""
    names = [f"n{index}" for index in range(6)]
    for step in range(steps):
        busy = [job_id for job_id, job in life.jobs.items() if job.placement]
        some_job = random.choice(busy or list(life.jobs) or ["j0"])
        match random.choice("aaaasssssswwwwwwwwttttttttttfffcxnrrrdopp"):
            case "a":
                count = random.choice([1, 2, 4, 4, 8, 8, 12, 16])
                least = random.choice([count, max(count // 2, 1)])
                expected_s = random.choice([600.0, 4000.0, 20_000.0])
                asked = JobSubmitted(
                    f"life{step}",
                    random.choice(["red", "blue", "green"]),
                    count,
                    least,
                    random.randint(0, 2),
                    expected_s,
                    20.0,
                    30.0,
                    random.random() < 0.7,
                )
                life.jobs[asked.job_id] = SeenJob(asked)
                life.tell(asked)
            case "s":
                life.all_start()
            case "w":
                life.all_are_written(random.choice([5.0, 30.0]))
            case "t":
                life.time_passes(random.choice([1.0, 61.0, 700.0, 3000.0]))
            case "f":
                life.finished(some_job, 0)
            case "c":
                life.cancelled(random.choice(list(life.jobs) or ["j0"]))
            case "x":
                placement = life.jobs[some_job].placement if life.jobs else {}
                life.failed(some_job, random.choice(list(FaultCause)), next(iter(placement), ""), 0)
            case "n":
                life.node_failed(random.choice(names), random.choice(list(FaultCause)))
            case "r":
                life.node_repaired(random.choice(names), random.choice(list(RepairKind)))
            case "d":
                life.serving_needs(random.choice([0, 0, 4, 8, 12]))
            case "p":
                for slow in [random.choice([1.0, 3.0])] * 2:  # as often as makes a node slow
                    life.all_report(slow, 0)
            case "o":
                life.not_written(some_job, 0)
        life.every_job_is_somewhere()
        life.no_accelerator_is_in_two_jobs()
        life.quotas_hold()
        life.what_is_free_is_filed()
        life.what_is_remembered_is_bounded()
    life.teardown()
    return life.brain.view.counts


@pytest.mark.parametrize("kind", [BrainAgainstOnlooker, PreemptsAtOnce])
def test_a_long_life_keeps_every_law_and_meets_everything(kind: type[BrainAgainstOnlooker]) -> None:
    met = asdict(live_on(kind(), Random(7), steps=700))
    rare = {"failed", "quarantined", "shrunk", "grown"}
    assert {name for name, count in met.items() if not count} <= rare, met


TestBrain = BrainAgainstOnlooker.TestCase
TestBrain.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
TestPreemptsAtOnce = PreemptsAtOnce.TestCase
TestPreemptsAtOnce.settings = settings(max_examples=10, stateful_step_count=30, deadline=None)
