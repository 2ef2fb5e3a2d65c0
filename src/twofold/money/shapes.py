"""Inputs that are larger than they must be: a smaller shape that keeps the same promises (R-135)."""

from collections.abc import Iterator, Mapping
from math import ceil

from twofold.answer import Context, ServingChoice, TrainingChoice, choose_serving, own_offers, trial_of_size
from twofold.building import is_owned
from twofold.contracts.results import Plan, ServicePlan, Shape, TrainingPlan
from twofold.core import InputError, format_seconds

ROOM = (1.0, 1.05, 1.1, 1.2, 1.3, 1.5)  # times the nodes that the deadline asks for


def shapes(
    plan: Plan,
    runs: Mapping[str, TrainingChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> tuple[Shape, ...]:
    """Every given machine that is more than enough: named for a run or a service, or owned."""
    found: list[Shape] = []
    for run in plan.training:
        if run.name in runs:
            found += _run_shape(run, runs[run.name], context)
    for service in plan.serving:
        if service.name in services and services[service.name].entry.on:
            found += _service_shape(service, services[service.name], context)
    return (*found, *_owned_shapes(plan, context))


def _run_shape(run: TrainingPlan, choice: TrainingChoice, context: Context) -> Iterator[Shape]:
    """The fewest nodes of the same kind that keep the deadline, where the spec names more."""
    chosen, entry = choice.chosen, choice.entry
    limit_s = entry.time_limit_s
    if not chosen.offer.fixed_count or limit_s is None or chosen.run is None:
        return
    fewest = chosen.node_count * chosen.run.total_s / limit_s
    counts = sorted({ceil(fewest * room) for room in ROOM} | {2 ** ceil_log2(fewest)})
    for count in (each for each in counts if each < chosen.node_count):
        tried = trial_of_size(entry, choice.job, chosen.offer, count, context)
        if tried.run is None or tried.misses:
            continue
        saved = None
        if tried.cost_usd is not None and chosen.cost_usd is not None:
            saved = (chosen.cost_usd - tried.cost_usd) * entry.runs_per_year
        yield Shape(
            name=run.name,
            given=chosen.text,
            enough=tried.text,
            keeps=f"{format_seconds(tried.run.total_s)} of {format_seconds(limit_s)}",
            saves_usd_per_year=saved,
            freed_accelerator_count=chosen.cluster.accelerator_count - tried.cluster.accelerator_count,
        )
        return


def ceil_log2(value: float) -> int:
    """The smallest n with 2^n at or above the value; 0 below 1."""
    return max(0, ceil(value) - 1).bit_length()


def _service_shape(service: ServicePlan, choice: ServingChoice, context: Context) -> Iterator[Shape]:
    """The same accelerators in replicas and nodes of the search's own choice, where the spec names them."""
    spec = context.spec
    shop = spec.supply.shop.model_copy(update={"accelerators": (service.machine.accelerator,)})
    supply = spec.supply.model_copy(update={"shop": shop, "own": ()})
    free = Context(
        spec.model_copy(update={"supply": supply}),
        context.catalog,
        context.constants,
        context.draws,
        context.today,
    )
    try:
        other = choose_serving(choice.entry.model_copy(update={"on": None}), free)
    except InputError:
        return
    freed = choice.fleet.accelerators - other.fleet.accelerators
    if freed <= 0:
        return
    price = choice.offer.usd_per_accelerator_h
    cost = service.cost_usd_per_year
    saved = None
    if price is not None and cost is not None:
        saved = cost.value * freed / choice.fleet.accelerators
    main = max(other.fleet.pools, key=lambda pool: pool.accelerators)
    count = sum(pool.count.total for pool in other.fleet.pools)
    size = round(float(main.replica.accelerator_count))
    yield Shape(
        name=service.name,
        given=f"{service.replica_count} × {service.replica.accelerator_count} {service.machine.accelerator}",
        enough=f"{count} replicas on {other.fleet.accelerators} × {service.machine.accelerator}, {size} each",
        keeps="every goal of every class at its peak, the same spares",
        saves_usd_per_year=saved,
        freed_accelerator_count=freed,
    )


def _owned_shapes(plan: Plan, context: Context) -> Iterator[Shape]:
    """Machines that the spec owns and the plan leaves idle."""
    halves: list[TrainingPlan | ServicePlan] = [*plan.training, *plan.serving]
    halves = [half for half in halves if is_owned(half.machine, context)]
    for offer in own_offers(context.catalog, context.spec.supply):
        name = offer.accelerator.name
        used = [half for half in halves if half.machine.accelerator == name]
        held = (offer.node_count_max or 0) * offer.node.accelerator_count
        most = max((half.machine.accelerator_count for half in plan.training if half in used), default=0)
        taken = most + sum(half.machine.accelerator_count for half in plan.serving if half in used)
        if not used or taken >= held:
            continue
        yield Shape(
            name="own",
            given=f"{held} × {name}",
            enough=f"{taken} × {name} for {', '.join(half.name for half in used)}",
            keeps="deadlines and goals as planned",
            saves_usd_per_year=None,
            freed_accelerator_count=held - taken,
        )
