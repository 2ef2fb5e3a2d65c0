"""Quantities of money: the hardware that is cheapest for a job, a model's life, one fleet against two."""

from dataclasses import dataclass

from twofold.answer import given
from twofold.core import YEAR_H, InfeasibleError, UnknownNameError
from twofold.verdicts.quantities_hardware import SERVERS, served_usd_per_mtok
from twofold.verdicts.quantities_serving_fleet import gpus_for_rate
from twofold.verdicts.quantities_training import train
from twofold.verdicts.quantities_training_run import run
from twofold.verdicts.quantity import MissingFigure
from twofold.verdicts.world import World

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


def _trainers(world: World, model: str, nodes: int) -> dict[str, float]:
    """Dollars per million training tokens of each accelerator that holds the run, cheapest first."""

    def compute() -> dict[str, float]:
        found: dict[str, float] = {}
        for name in TRAINERS:
            try:
                step = train(world, model, f"{nodes}x8x{name}", 512)
            except InfeasibleError:
                continue
            if step.usd_per_mtok is not None:
                found[name] = step.usd_per_mtok
        return dict(sorted(found.items(), key=lambda item: item[1]))

    return world.once(("trainers", model, nodes), compute)


def cheapest_trainer(world: World, model: str, nodes: int) -> str:
    """The accelerator that trains a model at least cost per token, in so many nodes of eight."""
    found = _trainers(world, model, nodes)
    if not found:
        raise InfeasibleError(f"{model} fits no {nodes} nodes")
    return next(iter(found))


def training_rank(world: World, model: str, nodes: int, gpu: str) -> int | None:
    """Where an accelerator stands by cost per training token, 1 the cheapest; None where nothing fits."""
    names = list(_trainers(world, model, nodes))
    return names.index(gpu) + 1 if gpu in names else None


def one_shape_cost(world: World, trained: str, nodes: int, served: str, training_share: float) -> float:
    """Cost of both halves on the best single accelerator over each half on its own best.

    `training_share` is training's part of what two shapes cost.
    """
    training = _trainers(world, trained, nodes)
    serving = {
        name: usd for name in training if (usd := served_usd_per_mtok(world, served, name)) is not None
    }
    least = served_usd_per_mtok(world, served)
    if not serving or not least:
        raise InfeasibleError("no accelerator does both")
    cheapest = min(training.values())
    return min(
        training_share * training[name] / cheapest + (1.0 - training_share) * serving[name] / least
        for name in serving
    )


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
