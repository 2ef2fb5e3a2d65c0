"""Levers of a service and of a training run, each priced with the models that planned it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np

from twofold.answer import loads
from twofold.answer.context import Context
from twofold.answer.offers import priced
from twofold.answer.serving_choice import ClassLoad, ServingChoice, main_pool, search_fleet
from twofold.answer.training_choice import TrainingChoice, trial_of_size
from twofold.catalog.figures import HYPERSCALERS
from twofold.catalog.types import Model
from twofold.contracts.results import ledger
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.service import Service
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.errors import InfeasibleError, ValueRefusedError
from twofold.inference.search import ModelVariant
from twofold.perf.formats import bytes_per_weight
from twofold.perf.types import one
from twofold.portfolio.listed import MAY_VANISH
from twofold.training.run import Reliability, failing_time_ratio

OTHER_PREFIX = 0.3  # of the input, where the spec finds none in a cache
SMALLER = 0.6  # of the parameters: what a distilled model is at most


class Pulled(Enum):
    """Whether the plan rests on a lever already."""

    IN_USE = "in use"
    OPEN = "open"


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
    """Machines by the hour that follow the day, against the same all year."""
    if choice.held and choice.held.usd_per_year:
        usd, part = _usd(service), choice.held.mean_fraction
        how = f"{100 * part:.0f} % of the machines on average, by the hour"
        yield lever("utilise", service.name, Pulled.IN_USE, usd / part - usd, usd / part, how)


def sourcing(
    entry: TrainingRun | Service,
    accelerator: str,
    paid_usd_per_h: float,
    yearly_usd: float,
    context: Context,
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
        waited = any(each.slo.is_waited_for for each in entry.classes.values())
        suited = ("on_demand", "reserved_1y", "reserved_3y", *(() if waited else MAY_VANISH))
    terms = tuple(term for term in suited if term not in shop.terms)
    others = priced(context.catalog, part, shop, terms, regions)
    if others:
        best = min(others, key=lambda each: (each.usd_per_accelerator_h, each.provider, each.region))
        saved = yearly_usd * (1 - best.usd_per_accelerator_h / paid_usd_per_h)
        how = f"{best.provider} {best.term} at {best.usd_per_accelerator_h:.2f} $/h, with its terms"
        yield lever("source", name, Pulled.OPEN, saved, yearly_usd, how)


USUAL_INTERVAL_S = 4 * 3600.0  # between checkpoints, where nobody chose
ONE_POINT = 0.01  # of MFU


def run_levers(
    choice: TrainingChoice, run: TrainingPlan, times: float, context: Context
) -> Iterator[ledger.LeverRow]:
    """Every lever of one run that has a price; `times` a year."""
    if run.cost_usd is None:
        return
    yearly = run.cost_usd.value * times
    chosen, priced = choice.chosen, choice.priced_layouts()
    assert chosen.found.best
    fits = priced.high_bytes <= np.max(chosen.cluster.device.memory_bytes)
    if fits.any():  # the chosen layout against the middle one of those that fit the same machines
        usual = float(np.median(priced.step_s[fits])) / chosen.found.best.step_s
        how = (
            f"{run.layout.text if run.layout else ''}: {usual:.2f} times as fast as the middle one that fits"
        )
        without = yearly * max(1.0, usual)
        yield lever("layout", run.name, Pulled.IN_USE, without - yearly, without, how)
    count, checkpoints = run.run.interruptions.value, run.run.checkpoints
    if count > 0:  # the best interval between checkpoints against one every four hours
        stops, best_s = Reliability(), checkpoints.interval_s.value
        restart_s = stops.detection_s + stops.restart_s + choice.entry.checkpoint.write_within_s
        pause_s = checkpoints.write_s if checkpoints.pause_s is None else checkpoints.pause_s
        restart_s += checkpoints.write_s - pause_s  # what was done beside a write is lost with it
        best, every_4_h = (
            failing_time_ratio(run.run.wall_s.value / count, restart_s, interval_s, pause_s)
            for interval_s in (best_s, USUAL_INTERVAL_S)
        )
        saved = yearly * max(0.0, every_4_h / best - 1.0)
        lost = [f"{100 * (1.0 - 1.0 / each):.2g} %" for each in (best, every_4_h)]
        how = f"every {best_s / 60:.0f} min: {lost[0]} of the run; every 4 h {lost[1]}"
        yield lever("checkpoint", run.name, Pulled.IN_USE, saved, yearly + saved, how)
    # What waiting for data takes of a step, which a better input pipeline gives back.
    share = sum(part.share_fraction for part in run.step_parts if part.name == "data")
    how = f"steps wait for data {100 * share:.2g} % of the time"
    yield lever("input", run.name, Pulled.OPEN, yearly * share, yearly, how)
    if run.mfu_fraction is not None:  # one point of MFU more: a run costs as its inverse
        reached = run.mfu_fraction.value
        saved = yearly * ONE_POINT / (reached + ONE_POINT)
        how = f"one point of MFU above {100 * reached:.0f} %"
        yield lever("utilise", run.name, Pulled.OPEN, saved, yearly, how)
    yield from _precision(choice, run, yearly, context)


def _precision(
    choice: TrainingChoice, run: TrainingPlan, yearly_usd: float, context: Context
) -> Iterator[ledger.LeverRow]:
    """The same run in fp8 where the part multiplies in it; where it runs in fp8, what bf16 would cost."""
    chosen, job = choice.chosen, choice.job
    used = job.precision == "fp8"
    if not used and "fp8" not in chosen.cluster.device.peak_flops_per_s:
        return
    other = replace(job, precision="bf16" if used else "fp8")
    try:
        tried = trial_of_size(choice.entry, other, chosen.offer, chosen.node_count, context)
    except ValueRefusedError:
        return
    if tried.run is None or chosen.run is None:
        return
    ratio = tried.run.total_accelerator_h / chosen.run.total_accelerator_h
    there = yearly_usd * ratio
    without, with_it = (there, yearly_usd) if used else (yearly_usd, there)
    pulled = Pulled.IN_USE if used else Pulled.OPEN
    how = f"fp8 matrix products: {with_it / without:.2f} of the accelerator-hours of bf16"
    yield lever("quantise", run.name, pulled, without - with_it, without, how)


def lever(
    name: str, of: str, pulled: Pulled, saving_usd_per_year: float, base_usd_per_year: float, how: str
) -> ledger.LeverRow:
    """One optimisation of a run or service, with what it saves of what the same costs without it."""
    share = saving_usd_per_year / base_usd_per_year if base_usd_per_year else 0.0
    return ledger.LeverRow(name, of, pulled.value, saving_usd_per_year, share, how)


def ranked(levers: Iterable[ledger.LeverRow]) -> tuple[ledger.LeverRow, ...]:
    """The largest saving first; of equals by name."""
    return tuple(sorted(levers, key=lambda each: (-each.saves_usd_per_year, each.of, each.name)))
