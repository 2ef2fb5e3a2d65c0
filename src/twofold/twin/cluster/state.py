"""All that one run of a cluster changes, and the few ways in which it does."""

from collections import deque
from collections.abc import Callable
from math import inf

import numpy as np

from twofold.policy.cluster import events
from twofold.twin.cluster.cluster_types import ClusterWorld, JobRecord
from twofold.twin.cluster.figures import ClusterFigures
from twofold.twin.cluster.job import Job
from twofold.twin.cluster.nodes import Nodes, Pace
from twofold.twin.heap import Heap
from twofold.twin.storage import SharedStore

WITHOUT_LIMIT = 1e30  # stands for infinity where it is divided by


class ClusterState:
    """One run. Mutable. `inbox` holds what the brain is to be told at this time, in order."""

    def __init__(self, world: ClusterWorld, on_job: Callable[[JobRecord], None] | None) -> None:
        self.world = world
        self.now_s = 0.0
        self.heap = Heap()
        self.inbox: deque[events.ClusterEvent] = deque()
        self.nodes = Nodes(world.nodes)
        self.pace = Pace(world.step, self.nodes)
        self.jobs: dict[str, Job] = {}  # that have not ended
        self.data = SharedStore(min(world.store.bytes_per_s, WITHOUT_LIMIT))
        self.metadata = SharedStore(min(world.store.operations_per_s, WITHOUT_LIMIT))
        self.figures = ClusterFigures(world, self.nodes, on_job)
        self.starting: dict[str, int] = {}  # granted nodes that do not serve yet, by their heap entry
        self.write_luck = np.random.default_rng([world.seed, 12])

    def at(self, at_s: float, action: Callable[[], None]) -> int:
        """Let something happen; what lies beyond the horizon is kept too, and never comes."""
        return self.heap.push(at_s, 0, action)

    def later(self, after_s: float, action: Callable[[], None]) -> int:
        """Let something happen so long from now."""
        return self.at(self.now_s + after_s, action)

    def transfer(self, job: Job) -> None:
        """Move a job's checkpoint to or from the store: first its files, then its bytes."""
        checkpoint, count = self.world.checkpoint, job.arrival.accelerator_count
        files = checkpoint.files_per_accelerator * count
        if files > 0 and self.world.store.operations_per_s < inf:
            self.metadata.start(job.job_id, files, self.now_s)
        else:
            self.transfer_bytes(job)

    def transfer_bytes(self, job: Job) -> None:
        """The bytes alone."""
        size = self.world.checkpoint.bytes_per_accelerator * job.arrival.accelerator_count
        self.data.start(job.job_id, size, self.now_s)

    def no_transfer(self, job: Job) -> None:
        """Whatever of it runs ends without effect."""
        self.metadata.cancel(job.job_id, self.now_s)
        self.data.cancel(job.job_id, self.now_s)
        job.writing = False
