"""Which machines train a run, how many and in which layout: the cheapest that meets deadline and budget."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from twofold.answer.calibrated import calibrated_run, run_scope
from twofold.answer.context import Context, model_of, training_job
from twofold.answer.offers import Offer, cluster_of, fixed_offer, own_offers, run_terms, training_offers
from twofold.answer.question import check_units
from twofold.answer.training_trials import MachineChoice, MachineTrial, closest_misses, preferred, run_misses
from twofold.contracts.results import Loser
from twofold.contracts.spec import TrainingRun
from twofold.core import (
    DAY_S,
    InfeasibleError,
    ValueRefusedError,
    format_bytes,
    format_enough,
    format_memory,
    format_seconds,
    format_si,
)
from twofold.perf import Cluster, Device, device
from twofold.training import (
    RunPlan,
    SearchResult,
    Stack,
    TrainingJob,
    load_stack,
    run_plan,
    run_work,
    search,
    straggler_loss_fraction,
)

TARGET_S = 30 * DAY_S  # for a run without a deadline
GOOD_MFU_FRACTION = 0.65  # no published run is above: fewer accelerators than this asks for cannot be on time
SIZES = (1, 2, 4)  # times the fewest nodes that could be on time
NODES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Trial(MachineTrial):
    """A trial whose step is computed: the fastest layout there."""

    stack: Stack
    found: SearchResult

    @property
    def described(self) -> str:
        """Its machines and its layout."""
        return f"{self.text} · {self.found.best.describe() if self.found.best else ''}"


@dataclass(frozen=True, slots=True)
class TrainingChoice(MachineChoice[Trial]):
    """The machines of a run whose model is known."""

    job: TrainingJob
    warnings: tuple[str, ...]

    @property
    def scope(self) -> dict[str, str]:
        """Where its calibration stands."""
        return run_scope(self.chosen.offer.accelerator.name, self.job)


def choose_training(entry: TrainingRun, context: Context) -> TrainingChoice:
    """Search machines, sizes and layouts for one run. Raises InfeasibleError with the closest misses."""
    job = training_job(entry, model_of(entry.model, context.catalog))
    offers, left_out = _able(*_offers(entry, context), job.precision, context)
    trials = [
        trial_of_size(entry, job, offer, count, context, context.spec.supply.budget_usd)
        for offer in offers
        for count in _node_counts(entry, job, offer, context)
    ]
    if not trials:
        raise InfeasibleError(
            f"no machine on offer can train `{entry.name}`",
            lines=tuple((loser.what, loser.why) for loser in left_out[:5]),
            hint="widen `supply.shop`, or write `on:`",
        )
    found = preferred(trials)
    if found is None:
        raise _refusal(entry, job, trials, context)
    return TrainingChoice(entry, *found, left_out, job, _warnings(entry, offers, found[0]))


def _offers(entry: TrainingRun, context: Context) -> tuple[tuple[Offer, ...], tuple[Loser, ...]]:
    """Machines given, else owned and for rent; what is owned is preferred where it suffices."""
    spec, catalog = context.spec, context.catalog
    if entry.on:
        return (fixed_offer(entry.on, catalog, spec.supply, run_terms(spec.supply.shop)),), ()
    rented = training_offers(catalog, spec.supply)
    own = own_offers(catalog, spec.supply)
    return (*own, *_mixed(own), *rented.offers), rented.left_out


def _able(
    offers: tuple[Offer, ...], left_out: tuple[Loser, ...], precision: str, context: Context
) -> tuple[tuple[Offer, ...], tuple[Loser, ...]]:
    """Offers whose parts multiply in the run's format; what was named and cannot is an error."""
    able: list[Offer] = []
    unable: list[Loser] = []
    for offer in offers:
        try:
            check_units(device(offer.accelerator, context.constants), precision)
            able.append(offer)
        except ValueRefusedError as error:
            if len(offers) == 1:
                raise
            unable.append(Loser(offer.accelerator.name, error.message))
    return tuple(able), (*left_out, *unable)


