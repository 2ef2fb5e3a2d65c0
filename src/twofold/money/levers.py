"""Levers of a service, each priced by planning the same machines with it and without it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from statistics import NormalDist

from twofold.answer import ClassLoad, Context, ServingChoice, loads, main_pool, priced, search_fleet
from twofold.catalog import HYPERSCALERS, Model
from twofold.contracts.results import ServicePlan, ledger
from twofold.contracts.spec import Service, TrainingRun
from twofold.core import InfeasibleError
from twofold.inference import ModelVariant
from twofold.money.run_levers import Pulled, lever
from twofold.perf import bytes_per_weight, one
from twofold.portfolio import MAY_VANISH

OTHER_PREFIX = 0.3  # of the input, where the spec finds none in a cache
SMALLER = 0.6  # of the parameters: what a distilled model is at most


def service_levers(
    choice: ServingChoice, service: ServicePlan, context: Context
) -> Iterator[ledger.LeverRow]:
    """Every lever of one service that has a price."""
    if service.cost_usd_per_year is None or not choice.fleet.usd_per_h:
        return
    yield from _quantise(choice, service, context)
    yield _batch(choice, service)
    yield from _cache(choice, service, context)
    for each in service.choices:
        if each.name == "drafts" and each.saved_usd_per_year is not None:  # as the plan weighed them
            saving, how = each.saved_usd_per_year.value, "; ".join(each.needs)
            yield lever("speculate", service.name, Pulled.OPEN, saving, _usd(service), how)
    yield from _distil(choice, service, context)
    yield from _follow(choice, service)


def _usd(service: ServicePlan) -> float:
    assert service.cost_usd_per_year
    return service.cost_usd_per_year.value


def _replanned(
    name: str,
    pulled: Pulled,
    how: str,
    choice: ServingChoice,
    service: ServicePlan,
    context: Context,
    *,
    formats: tuple[str, ...] = (),
    variants: Sequence[ModelVariant] = (),
    loads: Sequence[ClassLoad] = (),
) -> Iterator[ledger.LeverRow]:
    """The cheapest fleet on the same machines with other formats, models or loads; nothing where none holds.

    Its cost against the plan's: in use, it is what the plan saves; open, what it would.
    """
    entry, own = choice.entry, choice.fleet
    if formats:
        entry = entry.model_copy(update={"quantisation": formats})
    names = {name: offer for name, offer in choice.offers.items() if offer is choice.offer}
    try:
        found = search_fleet(entry, variants or (choice.variant,), loads or choice.loads, names, context)
    except InfeasibleError:
        return
    other, planned = found.best, _usd(service)
    if other and other.usd_per_h and own.usd_per_h:
        there = planned * other.usd_per_h / own.usd_per_h
        without, with_it = (there, planned) if pulled is Pulled.IN_USE else (planned, there)
        text = f"{how}: {other.accelerators} accelerators against {own.accelerators}"
        yield lever(name, service.name, pulled, without - with_it, without, text)


def _quantise(choice: ServingChoice, service: ServicePlan, context: Context) -> Iterator[ledger.LeverRow]:
    """Fewer bits: what they save against 16, and what the next fewer would."""
    of, used = (choice, service, context), main_pool(choice.fleet, choice.loads).replica.weights_format
    fewer: tuple[str, ...] = ("fp8", "int8")
    if bytes_per_weight(used) < 2:
        how = f"{used} weights, bf16 without"
        yield from _replanned("quantise", Pulled.IN_USE, how, *of, formats=("bf16",))
        fewer = ("int4", "fp4")
    asked = tuple(each for each in fewer if each not in (*choice.entry.quantisation, used))
    if asked:
        yield from _replanned("quantise", Pulled.OPEN, f"{' or '.join(asked)} weights", *of, formats=asked)


def _batch(choice: ServingChoice, service: ServicePlan) -> ledger.LeverRow:
    """Continuous batching against batches that start and end together, at the same size.

    Formula  static rate = B / (prefill of B + (longest of B − 1) · step); the longest of B log-normal answers
             is their quantile at B / (B + 1)
    Why      A batch that ends together waits for its longest answer, and nobody joins meanwhile.
    Limits   What such a batch does to the first token is not counted: it misses most promises.
    """
    total = needed = 0.0
    for pool in choice.fleet.pools:
        own = (each for each in choice.loads if each.name in pool.classes)
        load = max(own, key=lambda each: each.traffic.rate_per_s)
        lengths = load.traffic.lengths
        size = max(1.0, round(one(pool.served.batch_sequences)))
        sigma = sqrt(log(1.0 + one(lengths.output_spread) ** 2))
        longest = exp(sigma * NormalDist().inv_cdf(size / (size + 1.0)) - sigma**2 / 2)
        padded = replace(lengths, output_tokens=one(lengths.output_tokens) * max(1.0, longest))
        static = loads.served(load.traffic.on(pool.replica), padded, loads.StaticBatch(size))
        carried = pool.limit_per_s * load.traffic.rate_per_s / max(pool.peak_per_s, 1e-30)
        total += pool.accelerators
        needed += pool.accelerators * max(1.0, carried / one(static.requests_per_s))
    without = _usd(service) * needed / total
    how = f"continuous: {needed / total:.3g} times the requests of batches that end together"
    return lever("batch", service.name, Pulled.IN_USE, without - _usd(service), without, how)


def _cache(choice: ServingChoice, service: ServicePlan, context: Context) -> Iterator[ledger.LeverRow]:
    """Prefixes that the cache holds: what they save, or what a third of the input would."""
    shared = max(load.traffic.shared_prefix_fraction for load in choice.loads)
    loads = tuple(
        replace(load, traffic=replace(load.traffic, shared_prefix_fraction=0.0 if shared else OTHER_PREFIX))
        for load in choice.loads
    )
    pulled = Pulled.IN_USE if shared else Pulled.OPEN
    how = f"prefix cache holds {100 * (shared or OTHER_PREFIX):.0f} % of the input"
    yield from _replanned("cache", pulled, how, choice, service, context, loads=loads)


def _distil(choice: ServingChoice, service: ServicePlan, context: Context) -> Iterator[ledger.LeverRow]:
    """The next smaller model of the family in its place; what it loses, no table says."""
    own = choice.model
    series = "-".join(own.name.split("-")[:2]) if own.name.count("-") > 1 else own.name.split("-")[0]
    smaller = [
        each
        for each in context.catalog.rows(Model)
        if each.name.startswith(series)
        and each.arch == own.arch
        and each.parameters_active < SMALLER * own.parameters_active
    ]
    if not smaller:
        return
    model = max(smaller, key=lambda each: (each.parameters_active, each.name))
    variant = ModelVariant.of(model)
    how = f"{model.name} instead, another quality"
    yield from _replanned("distil", Pulled.OPEN, how, choice, service, context, variants=(variant,))


def _follow(choice: ServingChoice, service: ServicePlan) -> Iterator[ledger.LeverRow]:
    """Replicas that follow the day instead of standing for its peak, where machines go back by the hour.

    Formula  saving = cost of the needed replicas · (1 − mean / peak) of the pools that somebody waits for
    Limits   spares stay; starts and stops are as fast as the traffic changes.
    """
    term = choice.offer.price.term if choice.offer.price else ""
    if term not in ("on_demand", "spot"):
        return
    saved = 0.0
    for pool in choice.fleet.pools:
        loads = [load for load in choice.loads if load.name in pool.classes and not load.is_batch]
        if loads:
            part = pool.accelerators / choice.fleet.accelerators * pool.count.needed / pool.count.total
            mean = sum(load.mean_rate_per_s for load in loads) / sum(load.peak_per_s for load in loads)
            saved += part * (1.0 - mean)
    how = "replicas by the hour follow the traffic; spares stay"
    yield lever("utilise", service.name, Pulled.OPEN, _usd(service) * saved, _usd(service), how)


def sourcing(
    entry: TrainingRun | Service, accelerator: str, paid_usd_per_h: float, yearly_usd: float, context: Context
) -> Iterator[ledger.LeverRow]:
    """Where the same accelerators are bought: against a hyperscaler's list, and the cheapest other term.

    Only what the spec's shop allows counts, in its providers and near its regions.
    Limits   a run is over before a reservation is; machines that may vanish are for runs and for batch.
    """
    name, shop, part = entry.name, context.spec.supply.shop, context.catalog.accelerator(accelerator)
    regions = (entry.regions if isinstance(entry, Service) else ()) or shop.regions
    listed = [
        each
        for each in priced(context.catalog, part, shop, ("on_demand",), regions)
        if each.provider.lower() in HYPERSCALERS
    ]
    if listed:
        usual = min(listed, key=lambda each: (each.usd_per_accelerator_h, each.provider))
        ratio = usual.usd_per_accelerator_h / paid_usd_per_h
        how = f"{paid_usd_per_h:.2f} $/h against {usual.provider} {usual.usd_per_accelerator_h:.2f} on demand"
        pulled = Pulled.IN_USE if ratio >= 1 else Pulled.OPEN
        saved = yearly_usd * abs(ratio - 1)
        yield lever("source", name, pulled, saved, max(yearly_usd, yearly_usd * ratio), how)
    suited: tuple[str, ...] = ("on_demand", *MAY_VANISH)
    if isinstance(entry, Service):
        slos = [each.slo for each in entry.classes.values()]
        waited = any(each.finish_within_s is None or each.latencies_s() for each in slos)
        suited = ("on_demand", "reserved_1y", "reserved_3y", *(() if waited else MAY_VANISH))
    terms = tuple(term for term in suited if term not in shop.terms)
    others = priced(context.catalog, part, shop, terms, regions)
    if others:
        best = min(others, key=lambda each: (each.usd_per_accelerator_h, each.provider, each.region))
        saved = yearly_usd * (1 - best.usd_per_accelerator_h / paid_usd_per_h)
        how = f"{best.provider} {best.term} at {best.usd_per_accelerator_h:.2f} $/h, with its terms"
        yield lever("source", name, Pulled.OPEN, saved, yearly_usd, how)
