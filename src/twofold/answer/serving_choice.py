"""Which machines serve a service, and in which replicas: the cheapest fleet that meets every class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from twofold.answer.calibrated import service_scope
from twofold.answer.context import Context, model_of
from twofold.answer.offers import Offer, cluster_of, own_offers, owned_offer, rented_offer, serving_offers
from twofold.answer.refusals import need_context, reason_text
from twofold.answer.stacks import engine_on
from twofold.answer.tiers import before_replicas, tier_plans
from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Model
from twofold.contracts.goals import SuccessGoal, metric_text
from twofold.contracts.results import serving
from twofold.contracts.results.parts import Loser
from twofold.contracts.rows.trace import read_trace
from twofold.contracts.spec.service import LatencyClass, Service
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.supply import Supply
from twofold.core.display import format_bytes, format_seconds, format_si
from twofold.core.errors import InfeasibleError
from twofold.core.estimate import Estimate
from twofold.core.quantity import DAY_S
from twofold.inference import stations
from twofold.inference.replica import Engine
from twofold.inference.search import (
    MORE_JOINED,
    Curves,
    Fleet,
    Hardware,
    ModelVariant,
    PoolChoice,
    SearchResult,
    search,
)
from twofold.inference.slo import Slo, TrafficClass
from twofold.inference.spreads import spread_of
from twofold.inference.steady import Lengths
from twofold.perf.constants import Constants
from twofold.perf.formats import bytes_per_weight
from twofold.perf.software import engine_called
from twofold.perf.types import Cluster, one
from twofold.twin.serving.profiles import quietest_hours, working_day

MOST_ACCELERATORS = 1_000_000  # of one service: a few times the largest sites announced
KEPT_FOR_SERVING = 10  # cheapest per byte/s of memory first
KEPT_SMALL = 3  # of those that are cheaper than any of these
NO_MARGINS: Mapping[tuple[str, str], float] = MappingProxyType({})
UPPER, FAR_RATIO = ("p95", "p99"), 20.0  # quantiles of first tokens lie closer to each other than that
SERVER_COUNTS = (2, 4, 8, 18, 32)  # of one replica; and as many as are named or owned
MONTHS_PER_YEAR = 12
DAY_HOURS = round(DAY_S / 3600.0)
TOO_FEW_IN_SEASON = "your own machines do not carry the busiest months: see `--details` for the calendar"
NOT_CARRIED = "your own machines do not carry this service: planned on rented ones"
FASTER_TIERS = "give them a shorter `p95` or more replicas, or promise more"
LEAST_JOINED = 4  # accelerators of a server that is joined to others


@dataclass(frozen=True, slots=True)
class ClassLoad:
    """One latency class in numbers. `traffic` carries the peak, or the mean of a day's work."""

    name: str
    mean_rate_per_s: float
    peak_per_s: float
    traffic: TrafficClass
    prefix_hits: tuple[tuple[float, float], ...] = ()  # of its trace, by the tokens of the fleet's caches
    margins: Mapping[str, float] = field(default_factory=dict)  # by goal, see `sure_serving`
    season_ratio: float = 1.0  # of its peak, what the busiest month adds
    trace_notes: tuple[str, ...] = ()  # what of its trace is left out

    @property
    def asked(self) -> TrafficClass:
        """What replicas are sized for."""
        return replace(self.traffic, slo=self.traffic.slo.with_margins(self.margins))

    @property
    def is_batch(self) -> bool:
        """Whether only a day's end is promised, not a request's."""
        return not self.traffic.slo.is_waited_for


@dataclass(frozen=True, slots=True)
class Held:
    """How much of a fleet is leased over a year, or in use of your own; described at its busiest hour."""

    unit_count: int  # of the offer, at most at once
    mean_fraction: float  # of them, on average
    fractions: Mapping[str, float]  # by the first class of a pool: accelerators paid for, of its own
    usd_per_year: float  # with support and egress, after discount
    base: Offer | None = None  # the same machine at the price of what is held all year; None: none is
    base_count: int = 0  # units of it
    base_answered_fraction: float = 0.0  # of what the service answers, on them

    def usd_per_accelerator_h(self, machine: Offer) -> float:
        """List price of an hour that is paid for: the mean of the base and, for the rest, of the machine."""
        rest_usd = machine.usd_per_accelerator_h or 0.0
        if self.base is None:
            return rest_usd
        share = self.base_count / (self.unit_count * self.mean_fraction)
        return share * (self.base.usd_per_accelerator_h or 0.0) + (1.0 - share) * rest_usd


