"""A month of a 2,000-node cluster with failures, by part, beside a plain heap of as many events."""

import time
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush, merge

from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Observation
from twofold.policy.cluster.brain import ClusterBrain
from twofold.policy.cluster.events import ClusterEffect, ClusterEvent
from twofold.policy.cluster.settings import ClusterSettings, TeamQuota
from twofold.twin.cluster.cluster import simulate_cluster
from twofold.twin.cluster.cluster_types import (
    CheckpointModel,
    CheckpointStore,
    ClusterWorld,
    NodeGroup,
    StepModel,
)
from twofold.twin.cluster.faults import published_rates
from twofold.twin.cluster.jobs import SHAPES, JobArrival, JobTraffic, generate_jobs

DAY_S = 86_400.0
DAYS = 30
LIMIT_S = 20.0  # of the whole month, on a usual machine
LARGE = ((8192, 24.0), (2048, 20.0), (2048, 14.0), (1024, 25.0), (512, 9.0))  # accelerators, days of work
JOBS_FACTOR = 5.0  # times the arrivals of the Kalos cluster beside them


class TimedBrain(ClusterBrain):
    """Adds up the time that its decisions take."""

    spent_s = 0.0

    def handle(self, event: ClusterEvent, now_s: float) -> list[ClusterEffect]:
        start = time.process_time()
        effects = super().handle(event, now_s)
        TimedBrain.spent_s += time.process_time() - start
        return effects


def month() -> ClusterWorld:
    """2,000 nodes in 100 rails, published failures, a store that all checkpoints share."""
    teams = tuple(TeamQuota(team, count) for team, count in (("a", 9000), ("b", 5000), ("c", 2000)))
    return ClusterWorld(
        nodes=tuple(NodeGroup(f"rail{number}-n", 20, 8, ("zone", f"rail{number}")) for number in range(100)),
        new_brain=partial(TimedBrain, ClusterSettings(teams=teams)),
        horizon_s=DAYS * DAY_S,
        faults=published_rates(load_catalog().rows(Observation)),
        step=StepModel(jitter_fraction=0.01),
        checkpoint=CheckpointModel(5.67e12 / 16384, files_per_accelerator=2.0),
        store=CheckpointStore(2e12 / 20, 20_000.0),
        quotas={team.team: float(team.quota_count or 0) for team in teams},
        estimate_sigma=0.5,
    )


def jobs(factor: float = JOBS_FACTOR) -> list[JobArrival]:
    """A few long runs, and what else a large cluster does."""
    long_runs = [
        JobArrival(3600.0 * number, days * DAY_S, count, "a", priority=1)
        for number, (count, days) in enumerate(LARGE)
    ]
    teams = (("a", 1.0), ("b", 1.0), ("c", 1.0))
    others = JobTraffic(SHAPES["kalos"], DAYS * DAY_S, factor, sizes_max=512, teams=teams)
    return list(merge(long_runs, generate_jobs(others), key=lambda job: job.submit_s))


def heap_s(count: int) -> float:
    """Seconds for as many pushes and pops of a plain heap, the baseline."""
    start = time.process_time()
    heap: list[tuple[float, int]] = []
    for number in range(count):
        heappush(heap, (float(number * 7919 % 10007), number))
        if len(heap) > 2000:
            heappop(heap)
    return time.process_time() - start


def main() -> None:
    """Print seconds of one core for the month, whole and by part, and their ratio to the baseline."""
    arrivals = jobs()
    print(f"{'seconds of one core':34}{'jobs':>8}{'events':>9}{'all':>8}{'brain':>8}{'× heap':>8}")
    for name, world in (("a month", month()), ("a month without failures", _sound(month()))):
        TimedBrain.spent_s = 0.0
        start = time.process_time()
        result = simulate_cluster(world, arrivals)
        core_s = time.process_time() - start
        figures = result.figures
        ratio = core_s / min(heap_s(figures.event_count) for _ in range(3))
        spent_s = TimedBrain.spent_s
        counts = f"{sum(figures.outcomes.values()):8}{figures.event_count:9}"
        print(f"{name:34}{counts}{core_s:8.1f}{spent_s:8.1f}{ratio:8.0f}")
        print(
            f"  goodput {figures.goodput_fraction:.3f}, utilisation {figures.utilisation_fraction:.3f},"
            f" {figures.failure_count} failures, limit {LIMIT_S:.0f} s"
        )


def _sound(world: ClusterWorld) -> ClusterWorld:
    return replace(world, faults=world.faults.scaled(0.0))


if __name__ == "__main__":
    main()
