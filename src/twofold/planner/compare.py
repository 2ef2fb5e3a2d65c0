"""The 2×2 of a plan: each half on its own fleet and on the other's, and what the wrong fleet costs."""

from dataclasses import dataclass

from twofold.contracts.results.plan import CrossCell, Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan

SCHEMA = "twofold/compare/1"


@dataclass(frozen=True, slots=True)
class Crossed:
    """One run or service on both fleets. Penalties are of the other fleet over the own: 0.29 is 29 % more."""

    half: str
    name: str
    own: CrossCell
    other: CrossCell
    cost_penalty_fraction: float | None  # None: no price, or it does not run there
    time_penalty_fraction: float | None  # of a run's wall time, or of a service's TPOT


@dataclass(frozen=True, slots=True)
class Comparison:
    """The 2×2, schema `twofold/compare/1`."""

    schema: str
    name: str  # of the spec
    training_fleets: tuple[str, ...]
    serving_fleets: tuple[str, ...]
    rows: tuple[Crossed, ...]
    warnings: tuple[str, ...]


def compare_halves(plan: Plan) -> Comparison:
    """Pair the cells of a plan's 2×2. A plan of one half has none, and says so."""
    cells = {(cell.half, cell.name, cell.fleet): cell for cell in plan.cross}
    names = dict.fromkeys((cell.half, cell.name) for cell in plan.cross)
    rows = tuple(_crossed(half, name, cells) for half, name in names)
    missing = "this spec has one half only: there is no other fleet to compare with"
    sizes = [run.parameters for run in plan.training] + [service.parameters for service in plan.serving]
    if plan.training and plan.serving and None in sizes:
        missing = "a half of this spec is measured rows alone: nothing is known of it on the other fleet"
    return Comparison(
        schema=SCHEMA,
        name=plan.name,
        training_fleets=tuple(map(_fleet_text, plan.training)),
        serving_fleets=tuple(map(_fleet_text, plan.serving)),
        rows=rows,
        warnings=() if rows else (missing,),
    )


def _fleet_text(half: TrainingPlan | ServicePlan) -> str:
    """`6 × 8 B200-SXM-180GB`: the nodes of a run or a service, as the decision has them."""
    machine = half.machine
    return f"{machine.node_count} × {machine.accelerators_per_node} {machine.accelerator}"


def _crossed(half: str, name: str, cells: dict[tuple[str, str, str], CrossCell]) -> Crossed:
    elsewhere = "serving" if half == "training" else "training"
    own, other = cells[half, name, half], cells[half, name, elsewhere]
    ours, theirs = (cell.wall_s or cell.latency_s for cell in (own, other))
    dearer = other.cost_usd.value / own.cost_usd.value - 1 if own.cost_usd and other.cost_usd else None
    slower = theirs.value / ours.value - 1 if ours and theirs else None
    return Crossed(half, name, own, other, dearer, slower)
