"""What is noted of a rehearsed cluster: gangs in part are counted, and where each job stood last."""

from itertools import pairwise

import pytest

from twofold.policy.cluster import ClusterSettings
from twofold.policy.cluster.events import ClusterEffect, ClusterEvent, Placement, StartJob, SwapNode
from twofold.policy.cluster.events import JobSubmitted as Submitted
from twofold.rehearse.training_figures import METADATA_ALARM_FRACTION, Watch, WatchedBrain, checkpoint_files
from twofold.twin.cluster import (
    CheckpointModel,
    CheckpointStore,
    JobArrival,
    JobRecord,
    NodeGroup,
    simulate_cluster,
)
from twofold.twin.cluster import ClusterWorld as World


class Careless:
    """A brain that gives a gang whatever it was made with, and swaps its node."""

    def __init__(self, given_count: int) -> None:
        self._said = [StartJob("a", (("n0", given_count),), 1), SwapNode("a", "n0", "n9", 2)]

    def handle(self, event: ClusterEvent, now_s: float) -> list[ClusterEffect]:
        assert isinstance(event, Submitted) and now_s == 0.0
        return [*self._said]

    def wake_at_s(self) -> float | None:
        return None


def submitted(accelerator_count: int) -> Submitted:
    return Submitted(
        job_id="a",
        team="t",
        accelerator_count=accelerator_count,
        minimum_count=accelerator_count,
        priority=0,
        expected_s=60.0,
        checkpoint_write_s=1.0,
        restart_s=1.0,
        preemptible=True,
    )


@pytest.mark.parametrize(("given", "partial"), [(16, 0), (8, 1), (24, 1)])
def test_a_gang_that_is_given_a_part_or_too_much_is_counted(given: int, partial: int) -> None:
    brain = WatchedBrain(Careless(given))
    brain.handle(submitted(16), 0.0)
    assert brain.partial_count == partial
    assert brain.forget("a") == (("n9", given),)  # where the swap left it
    assert brain.forget("a") == ()


def test_every_job_is_told_with_where_it_stood() -> None:
    told: list[tuple[JobRecord, Placement]] = []
    watch = Watch(ClusterSettings(), "mine", lambda job, placement: told.append((job, placement)))
    world = World(nodes=(NodeGroup("n", 2, 8),), new_brain=watch.new_brain, horizon_s=9_000.0)
    jobs = [JobArrival(0.0, 3_000.0, 16, "mine"), JobArrival(0.0, 3_000.0, 16, "others")]
    simulate_cluster(world, jobs, watch.note)
    assert {job.team for job, _ in told} == {"mine", "others"}
    for job, placement in told:
        assert sum(count for _, count in placement) == job.accelerator_count
    assert [job.team for job in watch.own] == ["mine"]
    assert watch.largest_count == 16 and watch.partial_count == 0


def test_many_small_files_are_flagged_and_few_are_not() -> None:
    store = CheckpointStore(2e12 / 20, 20_000.0)
    rows = [
        checkpoint_files(16384, CheckpointModel(5.67e12 / 16384, files_per_accelerator=each), store)
        for each in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    ]
    throttled = [row.metadata_fraction > METADATA_ALARM_FRACTION for row in rows]
    assert throttled == [False, False, False, True, True, True]
    assert all(a.metadata_s <= b.metadata_s for a, b in pairwise(rows))
