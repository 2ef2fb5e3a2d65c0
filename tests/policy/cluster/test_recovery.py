"""What becomes of jobs and nodes after failures, event by event; spares and nodes that fail too often."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.events import (
    CheckpointFailed,
    CheckpointWritten,
    FaultCause,
    JobFailed,
    JobRefusal,
    JobStarted,
    JobSubmitted,
    NodeAdded,
    NodeFailed,
    NodeRepaired,
    QuarantineNode,
    RefuseJob,
    ReleaseNode,
    RepairKind,
    ResizeJob,
    SaveCheckpoint,
    StartJob,
    StopJob,
    StopReason,
    SwapNode,
)
from twofold.policy.cluster.placement import FreeNodes, Node, NodeUse
from twofold.policy.cluster.recovery import (
    backoff_s,
    is_lemon,
    poisson_tail_fraction,
    recommended_spare_count,
    replacement_for,
    spare_to_keep,
)
from twofold.policy.cluster.settings import ClusterSettings, FaultSettings, PreemptionSettings
from twofold.policy.machine import Woke

HOST, SOFTWARE = FaultCause.HOST, FaultCause.SOFTWARE


def a_brain(
    nodes: int, spares: int | None = 0, preemption: PreemptionSettings | None = None, **faults: Any
) -> ClusterBrain:
    settings = ClusterSettings(
        faults=FaultSettings(spare_count=spares, **faults),
        preemption=preemption or PreemptionSettings(minimum_run_s=0.0),
    )
    brain = ClusterBrain(settings)
    for index in range(nodes):
        brain.handle(NodeAdded(f"n{index}", 4, (f"rail-{index % 2}",)), 0.0)
    return brain


def submitted(
    brain: ClusterBrain, name: str, size: int, now_s: float = 0.0, **other: Any
) -> tuple[tuple[str, int], ...]:
    given = {"minimum_count": size, "priority": 0, "preemptible": True, **other}
    asked = JobSubmitted(
        name, "red", accelerator_count=size, expected_s=1e6, checkpoint_write_s=10.0, restart_s=20.0, **given
    )
    brain.handle(asked, now_s)
    brain.handle(JobStarted(name), now_s)
    return brain.view.jobs[name].placement


def test_a_spare_of_the_same_domain_takes_a_failed_nodes_place() -> None:
    brain = a_brain(5, spares=2)
    (first, _), *rest = submitted(brain, "job", 12)
    spares = {node.domain: node.node_id for node in brain.view.nodes.values() if node.use is NodeUse.SPARE}
    domain = brain.view.nodes[first].domain
    [swapped] = brain.handle(NodeFailed(first, HOST), 100.0)
    assert swapped == SwapNode("job", first, spares[domain], 2)
    assert set(brain.view.jobs["job"].placement) == {(spares[domain], 4), *rest}
    # The repaired node is the next spare.
    brain.handle(NodeRepaired(first), 200.0)
    assert brain.view.nodes[first].use is NodeUse.SPARE
    assert brain.handle(NodeRepaired(first), 201.0) == [] and brain.view.counts.ignored == 1


def test_without_a_spare_an_elastic_job_shrinks_and_a_rigid_one_waits() -> None:
    brain = a_brain(4)
    (first, _), *rest = submitted(brain, "elastic", 8, minimum_count=4)
    (other, _), *_ = submitted(brain, "rigid", 8)
    assert brain.handle(NodeFailed(first, HOST), 100.0) == [ResizeJob("elastic", tuple(rest), 2)]
    assert brain.handle(NodeFailed(other, HOST), 200.0) == [StopJob("rigid", StopReason.FAILED)]
    assert brain.handle(NodeFailed(other, HOST), 201.0) == []
    [started] = brain.handle(NodeRepaired(first), 300.0)
    assert isinstance(started, StartJob) and (started.job_id, started.attempt) == ("rigid", 2)


def test_a_job_that_needs_the_whole_cluster_has_the_spares_given_back() -> None:
    brain = a_brain(4, spares=1)
    assert len(brain.view.spares) == 1
    assert len(submitted(brain, "all", 16)) == 4 and not brain.view.spares


def test_as_many_spares_are_kept_as_failures_suggest() -> None:
    brain = a_brain(40, spares=None)
    assert not brain.view.spares
    for step in range(80):  # one an hour, each away for half of it: 0.5 on average
        brain.handle(NodeFailed(f"n{step % 40}", FaultCause.MEMORY), 3600.0 * (step + 1))
        brain.handle(NodeRepaired(f"n{step % 40}", RepairKind.REPLACED), 3600.0 * (step + 1) + 1800.0)
    assert 1 <= len(brain.view.spares) <= 4


def test_a_crash_is_repeated_at_once_then_later_and_then_no_more() -> None:
    brain = a_brain(1, restart_limit=3, backoff_s=100.0, hold_s=150.0)
    placement = submitted(brain, "job", 4)
    assert brain.handle(JobFailed("job", SOFTWARE), 10.0) == [StartJob("job", placement, 2)]
    brain.handle(JobStarted("job"), 20.0)
    assert brain.handle(JobFailed("job", SOFTWARE), 30.0) == []
    assert brain.view.jobs["job"].placement == placement and brain.wake_at_s() == 130.0
    assert brain.handle(JobFailed("job", SOFTWARE), 40.0) == []  # it has failed already
    assert brain.handle(Woke(), 130.0) == [StartJob("job", placement, 3)]
    assert brain.handle(JobFailed("job", SOFTWARE, attempt=2), 135.0) == []  # late
    # A long pause keeps nothing.
    assert brain.handle(JobFailed("job", SOFTWARE), 140.0) == []
    assert brain.view.jobs["job"].placement == () and brain.view.free.free_count == 4
    assert brain.handle(Woke(), 340.0) == [StartJob("job", placement, 4)]
    assert brain.handle(JobFailed("job", SOFTWARE), 350.0) == [StopJob("job", StopReason.GAVE_UP)]
    assert brain.view.counts.failed == 1 and not brain.view.jobs


def test_a_job_that_was_told_what_cannot_be_is_given_up_at_its_second_try() -> None:
    """Once it may be chance, such as a table that could not be reached."""
    brain = a_brain(1, restart_limit=3)
    placement = submitted(brain, "job", 4)
    wrong = JobFailed("job", FaultCause.INPUT, "n0")
    assert brain.handle(wrong, 0.0) == [StartJob("job", placement, 2)]
    assert brain.handle(replace(wrong, attempt=2), 1.0) == [StopJob("job", StopReason.GAVE_UP)]
    assert brain.view.counts.failed == 1 and not brain.view.jobs and brain.view.free.free_count == 4
    assert not brain.view.nodes["n0"].failed_at_s  # it says nothing of the node


def test_a_crash_before_it_is_no_first_try_of_what_cannot_be() -> None:
    brain = a_brain(1, restart_limit=5)
    placement = submitted(brain, "job", 4)
    assert brain.handle(JobFailed("job", FaultCause.SOFTWARE, "n0"), 0.0) == [StartJob("job", placement, 2)]
    brain.handle(JobFailed("job", FaultCause.INPUT, "n0", attempt=2), 1.0)
    assert "job" in brain.view.jobs and not brain.view.counts.failed


def test_a_job_that_gets_on_between_failures_is_never_given_up() -> None:
    brain = a_brain(1, restart_limit=1)
    submitted(brain, "job", 4)
    for step in range(10):
        brain.handle(JobFailed("job", HOST), 1000.0 * step + 100.0)
        brain.handle(JobStarted("job"), 1000.0 * step + 200.0)
        brain.handle(CheckpointWritten("job", 10.0), 1000.0 * step + 900.0)
    assert brain.view.counts.interrupted == 10 and brain.view.jobs["job"].attempt == 11


def test_pauses_double_up_to_the_longest() -> None:
    faults = FaultSettings(backoff_s=30.0, backoff_s_max=200.0)
    assert [backoff_s(count, faults) for count in (1, 2, 3, 4, 5, 5000)] == [
        0.0,
        30.0,
        60.0,
        120.0,
        200.0,
        200.0,
    ]


def test_a_node_that_fails_beyond_chance_is_set_apart_and_comes_back() -> None:
    brain = a_brain(20, quarantine_s=5000.0)
    effects = []
    for step in range(3):
        effects += brain.handle(NodeFailed("n3", FaultCause.MEMORY), 1000.0 * step + 100.0)
        effects += brain.handle(NodeRepaired("n3"), 1000.0 * step + 200.0)
    assert effects == [QuarantineNode("n3", 7100.0)]
    assert not brain.view.nodes["n3"].usable
    assert brain.handle(Woke(), 7100.0) == [ReleaseNode("n3")]
    assert brain.view.nodes["n3"].usable
    # It fails once more: out at once; replaced, it is a new node.
    [quarantined] = brain.handle(NodeFailed("n3", FaultCause.MEMORY), 8000.0)
    assert isinstance(quarantined, QuarantineNode)
    assert brain.handle(NodeRepaired("n3", RepairKind.REPLACED), 9000.0) == [ReleaseNode("n3")]
    assert brain.handle(NodeFailed("n3", FaultCause.MEMORY), 9500.0) == []


@pytest.mark.parametrize("cause", [FaultCause.SOFTWARE, FaultCause.MAINTENANCE])
def test_what_is_not_the_nodes_fault_sets_no_node_apart(cause: FaultCause) -> None:
    brain = a_brain(20)
    for step in range(9):
        assert brain.handle(NodeFailed("n3", cause), 1000.0 * step + 100.0) == []
        brain.handle(NodeRepaired("n3"), 1000.0 * step + 200.0)


def test_the_fleet_is_never_emptied_by_quarantine() -> None:
    brain = a_brain(20, quarantine_fraction_max=0.1)
    for step in range(5):
        for index in range(20):
            brain.handle(NodeFailed(f"n{index}", HOST), 100.0 * step + index)
            brain.handle(NodeRepaired(f"n{index}"), 100.0 * step + index + 0.5)
    assert brain.view.counts.quarantined <= 2


def test_a_checkpoint_that_does_not_come_is_not_waited_for_for_ever() -> None:
    brain = a_brain(2)
    submitted(brain, "low-a", 4)
    submitted(brain, "low-b", 4)
    asked = JobSubmitted("high", "red", 4, 4, 1, 1000.0, 10.0, 20.0, True)
    [saving] = brain.handle(asked, 1000.0)
    assert isinstance(saving, SaveCheckpoint)
    [other] = brain.handle(CheckpointFailed(saving.job_id), 1100.0)
    assert isinstance(other, SaveCheckpoint) and other.job_id != saving.job_id
    # Nor does the other one's come, and nobody says so.
    brain.handle(Woke(), 1100.0 + brain.view.settings.cadence.wait_s)
    assert brain.view.counts.checkpoints_lost == 2


@pytest.mark.parametrize("written", [False, True])
def test_what_a_failed_attempt_had_asked_for_says_nothing_of_the_next_ones_work(written: bool) -> None:
    brain = a_brain(2)
    submitted(brain, "low", 8)
    asked_s = brain.wake_at_s()
    assert asked_s is not None and brain.handle(Woke(), asked_s) == [SaveCheckpoint("low")]
    brain.handle(JobFailed("low", FaultCause.SOFTWARE, attempt=1), asked_s + 5.0)
    brain.handle(JobStarted("low", 2), asked_s + 20.0)
    more_urgent = JobSubmitted("high", "red", 8, 8, 1, 1000.0, 10.0, 20.0, True)
    assert brain.handle(more_urgent, asked_s + 1000.0) == [SaveCheckpoint("low")]
    late = CheckpointWritten("low", 60.0, 1) if written else CheckpointFailed("low", 1)
    assert brain.handle(late, asked_s + 1001.0) == []
    job = brain.view.jobs["low"]
    assert job.done_s == 0.0 and job.saving_since_s == asked_s + 1000.0  # INV-34: it is still waited for
    stopped, _ = brain.handle(CheckpointWritten("low", 30.0, 2), asked_s + 1030.0)
    assert stopped == StopJob("low", StopReason.PREEMPTED) and job.done_s == 980.0


def test_checkpoints_are_asked_for_on_time_and_not_while_one_is_written() -> None:
    brain = a_brain(1)
    submitted(brain, "job", 4)
    wake_s = brain.wake_at_s()
    assert wake_s == brain.view.settings.cadence.interval_s_max  # four accelerators hardly ever fail
    assert brain.handle(Woke(), wake_s) == [SaveCheckpoint("job")]
    assert brain.handle(Woke(), wake_s + 1.0) == []
    assert brain.handle(CheckpointWritten("job", 30.0), wake_s + 30.0) == []
    assert brain.wake_at_s() == wake_s + 30.0 + brain.view.settings.cadence.interval_s_max
    assert brain.view.jobs["job"].done_s == wake_s and brain.view.jobs["job"].write_s == pytest.approx(16.0)


def test_a_write_beside_the_work_spaces_checkpoints_by_its_stall_and_is_waited_for_whole() -> None:
    """Of 300 s that a write takes the job stands still for 2: the work of the rest is in the next one."""
    brains = {stall_s: a_brain(16) for stall_s in (None, 2.0)}
    asked_s = {}
    for stall_s, brain in brains.items():
        asked = JobSubmitted("job", "red", 64, 64, 0, 1e6, 300.0, 20.0, True, checkpoint_stall_s=stall_s)
        brain.handle(asked, 0.0)
        brain.handle(JobStarted("job"), 0.0)
        woke_s = brain.wake_at_s()
        assert woke_s is not None and brain.handle(Woke(), woke_s) == [SaveCheckpoint("job")]
        assert brain.wake_at_s() == woke_s + 1200.0  # four writes: longer than the least wait
        told = CheckpointWritten("job", 300.0, stall_s=stall_s)
        assert brain.handle(told, woke_s + 300.0) == []
        asked_s[stall_s] = woke_s
        job = brain.view.jobs["job"]
        assert (job.write_s, job.stall_s) == (300.0, 300.0 if stall_s is None else 2.0)
        assert job.since_s == woke_s + (300.0 if stall_s is None else 2.0)
    assert asked_s[2.0] < asked_s[None] / 5


@pytest.mark.parametrize("stall_s", [-1.0, math.nan, math.inf])
def test_a_stall_that_cannot_be_is_ignored_or_refused(stall_s: float) -> None:
    brain = a_brain(1)
    submitted(brain, "job", 4)
    brain.handle(CheckpointWritten("job", 30.0, stall_s=stall_s), 100.0)
    assert brain.view.counts.ignored == 1 and brain.view.jobs["job"].done_s == 0.0
    asked = JobSubmitted("other", "red", 4, 4, 0, 1e6, 10.0, 20.0, True, checkpoint_stall_s=stall_s)
    assert brain.handle(asked, 100.0) == [RefuseJob("other", JobRefusal.MALFORMED)]


def test_a_fleet_as_llama_3_had_wants_a_few_spares() -> None:
    rate = FaultSettings().prior_failures_per_node_s
    counts = [
        recommended_spare_count(2048, rate, repair_s, 0.95) for repair_s in (0.0, 3600.0, 14_400.0, 86_400.0)
    ]
    assert counts == sorted(counts) and counts[0] == 0 and 1 <= counts[2] <= 8 < counts[3] < 24


@given(st.integers(1, 3000), st.floats(1e-9, 1e-4), st.floats(0.0, 1e5), st.floats(0.5, 0.999))
def test_the_recommended_spares_are_enough_and_one_less_is_not(
    node_count: int, rate: float, repair_s: float, confidence: float
) -> None:
    count = recommended_spare_count(node_count, rate, repair_s, confidence)
    mean = node_count * rate * repair_s
    assert 0 <= count <= node_count
    if count < node_count:
        assert 1 - poisson_tail_fraction(mean, count + 1) >= confidence - 1e-9
    if count:
        assert 1 - poisson_tail_fraction(mean, count) < confidence + 1e-9


@given(st.floats(0.001, 50.0), st.integers(0, 120))
def test_a_tail_and_its_rest_are_one(mean: float, least: int) -> None:
    rest = math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(least))
    assert poisson_tail_fraction(mean, least) + rest == pytest.approx(1.0, abs=1e-9)


def test_a_lemon_fails_beyond_chance_and_not_because_the_fleet_is_bad() -> None:
    settings = FaultSettings()
    good, bad = 0.05 / settings.lemon_window_s, 3.0 / settings.lemon_window_s  # failures in a window
    assert is_lemon(4, good, 1000, settings)
    assert not is_lemon(4, bad, 1000, settings)
    assert not is_lemon(settings.lemon_failure_count - 1, 1e-15, 1000, settings)
    # What is too much for one node is chance for the worst of many.
    assert is_lemon(3, good, 10, settings) and not is_lemon(3, good, 10_000, settings)


def test_the_nearest_sound_node_takes_over() -> None:
    failed = Node("failed", 8, ("zone-a", "rail-1"), 0)
    free, held = FreeNodes(), FreeNodes()
    assert replacement_for(failed, 8, {}, free, held) is None
    far = Node("far", 8, ("zone-b", "rail-1"), 8, NodeUse.SPARE)
    zone = Node("zone", 8, ("zone-a", "rail-2"), 8)
    near = Node("near", 8, ("zone-a", "rail-1"), 8, NodeUse.SPARE)
    free.add(zone)
    assert replacement_for(failed, 8, {"far": far}, FreeNodes(), held) is far
    assert replacement_for(failed, 8, {"far": far}, free, held) is zone
    assert replacement_for(failed, 8, {"far": far, "near": near}, free, held) is near
    beside = Node("beside", 8, ("zone-a", "rail-1"), 4)
    free.add(beside)
    assert replacement_for(failed, 4, {"near": near}, free, held) is beside
    held.add(kept := Node("kept", 8, ("zone-a", "rail-1"), 8))
    assert replacement_for(failed, 8, {}, free, held) is kept


def test_spares_are_spread_over_domains() -> None:
    free, spares = FreeNodes(), {}
    for index in range(9):
        free.add(Node(f"n{index}", 8, (f"rail-{index % 3}",), 8))
    for _ in range(3):
        node = spare_to_keep(free, spares)
        assert node is not None
        free.take(node)
        spares[node.node_id] = node
    assert {node.domain for node in spares.values()} == {("rail-0",), ("rail-1",), ("rail-2",)}
