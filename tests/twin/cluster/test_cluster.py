"""The cluster's world under the smallest machine: its hours add up, its failures cost what theory says."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.cluster.cadence import checkpoint_interval_s
from twofold.policy.cluster.events import (
    CheckpointFailed,
    CheckpointWritten,
    ClusterEffect,
    ClusterEvent,
    FaultCause,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    NodeAdded,
    NodeFailed,
    NodeRepaired,
    RepairKind,
    SaveCheckpoint,
    StartJob,
    StopJob,
    StopReason,
    SwapNode,
)
from twofold.training.run import failing_time_ratio, lost_work_s
from twofold.twin.cluster.cluster import simulate_cluster
from twofold.twin.cluster.cluster_types import (
    CauseRate,
    CheckpointModel,
    CheckpointStore,
    ClusterResult,
    ClusterWorld,
    FaultRates,
    JobRecord,
    NodeGroup,
    NodeLoss,
    RunEnd,
    SlowNode,
    StepModel,
    Use,
)
from twofold.twin.cluster.jobs import JobArrival, JobEnd

DAY_S = 86_400.0


@dataclass
class Fifo:
    """Queues again, at the front, what a failure hits."""

    interval_s: float = 1e9
    free: dict[str, int] = field(default_factory=dict)
    away: dict[str, int] = field(default_factory=dict)
    queue: list[JobSubmitted] = field(default_factory=list)
    jobs: dict[str, JobSubmitted] = field(default_factory=dict)
    placed: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    due_s: dict[str, float] = field(default_factory=dict)

    def wake_at_s(self) -> float | None:
        return min(self.due_s.values(), default=None)

    def handle(self, event: ClusterEvent, now_s: float) -> list[ClusterEffect]:
        effects: list[ClusterEffect] = []
        match event:
            case NodeAdded():
                self.free[event.node_id] = event.accelerator_count
            case JobSubmitted():
                self.jobs[event.job_id] = event
                self.queue.append(event)
            case JobStarted():
                self.due_s[event.job_id] = now_s + self.interval_s
            case CheckpointWritten() | CheckpointFailed():
                if event.job_id in self.placed:
                    self.due_s[event.job_id] = now_s + self.interval_s
            case JobFinished() | JobCancelled():
                self._give_back(event.job_id)
            case JobFailed():
                effects += self._again(event.job_id)
            case NodeFailed():
                for job_id in [one for one, places in self.placed.items() if event.node_id in dict(places)]:
                    effects += self._again(job_id)
                self.away[event.node_id] = self.free.pop(event.node_id)
            case NodeRepaired():
                self.free[event.node_id] = self.away.pop(event.node_id)
        for job_id in [one for one, due_s in self.due_s.items() if due_s <= now_s]:
            del self.due_s[job_id]
            effects.append(SaveCheckpoint(job_id))
        return effects + self._start()

    def _give_back(self, job_id: str) -> None:
        self.due_s.pop(job_id, None)
        for node_id, count in self.placed.pop(job_id, ()):
            self.free[node_id] += count

    def _again(self, job_id: str) -> list[ClusterEffect]:
        self._give_back(job_id)
        self.queue.insert(0, self.jobs[job_id])
        return [StopJob(job_id, StopReason.FAILED)]

    def _start(self) -> list[ClusterEffect]:
        effects: list[ClusterEffect] = []
        while self.queue and self.queue[0].accelerator_count <= sum(self.free.values()):
            job = self.queue.pop(0)
            left, parts = job.accelerator_count, []
            for node_id, count in self.free.items():
                if left and count:
                    parts.append((node_id, min(left, count)))
                    left -= parts[-1][1]
            for node_id, count in parts:
                self.free[node_id] -= count
            self.placed[job.job_id] = tuple(parts)
            self.attempts[job.job_id] = self.attempts.get(job.job_id, 0) + 1
            effects.append(StartJob(job.job_id, tuple(parts), self.attempts[job.job_id]))
        return effects


def rates(per_accelerator_h: float, repair_s: float = 600.0, software: float = 0.0) -> FaultRates:
    """Two causes: one that takes the node, one that only ends the job."""
    return FaultRates(
        (
            CauseRate(FaultCause.ACCELERATOR, per_accelerator_h, repair_s, RepairKind.REPLACED),
            CauseRate(FaultCause.SOFTWARE, software, 0.0, RepairKind.REBOOTED),
        )
    )


def world(
    node_count: int = 8, interval_s: float = 1e9, make: Callable[[], Fifo] | None = None, **changes: object
) -> ClusterWorld:
    plain = ClusterWorld(
        nodes=(NodeGroup("n", node_count),),
        new_brain=make or partial(Fifo, interval_s),
        horizon_s=400 * DAY_S,
        ends=RunEnd.LAST_JOB,
        checkpoint=CheckpointModel(1e9, restart_s=300.0, files_per_accelerator=0.0),
        store=CheckpointStore(1e9),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def run(a_world: ClusterWorld, *jobs: JobArrival) -> tuple[ClusterResult, dict[str, JobRecord]]:
    records: list[JobRecord] = []
    result = simulate_cluster(a_world, jobs, records.append)
    return result, {record.job_id: record for record in records}


def test_a_lone_job_takes_its_start_its_work_and_its_checkpoints() -> None:
    result, records = run(world(interval_s=1000.0), JobArrival(50.0, 3500.0, 64))
    # Three writes of 64 GB at 1 GB/s fall into 3,500 s of work.
    assert records["j1"].ended_s == pytest.approx(50 + 300 + 3500 + 3 * 64)
    assert result.figures.checkpoint_count == 3
    assert result.figures.checkpoint_s_mean == pytest.approx(64.0)
    assert result.figures.accelerator_h[Use.BUSY] == pytest.approx(64 * 3500 / 3600)
    assert result.figures.goodput_fraction == pytest.approx(3500 / (300 + 3500 + 3 * 64))


def test_a_snapshot_costs_only_itself() -> None:
    checkpoint = CheckpointModel(1e9, snapshot_s=5.0, restart_s=300.0)
    _, records = run(world(interval_s=1000.0, checkpoint=checkpoint), JobArrival(0.0, 3500.0, 64))
    assert records["j1"].ended_s == pytest.approx(300 + 3500 + 3 * 5)
    assert records["j1"].checkpoints_count == 3


def test_two_jobs_that_write_at_once_wait_for_each_other() -> None:
    alone, _ = run(world(interval_s=1000.0), JobArrival(0.0, 1500.0, 32))
    both, _ = run(world(interval_s=1000.0), JobArrival(0.0, 1500.0, 32), JobArrival(0.0, 1500.0, 32))
    assert alone.figures.checkpoint_s_mean == pytest.approx(32.0)
    assert both.figures.checkpoint_s_mean == pytest.approx(64.0)


def test_files_cost_time_beside_bytes() -> None:
    checkpoint = CheckpointModel(1e9, restart_s=300.0, files_per_accelerator=100.0)
    many = world(interval_s=1000.0, checkpoint=checkpoint, store=CheckpointStore(1e9, 1000.0))
    result, _ = run(many, JobArrival(0.0, 1500.0, 64))
    assert result.figures.checkpoint_s_mean == pytest.approx(64.0 + 6.4)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    per_h=st.sampled_from([0.0, 1e-3, 2e-2]),
    software=st.sampled_from([0.0, 1e-2]),
    sizes=st.lists(st.sampled_from([1, 3, 8, 20, 64]), min_size=1, max_size=6),
    snapshot_s=st.sampled_from([None, 10.0]),
    jitter=st.sampled_from([0.0, 0.02]),
)
def test_every_accelerator_second_has_one_use(
    seed: int, per_h: float, software: float, sizes: list[int], snapshot_s: float | None, jitter: float
) -> None:
    checkpoint = CheckpointModel(1e9, snapshot_s=snapshot_s, restart_s=60.0, failed_fraction=0.1)
    a_world = world(
        interval_s=900.0,
        faults=rates(per_h, software=software),
        checkpoint=checkpoint,
        step=StepModel(jitter_fraction=jitter),
        slow_nodes=(SlowNode("n1", device_factor=1.5), SlowNode("n6", device_factor=1.5)),
        horizon_s=DAY_S,
        ends=RunEnd.HORIZON,
        seed=seed,
    )
    jobs = [JobArrival(600.0 * number, 5000.0, size) for number, size in enumerate(sizes)]
    result, records = run(a_world, *jobs)
    assert sum(result.figures.accelerator_h.values()) == pytest.approx(result.capacity_h, rel=1e-12)
    assert result.capacity_h == 64 * 24
    assert min(result.figures.accelerator_h.values()) >= -1e-6
    assert sum(result.figures.outcomes.values()) == len(jobs) == len(records)
    assert result.figures.accelerator_h[Use.BUSY] == pytest.approx(
        sum(r.busy_s for r in records.values()) / 3600
    )
    assert result.figures.accelerator_h[Use.LOST] == pytest.approx(
        sum(r.lost_s for r in records.values()) / 3600, abs=1e-6
    )
    for record in records.values():
        if record.state == "completed":
            assert record.busy_s == pytest.approx(5000.0 * record.accelerator_count)


LONG_JOB = JobArrival(0.0, 40 * DAY_S, 64)
FAILING = world(
    16,
    faults=rates(3.5e-3, repair_s=600.0, software=1.5e-3),
    checkpoint=CheckpointModel(60e9 / 64, restart_s=300.0, files_per_accelerator=0.0),
)


def test_failures_cost_what_the_closed_form_of_the_run_plan_says() -> None:
    between_s = 3600 / 64 / 5e-3
    interval_s = checkpoint_interval_s(between_s, 60.0)
    result, _ = run(replace(FAILING, new_brain=partial(Fifo, interval_s)), LONG_JOB)
    # Noticed after 120 s, started in 300 s, read in 60 s. Failures of standing accelerators do no harm here,
    # and those of the waiting half of the cluster neither.
    expected = 1 / failing_time_ratio(between_s, 120 + 300 + 60, interval_s, 60.0)
    assert result.figures.failure_count > 250
    assert result.figures.goodput_fraction == pytest.approx(expected, rel=0.02)


def test_work_lost_per_failure_is_that_of_theory() -> None:
    between_s, interval_s = 3600 / 64 / 5e-3, 3000.0
    result, _ = run(replace(FAILING, new_brain=partial(Fifo, interval_s)), LONG_JOB)
    expected = lost_work_s(between_s, interval_s + 60.0)
    # Losses are nearly even between none and all of a stretch; a failure in the write loses only the work.
    spread_s = interval_s / sqrt(12 * result.figures.failure_count)
    assert result.lost_s_mean == pytest.approx(expected, abs=3.3 * spread_s + 30.0)


def test_the_16384_accelerator_case_is_saved_every_19_minutes() -> None:
    assert checkpoint_interval_s(3.1 * 3600, 60.0) / 60 == pytest.approx(19, abs=0.5)


def test_equal_seeds_give_equal_results_and_others_do_not() -> None:
    a_world = replace(FAILING, new_brain=partial(Fifo, 1800.0))
    job = JobArrival(0.0, 5 * DAY_S, 64)
    first, second, third = run(a_world, job), run(a_world, job), run(replace(a_world, seed=1), job)
    assert first == second
    assert first != third


def test_a_link_at_half_speed_slows_the_step_and_is_named() -> None:
    step = StepModel(communication_fraction=0.3)
    sound, _ = run(world(step=step), JobArrival(0.0, DAY_S, 64))
    slow, records = run(
        world(step=step, slow_nodes=(SlowNode("n5", link_factor=2.0),)), JobArrival(0.0, DAY_S, 64)
    )
    assert sound.figures.slowdown_factor == 1.0
    assert slow.figures.slowdown_factor == pytest.approx(1.3)
    assert records["j1"].slowest_node == "n5"
    assert next(iter(slow.figures.pace_setters)) == "n5"
    waited_h = slow.figures.accelerator_h[Use.SLOWED]
    assert slow.figures.pace_setters["n5"] == pytest.approx(waited_h)


def test_a_node_that_is_slow_for_a_while_costs_that_while() -> None:
    slow = SlowNode("n5", from_s=1000.0, until_s=3000.0, device_factor=2.0)
    step = StepModel(communication_fraction=0.0)
    _, records = run(world(step=step, slow_nodes=(slow,)), JobArrival(0.0, 9000.0, 64))
    assert records["j1"].ended_s == pytest.approx(300 + 9000 + 1000)


@given(st.integers(1, 8), st.floats(0.0, 8000.0), st.floats(1800.0, 7200.0))
@settings(max_examples=20, deadline=None)
def test_nodes_that_fail_at_a_known_time_are_away_until_they_are_back(
    lost_count: int, at_s: float, back_s: float
) -> None:
    losses = tuple(NodeLoss(at_s, f"n{number}", FaultCause.POWER, back_s) for number in range(lost_count))
    result, records = run(world(losses=losses), JobArrival(0.0, 9000.0, 64))
    assert (
        result.figures.failures_by_cause == {"power": lost_count} and result.node_failure_count == lost_count
    )
    down_s = back_s - FaultRates().detection_s  # until then the job that hangs has them
    assert result.figures.accelerator_h[Use.DOWN] == pytest.approx(8 * lost_count * down_s / 3600)
    # All of it is done again from the start: no checkpoint was written.
    assert records["j1"].state == "completed"
    assert records["j1"].ended_s == pytest.approx(at_s + back_s + 300 + 9000)


def test_a_node_that_never_comes_back_leaves_its_job_without_it() -> None:
    lost = world(losses=(NodeLoss(1000.0, "n3"),), horizon_s=DAY_S)
    _, records = run(lost, JobArrival(0.0, 9000.0, 64), JobArrival(0.0, 9000.0, 56))
    assert records["j1"].state == "queued"  # and nobody is let before it
    (only,) = run(lost, JobArrival(0.0, 9000.0, 56))[1].values()
    assert only.state == "completed"


def test_jobs_that_end_of_themselves_are_not_tried_again() -> None:
    result, records = run(world(), JobArrival(0.0, 100.0, 8, state=JobEnd.FAILED), JobArrival(0.0, 100.0, 8))
    assert result.figures.outcomes == {"failed": 1, "completed": 1}
    assert records["j1"].attempts == 1


def test_a_run_that_is_cut_off_says_what_it_waits_for() -> None:
    result, _ = run(world(horizon_s=1000.0), JobArrival(0.0, 5000.0, 64), JobArrival(1.0, 1.0, 64))
    assert result.figures.duration_s == 1000.0
    assert result.figures.waits_for == "1 running; 1 queued, first j2 (64 accelerators)"
    assert next(iter(result.figures.placement)) == "j1"


def test_no_job_gets_what_another_one_has() -> None:
    class Careless(Fifo):
        def handle(self, event: ClusterEvent, now_s: float) -> list[ClusterEffect]:
            assert now_s == 0.0
            if isinstance(event, JobSubmitted):
                return [StartJob(event.job_id, (("n0", 8),), 1)]
            return []

    with pytest.raises(AssertionError, match="n0 has no 8 free"):
        run(world(make=Careless), JobArrival(0.0, 10.0, 8), JobArrival(0.0, 10.0, 8))


def test_a_machine_that_never_sleeps_is_found_out() -> None:
    class Restless(Fifo):
        def wake_at_s(self) -> float | None:
            return 0.0

    with pytest.raises(AssertionError, match="again and again"):
        run(world(make=Restless), JobArrival(10.0, 10.0, 8))


def test_looking_more_often_changes_nothing() -> None:
    plain = replace(FAILING, new_brain=partial(Fifo, 1800.0), horizon_s=3 * DAY_S, ends=RunEnd.HORIZON)
    looks = tuple(
        SlowNode(f"n{number % 16}", 977.0 * number, 977.0 * number + 400) for number in range(1, 200)
    )
    job = JobArrival(0.0, 5 * DAY_S, 64)
    once, often = run(plain, job)[0], run(replace(plain, slow_nodes=looks, timeline_count=1000), job)[0]
    assert often.figures.event_count == once.figures.event_count
    assert often.figures.accelerator_h == pytest.approx(once.figures.accelerator_h, rel=1e-9, abs=1e-6)
    assert often.lost_s_mean == pytest.approx(once.lost_s_mean, rel=1e-9)


def test_a_report_has_its_four_figures() -> None:
    _, records = run(world(), JobArrival(100.0, 1700.0, 64, tokens=1e9, samples=2e5))
    record = records["j1"]
    assert record.completion_s == pytest.approx(2000.0)  # 300 s of start and 1,700 s of work
    assert record.ended_s == pytest.approx(2100.0)
    assert record.tokens_per_s == pytest.approx(1e9 / 2000)
    assert record.samples_per_s == pytest.approx(2e5 / 2000)


def test_the_timeline_shows_blocks_and_fragments_of_what_is_free() -> None:
    nodes = (NodeGroup("a", 2, domain=("a",)), NodeGroup("b", 2, domain=("b",)))
    a_world = world(nodes=nodes, horizon_s=1000.0, ends=RunEnd.HORIZON, timeline_count=2)
    result, _ = run(a_world, JobArrival(0.0, 1e6, 12))
    assert [row.until_s for row in result.timeline] == [500.0, 1000.0]
    for row in result.timeline:
        assert row.training_count == pytest.approx(12.0)
        assert row.idle_count == pytest.approx(20.0)
        assert row.largest_free_count == 16  # both nodes of b; the second of a has 4 left
        assert row.fragmentation_fraction == pytest.approx(4 / 20)
    assert result.figures.placement == {"j1": "a0:8 a1:4"}


def test_energy_is_that_of_working_and_idle_accelerators() -> None:
    a_world = world(horizon_s=3600.0, ends=RunEnd.HORIZON, idle_w=100.0, busy_w=700.0)
    result, _ = run(a_world, JobArrival(0.0, 1e6, 32))
    assert result.figures.energy_j == pytest.approx(3600 * 32 * (100 + 700))


@dataclass
class Careless:
    """Gives a gang as much as it was made with, and swaps its first node."""

    given_count: int

    def wake_at_s(self) -> float | None:
        return None

    def handle(self, event: ClusterEvent, now_s: float) -> list[ClusterEffect]:
        if not isinstance(event, JobSubmitted) or now_s:
            return []
        nodes = tuple((f"n{number}", 8) for number in range(self.given_count // 8))
        return [StartJob(event.job_id, nodes, 1), SwapNode(event.job_id, "n0", "n9", 2)]


@pytest.mark.parametrize(("given", "partial_count"), [(16, 0), (8, 1), (24, 1)])
def test_a_gang_that_is_given_a_part_or_too_much_is_counted(given: int, partial_count: int) -> None:
    records: list[JobRecord] = []
    world = ClusterWorld((NodeGroup("n", 10),), partial(Careless, given), horizon_s=9_000.0)
    result = simulate_cluster(world, [JobArrival(0.0, 3_000.0, 16)], records.append)
    assert result.figures.partial_gang_count == partial_count
    (record,) = records
    assert record.placement.startswith("n9:8")  # where the swap left it
    assert len(record.placement.split()) == given // 8
