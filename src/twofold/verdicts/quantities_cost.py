"""Quantities of money: the cheapest hardware to train or to serve on, a model's life, one fleet for both."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from twofold.answer.question import given
from twofold.core.errors import InfeasibleError, UnknownNameError
from twofold.core.quantity import YEAR_H
from twofold.verdicts.machines import machines, price_usd_per_h
from twofold.verdicts.quantities_fleet import carried, gpus_for_rate
from twofold.verdicts.quantities_serving import PROMISED
from twofold.verdicts.quantities_training import train
from twofold.verdicts.quantities_training_run import run
from twofold.verdicts.world import MissingFigure, World

SERVERS = (
    *("L4", "A10", "L40S", "A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM5-141GB"),
    *("B200-SXM-180GB", "MI300X", "RTX-PRO-6000-SE", "Inferentia2"),
)
"""Accelerators that a choice of hardware is made from, all with list prices."""
FORMATS = ("bf16", "fp8")


def _served(world: World, model: str) -> Mapping[str, float]:
    """Dollars per million output tokens of each accelerator within 1 s and 50 ms per token, cheapest first.

    Each in the better of 16 and 8 bits and split over the best of 1, 2, 4 and 8 devices; those without a list
    price, and those that keep the promises nowhere, are left out.
    """

    def compute() -> Mapping[str, float]:
        costs = {name: _least_usd_per_mtok(world, model, name) for name in SERVERS}
        priced = {name: usd for name, usd in costs.items() if usd is not None}
        return dict(sorted(priced.items(), key=lambda item: item[1]))

    found = world.once(("served", model), compute)
    if not found:
        raise InfeasibleError(f"nothing serves {model} within its promises")
    return found


def _least_usd_per_mtok(world: World, model: str, name: str) -> float | None:
    found = machines(world, f"8x{name}")
    price = price_usd_per_h(found)
    if price is None:
        return None
    rates = [
        rate / count
        for weights in FORMATS
        if weights in found.cluster.device.native_formats
        for count, rate in carried(world, model, name, weights).items()
    ]
    best = max(rates, default=0.0)  # requests/s of one device
    return price / 3600.0 / (best * float(np.max(PROMISED.lengths.output_tokens))) * 1e6 if best > 0 else None


def cheapest_server(world: World, model: str) -> str:
    """The accelerator that serves a model at least cost per token, within 1 s and 50 ms per token."""
    return next(iter(_served(world, model)))


def serving_rank(world: World, model: str, gpu: str) -> int | None:
    """Where an accelerator stands by cost per token, 1 the cheapest; None if it misses the promises."""
    names = list(_served(world, model))
    return names.index(gpu) + 1 if gpu in names else None


def served_usd_per_mtok(world: World, model: str, gpu: str = "") -> float | None:
    """Dollars per million output tokens within promises, on one accelerator or on the cheapest."""
    found = _served(world, model)
    return found.get(gpu or next(iter(found)))


def cheapest_fleet(world: World, model: str, rate: float) -> str:
    """The accelerator whose fleet for a peak of `rate` requests/s costs least, whole devices counted."""
    costs = _fleets(world, model, rate)
    return min(costs, key=lambda name: costs[name])


def _fleets(world: World, model: str, rate: float) -> dict[str, float]:
    """Dollars an hour of each accelerator's fleet for a peak of `rate` requests/s, in the better format."""
    costs: dict[str, float] = {}
    for name in SERVERS:
        found = machines(world, f"8x{name}")
        price, native = price_usd_per_h(found), found.cluster.device.native_formats
        for weights in FORMATS:
            if price is None or weights not in native:
                continue
            try:
                usd = price * gpus_for_rate(world, model, name, rate, weights)
            except InfeasibleError:
                continue
            costs[name] = min(usd, costs.get(name, usd))
    if not costs:
        raise InfeasibleError(f"nothing serves {model} within its promises")
    return costs


TRAINERS = ("L40S", "A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM5-141GB", "B200-SXM-180GB", "MI300X")
"""Accelerators with list prices that a choice of training hardware is made from, in nodes of eight."""
PEAK_RATIO = 2.0  # of a day's traffic over its mean; what the twin's days have too


@dataclass(frozen=True, slots=True)
class Life:
    """A model's training run beside a year of its service, both at list price."""

    training_usd: float
    serving_usd_per_year: float
    training_gpus: int
    serving_gpus: int
    break_even_s: float  # of serving that costs as much as the run

    @property
    def serving_over_training(self) -> float:
        """A year of serving over the run."""
        return self.serving_usd_per_year / self.training_usd

    @property
    def serving_share(self) -> float:
        """Of both together, over a year."""
        return self.serving_usd_per_year / (self.serving_usd_per_year + self.training_usd)

    @property
    def gpu_ratio(self) -> float:
        """Accelerators that serve over those that train."""
        return self.serving_gpus / self.training_gpus