@dataclass(frozen=True, slots=True)
class Rival:
    """The best fleet on another machine, at its cheapest lease."""

    fleet: Fleet
    usd_per_year: float  # as of what is leased


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """What is searched for one service, whatever it promises: its models, its loads and what is on offer."""

    entry: Service
    models: tuple[tuple[Model, str], ...]  # each with what is said of its quality
    loads: tuple[ClassLoad, ...]
    offers: tuple[dict[str, Offer], ...]  # by name; where some are your own, these first and apart
    left_out: tuple[Loser, ...]
    curves: tuple[Curves, ...]  # of each of `offers`; searches fill them
    tiers: tuple[serving.TierPlan, ...] = ()  # CPU servers that all its requests pass before a replica

    @property
    def variants(self) -> list[ModelVariant]:
        """The models as the search takes them."""
        return [ModelVariant.of(*each) for each in self.models]


@dataclass(frozen=True, slots=True)
class ServingChoice:
    """The chosen fleet of one service, and everything that lost."""

    entry: Service
    loads: tuple[ClassLoad, ...]
    fleet: Fleet
    offer: Offer
    variant: ModelVariant
    model: Model
    result: SearchResult
    left_out: tuple[Loser, ...]
    warnings: tuple[str, ...]
    searched: Searched
    other_variants: tuple[Loser, ...] = ()  # the models that could serve instead
    offers: Mapping[str, Offer] = field(default_factory=dict)  # all that were searched, by name
    held: Held | None = None  # None: nothing is leased for it
    rivals: tuple[Rival, ...] = ()  # the cheapest first; none where nothing is leased
    # By class and goal how probable what more replicas do not make sure enough is.
    unsure: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def accelerators(self) -> int:
        """Of the machines that it takes, in its busiest hour."""
        return (
            self.held.unit_count * self.offer.node.accelerator_count if self.held else self.fleet.accelerators
        )

    @property
    def scope(self) -> dict[str, str]:
        """Where its calibration stands."""
        replica = main_pool(self.fleet, self.loads).replica
        return service_scope(replica.cluster.device, replica.engine)


def choose_serving(entry: Service, context: Context) -> ServingChoice:
    """Search machines, layouts and formats for one service, whose goals the middle keeps.

    What no machine carries in the busiest month is sized for the others, with a warning. Raises
    InfeasibleError where nothing will do, ValueRefusedError where no model takes a request whole.
    """
    return best_of(searched_for(entry, context, _busiest_season(context.spec)), context)


def searched_for(entry: Service, context: Context, season_ratio: float) -> Searched:
    """What is to be searched for a service, with the peak of a month so much busier than usual."""
    models = models_of(entry, context)
    loads = tuple(class_load(name, each, season_ratio) for name, each in entry.classes.items())
    tiers = tier_plans(entry, sum(load.traffic.rate_per_s for load in loads), context)
    loads = tuple(_behind(load, tiers) for load in loads)
    for load in loads:
        tokens = float(np.max(load.traffic.lengths.input_tokens + load.traffic.lengths.output_tokens))
        need_context([model for model, _ in models], tokens, f"class `{load.name}`: ")
    offers, left_out = _offers(entry, [ModelVariant.of(*each) for each in models], context)
    if not offers:
        raise InfeasibleError(
            f"no machine on offer can serve `{entry.name}`",
            lines=tuple((loser.what, loser.why) for loser in left_out[:5]),
            hint="widen `supply.shop`, or write `on:`",
        )
    own = tuple(offer for offer in offers if offer.owned)
    # Named machines of yours and the same for rent are one kind, of two sources: not searched side by side.
    instead = tuple(offer for offer in offers if not offer.owned) if entry.on else offers
    named = tuple(named_offers(each) for each in ((own, instead) if own else (offers,)))
    return Searched(entry, tuple(models), loads, named, left_out, tuple({} for _ in named), tiers)


