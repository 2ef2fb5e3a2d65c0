"""Reports of steps, as drivers send them: who hangs is found by silence, a slow node by its own work."""

from dataclasses import replace
from functools import partial

import pytest

from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.settings import REPORT_S, ClusterSettings, FaultSettings
from twofold.twin.cluster.cluster import simulate_cluster
from twofold.twin.cluster.cluster_types import (
    CheckpointModel,
    CheckpointStore,
    ClusterResult,
    ClusterWorld,
    NodeGroup,
    NodeStall,
    RunEnd,
    SlowNode,
    StepModel,
)
from twofold.twin.cluster.jobs import JobArrival

SETTINGS = ClusterSettings(faults=FaultSettings(spare_count=1))
JOB = JobArrival(0.0, 20_000.0, 32)


def ran(*, report_s: float | None = REPORT_S, node_count: int = 5, **changes: object) -> ClusterResult:
    world = ClusterWorld(
        nodes=(NodeGroup("n", node_count),),
        new_brain=partial(ClusterBrain, SETTINGS),
        horizon_s=100_000.0,
        ends=RunEnd.LAST_JOB,
        step=StepModel(communication_fraction=0.2),
        checkpoint=CheckpointModel(1e9, restart_s=60.0),
        store=CheckpointStore(8e9),
        report_s=report_s,
    )
    return simulate_cluster(replace(world, **changes), [JOB])  # type: ignore[arg-type]


@pytest.mark.parametrize("snapshot_s", [None, 2.0])
def test_reports_of_a_sound_cluster_change_nothing(snapshot_s: float | None) -> None:
    checkpoint = CheckpointModel(1e9, snapshot_s=snapshot_s, restart_s=60.0)
    told, silent = ran(checkpoint=checkpoint), ran(report_s=None, checkpoint=checkpoint)
    counted = replace(told.figures, event_count=silent.figures.event_count)
    assert replace(told, figures=counted) == silent
    assert told.figures.event_count > silent.figures.event_count + 600  # one in 30 s of 20,000


def test_a_job_that_hangs_without_a_word_is_ended_by_its_silence_and_goes_on() -> None:
    stall = NodeStall(5000.0, "n1")
    found = ran(stalls=(stall,))
    assert found.figures.outcomes == {"completed": 1} and found.figures.effects["StopJob"] == 1
    assert found.figures.restart_count == 1
    lost_s = found.figures.duration_s - ran().figures.duration_s
    # The silence, the restart, and at most all that it had done.
    assert 300.0 < lost_s < 300.0 + REPORT_S + 60.0 + 5000.0
    unheard = ran(report_s=None, stalls=(stall,))
    assert unheard.figures.outcomes == {"running": 1}, "nobody would ever have known"


def test_a_node_whose_devices_are_slow_is_left_for_the_spare_and_one_of_slow_links_is_not() -> None:
    slow = ran(slow_nodes=(SlowNode("n1", device_factor=2.0),))
    assert slow.figures.effects["SlowNode"] == slow.figures.effects["SwapNode"] == 1
    kept = ran(report_s=None, slow_nodes=(SlowNode("n1", device_factor=2.0),))
    assert slow.figures.duration_s < 0.7 * kept.figures.duration_s
    link = ran(slow_nodes=(SlowNode("n1", link_factor=2.0),))
    assert "SlowNode" not in link.figures.effects  # whose wait it is, a node's own work does not say
    alone = ran(node_count=4, slow_nodes=(SlowNode("n1", device_factor=2.0),))
    assert alone.figures.effects.get("SwapNode") is None
