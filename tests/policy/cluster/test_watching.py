"""Attempts that fall silent, and nodes that a gang waits for: when they are found, what becomes of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.events import (
    CheckpointWritten,
    FaultCause,
    JobFailed,
    JobProgressed,
    JobStarted,
    JobSubmitted,
    NodeAdded,
    QuarantineNode,
    SaveCheckpoint,
    SlowNode,
    StartJob,
    StopJob,
    StopReason,
    SwapNode,
)
from twofold.policy.cluster.gang_queue import JobState
from twofold.policy.cluster.settings import ClusterSettings, FaultSettings, WatchSettings
from twofold.policy.cluster.watching import slow_node
from twofold.policy.machine import Woke


def a_brain(nodes: int, **watch: Any) -> ClusterBrain:
    settings = ClusterSettings(faults=FaultSettings(spare_count=0), watch=WatchSettings(**watch))
    brain = ClusterBrain(settings)
    for index in range(nodes):
        brain.handle(NodeAdded(f"n{index}", 1), 0.0)
    return brain


def running(brain: ClusterBrain, size: int, *, saves: bool = True) -> tuple[str, ...]:
    asked = JobSubmitted("job", "red", size, size, 0, 1e6, 10.0, 20.0, preemptible=True, saves=saves)
    brain.handle(asked, 0.0)
    brain.handle(JobStarted("job"), 0.0)
    return tuple(node_id for node_id, _ in brain.view.jobs["job"].placement)


def report(nodes: tuple[str, ...], slow: float = 1.0, step_s: float = 1.0) -> JobProgressed:
    """The last of these nodes works so much longer than each other one."""
    return JobProgressed("job", step_s, (*((node, 1.0) for node in nodes[:-1]), (nodes[-1], slow)))


@given(st.floats(0.1, 100.0), st.lists(st.floats(0.1, 50.0), min_size=1, max_size=5))
def test_a_job_is_hung_exactly_when_it_is_silent_longer_than_its_own_steps_explain(
    ratio: float, steps_s: list[float]
) -> None:
    brain = a_brain(1, silence_s=60.0, silence_ratio=ratio)
    nodes, now_s = running(brain, 1, saves=False), 0.0
    for step_s in steps_s:
        now_s += step_s
        assert brain.handle(report(nodes, step_s=step_s), now_s) == []
    limit_s = max(60.0, ratio * max(steps_s))
    assert brain.handle(Woke(), now_s + limit_s * 0.999) == []
    stopped, started = brain.handle(Woke(), now_s + limit_s * 1.001)
    assert stopped == StopJob("job", StopReason.HUNG)
    assert started == StartJob("job", ((nodes[0], 1),), 2) and brain.view.counts.hung == 1


def test_a_job_that_writes_a_checkpoint_may_be_silent_as_long_as_that_may_take() -> None:
    brain = a_brain(1, silence_s=60.0)
    running(brain, 1)
    save_s = brain.wake_at_s()
    assert save_s is not None and brain.handle(Woke(), save_s) == [SaveCheckpoint("job")]
    brain.handle(JobProgressed("job", 1.0), save_s)
    wait_s = brain.view.settings.cadence.wait_s
    effects, lost_s = [], 0.0
    while not effects and (wake_s := brain.wake_at_s()) is not None:
        effects, lost_s = brain.handle(Woke(), wake_s), wake_s
    assert (
        effects[0] == StopJob("job", StopReason.HUNG) and save_s + wait_s <= lost_s <= save_s + wait_s + 60.0
    )


def test_a_job_that_never_reported_is_not_watched_and_one_that_never_starts_is() -> None:
    brain = a_brain(1)
    running(brain, 1, saves=False)
    assert brain.handle(Woke(), 1e6) == [] and brain.view.jobs["job"].state is JobState.RUNNING
    brain = a_brain(1, start_wait_s=100.0)
    brain.handle(JobSubmitted("job", "red", 1, 1, 0, 1e6, 10.0, 20.0, preemptible=True), 0.0)
    assert brain.handle(Woke(), 99.0) == []
    stopped, started = brain.handle(Woke(), 100.0)
    assert stopped == StopJob("job", StopReason.HUNG) and isinstance(started, StartJob)


def test_hangs_in_a_row_are_a_jobs_failures() -> None:
    brain = a_brain(1, start_wait_s=100.0)
    brain.handle(JobSubmitted("job", "red", 1, 1, 0, 1e6, 10.0, 20.0, preemptible=True), 0.0)
    effects = []
    while brain.view.jobs and (wake_s := brain.wake_at_s()) is not None:
        effects += brain.handle(Woke(), wake_s)
    assert [effect.reason for effect in effects if isinstance(effect, StopJob)] == [
        *[StopReason.HUNG] * (brain.view.settings.faults.restart_limit + 1),
        StopReason.GAVE_UP,
    ]


def test_a_job_without_checkpoints_is_asked_for_none_and_makes_no_room() -> None:
    brain = a_brain(1)
    running(brain, 1, saves=False)
    assert brain.wake_at_s() is None
    urgent = JobSubmitted("urgent", "blue", 1, 1, 9, 10.0, 1.0, 1.0, preemptible=True)
    assert brain.handle(urgent, 1e4) == []
    assert brain.view.jobs["job"].making_room is None


def test_a_slow_node_is_left_for_a_free_one_after_a_checkpoint() -> None:
    brain = a_brain(4, slow_count=3)
    nodes = running(brain, 3)
    slow, [free] = nodes[-1], {"n0", "n1", "n2", "n3"} - set(nodes)
    assert brain.handle(report(nodes, 2.0), 1.0) == brain.handle(report(nodes, 2.0), 2.0) == []
    assert brain.handle(report(nodes, 2.0), 3.0) == [SlowNode(slow, "job", 2.0), SaveCheckpoint("job")]
    quarantined, swapped = brain.handle(CheckpointWritten("job", 1.0), 4.0)
    assert isinstance(quarantined, QuarantineNode) and quarantined.node_id == slow
    assert swapped == SwapNode("job", slow, free, 2)


def test_a_slow_node_that_nothing_replaces_is_told_once_and_kept() -> None:
    brain = a_brain(3, slow_count=2)
    nodes = running(brain, 3)
    effects = [effect for at_s in range(9) for effect in brain.handle(report(nodes, 4.0), float(at_s))]
    assert effects == [SlowNode(nodes[-1], "job", 4.0)]
    assert brain.view.jobs["job"].state is JobState.RUNNING and not brain.view.quarantined


def test_one_slow_report_among_others_is_chance() -> None:
    brain = a_brain(4, slow_count=2)
    nodes = running(brain, 3)
    for at_s in range(12):
        assert brain.handle(report(nodes, 4.0 if at_s % 2 else 1.0), float(at_s)) == []


@given(st.lists(st.floats(0.01, 100.0), min_size=2, max_size=8), st.floats(1.01, 4.0), st.floats(0.1, 10.0))
def test_who_is_slow_does_not_hang_on_the_unit_and_is_never_the_faster_one(
    times_s: list[float], ratio: float, unit: float
) -> None:
    node_s = {f"n{index}": time_s for index, time_s in enumerate(times_s)}
    found = slow_node(node_s, ratio)
    if found is not None:
        assert node_s[found[0]] == max(times_s) and found[1] >= ratio
    scaled = slow_node({name: time_s * unit for name, time_s in node_s.items()}, ratio * 0.999)
    assert found is None or (scaled is not None and scaled[0] == found[0])


def test_one_node_alone_is_never_slow() -> None:
    assert slow_node({"n0": 9.0}, 1.5) is None and slow_node({}, 1.5) is None


def test_reports_of_an_attempt_that_failed_are_late() -> None:
    brain = a_brain(1)
    nodes = running(brain, 1)
    brain.handle(JobFailed("job", FaultCause.SOFTWARE), 1.0)
    assert brain.handle(report(nodes), 2.0) == [] and brain.view.counts.ignored == 1
    assert brain.handle(JobProgressed("job", float("nan")), 3.0) == [] and brain.view.counts.ignored == 2


@pytest.mark.parametrize("wrong", [{"slow_ratio": 1.0}, {"silence_s": 0.0}, {"start_wait_s": 0.0}])
def test_settings_that_watch_nothing_or_everything_are_a_mistake(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        WatchSettings(**wrong)
