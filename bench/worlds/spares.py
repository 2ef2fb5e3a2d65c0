"""How many spare nodes pay for themselves: the same jobs and failures, with more and more of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from twofold.twin.cluster.cluster import simulate_cluster
from twofold.twin.cluster.cluster_types import ClusterMachine, ClusterWorld, Use
from twofold.twin.cluster.jobs import JobArrival


@dataclass(frozen=True, slots=True)
class SpareRow:
    """One number of spares: what a failure takes to repair for its job, and what the cluster gets done."""

    spare_count: int  # nodes
    recovery_s_mean: float
    duration_s: float  # until the last job has ended, or the horizon
    work_fraction: float  # accelerator-hours of work kept, of all those that are paid for, spares and all


@dataclass(frozen=True, slots=True)
class SpareSweep:
    """All rows, and the number of spares that gets most done for each accelerator paid for (R-022)."""

    rows: tuple[SpareRow, ...]
    recommended_count: int


def spare_sweep(
    world: ClusterWorld,
    jobs: Callable[[], Iterable[JobArrival]],
    brain_of: Callable[[int], ClusterMachine],
    spare_fractions: Sequence[float] = (0.0, 0.01, 0.02),
) -> SpareSweep:
    """Add so many nodes to the world's last group, and let the brain of `brain_of` keep them spare.

    A node fails at the same times in every row (its name is its fate), so that rows compare.
    """
    node_count = sum(group.count for group in world.nodes)
    rows = []
    for spare_count in sorted({ceil(fraction * node_count) for fraction in spare_fractions}):
        last = replace(world.nodes[-1], count=world.nodes[-1].count + spare_count)
        more = replace(world, nodes=(*world.nodes[:-1], last), new_brain=partial(brain_of, spare_count))
        result = simulate_cluster(more, jobs())
        work = result.figures.accelerator_h[Use.BUSY] / result.capacity_h
        rows.append(SpareRow(spare_count, result.figures.recovery_s_mean, result.figures.duration_s, work))
    best = max(rows, key=lambda row: row.work_fraction)
    return SpareSweep(tuple(rows), best.spare_count)
