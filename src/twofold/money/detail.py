"""What `--money` adds to a plan: levers in order, smaller shapes, and how sure the first year is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from twofold.answer.context import Context
from twofold.answer.offers import own_offers
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.serving_pools import sure_serving
from twofold.answer.training_choice import TrainingChoice, trial_of_size
from twofold.building.entries import is_owned
from twofold.contracts.results import ledger
from twofold.contracts.results.ledger import total_usd
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_seconds
from twofold.core.errors import InputError
from twofold.money import draws
from twofold.money.first_year import FOLLOWS_RENT
from twofold.money.levers import ranked, run_levers, service_levers, sourcing


def detailed_money(
    plan: Plan,
    runs: Mapping[str, TrainingChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> Plan:
    """The plan whose money has its details; unchanged where nothing has a price.

    Every lever is planned again, so that this takes as long as a few plans.
    """
    if plan.money is None:
        return plan
    priced = draws.priced_parts(plan, runs, services, context)
    given = shapes(plan, runs, services, context)
    if not priced:
        # Nothing is rented: no lever saves money and no price is drawn; machines may still be too many.
        nothing = ledger.MoneyDetail((), given, (), 0, 0.0, 0.0, 0.0, 0.0, None, ())
        return replace(plan, money=replace(plan.money, detail=nothing))
    left, terms = draws.residuals(priced, context), _terms(plan.money, priced)
    budget = context.spec.supply.budget_usd
    samples = draws.drawn_first_year(priced, left, context)
    found = draws.distribution(samples, None if budget is None else terms.listed(budget))
    detail = ledger.MoneyDetail(
        levers=ranked(_levers(priced, context)),
        shapes=given,
        swings=tuple(
            replace(row, at_low_usd=terms.billed(row.at_low_usd), at_high_usd=terms.billed(row.at_high_usd))
            for row in draws.swings(priced, left, context)
        ),
        draw_count=len(samples),
        mean_usd=terms.billed(found.mean),
        low_usd=terms.billed(found.low),
        median_usd=terms.billed(found.median),
        high_usd=terms.billed(found.high),
        over_budget_fraction=found.over_limit_fraction,
        measuring=tuple(
            replace(
                row,
                before_usd=row.before_usd * terms.rent_factor,
                after_usd=row.after_usd * terms.rent_factor,
            )
            for row in draws.measuring(priced, left, context)
        ),
    )
    return replace(plan, money=replace(plan.money, detail=detail))


@dataclass(frozen=True, slots=True)
class Billed:
    """How a bill follows from rent at list price: what grows with it, and what does not."""

    rent_factor: float
    fixed_usd: float

    def billed(self, rent_usd: float) -> float:
        """The first year's total with this rent at list price."""
        return self.fixed_usd + self.rent_factor * rent_usd

    def listed(self, billed_usd: float) -> float:
        """Rent at list price with which the first year costs this; any, or none, where rent is free."""
        left_usd = billed_usd - self.fixed_usd
        if self.rent_factor <= 0:
            return inf if left_usd >= 0 else -inf
        return left_usd / self.rent_factor


def _terms(money: ledger.Money, priced: Sequence[draws.Part]) -> Billed:
    """Draws are of rent at list price; the total of the plan is the bill's.

    Formula  total = fixed + factor · rent; factor = (rent lines + support) / rent at list price
    """
    listed = sum(
        sum(part.cost_usd.value * part.run_count for part in priced if part.error == half)
        for half in (draws.TRAINING_MODEL, draws.SERVING_MODEL)
    )
    names = {part.plan.name for part in priced}
    follows = total_usd(
        line for line in money.lines if line.category in FOLLOWS_RENT and line.what.partition(":")[0] in names
    )
    return Billed(follows / listed if listed else 0.0, money.total_usd - follows)


def _levers(priced: Sequence[draws.Part], context: Context) -> Iterable[ledger.LeverRow]:
    runs = {each.name: each for each in context.spec.training}
    services = {each.name: each for each in context.spec.services}
    for part in priced:
        half, choice = part.plan, part.choice
        if isinstance(half, TrainingPlan) and isinstance(choice, TrainingChoice):
            yield from run_levers(choice, half, part.run_count, context)
        if isinstance(half, ServicePlan) and isinstance(choice, ServingChoice):
            yield from service_levers(choice, half, context)
        if half.machine.price:
            paid, yearly = half.machine.usd_per_accelerator_h, part.cost_usd.value * part.run_count
            entry = runs[half.name] if isinstance(half, TrainingPlan) else services[half.name]
            yield from sourcing(entry, half.machine.accelerator, paid, yearly, context)


