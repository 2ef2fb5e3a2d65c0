"""Training and serving on one pool, against two fleets apart: what sharing over the day gives and costs.

Serving is coarse here: steps say how many accelerators it needs to hold its SLO, and what is missing
of them stands for time outside it: by how much, the fleet's own world says.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from twofold.contracts.results import SplitFigures
from twofold.twin.cluster.cluster import simulate_cluster
from twofold.twin.cluster.jobs import JobArrival
from twofold.twin.cluster.types import ClusterResult, ClusterWorld, JobRecord, NodeGroup, Use


@dataclass(frozen=True, slots=True)
class PoolComparison:
    """One pool against two fleets of the same size together."""

    shared: ClusterResult
    split_training: ClusterResult
    split_serving: ClusterResult
    figures: SplitFigures


def compare_pool(
    world: ClusterWorld,
    jobs: Callable[[], Iterable[JobArrival]],
    headroom_fraction: float = 0.0,
    on_job: Callable[[JobRecord], None] | None = None,
) -> PoolComparison:
    """The world's pool as it is, and cut in two: serving gets whole nodes for its peak (R-091).

    `jobs` gives the same jobs each time; `headroom_fraction` is what a fleet of fixed size keeps above the
    highest demand that is asked for, margin and all; `on_job` is told of the shared pool's jobs. Raises
    AssertionError where that takes all nodes.
    """
    load = world.serving
    assert load is not None, "a pool without serving has nothing to share"
    peak_count = ceil(max(count for _, count in load.asked) * (1 + headroom_fraction))
    for_training, for_serving = _cut(world.nodes, peak_count)
    shared = simulate_cluster(world, jobs(), on_job)
    training = simulate_cluster(replace(world, nodes=for_training, serving=None), jobs())
    serving = simulate_cluster(replace(world, nodes=for_serving), ())
    assert shared.serving is not None and serving.serving is not None
    kept = [one.figures for one in (shared, training)]
    return PoolComparison(
        shared=shared,
        split_training=training,
        split_serving=serving,
        figures=SplitFigures(
            shared_utilisation_fraction=_worked_h(shared) / shared.capacity_h,
            split_utilisation_fraction=(_worked_h(training) + _worked_h(serving)) / shared.capacity_h,
            shared_shortfall_s=shared.serving.shortfall_s,
            split_shortfall_s=serving.serving.shortfall_s,
            training_gain_fraction=kept[0].accelerator_h[Use.BUSY] / kept[1].accelerator_h[Use.BUSY] - 1,
            training_slowdown_factor=kept[0].slowdown_factor / kept[1].slowdown_factor,
            serving_slowdown_factor=shared.serving.slowdown_factor / serving.serving.slowdown_factor,
        ),
    )


def _worked_h(result: ClusterResult) -> float:
    """Accelerator-hours that served what was needed, or did work that is kept."""
    served_h = result.serving.needed_h - result.serving.shortfall_h if result.serving else 0.0
    return served_h + result.figures.accelerator_h[Use.BUSY]


def _cut(
    nodes: Sequence[NodeGroup], accelerator_count: int
) -> tuple[tuple[NodeGroup, ...], tuple[NodeGroup, ...]]:
    """Groups of whole nodes without so many accelerators, and those, from the last groups' ends."""
    rest, cut, left_count = [], [], accelerator_count
    for group in reversed(nodes):
        count = min(group.count, ceil(max(0, left_count) / group.accelerator_count))
        left_count -= count * group.accelerator_count
        rest.append(replace(group, count=group.count - count))
        cut.append(replace(group, count=count, first=group.first + group.count - count))
    assert any(group.count for group in rest), "serving's peak leaves no node for training"
    return tuple(reversed(rest)), tuple(reversed(cut))
