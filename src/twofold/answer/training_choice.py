"""Which machines train a run, how many and in which layout: the cheapest that meets deadline and budget."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from twofold.answer import training_trials
from twofold.answer.calibrated import run_scope
from twofold.answer.context import Context, model_of, training_job
from twofold.answer.offers import Offer, cluster_of, fixed_offer, own_offers, run_terms, training_offers
from twofold.answer.question import check_units
from twofold.answer.refusals import need_links
from twofold.answer.stacks import stack_on
from twofold.contracts.results.parts import Loser
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.display import format_bytes, format_enough, format_memory, format_seconds, format_si
from twofold.core.errors import InfeasibleError, ValueRefusedError
from twofold.core.quantity import DAY_S
from twofold.perf.device import device
from twofold.perf.types import Device
from twofold.training.job import TrainingJob
from twofold.training.run import run_work
from twofold.training.search import Priced, SearchResult, price_layouts, search, straggler_loss_fraction
from twofold.training.stack import Stack

TARGET_S = 30 * DAY_S  # for a run without a deadline
GOOD_MFU_FRACTION = 0.65  # no published run is above: fewer accelerators than this asks for cannot be on time
SIZES = (1, 2, 4)  # times the fewest nodes that could be on time
NODES_MAX = 4096
SMALLER: tuple[tuple[Mapping[str, str], str], ...] = (  # ways to train that keep less for each weight
    ({"optimizer": "adam8bit"}, "`optimizer: adam8bit`, states in 8 bits"),
    ({"kind": "lora"}, "`kind: lora`, adapters instead of all weights"),
)


@dataclass(frozen=True, slots=True)
class Trial(training_trials.MachineTrial):
    """A trial whose step is computed: the fastest layout there."""

    stack: Stack
    found: SearchResult

    @property
    def described(self) -> str:
        """Its machines and its layout."""
        return f"{self.text} · {self.found.best.describe() if self.found.best else ''}"


@dataclass(frozen=True, slots=True)
class TrainingChoice(training_trials.MachineChoice[Trial]):
    """The machines of a run whose model is known."""

    job: TrainingJob
    warnings: tuple[str, ...]

    @property
    def scope(self) -> dict[str, str]:
        """Where its calibration stands."""
        return run_scope(self.chosen.offer.accelerator.name, self.job)

    def priced_layouts(self) -> Priced:
        """Every layout of the job on the chosen machines, with its time and its memory."""
        return price_layouts(self.job, self.chosen.cluster, self.chosen.stack)


def choose_training(entry: TrainingRun, context: Context) -> TrainingChoice:
    """Search machines, sizes and layouts for one run. Raises InfeasibleError with the closest misses."""
    job = training_job(entry, model_of(entry.model, context.catalog))
    offers, left_out = _offers(entry, job.precision, context)
    trials = [
        trial_of_size(entry, job, offer, count, context, _limit_usd(entry, context))
        for offer in offers
        for count in _node_counts(entry, job, offer, context)
    ]
    if not trials:  # what is for rent is too small a piece of a fabric: tried as it is, to say by how much
        trials = [
            trial_of_size(entry, job, offer, most, context, _limit_usd(entry, context))
            for offer in offers
            if offer.is_had(most := int(min(NODES_MAX, offer.job_count_max // offer.node.accelerator_count)))
        ]
    if not trials:
        raise InfeasibleError(
            f"no machine on offer can train `{entry.name}`",
            lines=tuple((loser.what, loser.why) for loser in left_out[: training_trials.SHOWN_MISSES]),
            hint="widen `supply.shop`, or write `on:`",
        )
    found = training_trials.preferred(trials, entry.time_value_usd_per_d or 0.0)
    if found is None:
        raise _refusal(entry, job, trials, context)
    return TrainingChoice(entry, *found, left_out, job, _warnings(entry, offers, found[0]))


def _offers(
    entry: TrainingRun, precision: str, context: Context
) -> tuple[tuple[Offer, ...], tuple[Loser, ...]]:
    """Machines given, else owned and for rent, whose parts multiply in the run's format.

    What was named and cannot is an error.
    """
    supply, catalog = context.spec.supply, context.catalog
    if entry.on:
        given = fixed_offer(entry.on, catalog, supply, run_terms(supply.shop))
        need_links(given.accelerator, given.node.accelerator_count * entry.on.count)
        offers: tuple[Offer, ...] = (given,)
        left_out: tuple[Loser, ...] = ()
    else:
        rented = training_offers(catalog, supply)
        own = [each for each in own_offers(catalog, supply) if not each.accelerator.works_alone]
        mixed: tuple[Offer, ...] = ()
        if len({offer.accelerator.name for offer in own}) > 1:
            # All own machines as one pool move at the pace of the slowest part, in nodes of its size.
            slowest = min(own, key=lambda each: each.flops_per_s)
            size = slowest.node.accelerator_count
            count = sum(offer.held // size for offer in own)
            mixed = (replace(slowest, node_count_max=count, note="mixed pool"),)
        offers, left_out = (*own, *mixed, *rented.offers), rented.left_out
    able: list[Offer] = []
    for offer in offers:
        try:
            check_units(device(offer.accelerator, context.constants), precision)
            able.append(offer)
        except ValueRefusedError as error:
            if len(offers) == 1:
                raise
            left_out += (Loser(offer.accelerator.name, error.message),)
    return tuple(able), left_out


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
    usable = (entry.time_limit_s or TARGET_S) * best * GOOD_MFU_FRACTION * size
    fewest = flops * (1 + entry.headroom.total_fraction) / usable
    start = 2 ** max(0, int(np.ceil(np.log2(max(fewest, 1e-9)))))
    counts = {min(start * factor, limit) for factor in SIZES}
    counts |= {offer.node_count_max} if offer.node_count_max else set()
    return sorted(count for count in counts if offer.is_had(count))


def _limit_usd(entry: TrainingRun, context: Context) -> float | None:
    """What a trial may cost: the budget where a day has a value, since days are bought beyond it then.

    Elsewhere leases may cost less than a trial is priced with, and the whole plan is held to the budget.
    """
    return context.spec.supply.budget_usd if entry.time_value_usd_per_d else None


def trial_of_size(
    entry: TrainingRun,
    job: TrainingJob,
    offer: Offer,
    node_count: int,
    context: Context,
    budget_usd: float | None = None,
) -> Trial:
    """The fastest layout on so many nodes of an offer, the run on it, and what it misses."""
    bare = cluster_of(offer, node_count, context.constants, context.catalog, context.spec.supply)
    cluster, stack = stack_on(bare, job.framework, job.precision, context.constants)
    found = search(job, cluster, stack)
    if found.best is None:
        miss = found.nearest_miss
        why = f"misses memory by {format_bytes(miss.missing_bytes)}" if miss else "no layout divides the job"
        return Trial(offer, node_count, cluster, None, None, why, 0.0, stack, found)
    saving = entry.checkpoint.write_within_s, entry.checkpoint.stall_s
    work = run_work(job, entry.token_count, *saving)
    told = training_trials.run_on(entry, work, found.best.step_s, offer, cluster, context.catalog, budget_usd)
    return Trial(offer, node_count, cluster, *told, stack, found)


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
        # What one job over all own machines would lose to its slowest part.
        counts = [offer.held for offer in own]
        loss = straggler_loss_fraction(1.0 / np.array([offer.flops_per_s for offer in own]), counts)
        named = zip(counts, own, strict=True)
        parts = " and ".join(f"{count} {offer.accelerator.name}" for count, offer in named)
        lost = f"one job over all would lose {100 * loss:.0f} % to the slowest part"
        alone = f"is not used as one: planned on {chosen.text} alone"
        used = "is used as one" if chosen.offer.note else alone
        warnings.append(f"mixed pool of {parts}: {lost}; it {used}")
    return tuple(warnings)


def _refusal(
    entry: TrainingRun, job: TrainingJob, trials: Sequence[Trial], context: Context
) -> InfeasibleError:
    """Why no machine will do: what is needed, what was tried, what would fit."""
    fitting = [trial for trial in trials if trial.run]
    if not fitting:
        return _too_small(entry, job, trials)
    fastest = min(fitting, key=lambda trial: trial.total_s)
    cheapest = min(fitting, key=lambda trial: np.inf if trial.cost_usd is None else trial.cost_usd)
    supply, many = context.spec.supply, len(context.spec.training) + len(context.spec.services) > 1
    if entry.time_limit_s is not None and fastest.total_s > entry.time_limit_s:
        what = f"the deadline of {format_seconds(entry.time_limit_s)}"
        deadline, offer = f"a deadline of {format_seconds(fastest.total_s)}", fastest.offer
        first = int(np.ceil(fastest.node_count * (fastest.total_s / entry.time_limit_s) * 1.1))
        power = int(np.ceil(np.log2(first)))
        # Sizes are tried before one is said: steps do not shrink with nodes for ever.
        sizes = (count for count in (first, 2**power, 2 ** (power + 1)) if count <= NODES_MAX)
        in_time = (each for each in sizes if not trial_of_size(entry, job, offer, each, context).misses)
        count = next(in_time, None)
        more = f"{count:,} nodes of {offer.accelerator.name}" if count else ""
        fits = f"{more} · {deadline}" if count else f"{deadline} · fewer tokens"
    else:
        what, cost_usd = "the budget", cheapest.cost_usd or 0.0
        tokens = entry.token_count * (supply.budget_usd or 0.0) / (cheapest.cost_usd or 1.0)
        fewer = f"{format_si(tokens, 'tok')} instead of {format_si(entry.token_count, 'tok')}"
        budget = f"a budget of {format_enough(cost_usd, 'USD')}"
        fits = f"{budget}{' for this run alone' if many else ''} · {fewer}"
    lines = (*training_trials.closest_misses(fitting), ("would fit", fits))
    return InfeasibleError(f"no machine trains `{entry.name}` within {what}", lines=lines)


def _too_small(entry: TrainingRun, job: TrainingJob, trials: Sequence[Trial]) -> InfeasibleError:
    """Nothing fits in memory: the bytes it takes, the bytes there are, and the nearest change that helps."""
    largest = max(trials, key=lambda each: each.cluster.accelerator_count * each.cluster.device.memory_bytes)
    found, count = largest.found, largest.cluster.accelerator_count
    message, miss = f"no layout of {job.model.name} trains on {largest.text}", found.nearest_miss
    if miss is None:
        broken = max(found.reasons, key=lambda reason: found.reasons[reason], default="divisibility")
        return InfeasibleError(message, lines=(("tried", f"no layout divides the job: {broken}"),))
    work = job.workload
    trained = float(np.max(work.trained_parameters))
    states_bytes = trained * float(np.max(work.optimizer_bytes))
    least = job.model.parameters * float(np.max(work.weight_bytes)) + states_bytes
    most = least + trained * float(np.max(largest.stack.gradient_memory_bytes))
    needs = f"{format_bytes(least)}–{format_bytes(most)} for weights, gradients and optimiser"
    have = format_bytes(count * largest.cluster.device.memory_bytes)
    by = f"misses by {format_memory(miss.missing_bytes)} per GPU"
    tried = f"{found.evaluated_count:,} layouts: all exceed memory"
    lines = (
        ("needs", f"{needs}; {count:,} GPUs have {have}"),
        ("tried", f"{tried}; the closest ({miss.candidate.describe()}) {by}"),
        ("would fit", " · ".join((miss.change, *_smaller(entry, job, largest)))),
    )
    return InfeasibleError(message, lines=lines)


def _smaller(entry: TrainingRun, job: TrainingJob, trial: Trial) -> Iterator[str]:
    """What fits the machines of a trial when less is kept for each weight; each was searched."""
    for changed, words in SMALLER:
        other = entry.model_copy(update=changed)
        if other != entry and search(training_job(other, job.model), trial.cluster, trial.stack).best:
            yield words
