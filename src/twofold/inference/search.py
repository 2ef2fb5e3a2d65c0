"""The search: accelerator × layout × precision × batching to the cheapest fleet that meets every class.

One pass per accelerator, model and precision prices all its layouts along all loads. Losers are kept as
counts by reason and as each accelerator's best, so that a plan can say why not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from twofold.catalog.types import Model
from twofold.core.display import format_apart, format_memory, format_si
from twofold.core.errors import InputError
from twofold.inference.curve import load_axis
from twofold.inference.fleet import TARGET_UTILISATION, ReplicaCount, target_utilisation
from twofold.inference.latency import Served
from twofold.inference.regimes import max_throughput, open_loop
from twofold.inference.replica import Engine, Replica, capacity, replica_of
from twofold.inference.slo import (
    Loads,
    RateLimit,
    TrafficClass,
    limit_within,
    limits_within,
    loads_alone,
    loads_shared,
    merged_class,
)
from twofold.perf.shape import ModelShape
from twofold.perf.software import engine_software
from twofold.perf.types import Cluster, one

Array = NDArray[np.float64]
DAY_S = 86400.0
USEFUL_FRACTION = 0.02  # a replica that holds its promise only when nearly idle is no option
LAYOUT_FIELDS = ("tp", "pp", "ep", "dp", "chunk_tokens", "halved_fraction")
CHUNKS = (2048.0, 8192.0)
PIPELINES = (1, 2, 4)
MORE_JOINED = "more accelerators per replica"
WIDTHS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class ModelVariant:
    """A model that may serve, and what is known to be lost by taking it."""

    name: str
    shape: ModelShape
    quality_note: str = ""
    published_format: str = "bf16"  # of its weights
    brought_kv_format: str = ""  # of the cache that its checkpoint holds scales for

    @classmethod
    def of(cls, model: Model, quality_note: str = "") -> "ModelVariant":
        """A model as it was published."""
        return cls(model.name, ModelShape.of(model), quality_note, model.served_format, model.kv_format)


@dataclass(frozen=True, slots=True)
class Hardware:
    """Hardware that may be used. `engine` carries the constants of the software on this family."""

    name: str
    cluster: Cluster
    engine: Engine
    price_usd_per_accelerator_h: float | None
    formats: tuple[str, ...] = ("bf16",)  # of weights, that the user accepts; none: as published
    replica_accelerators_max: int = 8
    replica_accelerators_min: int = 1  # where its machines are given; ignored where no layout divides so
    server_counts: tuple[int, ...] = ()  # of a replica larger than that; none: nothing joins servers


@dataclass(slots=True)
class _Later:
    """What is computed when it is first asked for."""

    compute: Callable[[], Served]
    found: Served | None = None

    def value(self) -> Served:
        self.found = self.found or self.compute()
        return self.found


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """Replicas of one layout that serve some classes."""

    classes: tuple[str, ...]
    offer: str
    variant: str
    replica: Replica  # numbers, no arrays
    count: ReplicaCount
    limit_per_s: float  # of one replica, within every promise
    knee_per_s: float
    binding: str
    peak_per_s: float
    usd_per_h: float | None
    serve: "_Later"  # `served`, computed when it is first asked for: of most pools it never is
    at_once_count: float = 0.0  # requests at the peak where the promise just holds; 0: a day's work

    @property
    def served(self) -> Served:
        """One replica at its share of the peak of the search."""
        return self.serve.value()

    @property
    def filled_fraction(self) -> float:
        """What the peak may take of the rate that its needed replicas just hold."""
        return float(target_utilisation(self.at_once_count))

    @property
    def accelerators(self) -> int:
        """Accelerators of the pool."""
        return round(self.count.total * float(np.max(self.replica.accelerator_count)))


@dataclass(frozen=True, slots=True)
class Fleet:
    """Pools that together meet every class, on one kind of accelerator."""

    pools: tuple[PoolChoice, ...]
    usd_per_h: float | None
    accelerators: int
    separate_accelerators: int  # with a pool for each class
    merged_accelerators: int | None  # with one pool for all interactive classes; None where it cannot be


@dataclass(frozen=True, slots=True)
class Loser:
    """The best that one offer could do, and why it was not taken."""

    offer: str
    reason: str  # memory slo dearer
    detail: str
    usd_per_h: float | None
    miss_ratio: float = 1.0  # of the objective, without load


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`best` is None when nothing meets every class; `binding` then says what stood in the way."""

    best: Fleet | None
    alternatives: tuple[Fleet, ...]  # the other offers' best, cheapest first
    losers: tuple[Loser, ...]
    refused: Mapping[str, int]  # candidates by reason
    candidates: int
    binding: str
    would_fix: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sweep:
    """One variant and format on one offer: the layouts that fit, and all that were tried."""

    variant: ModelVariant
    replica: Replica
    tried: Replica