def _behind(load: ClassLoad, tiers: tuple[serving.TierPlan, ...]) -> ClassLoad:
    """A class whose requests pass these tiers first. Raises InfeasibleError where that leaves no time."""
    before = before_replicas(tiers)
    if before is None or load.is_batch:  # nobody waits for a request of a day's work
        return load
    for goal, limit_s in load.traffic.slo.latencies_s.items():
        metric, _, which = goal.partition("_")
        taken_s = one(getattr(before, f"{which}_s"))
        if metric in stations.HELD and taken_s >= limit_s:
            names = " and ".join(f"`{each.name}`" for each in tiers)
            told = f"{metric_text(goal)}: {names} take {format_seconds(taken_s)} of {format_seconds(limit_s)}"
            raise InfeasibleError(
                f"CPU tiers leave class `{load.name}` no time", lines=(("binds", told),), hint=FASTER_TIERS
            )
    return replace(load, traffic=replace(load.traffic, slo=replace(load.traffic.slo, before=before)))


def best_of(
    searched: Searched,
    context: Context,
    margins: Mapping[tuple[str, str], float] = NO_MARGINS,
    only: str = "",
) -> ServingChoice:
    """The cheapest fleet; goals with `margins`, by class and goal, are kept by the middle with that to spare.

    `only` names the accelerator that it may have; none: any.
    """
    entry, variants = searched.entry, searched.variants
    loads = tuple(
        replace(load, margins={goal: ratio for (of, goal), ratio in margins.items() if of == load.name})
        for load in searched.loads
    )
    every = (
        ({name: each for name, each in considered.items() if only in ("", each.accelerator.name)}, curves)
        for considered, curves in zip(searched.offers, searched.curves, strict=True)
    )
    for named, curves in (each for each in every if each[0]):
        result = search_fleet(entry, variants, loads, named, context, curves)
        fleet = _affordable(result, named, loads, entry)
        if fleet is not None:
            break
    if fleet is None and result.best and any(load.season_ratio > 1.0 for load in loads):
        usual = best_of(searched_for(entry, context, 1.0), context, margins, only)
        return replace(usual, warnings=(*usual.warnings, TOO_FEW_IN_SEASON))
    if fleet is None:
        raise _refusal(entry, result, named)
    if fleet.accelerators > MOST_ACCELERATORS:
        raise _too_many(entry, fleet, loads)
    offer, model, variant = _main(fleet, entry, loads, named, context)
    own = [each for each in searched.offers[0].values() if each.owned]
    warnings, others = tuple(_warnings(fleet, offer, own)), list(variants)
    others.remove(variant)
    # Compared where neither has anything to spare, and somebody looks.
    others = others if context.in_full and not margins else []
    beside = tuple(_instead(each, entry, fleet, loads, named, curves, context) for each in others)
    chosen = fleet, offer, variant, model, result
    left_out, held = searched.left_out, _own_hours(fleet, offer, loads, entry)
    return ServingChoice(entry, loads, *chosen, left_out, warnings, searched, beside, named, held)


def with_fleet(choice: ServingChoice, fleet: Fleet, context: Context) -> ServingChoice:
    """The same service on another of the fleets that its search found."""
    offer, model, variant = _main(fleet, choice.entry, choice.loads, choice.offers, context)
    warnings = _warnings(fleet, offer, ())
    if NOT_CARRIED in choice.warnings:
        warnings.insert(0, NOT_CARRIED)
    held = _own_hours(fleet, offer, choice.loads, choice.entry)
    chosen = replace(choice, fleet=fleet, offer=offer, variant=variant, model=model, held=held)
    return replace(chosen, warnings=tuple(warnings))


def _main(
    fleet: Fleet, entry: Service, loads: Sequence[ClassLoad], offers: Mapping[str, Offer], context: Context
) -> tuple[Offer, Model, ModelVariant]:
    """The offer of a fleet, and the model of its main pool."""
    name = main_pool(fleet, loads).variant
    model, note = next(each for each in models_of(entry, context) if each[0].name == name)
    return offers[fleet.pools[0].offer], model, ModelVariant.of(model, note)