def _mixed(own: Sequence[Offer]) -> tuple[Offer, ...]:
    """All own machines as one pool: it moves at the pace of the slowest part, in nodes of its size."""
    if len({offer.accelerator.name for offer in own}) < 2:
        return ()
    slowest = min(own, key=lambda each: each.flops_per_s)
    size = slowest.node.accelerator_count
    count = sum((offer.node_count_max or 0) * offer.node.accelerator_count // size for offer in own)
    return (replace(slowest, node_count_max=count, note="mixed pool"),)


def peak_flops_per_s(device: Device, precision: str) -> float:
    """The vendor's rate in the format that products run in, or in the widest units that stand in for it."""
    peaks = device.peak_flops_per_s
    stand_in = peaks.get("bf16") or peaks.get("fp16") or max(peaks.values(), default=1.0)
    return float(np.max(peaks.get(precision) or stand_in))


def _node_counts(entry: TrainingRun, job: TrainingJob, offer: Offer, context: Context) -> list[int]:
    """Nodes given, and half as many to compare; else powers of two from the fewest that could be on time."""
    if offer.fixed_count:
        half = [offer.fixed_count // 2] if offer.fixed_count % 2 == 0 else []
        return [offer.fixed_count, *half]
    size = offer.node.accelerator_count
    limit = min(offer.node_count_max or NODES_MAX, NODES_MAX, max(1, job.global_batch_sequences * 64 // size))
    best = peak_flops_per_s(device(offer.accelerator, context.constants), job.precision)
    flops = float(np.max(job.workload.model_flops_per_token)) * entry.token_count
    overhead = 1 + entry.headroom.total_fraction
    target_s = entry.time_limit_s or TARGET_S
    fewest = flops * overhead / (target_s * best * GOOD_MFU_FRACTION * size)
    start = 2 ** max(0, int(np.ceil(np.log2(max(fewest, 1e-9)))))
    counts = {min(start * factor, limit) for factor in SIZES}
    return sorted(counts | ({offer.node_count_max} if offer.node_count_max else set()))


def trial_of_size(
    entry: TrainingRun,
    job: TrainingJob,
    offer: Offer,
    node_count: int,
    context: Context,
    budget_usd: float | None = None,
) -> Trial:
    """The run on so many nodes of an offer, hardware and software as calibrated."""
    stack = load_stack(context.constants, job.framework, job.precision, offer.accelerator.family)
    cluster = cluster_of(offer, node_count, context.constants, context.catalog, context.spec.supply)
    return trial(entry, job, offer, *calibrated_run(cluster, stack, job, context.constants), budget_usd)


def trial(
    entry: TrainingRun,
    job: TrainingJob,
    offer: Offer,
    cluster: Cluster,
    stack: Stack,
    budget_usd: float | None,
) -> Trial:
    """The fastest layout on a cluster, the run on it, and what it misses."""
    found = search(job, cluster, stack)
    nodes = cluster.accelerator_count // offer.node.accelerator_count
    if found.best is None:
        miss = found.nearest_miss
        why = f"misses memory by {format_bytes(miss.missing_bytes)}" if miss else "no layout divides the job"
        return Trial(offer, nodes, cluster, None, None, why, stack, found)
    run = planned_run(entry, job, cluster, found.best.step_s)
    price = offer.usd_per_accelerator_h
    cost_usd = None if price is None else run.total_accelerator_h * price
    misses = run_misses(entry, run, cost_usd, budget_usd)
    return Trial(offer, nodes, cluster, run, cost_usd, misses, stack, found)


def planned_run(entry: TrainingRun, job: TrainingJob, cluster: Cluster, step_s: float) -> RunPlan:
    """The run around a step, with the spec's headroom and checkpoints."""
    work = run_work(job, entry.token_count)
    write_within_s = entry.checkpoint.write_within_s
    return run_plan(work, step_s, cluster, entry.headroom.shares, checkpoint_write_s=write_within_s)


def _warnings(entry: TrainingRun, offers: Sequence[Offer], chosen: Trial) -> tuple[str, ...]:
    warnings = []
    if entry.time_limit_s is None and not entry.on:
        warnings.append(f"no deadline: sized for {format_seconds(TARGET_S)}")
    if entry.optimizer not in ("adam", "sgd"):
        warnings.append(f"optimizer {entry.optimizer}: its state is counted as one fp32 moment")
    if not chosen.offer.accelerator.released:
        warnings.append(
            f"{chosen.offer.accelerator.name} is announced, not released: figures are the vendor's"
        )
    own = [offer for offer in offers if offer.owned and not offer.note]
    if len({offer.accelerator.name for offer in own}) > 1:
        warnings.append(_straggler_warning(own, chosen))
    return tuple(warnings)


def _straggler_warning(own: Sequence[Offer], chosen: Trial) -> str:
    """What one job over all own machines would lose to its slowest part (R-028)."""
    rates = [offer.flops_per_s for offer in own]
    counts = [(offer.node_count_max or 0) * offer.node.accelerator_count for offer in own]
    loss = straggler_loss_fraction(1.0 / np.array(rates), counts)
    parts = " and ".join(
        f"{count} {offer.accelerator.name}" for count, offer in zip(counts, own, strict=True)
    )
    lost = f"{100 * loss:.0f} %"
    used = "is used as one" if chosen.offer.note else f"is not used as one: planned on {chosen.text} alone"
    return f"mixed pool of {parts}: one job over all would lose {lost} to the slowest part; it {used}"


def _refusal(
    entry: TrainingRun, job: TrainingJob, trials: Sequence[Trial], context: Context
) -> InfeasibleError:
    """Why no machine will do: what is needed, what was tried, what would fit."""
    fitting = [trial for trial in trials if trial.run]
    if not fitting:
        return _too_small(job, trials)
    fastest = min(fitting, key=lambda trial: trial.total_s)
    cheapest = min(fitting, key=lambda trial: np.inf if trial.cost_usd is None else trial.cost_usd)
    if entry.time_limit_s is not None and fastest.total_s > entry.time_limit_s:
        what = f"the deadline of {format_seconds(entry.time_limit_s)}"
        fits = _in_time(entry, job, fastest, context)
    else:
        what, fits = "the budget", _in_budget(entry, cheapest, context)
    lines = (*closest_misses(fitting), ("would fit", fits))
    return InfeasibleError(f"no machine trains `{entry.name}` within {what}", lines=lines)


def _in_time(entry: TrainingRun, job: TrainingJob, closest: Trial, context: Context) -> str:
    """A size that is on time, tried before it is said: steps do not shrink with nodes for ever."""
    deadline = f"a deadline of {format_seconds(closest.total_s)}"
    factor, offer = closest.total_s / (entry.time_limit_s or 1.0), closest.offer
    first = int(np.ceil(closest.node_count * factor * 1.1))
    for count in (first, 2 ** int(np.ceil(np.log2(first))), 2 ** int(np.ceil(np.log2(first)) + 1)):
        if count <= NODES_MAX and not trial_of_size(entry, job, offer, count, context).misses:
            return f"{count:,} nodes of {offer.accelerator.name} · {deadline}"
    return f"{deadline} · fewer tokens"


def _in_budget(entry: TrainingRun, closest: Trial, context: Context) -> str:
    budget = format_enough(closest.cost_usd or 0.0, "USD")
    tokens = entry.token_count * (context.spec.supply.budget_usd or 0.0) / (closest.cost_usd or 1.0)
    alone = " for this run alone" if len(context.spec.training) + len(context.spec.services) > 1 else ""
    fewer = f"{format_si(tokens, 'tok')} instead of {format_si(entry.token_count, 'tok')}"
    return f"a budget of {budget}{alone} · {fewer}"


def _too_small(job: TrainingJob, trials: Sequence[Trial]) -> InfeasibleError:
    """Nothing fits in memory: the bytes it takes, the bytes there are, and the nearest change that helps."""
    largest = max(
        trials, key=lambda trial: trial.cluster.accelerator_count * trial.cluster.device.memory_bytes
    )
    miss, cluster = largest.found.nearest_miss, largest.cluster
    have = format_bytes(cluster.accelerator_count * cluster.device.memory_bytes)
    tried = f"{largest.found.evaluated_count:,} layouts"
    if miss is None:
        broken = max(
            largest.found.reasons, key=lambda reason: largest.found.reasons[reason], default="divisibility"
        )
        why = (("tried", f"no layout divides the job: {broken}"),)
        return InfeasibleError(f"no layout of {job.model.name} trains on {largest.text}", lines=why)
    work = job.workload
    trained = float(np.max(work.trained_parameters))
    least = job.model.parameters * float(np.max(work.weight_bytes)) + trained * float(
        np.max(work.optimizer_bytes)
    )
    most = least + trained * float(np.max(largest.stack.gradient_memory_bytes))
    closest = (
        f"the closest ({miss.candidate.describe()}) misses by {format_memory(miss.missing_bytes)} per GPU"
    )
    lines = (
        (
            "needs",
            f"{format_bytes(least)}–{format_bytes(most)} for weights, gradients and optimiser; "
            f"{cluster.accelerator_count:,} GPUs have {have}",
        ),
        ("tried", f"{tried}: all exceed memory; {closest}"),
        ("would fit", miss.change),
    )
    return InfeasibleError(f"no layout of {job.model.name} trains on {largest.text}", lines=lines)