_Found = tuple[float, _Sweep, int, RateLimit]  # accelerators, of which layout of which sweep
# Load curves by offer, variant, formats, layouts and classes, but not by what is promised there: searches of
# the same offers and classes for other promises share them.
Curves = dict[tuple[object, ...], Loads]
Sized = Callable[..., ReplicaCount]
"""Replicas that carry a peak at so much each, with what a fleet must survive; the third: servers of each."""


def candidate_layouts(shape: ModelShape, accelerators_max: int) -> dict[str, Array]:
    """Every (tp, pp, ep, dp, chunk) of one replica on up to `accelerators_max` that divides the model.

    tp divides the heads, pp the layers; experts are sliced with tp, split over it, or split over
    data-parallel attention (ep = dp). dp without experts is just more replicas, so that it is left out.
    """
    experts = int(shape.experts)
    rows = []
    for tp, pp in splits(int(shape.heads), int(shape.layers), accelerators_max, WIDTHS, PIPELINES):
        spread = {1, tp} if experts else {1}
        rows += [(tp, pp, ep, 1, chunk, 0) for ep in sorted(spread) for chunk in CHUNKS]
    if experts:
        rows += [(1, 1, dp, dp, chunk, 0) for dp in WIDTHS if 1 < dp <= accelerators_max for chunk in CHUNKS]
    return dict(zip(LAYOUT_FIELDS, np.array(rows, float).T, strict=True))


def spanning_layouts(
    replica: Replica, server_size: int, server_counts: Sequence[int], staged: bool
) -> dict[str, Array]:
    """Layouts of one replica over so many servers, as `candidate_layouts`.

    Attention data parallelism with the experts split over all accelerators, its steps whole or as halves;
    where `staged`, also a pipeline of servers, each sliced by tensors.
    """
    shape = replica.shape
    experts, heads, layers = (int(one(each)) for each in (shape.experts, shape.heads, shape.layers))
    halves = (0, 1) if engine_software(replica.engine.name).halves_tokens else (0,)
    ranks = [server_size * count for count in server_counts if server_size * count <= experts]
    rows = [(1, 1, n, n, chunk, half) for n in ranks for chunk in CHUNKS for half in halves]
    if staged and heads % server_size == 0:
        spread = sorted({1, server_size} if experts else {1})
        stages = [count for count in server_counts if layers % count == 0]
        rows += [(server_size, pp, ep, 1, chunk, 0) for pp in stages for ep in spread for chunk in CHUNKS]
    return dict(zip(LAYOUT_FIELDS, np.array(rows, float).reshape(-1, len(LAYOUT_FIELDS)).T, strict=True))


def splits(
    heads: int, layers: int, accelerators_max: int, widths: Iterable[int], stages: Sequence[int]
) -> list[tuple[int, int]]:
    """Every (tp, pp) on up to `accelerators_max` that divides a model: tp its heads, pp its layers."""
    return [
        (tp, pp)
        for tp in widths
        if tp <= accelerators_max and heads % tp == 0
        for pp in stages
        if tp * pp <= accelerators_max and layers % pp == 0
    ]