def main_pool(fleet: Fleet, loads: Sequence[ClassLoad]) -> PoolChoice:
    """The pool that a service is shown by: the largest of those that answer somebody who waits."""
    waited = {load.name for load in loads if not load.is_batch}
    return max(fleet.pools, key=lambda pool: (not waited.isdisjoint(pool.classes), pool.accelerators))


def _instead(
    variant: ModelVariant,
    entry: Service,
    chosen: Fleet,
    loads: Sequence[ClassLoad],
    offers: dict[str, Offer],
    curves: Curves,
    context: Context,
) -> Loser:
    """What serving another of the models would cost against the chosen one, and what it is said to lose."""
    result = search_fleet(entry, (variant,), loads, offers, context, curves)
    fleet = _affordable(result, offers, loads, entry)
    quality = f"; quality: {variant.quality_note}" if variant.quality_note else ""
    if fleet is None:
        return Loser(variant.name, f"{result.binding or 'too few machines of your own'}{quality}")
    if fleet.usd_per_h is None or not chosen.usd_per_h:
        size = f"{fleet.accelerators} accelerators against {chosen.accelerators}"
        return Loser(variant.name, f"{size}, no price{quality}")
    more = fleet.usd_per_h / chosen.usd_per_h - 1
    return Loser(variant.name, f"{100 * more:+,.0f} %, {format_si(fleet.usd_per_h, 'USD/h')}{quality}")


def search_fleet(
    entry: Service,
    variants: Sequence[ModelVariant],
    loads: Sequence[ClassLoad],
    offers: dict[str, Offer],
    context: Context,
    curves: Curves | None = None,
) -> SearchResult:
    """The inference room's search over offers by name; `curves` are filled and read."""
    hardware = []
    for name, offer in offers.items():
        stack = serving_stack(offer, entry.engine, context.constants, context.catalog, context.spec.supply)
        price, size = offer.usd_per_accelerator_h, offer.replica_count_max
        least = size if offer.fixed_count else 1
        spans = server_counts(offer)
        hardware.append(Hardware(name, *stack, price, entry.quantisation, size, least, spans))
    return search(
        variants,
        [load.asked for load in loads],
        hardware,
        zones=entry.zones,
        availability_fraction=entry.availability_fraction,
        kv_format=min(entry.kv_quantisation, key=bytes_per_weight, default=""),
        curves=curves,
    )


def server_counts(offer: Offer) -> tuple[int, ...]:
    """How many servers one replica may stand on beside one: none without a fabric, or on parts of servers."""
    if offer.node.fabric == "none" or offer.replica_count_max < LEAST_JOINED:
        return ()
    most = offer.fixed_count or offer.node_count_max or SERVER_COUNTS[-1]
    return tuple(count for count in sorted({*SERVER_COUNTS, most}) if 1 < count <= most)


def serving_stack(
    offer: Offer,
    engine_name: str,
    constants: Constants,
    catalog: Catalog,
    supply: Supply,
    kind: str = "dense",
) -> tuple[Cluster, Engine]:
    """One node of an offer and the serving software on it, both as measured here where they were.

    `kind` is the model's, see `model_kind`.
    """
    cluster = cluster_of(offer, 1, constants, catalog, supply)
    return engine_on(cluster, engine_called(engine_name, catalog), constants, kind=kind)


def named_offers(offers: Sequence[Offer]) -> dict[str, Offer]:
    """Offers by the name that reasons use: the part's; where two share it, with size and name of the node."""
    parts = [offer.accelerator.name for offer in offers]
    sized = [f"{offer.node.accelerator_count} × {offer.accelerator.name}" for offer in offers]
    named = {}
    for part, size, offer in zip(parts, sized, offers, strict=True):
        longer = size if sized.count(size) == 1 else f"{size} ({offer.node.name})"
        named[part if parts.count(part) == 1 else longer] = offer
    return named


