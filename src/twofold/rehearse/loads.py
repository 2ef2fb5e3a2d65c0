"""One open load in the twin, as often as chance may make it: what a service under just that load may show."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twofold.core.estimate import Estimate, Source
from twofold.rehearse.run import PoolTask, tallied_run
from twofold.rehearse.traffic import DRAWN_BLOCK_TOKENS, DrawnTraffic, TrafficMix
from twofold.twin.serving import fleet_types
from twofold.twin.serving.traffic import Lengths, TrafficModel

METRICS = ("ttft", "tpot", "e2e")
WHICH = ("p50", "p95")
SEED_COUNT = 20  # draws of the same load: an eighth of a second each, for a minute of a few requests a second


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """Requests that come at random, all about equally long."""

    class_name: str
    rate_per_s: float
    span_s: float  # that they come for; what is in flight then ends
    input_tokens: float
    output_tokens: float


def load_figures(
    task: PoolTask, replica_count: int, load: OpenLoad, seed_count: int = SEED_COUNT
) -> Mapping[str, Estimate]:
    """What the load would see of a service behind the task's own gate, in seconds: ttft_p50, ttft_p95 …

    The value is the middle of the seeds, the range holds 80 % of them. Chance alone moves it: times are the
    plan's middle ones. A figure that some seed does not have, since nothing finished there, is left out.
    """
    world = replace(
        task.world, replicas=_first(task.world, replica_count), horizon_s=load.span_s, warm_up_s=0.0
    )
    seen: dict[str, list[float]] = {f"{metric}_{which}": [] for metric in METRICS for which in WHICH}
    tiers: dict[str, list[float]] = {tier_figure(each.name): [] for each in world.tiers}
    for seed in range(seed_count):
        result, _, _ = tallied_run(replace(world, seed=seed), arrivals_of(load, seed), 1.0)
        (figures,) = [each for each in result.classes if each.name == load.class_name]
        for name, values in seen.items():
            metric, _, which = name.partition("_")
            latency = getattr(figures, f"{metric}_s")
            if latency is not None:
                values.append(getattr(latency, which))
        for tier in (each for each in result.figures.tiers if each.passed_count):
            tiers[tier_figure(tier.name)].append(tier.p95_s)
    seen |= tiers
    (planned,) = [each for each in task.classes if each.name == load.class_name]
    weakest = max((each.source for each in planned.percentiles.values()), key=list(Source).index)
    return {name: spread_of(values, weakest) for name, values in seen.items() if len(values) == seed_count}


def tier_figure(name: str) -> str:
    """What the p95 of a CPU tier, waiting and work, is called among the figures of a load."""
    return f"tier {name}_p95"


def arrivals_of(load: OpenLoad, seed: int) -> TrafficMix:
    """What comes of a load, by its draw."""
    model = TrafficModel(
        rate_per_s=load.rate_per_s,
        input=Lengths(load.input_tokens, load.input_tokens),
        output=Lengths(load.output_tokens, load.output_tokens),
        class_name=load.class_name,
        block_tokens=DRAWN_BLOCK_TOKENS,
    )
    return TrafficMix((DrawnTraffic(model, 0),), load.span_s, seed)


def _first(world: fleet_types.FleetWorld, count: int) -> tuple[fleet_types.ReplicaGroup, ...]:
    """So many of the replicas, and all that answer in need: a machine may hold fewer than are planned."""
    kept: list[fleet_types.ReplicaGroup] = []
    own = fleet_types.own_groups(world)
    for group in own:
        taken = min(group.count, count - sum(each.count for each in kept))
        if taken > 0:
            kept.append(replace(group, count=taken))
    return (*kept, *world.replicas[len(own) :])


def spread_of(values: list[float], source: Source) -> Estimate:
    """The middle of several draws, and where 80 % of them lie."""
    ordered, last = sorted(values), len(values) - 1
    return Estimate(ordered[last // 2], ordered[round(0.1 * last)], ordered[round(0.9 * last)], "s", source)
