"""What a plan recommends: machines and leases of every run and service, before anything describes them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from twofold.answer.context import Context
from twofold.answer.measured_choice import MeasuredChoice
from twofold.answer.ranges import GROWN_MOST
from twofold.answer.serving_choice import Rival, ServingChoice, with_fleet
from twofold.answer.serving_pools import sure_serving
from twofold.answer.training_choice import TrainingChoice, Trial
from twofold.contracts.goals import metric_text
from twofold.contracts.results.holdings import Leasing
from twofold.inference.search import Fleet
from twofold.portfolio.capacity import fleets_of
from twofold.portfolio.demand import first_day
from twofold.portfolio.join import portfolio_case
from twofold.portfolio.offers import NodeOffer, node_offers
from twofold.portfolio.problem import PortfolioProblem
from twofold.portfolio.prune import part_of
from twofold.portfolio.simplest import cheapest_usd, is_too_much, simplest
from twofold.portfolio.solve import bound_usd
from twofold.portfolio.ways import Way, run_ways, service_ways

ROUNDS = 5  # of sizing with the spec's confidence what was chosen without it


@dataclass(frozen=True, slots=True)
class Decision:
    """Runs and services on what is leased for them."""

    runs: Mapping[str, TrainingChoice | MeasuredChoice]
    services: Mapping[str, ServingChoice]
    offers: tuple[NodeOffer, ...]  # that it was made among
    ways: Mapping[str, Way]  # what is leased, by run and service
    cheapest_usd: Mapping[str, float]  # of the first year, of each its cheapest lease


def decided(
    runs: Mapping[str, TrainingChoice | MeasuredChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> Decision:
    """The simplest leases near the cheapest, and every choice on what is leased for it.

    What nobody sells, machines of your own, and runs of measured rows stay as they were chosen. A service
    that moves to other machines is sized for them with the spec's confidence, and all are weighed again.
    """
    offers = _offers(runs, services, context)
    supply, asked = context.spec.supply, context.spec.margin_fraction is not None
    sized = {name: {_kind(choice): choice} for name, choice in services.items()}  # by accelerator
    any_mix = _any_mix(runs, services, context)
    for more in reversed(range(ROUNDS)):
        every = {name: _choices(choice, sized[name], asked and not more) for name, choice in services.items()}
        ways = _ways(runs, every, offers, context)
        # What a mix would save leaves so much less that being simple may cost.
        mixed = mixing_fraction(simplest(ways, 0.0, supply.platforms).values(), any_mix)
        within = (1.0 + supply.simplicity_fraction) * (1.0 - mixed)
        found = simplest(ways, max(0.0, within - 1.0), supply.platforms)
        taken = {name: way.offer.accelerator for name, way in found.items() if name in services}
        unsized = [name for name, kind in taken.items() if asked and kind not in sized[name]]
        if not unsized:
            break
        for name in unsized:
            sized[name][taken[name]] = sure_serving(services[name], context, taken[name])
    return Decision(
        {name: _run_on(choice, found.get(name)) for name, choice in runs.items()},
        {
            name: _said(
                service_on(
                    sized[name].get(taken.get(name, ""), choice), found.get(name), ways.get(name, ()), context
                ),
                sized[name],
            )
            for name, choice in services.items()
        },
        offers,
        found,
        {name: cheapest_usd({name: own}) for name, own in ways.items()},
    )


def _choices(
    choice: ServingChoice, sized: Mapping[str, ServingChoice], only_sized: bool
) -> list[ServingChoice]:
    """A service on every machine that may carry it: as sized for its confidence, else as it was found.

    Machines that do not reach the confidence are left out, unless all others cost `GROWN_MOST` times as much.
    """
    found = dict(sized)
    for fleet in () if only_sized else fleets_of(choice):
        kind = choice.offers[fleet.pools[0].offer].accelerator.name
        found.setdefault(kind, replace(choice, fleet=fleet, unsure={}))
    most = GROWN_MOST * min(each.fleet.usd_per_h or 0.0 for each in found.values())
    sure = [each for each in found.values() if not each.unsure and (each.fleet.usd_per_h or 0.0) <= most]
    return sure or list(found.values())


def _any_mix(
    runs: Mapping[str, TrainingChoice | MeasuredChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> tuple[PortfolioProblem, float] | None:
    """All offers for these runs and services, and the least that a mix costs; None where none has a price."""
    modelled = {name: run for name, run in runs.items() if isinstance(run, TrainingChoice)}
    case = portfolio_case(modelled, services, context)
    if case is None:
        return None
    free = replace(case.problem, platform_limit=None)
    usd = bound_usd(free)
    return None if usd is None else (free, usd)


def mixing_fraction(ways: Iterable[Way], any_mix: tuple[PortfolioProblem, float] | None) -> float:
    """What any mix of leases might save of these.

    Formula  1 − cheapest of all offers / cheapest of the offers of `ways`, both in fractions of units
    Limits   replicas and spares that each kind of machine would need for itself are not counted.
    """
    names = {way.offer.name for way in ways}
    if any_mix is None or not names:
        return 0.0
    free, usd = any_mix
    most = bound_usd(part_of(free, names))
    return max(0.0, 1.0 - usd / most) if most else 0.0


def leasing_of(
    leased: Iterable[Way | None],
    cheapest_usd: float,
    runs: Mapping[str, TrainingChoice | MeasuredChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> Leasing | None:
    """What the leases that were weighed come to; None where none were."""
    ways = [way for way in leased if way]
    if not ways:
        return None
    return Leasing(
        usd=sum(way.usd for way in ways),
        cheapest_usd=cheapest_usd,
        kinds_count=len({way.offer.accelerator for way in ways}),
        providers_count=len({way.offer.provider for way in ways}),
        leases_count=len({way.offer.name for way in ways}),
        mixing_fraction=mixing_fraction(ways, _any_mix(runs, services, context)),
    )


def leased_again(choice: ServingChoice, decision: Decision, context: Context) -> tuple[Way | None, float]:
    """What a service with another fleet leases, where it did before if it can; and what its cheapest is."""
    ways = list(service_ways(choice, decision.offers, context))
    before = decision.ways.get(choice.entry.name)
    beside = [way for name, way in decision.ways.items() if name != choice.entry.name]

    def preference(way: Way) -> tuple[bool, bool, bool, float]:
        offer, own = way.offer, before.offer if before else None
        more = is_too_much([*beside, way], offer)
        return more, offer is not own, own is None or offer.provider != own.provider, way.usd

    return min(ways, key=preference, default=None), min((way.usd for way in ways), default=0.0)


def _offers(
    runs: Mapping[str, TrainingChoice | MeasuredChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> tuple[NodeOffer, ...]:
    """Offers of all accelerators that the searches priced."""
    modelled = [choice for choice in runs.values() if isinstance(choice, TrainingChoice)]
    searched = [trial.offer for choice in modelled for trial in (choice.chosen, *choice.others)]
    searched += [offer for choice in services.values() for offer in choice.offers.values()]
    names = [offer.accelerator.name for offer in searched]
    return node_offers(context, names, searched, first_day(context.spec))


def _ways(
    runs: Mapping[str, TrainingChoice | MeasuredChoice],
    services: Mapping[str, list[ServingChoice]],
    offers: tuple[NodeOffer, ...],
    context: Context,
) -> dict[str, list[Way]]:
    """The ways of everything that is rented."""
    found: dict[str, list[Way]] = {}
    for name, run in runs.items():
        if isinstance(run, TrainingChoice) and not run.chosen.offer.owned:
            found[name] = list(run_ways(run, offers, context))
    for name, choices in services.items():
        if not choices[0].offer.owned:
            found[name] = [way for each in choices for way in service_ways(each, offers, context)]
    return {name: own for name, own in found.items() if own}


def _rivals(chosen: Way, ways: Iterable[Way]) -> tuple[Rival, ...]:
    """The cheapest way of a service on every other machine."""
    found: dict[str, Rival] = {}
    for way in sorted(ways, key=lambda each: each.usd):
        if way.offer.accelerator != chosen.offer.accelerator and isinstance(way.work, Fleet):
            found.setdefault(way.offer.accelerator, Rival(way.work, way.usd))
    return tuple(found.values())


def _kind(choice: ServingChoice) -> str:
    return choice.offer.accelerator.name


def _said(choice: ServingChoice, sized: Mapping[str, ServingChoice]) -> ServingChoice:
    """The choice with which machine would cost less where that keeps a goal less surely than asked."""
    own = sized.get(_kind(choice))
    if own is None or own.unsure:
        return choice
    usd = {name: each.fleet.usd_per_h or inf for name, each in sized.items() if each.unsure}
    name = min(usd, key=lambda each: usd[each], default=_kind(choice))
    saved = 1.0 - usd.get(name, inf) / (own.fleet.usd_per_h or inf)
    if not 0.0 < saved < 1.0:
        return choice
    (of, goal), share = min(sized[name].unsure.items(), key=lambda each: each[1])
    text = f"{choice.entry.name} on {name}: {100 * saved:.0f} % less, less sure than asked:"
    text += f" {of} {metric_text(goal)} holds with {100 * share:.0f} %"
    return replace(choice, warnings=(*choice.warnings, text))


def _run_on(choice: TrainingChoice | MeasuredChoice, way: Way | None) -> TrainingChoice | MeasuredChoice:
    """A run on what is leased for it."""
    if way is None or not isinstance(choice, TrainingChoice) or not isinstance(way.work, Trial):
        return choice
    leased = way.work
    others = tuple(each for each in (choice.chosen, *choice.others) if each.run is not leased.run)
    return replace(choice, chosen=leased, others=others)


def service_on(
    choice: ServingChoice, way: Way | None, ways: Iterable[Way], context: Context
) -> ServingChoice:
    """A service on what is leased for it, its pools at the price of the lease."""
    if way is None or not isinstance(way.work, Fleet):
        return choice
    price = way.machine.usd_per_accelerator_h or 0.0
    pools = tuple(replace(pool, usd_per_h=pool.accelerators * price) for pool in way.work.pools)
    fleet = replace(way.work, pools=pools, usd_per_h=sum(pool.usd_per_h or 0.0 for pool in pools))
    offers = {**choice.offers, pools[0].offer: way.machine}
    leased = with_fleet(replace(choice, offers=offers), fleet, context)
    return replace(leased, held=way.held, rivals=_rivals(way, ways) or choice.rivals)