def models_of(entry: Service, context: Context) -> list[tuple[Model, str]]:
    """The model and those that may stand in for it, each with what is said of its quality."""
    named = [(entry.model, ""), *((each.model, each.quality_note) for each in entry.variants)]
    return [(model_of(reference, context.catalog), note) for reference, note in named]


def _busiest_season(spec: Spec) -> float:
    """The factor of the busiest month on the rate of classes that somebody waits for."""
    factors = {month: each.factor_ratio for each in spec.supply.seasons for month in each.months}
    return max(*factors.values(), *([1.0] if len(factors) < MONTHS_PER_YEAR else []), 0.0)


def class_load(name: str, spec: LatencyClass, season_ratio: float = 1.0) -> ClassLoad:
    """A class of the spec as rates and lengths; a trace is read here, and its own rates and lengths count.

    Its peak is that of its busiest month, `season_ratio` times the usual one.
    """
    traffic = spec.traffic
    trace = read_trace(traffic.trace) if traffic.trace else None
    inputs, outputs = (trace.input, trace.output) if trace else (traffic.input, traffic.output)
    lengths = Lengths(
        inputs.mean_tokens,
        outputs.mean_tokens,
        spread_of(inputs.p95_tokens / inputs.mean_tokens),
        spread_of(outputs.p95_tokens / outputs.mean_tokens),
    )
    per_request = float(np.max(lengths.input_tokens + lengths.output_tokens))
    if trace:
        mean, peak = trace.mean_rate_per_s * traffic.scale_ratio, trace.peak_ratio
    elif traffic.tokens_per_day is not None:
        mean, peak = traffic.tokens_per_day / per_request / DAY_S, 1.0
    else:
        mean, peak = traffic.rate_per_s or 0.0, traffic.peak_ratio
    slo = Slo(latencies_s := spec.slo.latencies_s(), spec.slo.finish_within_s)
    if slo.finish_within_s is not None:
        peak = DAY_S / min(slo.finish_within_s, DAY_S)
    if slo.is_waited_for:
        peak *= season_ratio
    rate = mean * peak if slo.is_waited_for else mean
    # Where first tokens or answers are promised much sooner than a gateway gives up, that promise binds.
    soonest_s = min((limit for name, limit in latencies_s.items() if name[-3:] in UPPER), default=inf)
    if slo.is_waited_for and soonest_s > SuccessGoal.TIMEOUT_S / FAR_RATIO:
        slo = replace(slo, success=SuccessGoal(spec.slo.success_fraction))
    outlasts = {"outlasts_zone": spec.outlasts_zone}
    carried = TrafficClass(name, lengths, rate, slo, traffic.shared_prefix_fraction, **outlasts)
    # What the user says of prefixes is not weighed against what the trace tells.
    told = trace.prefix_hits if trace and "shared_prefix_fraction" not in traffic.model_fields_set else ()
    scaled = tuple((tokens * traffic.scale_ratio, found) for tokens, found in told)
    own_season = season_ratio if slo.is_waited_for else 1.0
    notes = trace.notes if trace else ()
    return ClassLoad(name, mean, mean * peak, carried, scaled, season_ratio=own_season, trace_notes=notes)


def success_of(
    load: ClassLoad, pool: Sequence[ClassLoad], entry: Service, percentiles: Mapping[str, Estimate]
) -> serving.SuccessOutcome:
    """What share of a class's requests gets a first token before the gateway gives up, at the peak.

    A gateway has one time-out for a pool: that of work of a day where nobody waits for any of its classes.

    Formula  1 − 0.01 · 5^((p99 − timeout) / (p99 − p95)), p95 and p99 of TTFT, else of E2E
    Why      Steady traffic is turned away by time-outs alone; waits fall off as they do from p95 to p99.
    Limits   None where neither is known. Faults are not in it: they are what scenarios are judged by.
    """
    goal = SuccessGoal(entry.classes[load.name].slo.success_fraction)
    metric = next((each for each in ("ttft", "e2e") if f"{each}_p99" in percentiles), None)
    if metric is None:
        return serving.SuccessOutcome(goal.fraction)
    p95_s, p99_s = (percentiles[f"{metric}_{which}"].value for which in ("p95", "p99"))
    waited = any(not each.is_batch for each in pool)
    timeout_s = goal.TIMEOUT_S if waited else goal.BULK_TIMEOUT_S
    late = (p99_s - timeout_s) / max(p99_s - p95_s, 1e-9 * p99_s)
    failed = min(0.01 * 5.0 ** min(late, 10.0), 1.0)
    return serving.SuccessOutcome(goal.fraction, 1.0 - failed, failed <= 1.0 - goal.fraction)