ROOM = (1.0, 1.05, 1.1, 1.2, 1.3, 1.5)  # times the nodes that the deadline asks for


def shapes(
    plan: Plan,
    runs: Mapping[str, TrainingChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> tuple[ledger.Shape, ...]:
    """Every given machine that is more than enough: named for a run or a service, or owned."""
    found: list[ledger.Shape] = []
    for run in plan.training:
        if run.name in runs:
            found += _run_shape(run, runs[run.name], context)
    for service in plan.serving:
        if service.name in services and services[service.name].entry.on:
            found += _service_shape(service, services[service.name], context)
    return (*found, *_owned_shapes(plan, context))


def _run_shape(run: TrainingPlan, choice: TrainingChoice, context: Context) -> Iterator[ledger.Shape]:
    """The fewest nodes of the same kind that keep the deadline, where the spec names more."""
    chosen, entry = choice.chosen, choice.entry
    limit_s, asked = entry.time_limit_s, context.spec.margin_fraction or 0.0
    if not chosen.offer.fixed_count or limit_s is None or chosen.run is None:
        return
    fewest = chosen.node_count * chosen.run.total_s / limit_s
    # Besides the usual room the smallest power of two that is enough.
    counts = {ceil(fewest * room) for room in ROOM} | {2 ** max(0, ceil(fewest) - 1).bit_length()}
    for count in sorted(each for each in counts if each < chosen.node_count):
        tried = trial_of_size(entry, choice.job, chosen.offer, count, context)
        if tried.run is None or tried.misses:
            continue
        likely = run.run.total_s.times(tried.total_s / chosen.run.total_s, "s")
        if likely.probability_within(limit_s) < asked:
            continue
        saved = None
        if tried.cost_usd is not None and chosen.cost_usd is not None:
            saved = (chosen.cost_usd - tried.cost_usd) * entry.runs_per_year
        yield ledger.Shape(
            name=run.name,
            given=chosen.text,
            enough=tried.text,
            keeps=f"{format_seconds(tried.run.total_s)} of {format_seconds(limit_s)}",
            saves_usd_per_year=saved,
            freed_accelerator_count=chosen.cluster.accelerator_count - tried.cluster.accelerator_count,
        )
        return


def _service_shape(service: ServicePlan, choice: ServingChoice, context: Context) -> Iterator[ledger.Shape]:
    """The same accelerators in replicas and nodes of the search's own choice, where the spec names them."""
    spec = context.spec
    shop = spec.supply.shop.model_copy(update={"accelerators": (service.machine.accelerator,)})
    supply = spec.supply.model_copy(update={"shop": shop, "own": ()})
    free = replace(context, spec=spec.model_copy(update={"supply": supply}))
    try:
        other = sure_serving(choice.entry.model_copy(update={"on": None}), free)
    except InputError:
        return
    freed = choice.fleet.accelerators - other.fleet.accelerators
    if freed <= 0:
        return
    cost, saved = service.cost_usd_per_year, None
    if choice.offer.usd_per_accelerator_h is not None and cost is not None:
        saved = cost.value * freed / choice.fleet.accelerators
    main = max(other.fleet.pools, key=lambda pool: pool.accelerators)
    count = sum(pool.count.total for pool in other.fleet.pools)
    size = round(float(main.replica.accelerator_count))
    yield ledger.Shape(
        name=service.name,
        given=f"{service.replica_count} × {service.replica.accelerator_count} {service.machine.accelerator}",
        enough=f"{count} replicas on {other.fleet.accelerators} × {service.machine.accelerator}, {size} each",
        keeps="every goal of every class at its peak, the same spares",
        saves_usd_per_year=saved,
        freed_accelerator_count=freed,
    )


def _owned_shapes(plan: Plan, context: Context) -> Iterator[ledger.Shape]:
    """Machines that the spec owns and the plan leaves idle."""
    halves = [half for half in plan.halves if is_owned(half.machine, context)]
    for offer in own_offers(context.catalog, context.spec.supply):
        name, held = offer.accelerator.name, offer.held
        used = [half for half in halves if half.machine.accelerator == name]
        most = max((half.machine.accelerator_count for half in plan.training if half in used), default=0)
        taken = most + sum(half.machine.accelerator_count for half in plan.serving if half in used)
        if not used or taken >= held:
            continue
        yield ledger.Shape(
            name="own",
            given=f"{held} × {name}",
            enough=f"{taken} × {name} for {', '.join(half.name for half in used)}",
            keeps="deadlines and goals as planned",
            saves_usd_per_year=None,
            freed_accelerator_count=held - taken,
        )