def search(
    variants: Sequence[ModelVariant],
    classes: Sequence[TrafficClass],
    offers: Sequence[Hardware],
    *,
    zones: int = 1,
    availability_fraction: float = 0.999,
    kv_format: str = "",
    curves: Curves | None = None,
) -> SearchResult:
    """The cheapest fleet that meets every class, on the best single kind of accelerator.

    An empty `kv_format` is what the engine takes beside each format of weights. `curves` are filled and read.
    Each class may have its own pool and layout, or all share one; whichever is cheaper wins. Offers without a
    price rank behind those with one, by accelerators.
    """
    if not classes or not offers or not variants:
        raise InputError("a search needs a model, a traffic class and an accelerator")
    sized = partial(ReplicaCount.of, availability_fraction=availability_fraction)
    counted: Counter[str] = Counter()
    found: list[Fleet] = []
    losers: list[Loser] = []
    kept = {} if curves is None else curves
    priced = [_price_offer(variants, offer, kv_format, counted) for offer in offers]
    _look_ahead(list(zip(offers, priced, strict=True)), classes, kept)
    for offer, sweeps in zip(offers, priced, strict=True):
        outcome = _best_fleet(sweeps, offer, classes, zones, sized, counted, kept)
        if isinstance(outcome, Fleet):
            found.append(outcome)
        else:
            losers.append(outcome)
    found.sort(key=lambda each: each.accelerators if each.usd_per_h is None else each.usd_per_h)
    found.sort(key=lambda each: each.usd_per_h is None)  # stable: priced before unpriced
    total = counted.pop("priced", 0) + counted["memory"]
    if not found:
        return SearchResult(None, (), tuple(losers), counted, total, *_infeasible(losers))
    best, *others = found
    for fleet in others:
        detail = f"{fleet.accelerators} accelerators, no price"
        if fleet.usd_per_h is not None and best.usd_per_h is not None:
            more = fleet.usd_per_h / best.usd_per_h - 1.0
            detail = f"{100 * more:+,.0f} %, {format_si(fleet.usd_per_h, 'USD/h')}"
        losers.append(Loser(fleet.pools[0].offer, "dearer", detail, fleet.usd_per_h))
    return SearchResult(best, tuple(others), tuple(losers), counted, total, "", ())


def _price_offer(
    variants: Sequence[ModelVariant], offer: Hardware, kv_format: str, counted: Counter[str]
) -> list[_Sweep]:
    """All layouts of one offer whose weights fit, per variant and format; the others are counted."""
    sweeps = []
    for variant in variants:
        layouts = candidate_layouts(variant.shape, offer.replica_accelerators_max)
        # Those that use as many accelerators as a replica must; all of them where none does.
        enough = layouts["tp"] * layouts["pp"] * layouts["dp"] >= offer.replica_accelerators_min
        if enough.any():
            layouts = {name: column[enough] for name, column in layouts.items()}
        for weights in offer.formats or (variant.published_format,):
            usual = engine_software(offer.engine.name).cache_format(weights, variant.brought_kv_format)
            driven = variant.shape, offer.cluster, offer.engine
            replica = laid_out(replica_of(*driven, weights, kv_format or usual), layouts)
            fits = np.asarray(capacity(replica).kv_bytes) > 0
            counted["memory"] += int(np.sum(~fits))
            kept = {name: column[fits] for name, column in layouts.items()}
            sweeps.append(_Sweep(variant, laid_out(replica, kept), replica))
    return sweeps


def _look_ahead(
    priced: Sequence[tuple[Hardware, Sequence[_Sweep]]], classes: Sequence[TrafficClass], curves: Curves
) -> None:
    """Find what the layouts of all offers carry at once, class by class, for the search of each to read.

    An offer of which no layout keeps a class is not asked for the next.
    """
    waited = tuple(each for each in classes if each.slo.is_waited_for)
    for group in (*((each,) for each in waited), *((waited,) if len(waited) > 1 else ())):
        slos = [each.slo for each in group]
        found = [
            (one, [_loads(sweep, one[0], group, curves) for sweep in one[1] if np.size(sweep.replica.tp)])
            for one in priced
        ]
        limits_within((each for _, own in found for each in own), slos)
        priced = [one for one, own in found if any(_works(limit_within(each, slos)).any() for each in own)]