def _offers(
    entry: Service, variants: Sequence[ModelVariant], context: Context
) -> tuple[tuple[Offer, ...], tuple[Loser, ...]]:
    """Machines given, yours first; else owned and for rent, of these the cheapest per byte/s of memory."""
    supply, catalog = context.spec.supply, context.catalog
    if entry.on:
        named = rented_offer(entry.on, catalog, supply, supply.shop.terms, entry.regions)
        own = owned_offer(entry.on, named, catalog, supply, entry.regions)
        return ((own, named) if own else (named,)), ()
    rented = serving_offers(catalog, supply, entry.regions or supply.shop.regions)
    held = (
        each.shape.weights_bytes(fmt).total_bytes
        for each in variants
        for fmt in entry.quantisation or (each.published_format,)
    )
    least = float(min(map(np.max, held)))
    fitting: list[Offer] = []
    left_out = [*rented.left_out]
    for offer in rented.offers:
        size, part = offer.node.accelerator_count, offer.accelerator
        if part.memory_bytes * size * 0.9 > least:
            fitting.append(offer)
        else:
            why = f"{format_bytes(least)} of weights exceed its memory"
            left_out.append(Loser(f"{size} × {part.name}", why))
    fitting.sort(key=lambda each: (each.usd_per(each.accelerator.memory_bytes_per_s), each.accelerator.name))
    kept, others = fitting[:KEPT_FOR_SERVING], fitting[KEPT_FOR_SERVING:]
    # Little to do wants a small machine, not much bandwidth for its money: what is cheaper than all of these.
    least_usd = min(map(_node_usd, kept), default=inf)
    smaller = sorted((each for each in others if _node_usd(each) < least_usd), key=_node_usd)
    kept += smaller[:KEPT_SMALL]
    return (*own_offers(catalog, supply, entry.regions), *kept), tuple(left_out)


def _node_usd(offer: Offer) -> float:
    """What an hour of one whole node costs; infinite without a price."""
    return offer.usd_per(1.0) * offer.node.accelerator_count


def _affordable(
    result: SearchResult, offers: dict[str, Offer], loads: Sequence[ClassLoad], entry: Service
) -> Fleet | None:
    """The cheapest fleet that is not larger than what is owned."""
    fleets = [result.best, *result.alternatives] if result.best else []
    for fleet in fleets:
        offer = offers[fleet.pools[0].offer]
        if offer.node_count_max is None or _at_once(fleet, loads, entry) <= offer.held:
            return fleet
    return None


def busy_hours(fleet: Fleet, loads: Sequence[ClassLoad], entry: Service) -> NDArray[np.float64]:
    """Accelerators of all pools in each hour of a day: work of a day runs when the others ask least.

    Formula  Σ replicas with spares at the hour's share of the peak, work of a day in the
             quietest hours in a row that it takes
    Why      As leases are counted (`portfolio.ways`); every day is a working day.
    """
    by_name = {load.name: load for load in loads}
    used, asked, work = np.zeros(DAY_HOURS), np.zeros(DAY_HOURS), []
    for pool in fleet.pools:
        own = [by_name[name] for name in pool.classes]
        if all(load.is_batch for load in own):
            work.append((own[0].traffic.slo.finish_within_s or DAY_S, pool.accelerators))
            continue
        rate = sum((_by_hour(load, entry) for load in own), np.zeros(DAY_HOURS))
        busy = np.ceil(pool.count.needed * rate / rate.max() - 1e-9) + pool.count.spare
        used, asked = used + one(pool.replica.accelerator_count) * busy, asked + rate
    for window_s, accelerators in work:
        used[list(quietest_hours(asked.tolist(), window_s))] += accelerators
    return used


