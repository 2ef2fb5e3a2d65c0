"""Quantities that no formula answers, rehearsed for seconds in the twin; figures that others published."""

# ruff: noqa: ARG001 (every quantity takes the world)

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from twofold.rehearse.collectives import parts_that_grow
from twofold.rehearse.small import SmallFigures, SmallReplica, SmallWorld
from twofold.verdicts.quantities_serving import replica
from twofold.verdicts.world import World, one_of

SIZES = (8, 16, 32, 64)


def rehearsed(
    world: World,
    model: str,
    on: str,
    rate: float,
    replicas: int = 1,
    seconds: float = 40.0,
    input: int = 1000,
    output: int = 200,
    clumps: float = 1.0,
    surge: float = 1.0,
    turns: float = 1.0,
    bulk_rate: float = 0.0,
    bulk_input: int = 8000,
    apart: int = 0,
    routing: str = "least-work",
    reserve: str = "prompt",
    batching: str = "continuous",
    admission: bool = False,
    zones: int = 1,
    zone_lost: bool = False,
    least: int = 0,
    think_s: float = 5.0,
) -> SmallFigures:
    """Equal replicas in the twin under a `rate` of unlike requests, promised 1 s and 50 ms per token.

    `clumps` is the deviation of the gaps between arrivals over their mean, `surge` what the rate is
    multiplied by for a fifth of the time, `turns` those of a conversation. Requests of a `bulk_rate` come
    beside them, on replicas of their own where some stand `apart`. The first of several zones may be lost;
    with a `least` count replicas are scaled between it and all.
    """
    one_of(routing, ("least-work", "round-robin", "prefix", "session"), "way to route")
    one_of(reserve, ("prompt", "answer", "context"), "way to reserve a cache")
    one_of(batching, ("continuous", "static"), "way to batch")
    asked = SmallWorld(
        replicas, rate, seconds, input, output, 1.645, clumps, surge, turns, think_s, bulk_rate, bulk_input,
        apart, routing, reserve, batching, admission, zones, zone_lost, least,
    )  # fmt: skip
    made = world.once(("small", model, on), lambda: SmallReplica.of(replica(world, model, on)))
    return made.rehearsed(asked)


def growing_part(world: World, jitter: float, input_s: float) -> str:
    """Which share of a step the twin sees rise from 8 to 64 ranks, under jitter or input that grows."""
    return ", ".join(parts_that_grow(jitter, input_s, SIZES)) or "none"


def published(world: World, name: str) -> float:
    """A figure that others published and nothing here computes; `published.csv` has its source."""
    return _published()[one_of(name, _published(), "published figure")]


@cache
def _published() -> Mapping[str, float]:
    with (Path(__file__).parent / "published.csv").open(encoding="utf-8", newline="") as handle:
        return {row["name"]: float(row["value"]) for row in csv.DictReader(handle)}