def _works(limit: RateLimit) -> NDArray[np.bool_]:
    return limit.requests_per_s > USEFUL_FRACTION * limit.saturation_requests_per_s


def _loads(sweep: _Sweep, offer: Hardware, classes: tuple[TrafficClass, ...], curves: Curves) -> Loads:
    """The layouts of a sweep along all loads of these classes; as priced before where they were."""
    replica, names = sweep.replica, tuple(each.name for each in classes)
    layouts = (getattr(replica, name).tobytes() for name in LAYOUT_FIELDS)
    key = offer.name, sweep.variant.name, replica.weights_format, replica.kv_format, names, *layouts
    if key not in curves:
        curves[key] = _along(replica, classes)
    return curves[key]


def _best_fleet(
    sweeps: Sequence[_Sweep],
    offer: Hardware,
    classes: Sequence[TrafficClass],
    zones: int,
    sized: Sized,
    counted: Counter[str],
    curves: Curves,
) -> Fleet | Loser:
    pools: list[PoolChoice] = []
    outlasting = partial(sized, zones=zones)  # a zone's loss
    for traffic in classes:
        own = outlasting if traffic.outlasts_zone else sized
        choice = _best_pool(sweeps, offer, (traffic,), own, counted, curves)
        if isinstance(choice, Loser):
            return choice
        pools.append(choice)
    interactive = tuple(each for each in classes if each.slo.is_waited_for)
    kept = [pool for pool in pools if pool.classes[0] not in {each.name for each in interactive}]
    together = outlasting if any(each.outlasts_zone for each in interactive) else sized
    shared = None
    if len(interactive) > 1:
        shared = _best_pool(sweeps, offer, interactive, together, counted, curves)
    separate, merged = sum(pool.accelerators for pool in pools), None
    if isinstance(shared, PoolChoice):
        merged = shared.accelerators + sum(pool.accelerators for pool in kept)
        pools = [shared, *kept] if merged < separate else pools
    prices = [pool.usd_per_h for pool in pools]
    usd = None if any(price is None for price in prices) else float(sum(price or 0.0 for price in prices))
    return Fleet(tuple(pools), usd, sum(pool.accelerators for pool in pools), separate, merged)


def _best_pool(
    sweeps: Sequence[_Sweep],
    offer: Hardware,
    classes: tuple[TrafficClass, ...],
    sized: Sized,
    counted: Counter[str],
    curves: Curves,
) -> PoolChoice | Loser:
    """The cheapest layout for these classes together; or why none does."""
    found: list[_Found] = []
    missed: list[tuple[float, str]] = []
    # What replicas must carry: the rate, or a day's work within its window.
    windows = [DAY_S if each.slo.is_waited_for else each.slo.finish_within_s or DAY_S for each in classes]
    peak = sum(each.rate_per_s * DAY_S / min(s, DAY_S) for each, s in zip(classes, windows, strict=True))
    work = peak * max(each.slo.work_ratio for each in classes)
    told = offer, classes, work, sized, counted, missed, curves
    for sweep in sweeps:
        found += _cheapest(sweep, *told)
    # Over several servers no fewer than a replica and its spares are needed, however much each carries.
    most = min((each[0] for each in found), default=np.inf)
    for sweep in sweeps:
        wide = _spanning(sweep, offer, partial(sized, work, np.inf), most, counted)
        found += _cheapest(wide, *told) if wide else []
    if not found:
        return _no_pool(sweeps, offer, missed)
    counted["dearer"] -= 1
    _, sweep, index, limit = min(found, key=lambda each: each[0])
    replica, limit_per_s = pick(sweep.replica, index), float(limit.requests_per_s[index])
    at_once_count = work / limit_per_s * float(limit.met_sequences[index])
    servers = int(servers_of(replica, offer.replica_accelerators_max)[0])
    count = sized(work, limit_per_s, servers, at_once_count=at_once_count)
    traffic = classes[0] if len(classes) == 1 else merged_class(classes)
    given = traffic.on(replica), traffic.lengths
    serve = partial(max_throughput, *given)
    if traffic.slo.is_waited_for:
        serve = partial(open_loop, *given, peak / max(count.needed, 1), fleet_per_s=peak)
    price = offer.price_usd_per_accelerator_h
    return PoolChoice(
        classes=tuple(each.name for each in classes),
        offer=offer.name,
        variant=sweep.variant.name,
        replica=replica,
        count=count,
        limit_per_s=limit_per_s,
        knee_per_s=float(limit.knee_requests_per_s[index]),
        binding=str(limit.binding[index]),
        peak_per_s=peak,
        usd_per_h=None if price is None else count.total * float(np.max(replica.accelerator_count)) * price,
        serve=_Later(serve),
        at_once_count=at_once_count,
    )


