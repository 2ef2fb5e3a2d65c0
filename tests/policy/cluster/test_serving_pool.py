"""One pool for both: who gives way to serving, how, and when it comes back."""

from typing import Any

from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.events import (
    CheckpointWritten,
    FaultCause,
    GrantServing,
    JobStarted,
    JobSubmitted,
    NodeAdded,
    NodeFailed,
    ReclaimServing,
    ResizeJob,
    SaveCheckpoint,
    ServingDemand,
    StartJob,
    StopJob,
    StopReason,
)
from twofold.policy.cluster.settings import ClusterSettings, FaultSettings, GangQueueSettings, SharingSettings
from twofold.policy.machine import Woke

SHARING = SharingSettings(headroom_fraction=0.0, release_hold_s=600.0)


def a_brain(nodes: int = 4, size: int = 4, **parts: Any) -> ClusterBrain:
    brain = ClusterBrain(
        ClusterSettings(
            faults=FaultSettings(spare_count=0),
            queue=GangQueueSettings(grow_after_s=0.0),
            sharing=SHARING,
            **parts,
        )
    )
    for index in range(nodes):
        brain.handle(NodeAdded(f"n{index}", size, (f"rail-{index // 2}",)), 0.0)
    return brain


def running(brain: ClusterBrain, job_id: str, size: int, least: int, now_s: float, **other: Any) -> None:
    given = {"team": "red", "priority": 0, "preemptible": True, **other}
    brain.handle(
        JobSubmitted(
            job_id, accelerator_count=size, minimum_count=least, expected_s=100_000.0,
            checkpoint_write_s=10.0, restart_s=20.0, **given,
        ),
        now_s,
    )  # fmt: skip
    brain.handle(JobStarted(job_id), now_s)
    assert brain.view.jobs[job_id].placement


def test_free_nodes_go_to_serving_at_once_and_come_back_late() -> None:
    brain = a_brain()
    [granted] = brain.handle(ServingDemand(6), 10.0)
    assert isinstance(granted, GrantServing) and len(granted.node_ids) == 2
    assert brain.handle(ServingDemand(0), 20.0) == []
    wake_s = brain.wake_at_s()
    assert wake_s == 620.0
    assert brain.handle(Woke(), wake_s) == [ReclaimServing(granted.node_ids)]
    assert brain.view.usable_count == 16


def test_an_elastic_job_is_trimmed_before_any_job_is_stopped() -> None:  # R-091, INV-34
    brain = a_brain()
    running(brain, "elastic", 8, 4, 0.0)
    running(brain, "cheap", 8, 8, 1.0)
    assert brain.handle(ServingDemand(4), 100.0) == [SaveCheckpoint("elastic")]
    shrunk, granted = brain.handle(CheckpointWritten("elastic", 10.0), 110.0)
    assert isinstance(shrunk, ResizeJob) and shrunk.attempt == 2 and len(shrunk.placement) == 1
    assert isinstance(granted, GrantServing) and len(granted.node_ids) == 1
    # Nothing elastic is left: now a whole job goes, and no more than that.
    assert brain.handle(ServingDemand(8), 200.0) == [SaveCheckpoint("cheap")]
    stopped, granted = brain.handle(CheckpointWritten("cheap", 10.0), 210.0)
    assert stopped == StopJob("cheap", StopReason.SERVING)
    assert isinstance(granted, GrantServing) and len(granted.node_ids) == 1
    assert brain.view.jobs["cheap"].placement == ()


def test_a_trimmed_job_grows_again_right_after_a_checkpoint() -> None:
    brain = a_brain()
    running(brain, "elastic", 16, 8, 0.0)
    brain.handle(ServingDemand(8), 100.0)
    brain.handle(CheckpointWritten("elastic", 10.0), 110.0)
    brain.handle(JobStarted("elastic"), 130.0)
    assert brain.view.jobs["elastic"].size_count == 8
    brain.handle(ServingDemand(0), 200.0)
    brain.handle(Woke(), 800.0)
    [grown] = brain.handle(CheckpointWritten("elastic", 10.0), 5000.0)
    assert isinstance(grown, ResizeJob) and sum(count for _, count in grown.placement) == 16
    assert brain.view.counts.grown == 1


def test_a_job_that_may_not_be_preempted_keeps_its_nodes() -> None:
    brain = a_brain()
    running(brain, "firm", 12, 12, 0.0, preemptible=False)
    [granted] = brain.handle(ServingDemand(16), 100.0)
    assert isinstance(granted, GrantServing) and len(granted.node_ids) == 1
    assert brain.view.jobs["firm"].size_count == 12


def test_as_much_as_can_be_had_is_had() -> None:
    brain = a_brain()
    running(brain, "firm", 6, 6, 0.0, preemptible=False)
    running(brain, "beside-firm", 2, 2, 0.0)
    running(brain, "alone", 8, 8, 0.0)
    # To stop the job that shares a node with the firm one would free no node.
    assert brain.handle(ServingDemand(16), 100.0) == [SaveCheckpoint("alone")]


def test_a_serving_node_that_fails_is_replaced() -> None:
    brain = a_brain()
    [granted] = brain.handle(ServingDemand(4), 10.0)
    assert isinstance(granted, GrantServing)
    reclaimed, again = brain.handle(NodeFailed(granted.node_ids[0], FaultCause.HOST), 20.0)
    assert reclaimed == ReclaimServing(granted.node_ids)
    assert isinstance(again, GrantServing) and again.node_ids != granted.node_ids


def test_what_serving_gives_back_starts_the_queue() -> None:
    brain = a_brain()
    brain.handle(ServingDemand(8), 0.0)
    asked = JobSubmitted("waits", "red", 16, 16, 0, 1000.0, 10.0, 20.0, True)
    assert brain.handle(asked, 10.0) == []
    brain.handle(ServingDemand(0), 20.0)
    effects = brain.handle(Woke(), 620.0)
    assert [type(effect) for effect in effects] == [ReclaimServing, StartJob]
