"""What is noted of a rehearsed cluster: each job with where it stood last, and what its files cost."""

from functools import partial
from itertools import pairwise

from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.settings import ClusterSettings
from twofold.rehearse.training_figures import METADATA_ALARM_FRACTION, Watch, checkpoint_files
from twofold.twin.cluster.cluster import simulate_cluster
from twofold.twin.cluster.cluster_types import (
    CheckpointModel,
    CheckpointStore,
    ClusterWorld,
    JobRecord,
    NodeGroup,
)
from twofold.twin.cluster.jobs import JobArrival


def test_every_job_is_told_with_where_it_stood() -> None:
    told: list[JobRecord] = []
    watch = Watch("mine", told.append)
    new_brain = partial(ClusterBrain, ClusterSettings())
    world = ClusterWorld(nodes=(NodeGroup("n", 2, 8),), new_brain=new_brain, horizon_s=9_000.0)
    jobs = [JobArrival(0.0, 3_000.0, 16, "mine"), JobArrival(0.0, 3_000.0, 16, "others")]
    result = simulate_cluster(world, jobs, watch.note)
    assert {job.team for job in told} == {"mine", "others"}
    assert {job.placement for job in told} == {"n0:8 n1:8"}
    assert [job.team for job in watch.own] == ["mine"]
    assert watch.largest_count == 16 and result.figures.partial_gang_count == 0


def test_many_small_files_are_flagged_and_few_are_not() -> None:
    store = CheckpointStore(2e12 / 20, 20_000.0)
    rows = [
        checkpoint_files(16384, CheckpointModel(5.67e12 / 16384, files_per_accelerator=each), store)
        for each in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    ]
    throttled = [row[1] / (row[1] + row[2]) > METADATA_ALARM_FRACTION for row in rows]
    assert throttled == [False, False, False, True, True, True]
    assert all(a[1] <= b[1] for a, b in pairwise(rows))