def _cheapest(
    sweep: _Sweep,
    offer: Hardware,
    classes: tuple[TrafficClass, ...],
    work_per_s: float,
    sized: Sized,
    counted: Counter[str],
    missed: list[tuple[float, str]],
    curves: Curves,
) -> list[_Found]:
    """The layout of a sweep that takes the fewest accelerators, in a list; none where none works."""
    if not np.size(sweep.replica.tp):
        return []
    if _by_the_day(classes):
        limit = _of_a_day(sweep.replica, classes[0])
    else:
        limit = limit_within(_loads(sweep, offer, classes, curves), [each.slo for each in classes])
    works = _works(limit)
    counted["priced"] += works.size
    for binding in limit.binding[~works]:
        counted[f"slo {binding}"] += 1
    counted["dearer"] += int(np.sum(works))
    missed += _misses(limit, works, classes)
    if not np.any(works):
        return []
    # Accelerators of the whole pool, spares included; infinite where a layout does not work. Layouts that
    # need as many replicas of as many servers have as many spares.
    rate = np.where(works, limit.requests_per_s, 1.0)
    filled = target_utilisation(work_per_s / rate * limit.met_sequences)
    needed = np.ceil(work_per_s / (rate * filled) - 1e-9)
    servers = np.broadcast_to(servers_of(sweep.replica, offer.replica_accelerators_max), needed.shape)
    distinct, place = np.unique(np.stack([needed, servers]), axis=1, return_inverse=True)
    each_per_s = work_per_s / TARGET_UTILISATION / np.maximum(distinct[0], 1.0)
    counts = zip(each_per_s, distinct[1], strict=True)
    totals = np.array([sized(work_per_s, float(each), int(count)).total for each, count in counts], float)
    accelerators = np.where(works, totals[place] * sweep.replica.accelerator_count, np.inf)
    index = int(np.argmin(accelerators))
    return [(float(accelerators[index]), sweep, index, limit)]


def servers_of(replica: Replica, server_size: int) -> Array:
    """Servers that a replica stands on."""
    return np.ceil(np.atleast_1d(np.asarray(replica.accelerator_count, float)) / server_size)


def _spanning(
    sweep: _Sweep, offer: Hardware, sized: Sized, most: float, counted: Counter[str]
) -> _Sweep | None:
    """The same variant and format over several servers, where a fleet of it may take fewer than `most`."""
    size, none_fits = offer.replica_accelerators_max, not np.size(sweep.replica.tp)
    layouts = spanning_layouts(sweep.tried, size, offer.server_counts, none_fits)
    if not layouts["tp"].size:
        return None
    tried = laid_out(sweep.tried, layouts)
    servers = servers_of(tried, size)
    least = {count: sized(int(count)).total for count in np.unique(servers)}
    few = tried.accelerator_count * np.array([least[count] for count in servers]) <= most
    fits = np.asarray(capacity(tried).kv_bytes) > 0
    counted["memory"] += int(np.sum(few & ~fits))
    kept = {name: column[few & fits] for name, column in layouts.items()}
    return _Sweep(sweep.variant, laid_out(tried, kept), tried)


def limits(replica: Replica, classes: tuple[TrafficClass, ...]) -> RateLimit:
    """What each layout carries of classes that share it, within their promises; of a day's work at best."""
    if _by_the_day(classes):
        return _of_a_day(replica, classes[0])
    return limit_within(_along(replica, classes), [each.slo for each in classes])


