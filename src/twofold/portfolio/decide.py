"""What a plan recommends: machines and leases of every run and service, before anything describes them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter

from twofold.answer.context import Context
from twofold.answer.measured_choice import MeasuredChoice
from twofold.answer.ranges import GROWN_MOST
from twofold.answer.serving_choice import Rival, ServingChoice, with_fleet
from twofold.answer.serving_pools import sure_serving
from twofold.answer.training_choice import TrainingChoice, Trial
from twofold.contracts.goals import metric_text
from twofold.contracts.results import holdings
from twofold.inference.search import Fleet
from twofold.portfolio.capacity import fleets_of
from twofold.portfolio.demand import first_day
from twofold.portfolio.offers import NodeOffer, node_offers
from twofold.portfolio.simplest import is_too_much, simplest
from twofold.portfolio.ways import Way, run_ways, service_ways

ROUNDS = 5  # of sizing with the spec's confidence what was chosen without it


@dataclass(frozen=True, slots=True)
class Decision:
    """Runs and services on what is leased for them."""

    runs: Mapping[str, TrainingChoice | MeasuredChoice]
    services: Mapping[str, ServingChoice]
    offers: tuple[NodeOffer, ...]  # that it was made among
    ways: Mapping[str, Way]  # what is leased, by run and service
    cheapest: Mapping[str, Way]  # the same where nothing is paid for being simple


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
    of_runs = _run_ways(runs, offers, context)
    for more in reversed(range(ROUNDS)):
        every = {name: _choices(choice, sized[name], asked and not more) for name, choice in services.items()}
        ways = of_runs | _service_ways(every, offers, context)
        cheapest = simplest(ways, 0.0, supply.platforms)
        found = simplest(ways, supply.simplicity_fraction, supply.platforms)
        taken = {name: way.offer.accelerator for name, way in found.items() if name in services}
        # The cheapest too, so that what being simple costs is true.
        wanted = {*taken.items(), *((name, cheapest[name].offer.accelerator) for name in taken)}
        unsized = [(name, kind) for name, kind in sorted(wanted) if asked and kind not in sized[name]]
        if not unsized:
            break
        for name, kind in unsized:
            sized[name][kind] = sure_serving(services[name], context, kind)
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
        min(found, cheapest, key=lambda each: sum(way.usd for way in each.values())),
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


def leasing_of(decision: Decision) -> holdings.Leasing | None:
    """What the leases that were weighed come to, beside the cheapest; None where none were."""
    taken, ways, least = decision.ways, [*decision.ways.values()], [*decision.cheapest.values()]
    if not ways:
        return None
    others = [
        f"{way.name} on {_text(way)}"
        for way in least
        if (own := taken.get(way.name)) and (own.leases, own.work) != (way.leases, way.work)
    ]
    return holdings.Leasing(
        usd=sum(way.usd for way in ways),
        cheapest_usd=sum(way.usd for way in least),
        text=_needs(ways),
        cheapest_text="; ".join((_needs(least), *others)),
    )


def _needs(ways: Sequence[Way]) -> str:
    """`1 kind of machine, 2 providers, 3 leases`."""
    offers = [offer for way in ways for offer, _ in way.leases]
    kinds, providers, leases = (
        len({key(offer) for offer in offers})
        for key in (attrgetter("accelerator"), attrgetter("provider"), attrgetter("name"))
    )
    texts = [f"{kinds} kind{'s' * (kinds > 1)} of machine{'s' * (kinds > 1)}"]
    texts += [f"{providers} provider{'s' * (providers > 1)}", f"{leases} lease{'s' * (leases > 1)}"]
    return ", ".join(texts)


def _text(way: Way) -> str:
    """`2 + 3 × 8 H200-SXM5-141GB, northcloud reserved 1y + lakeside on demand`."""
    counts = " + ".join(f"{units}" for _, units in way.leases)
    terms = " + ".join(f"{offer.provider} {offer.term.replace('_', ' ')}" for offer, _ in way.leases)
    return f"{counts} × {way.offer.accelerator_count} {way.offer.accelerator}, {terms}"


def leased_again(choice: ServingChoice, decision: Decision, context: Context) -> Decision:
    """The decision with a service on another fleet, leased where it was before if it can."""
    ways = list(service_ways(choice, decision.offers, context))
    before = decision.ways.get(choice.entry.name)
    beside = [way for name, way in decision.ways.items() if name != choice.entry.name]
    here = [offer for offer, _ in before.leases] if before else []

    def preference(way: Way) -> tuple[bool, bool, bool, float]:
        offers = [offer for offer, _ in way.leases]
        more = any(is_too_much([*beside, way], offer) for offer in offers)
        elsewhere = {offer.provider for offer in offers} - {offer.provider for offer in here}
        return more, offers != here, bool(elsewhere), way.usd

    if not ways:
        ways_left, cheapest = (
            {name: way for name, way in each.items() if name != choice.entry.name}
            for each in (decision.ways, decision.cheapest)
        )
        return replace(decision, ways=ways_left, cheapest=cheapest)
    taken, least = min(ways, key=preference), min(ways, key=lambda way: way.usd)
    return replace(
        decision,
        ways={**decision.ways, choice.entry.name: taken},
        cheapest={**decision.cheapest, choice.entry.name: least},
    )


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


def _run_ways(
    runs: Mapping[str, TrainingChoice | MeasuredChoice], offers: tuple[NodeOffer, ...], context: Context
) -> dict[str, list[Way]]:
    """The ways of every run that is rented."""
    found = {
        name: list(run_ways(run, offers, context))
        for name, run in runs.items()
        if isinstance(run, TrainingChoice) and not run.chosen.offer.owned
    }
    return {name: own for name, own in found.items() if own}


def _service_ways(
    services: Mapping[str, list[ServingChoice]], offers: tuple[NodeOffer, ...], context: Context
) -> dict[str, list[Way]]:
    """The ways of every service that is rented."""
    found = {
        name: [way for each in choices for way in service_ways(each, offers, context)]
        for name, choices in services.items()
        if not choices[0].offer.owned
    }
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
    price = way.held.usd_per_accelerator_h(way.machine) if way.held else 0.0
    pools = tuple(replace(pool, usd_per_h=pool.accelerators * price) for pool in way.work.pools)
    fleet = replace(way.work, pools=pools, usd_per_h=sum(pool.usd_per_h or 0.0 for pool in pools))
    offers = {**choice.offers, pools[0].offer: way.machine}
    leased = with_fleet(replace(choice, offers=offers), fleet, context)
    return replace(leased, held=way.held, rivals=_rivals(way, ways) or choice.rivals)