def life(
    world: World,
    model: str,
    on: str,
    tokens: float,
    rate: float,
    gpu: str = "H100-SXM5-80GB",
    batch: int = 1024,
) -> Life:
    """A run on machines, and a year of a mean `rate` of requests/s on accelerators for twice as many."""
    found = world.once(("life run", model, on, tokens, batch), lambda: run(world, model, on, tokens, batch))
    price = given(f"8x{gpu}", world.catalog, world.constants).machine.price
    if found.cost_usd is None or price is None:
        raise MissingFigure(f"no list price of {on} or {gpu}")
    machines = given(on, world.catalog, world.constants)
    gpus = gpus_for_rate(world, model, gpu, rate * PEAK_RATIO)
    usd_per_h = gpus * price.usd_per_accelerator_h.value
    return Life(
        found.cost_usd,
        usd_per_h * YEAR_H,
        machines.accelerator_count,
        gpus,
        found.cost_usd / usd_per_h * 3600.0,
    )


def _trainers(world: World, model: str, nodes: int, precision: str = "bf16") -> dict[str, float]:
    """Dollars per million training tokens of each accelerator that holds the run, cheapest first."""

    def compute() -> dict[str, float]:
        found: dict[str, float] = {}
        for name in TRAINERS:
            try:
                step = train(world, model, f"{nodes}x8x{name}", 512, precision=precision)
            except InfeasibleError:
                continue
            if step.usd_per_mtok is not None:
                found[name] = step.usd_per_mtok
        return dict(sorted(found.items(), key=lambda item: item[1]))

    return world.once(("trainers", model, nodes, precision), compute)


def cheapest_trainer(world: World, model: str, nodes: int, precision: str = "bf16") -> str:
    """The accelerator that trains a model at least cost per token, in so many nodes of eight."""
    found = _trainers(world, model, nodes, precision)
    if not found:
        raise InfeasibleError(f"{model} fits no {nodes} nodes")
    return next(iter(found))


def training_rank(world: World, model: str, nodes: int, gpu: str) -> int | None:
    """Where an accelerator stands by cost per training token, 1 the cheapest; None where nothing fits."""
    names = list(_trainers(world, model, nodes))
    return names.index(gpu) + 1 if gpu in names else None


def training_usd_per_mtok(
    world: World, model: str, nodes: int, gpu: str = "", precision: str = "bf16"
) -> float | None:
    """Dollars per million tokens of training on one accelerator or on the cheapest, in nodes of eight."""
    found = _trainers(world, model, nodes, precision)
    return found.get(gpu or next(iter(found), ""))


def one_shape_cost(
    world: World,
    trained: str,
    nodes: int,
    served: str,
    training_share: float,
    rate: float = 0.0,
    idle_share: float = 0.0,
) -> float:
    """Cost of both halves on the best single accelerator over each half on its own best.

    `training_share` is training's part of what two shapes cost. Serving is a fleet of whole devices for a
    peak of `rate` requests/s; without one it costs what a token of a full fleet does. A pool of one kind may
    train in the `idle_share` of hours that its serving half does not need: at most, since runs restart.
    """
    training = _trainers(world, trained, nodes)
    serving = _fleets(world, served, rate) if rate else _served(world, served)
    both = training.keys() & serving.keys()
    if not both:
        raise InfeasibleError("no accelerator does both")
    cheapest, least = min(training.values()), min(serving.values())

    def pooled(name: str) -> float:
        trains = training_share * training[name] / cheapest
        serves = (1.0 - training_share) * serving[name] / least
        return serves + max(trains - idle_share * serves, 0.0)

    return min(map(pooled, both))


def one_provider_cost(
    world: World, provider: str, trained: str, nodes: int, served: str, training_share: float
) -> float:
    """Cost of both halves on parts that one provider lists, over each half on its own best part.

    Every part costs its list price, whoever lists it cheapest: what is left is sizing, not a dear provider.
    `training_share` is training's part of what free choice costs.
    """
    listed = {row.accelerator for row in world.catalog.prices() if row.provider == provider}
    if not listed:
        raise UnknownNameError(f"`{provider}` lists no price", hint="`twofold catalog prices` lists who does")
    training = _trainers(world, trained, nodes)
    here = [usd for name, usd in training.items() if name in listed]
    serving = [served_usd_per_mtok(world, served, name) for name in sorted(listed & set(SERVERS))]
    served_here = [usd for usd in serving if usd is not None]
    least = served_usd_per_mtok(world, served)
    if not here or not served_here or not least:
        raise MissingFigure(f"{provider} lists no part for both halves")
    trains = training_share * min(here) / min(training.values())
    return trains + (1.0 - training_share) * min(served_here) / least


def provider_price(world: World, gpu: str, provider: str) -> float:
    """Dollars per accelerator-hour at one provider, its cheapest on demand."""
    name = world.catalog.accelerator(gpu).name
    found = [
        row.usd_per_accelerator_h
        for row in world.catalog.prices_for(name)
        if row.provider == provider and row.term == "on_demand"
    ]
    if not found:
        raise UnknownNameError(f"`{provider}` lists no {gpu} on demand")
    return min(found)


def economic(world: World, item: str) -> float:
    """One figure of the table of economics, in its own unit."""
    return world.catalog.economic(item).value