def _by_the_day(classes: Sequence[TrafficClass]) -> bool:
    """Whether nobody waits for what these replicas do."""
    return len(classes) == 1 and not classes[0].slo.is_waited_for


def _of_a_day(replica: Replica, traffic: TrafficClass) -> RateLimit:
    most = max_throughput(traffic.on(replica), traffic.lengths)
    rate = np.asarray(most.requests_per_s, float)
    none = np.zeros_like(rate)  # nobody who waits is met
    return RateLimit(rate, none, np.full(rate.shape, "throughput"), none, rate, rate)


def _along(replica: Replica, classes: Sequence[TrafficClass]) -> Loads:
    along = load_axis(replica)
    return loads_shared(along, classes) if len(classes) > 1 else loads_alone(along, classes[0])


def pick(replica: Replica, index: int) -> Replica:
    """One candidate of a sweep over layouts, as plain numbers."""
    return laid_out(replica, {name: getattr(replica, name)[index] for name in LAYOUT_FIELDS})


def laid_out(replica: Replica, layouts: Mapping[str, Array]) -> Replica:
    tp, pp, ep, dp, chunk, halved = (layouts[name] for name in LAYOUT_FIELDS)
    return replace(replica, tp=tp, pp=pp, ep=ep, dp=dp, chunk_tokens=chunk, halved_fraction=halved)


def _misses(
    limit: RateLimit, works: NDArray[np.bool_], classes: tuple[TrafficClass, ...]
) -> list[tuple[float, str]]:
    """How far each hopeless layout misses without load: (ratio to the target, sentence)."""
    targets = {name: value for each in classes for name, value in each.slo.targets_s.items()}
    shares = [f"{100 * each.slo.success.fraction:.8g} %" for each in classes if each.slo.success]
    found = []
    for binding, idle in zip(limit.binding[~works], limit.idle_s[~works], strict=True):
        target = targets.get(str(binding))
        if target:
            metric, _, which = str(binding).partition("_")
            verb = "misses" if idle > target else "leaves no room under"
            reached, limit_text = format_apart(float(idle), target, "s")
            sentence = f"{metric.upper()} {which} {reached} {verb} {limit_text}"
            if binding == "success":
                given_up = f"after {limit_text} the gateway gives up"
                sentence = f"{max(shares)} get a first token within {reached}, and {given_up}"
            found.append((float(idle) / target, sentence))
    return found


def _no_pool(sweeps: Sequence[_Sweep], offer: Hardware, missed: list[tuple[float, str]]) -> Loser:
    if missed:
        ratio, sentence = min(missed)
        return Loser(offer.name, "slo", sentence, None, ratio)
    lightest = max(sweeps, key=lambda sweep: float(np.max(capacity(sweep.tried).kv_bytes)))
    held = capacity(lightest.tried)
    short, per_device = -float(np.max(held.kv_bytes)), float(np.max(held.usable_bytes))
    weights = float(np.max(lightest.variant.shape.weights_bytes(lightest.tried.weights_format).total_bytes))
    chips = int(np.ceil(weights / per_device))
    several = f"; its weights alone fill {chips:,}" if chips > 1 else ""
    detail = f"{lightest.variant.name} misses memory by {format_memory(short)} per accelerator{several}"
    return Loser(offer.name, "memory", detail, None)


def _infeasible(losers: Sequence[Loser]) -> tuple[str, tuple[str, ...]]:
    """What binds when nothing meets, and what would help: by what stopped most offers."""
    late = [loser for loser in losers if loser.reason == "slo"]
    if late:
        closest = min(late, key=lambda loser: loser.miss_ratio)
        # What a lone request gets there is known: a goal above it is one that more machines can keep.
        reached, misses, _ = closest.detail.partition(" misses ")
        looser = f", above {reached}" if misses else ""
        fixes = ("a faster accelerator", "a smaller or quantised model", f"a looser objective{looser}")
        return f"{closest.offer}: {closest.detail}", fixes
    closest = losers[0]
    fixes = (MORE_JOINED, "a narrower weight format", "parts with more memory")
    return f"memory: {closest.offer}: {closest.detail}", fixes
