"""Training and serving on one pool, against two fleets apart: what sharing over the day gives and costs.

Serving is coarse here: a table says how many accelerators a rate needs to hold its SLO, and what is missing
of them stands for time outside it. The timeline of ready accelerators can be given to the fleet's own world
as replicas that come and go, which then says by how much.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, pi, sin

import numpy as np

from twofold.contracts.results import SplitFigures
from twofold.twin.cluster.cluster import simulate_cluster
from twofold.twin.cluster.jobs import JobArrival
from twofold.twin.cluster.types import ClusterResult, ClusterWorld, JobRecord, NodeGroup, ServingLoad, Use

DAY_S = 86_400.0


def day_profile(trough_share: float, hour_count: int = 24, peak_hour: float = 15.0) -> tuple[float, ...]:
    """A smooth day: 1 at its peak, `trough_share` half a day away."""
    middle, swing = (1 + trough_share) / 2, (1 - trough_share) / 2
    angles = [2 * pi * ((hour + 0.5) * 24 / hour_count - peak_hour) / 24 for hour in range(hour_count)]
    return tuple(middle + swing * sin(angle + pi / 2) for angle in angles)


def accelerators_for(rate_per_s: float, capacity: Sequence[tuple[int, float]]) -> int:
    """The fewest accelerators of a capacity table that hold the SLO at this rate.

    `capacity` has rows of accelerators and the highest rate within the SLO, rising in both; beyond its end
    the last row's rate per accelerator goes on.
    """
    rates = [rate for _, rate in capacity]
    place = bisect_right(rates, rate_per_s * (1 - 1e-12))
    if place < len(capacity):
        return capacity[place][0]
    count, rate = capacity[-1]
    return ceil(rate_per_s / rate * count)


def serving_load(
    profile: Sequence[float],
    peak_rate_per_s: float,
    capacity: Sequence[tuple[int, float]],
    days: float,
    noise_fraction: float = 0.05,
    lead_s: float = 900.0,
    margin_fraction: float = 0.1,
    every_s: float = 300.0,
    start_s: float = 60.0,
    seed: int = 0,
) -> ServingLoad:
    """What a service with this profile of rates needs, and what its autoscaler asks for.

    The truth is the profile (of one day, or of a week: it is repeated) between its hours, times a noise that
    lasts about an hour. The autoscaler sees the present rate, knows the profile `lead_s` ahead, and
    asks for `margin_fraction` more than either. Users come one step after its first ask: no fleet is there at
    once.
    """
    generator = np.random.default_rng([seed, 21])
    count = ceil(days * DAY_S / every_s)
    keep = np.exp(-every_s / 3600.0)
    noise, needed, asked = 0.0, [], []
    period_s = 3600.0 * len(profile) if len(profile) > 24 else DAY_S

    def expected(at_s: float) -> float:
        place = at_s % period_s / period_s * len(profile) - 0.5
        low = int(np.floor(place))
        first, second = profile[low % len(profile)], profile[(low + 1) % len(profile)]
        return peak_rate_per_s * (first + (second - first) * (place - low))

    for number in range(count):
        at_s = number * every_s
        noise = keep * noise + float(np.sqrt(1 - keep * keep)) * float(generator.standard_normal())
        rate = expected(at_s) * max(0.0, 1 + noise_fraction * noise)
        ahead = max(expected(at_s), expected(at_s + lead_s))
        needed.append((at_s, accelerators_for(rate, capacity) if number else 0))
        asked.append((at_s, accelerators_for(max(rate, ahead) * (1 + margin_fraction), capacity)))
    return ServingLoad(_steps(needed), _steps(asked), start_s)


def _steps(series: Sequence[tuple[float, int]]) -> tuple[tuple[float, int], ...]:
    """Only where it changes."""
    return tuple(row for number, row in enumerate(series) if number == 0 or row[1] != series[number - 1][1])


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