def _at_once(fleet: Fleet, loads: Sequence[ClassLoad], entry: Service) -> int:
    """Accelerators of all pools in their busiest hour."""
    return round(float(busy_hours(fleet, loads, entry).max()))


def _by_hour(load: ClassLoad, entry: Service) -> NDArray[np.float64]:
    """Requests/s of a class in each hour of a working day."""
    peak_ratio = load.peak_per_s / max(load.mean_rate_per_s, 1e-12) / load.season_ratio
    return load.mean_rate_per_s * np.array(working_day(entry.classes[load.name].traffic.profile, peak_ratio))


def _own_hours(fleet: Fleet, offer: Offer, loads: Sequence[ClassLoad], entry: Service) -> Held | None:
    """What a service takes of your own machines where pools share them; what is leased is decided later."""
    count = _at_once(fleet, loads, entry)
    if not offer.owned or count == fleet.accelerators:
        return None
    windows = {load.name: load.traffic.slo.finish_within_s or DAY_S for load in loads if load.is_batch}
    fractions = {pool.classes[0]: windows.get(pool.classes[0], DAY_S) / DAY_S for pool in fleet.pools}
    return Held(-(-count // offer.node.accelerator_count), 1.0, fractions, 0.0)


def _warnings(fleet: Fleet, offer: Offer, own: Sequence[Offer]) -> list[str]:
    warnings = []
    if own and not offer.owned:
        warnings.append(NOT_CARRIED)
    if not offer.accelerator.released:
        warnings.append(f"{offer.accelerator.name} is announced, not released: figures are the vendor's")
    layouts = ((pool.replica.tp, pool.replica.pp, pool.replica.ep, pool.replica.dp) for pool in fleet.pools)
    for pool in fleet.pools:
        widened = pool.replica.widened_text
        warnings += [widened] if widened not in ("", *warnings) else []
    kinds = len({tuple(map(one, layout)) for layout in layouts})
    if kinds > 1:
        warnings.append(f"{kinds} kinds of replicas: each class has its own")
    if len({pool.variant for pool in fleet.pools}) > 1:
        used = [f"{' and '.join(pool.classes)} on {pool.variant}" for pool in fleet.pools]
        warnings.append(f"classes run different models: {', '.join(used)}")
    return warnings


def _too_many(entry: Service, fleet: Fleet, loads: Sequence[ClassLoad]) -> InfeasibleError:
    """The objectives hold, on more machines than there are."""
    part = MOST_ACCELERATORS / fleet.accelerators
    rates = [f"{part * load.traffic.rate_per_s:.3g} requests/s of {load.name} at peak" for load in loads]
    binds = ("binds", f"no site or market has more than {MOST_ACCELERATORS:,}")
    lines = (binds, ("would fit", " and ".join(rates)))
    return InfeasibleError(f"`{entry.name}` would need {fleet.accelerators:,} accelerators", lines=lines)


def _refusal(entry: Service, result: SearchResult, offers: Mapping[str, Offer]) -> InfeasibleError:
    """What every machine misses, nearest first, and what would help."""
    if result.best is not None:
        few = f"your own machines are too few: {result.best.accelerators} are needed"
        return InfeasibleError(f"your machines do not carry `{entry.name}`", lines=(("tried", few),))
    nearest = sorted(result.losers, key=lambda loser: loser.miss_ratio)[:5]
    tried = ", ".join(f"{count:,} {reason_text(reason)}" for reason, count in result.refused.items() if count)
    kinds = "1 machine" if len(result.losers) == 1 else f"{len(result.losers)} machines"
    slices = all(offer.accelerator.works_alone for offer in offers.values())
    fixes = ["a larger slice" if slices and fix == MORE_JOINED else fix for fix in result.would_fix]
    lines = (
        ("binds", result.binding),
        ("tried", f"{result.candidates:,} layouts on {kinds}: {tried}"),
        *(("", f"{loser.offer}: {loser.detail}") for loser in nearest),
        ("would fit", " · ".join(fixes)),
    )
    return InfeasibleError(f"no machine serves `{entry.name}` within its objectives", lines=lines)
