"""The figures of one training run on its chosen machines, with ranges, bounds and reasons."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.answer import training_trials
from twofold.answer.calibrated import with_letters
from twofold.answer.context import Context, carbon, facility_energy, price_warnings
from twofold.answer.delivery import delivery, loss_warnings
from twofold.answer.question import Given
from twofold.answer.ranges import Drawn
from twofold.answer.rooflines import training_roofline
from twofold.answer.training_choice import TrainingChoice, Trial, peak_flops_per_s
from twofold.answer.training_run import RunEstimate, estimate_run, runs_under
from twofold.answer.training_step import OF_PEAK, least_step_s, step_samples, trained_step
from twofold.answer.uncertainty import Draws, estimate_of, flip_fraction, flip_warning
from twofold.contracts.results import training
from twofold.contracts.results.parts import Count, Part, ScalingPoint
from twofold.contracts.results.training import TrainingPlan
from twofold.core import record
from twofold.core.estimate import Source, exact
from twofold.training.layouts import Layouts, Limits
from twofold.training.run import run_work
from twofold.training.search import Priced, search
from twofold.training.step import step_time

RUNNERS_UP = 8


def training_plan(choice: TrainingChoice, context: Context) -> TrainingPlan:
    """Re-evaluate the chosen layout over the draws and say everything about it."""
    chosen, job, entry = choice.chosen, choice.job, choice.entry
    best, machines = chosen.found.best, chosen.machines(context)
    assert best
    trained = trained_step(job, machines, chosen.stack, best, context.draws, context.constants)
    saving, shares = (entry.checkpoint.write_within_s, entry.checkpoint.stall_s), entry.headroom.shares
    run = estimate_run(trained, entry.token_count, shares, *saving, (entry.time_limit_s, choice.calendar))
    priced = choice.priced_layouts()
    flips = _flips(choice, priced, context)
    cluster = chosen.cluster
    peak = peak_flops_per_s(cluster.device, job.precision) * cluster.accelerator_count

    def alike(trial: Trial) -> str:
        """Machines of which the best alone is shown: accelerator and fabric; of the chosen node each size."""
        kind = trial.offer.accelerator.name + trial.offer.node.fabric
        return f"{kind}{trial.node_count}" if trial.offer.node is chosen.offer.node else kind

    # Model FLOPs over what the datasheet promises for the format that the products run in.
    reached = trained.step.inverse(trained.model_flops() / peak).estimate("ratio")
    delivered = delivery(entry, job.model, run.ends_s, context.constants)
    plan = TrainingPlan(
        **trained.figures(),
        **machine_figures(choice, run, context),
        peak_ratio=record.note("peak_ratio", reached, *OF_PEAK, "peak"),
        bounds=trained.bounds(priced) if context.in_full else (),
        tried=sum(trial.found.evaluated_count for trial in (chosen, *choice.others)),
        rejected=tuple(Count(reason, count) for reason, count in chosen.found.reasons.items()),
        losers=training_trials.losers(choice, alike),
        scaling=_scaling(choice, trained.step, context) if context.in_full else (),
        flip_fraction=flips,
        warnings=(
            *choice.warnings,
            *loss_warnings(delivered, entry),
            *price_warnings(chosen.offer, context, machine=machines.machine),
            *flip_warning(flips, "a runner-up wins"),
        ),
        tokens=entry.token_count,
        batch_tokens=entry.batch_tokens,
        tenancy=_tenancy(choice, trained.step, context) if context.in_full else (),
        roofline=training_roofline(trained) if context.in_full else None,
        delivery=delivered,
        repository=entry.model.repository,
    )
    return with_letters(plan, chosen.offer.accelerator.name, context.constants, choice.scope)


def machine_figures(
    choice: training_trials.MachineChoice[training_trials.Tried], run: RunEstimate, context: Context
) -> dict[str, Any]:
    """What a plan says of the run on the chosen machines, however its step is known."""
    entry, chosen, shares = choice.entry, choice.chosen, choice.entry.headroom.shares
    total = sum(shares.values()) or 1.0
    energy_j = facility_energy(run.energy_j, chosen.offer.price, context)
    for name, share in shares.items():
        record.note(f"run.headroom.{name}.value", share, "of the run", f"headroom.{name}")
    own: Mapping[str, Any] = {  # the run with what its spec keeps for other causes, energy at the meter
        "headroom": tuple(
            Part(name, exact(share, "fraction", Source.ASSUMED), share / total)
            for name, share in shares.items()
            if share
        ),
        "energy_j": energy_j,
        "carbon_gco2": carbon(energy_j, chosen.offer.price, context),
    }
    same = {each.name: getattr(run, each.name) for each in fields(training.RunTotals) if each.name not in own}
    return {
        "name": entry.name,
        "run": training.Run(**same, **own),
        "release_after_s": None if chosen.offer.owned else run.total_s.value,
        "deadline_s": entry.time_limit_s,
        "time_value_usd_per_d": entry.time_value_usd_per_d,
        "calendar": choice.calendar.text if choice.calendar else "",
        "cost_usd": run.cost_usd,
        "front": training_trials.front(choice),
        "samples": entry.sample_count,
        "batch_samples": entry.global_batch_sequences,
    }


def _flips(choice: TrainingChoice, priced: Priced, context: Context) -> float:
    """How often another layout of the same machines is faster, or another machine cheaper."""
    chosen = choice.chosen
    assert chosen.found.best
    fits = priced.high_bytes <= chosen.cluster.device.memory_bytes
    order = np.argsort(np.where(fits, priced.step_s, np.inf), kind="stable")[1:RUNNERS_UP]
    order = order[fits[order]]

    def under(trial: Trial, layouts: Layouts) -> NDArray[np.float64]:
        return step_samples(choice.job, layouts, trial.cluster, trial.stack, context.draws)

    def costs(trial: Trial) -> NDArray[np.float64]:
        assert trial.found.best and trial.cost_usd
        best = trial.found.best
        return trial.cost_usd * np.ravel(under(trial, best.layouts)) / best.step_s

    own = np.ravel(under(chosen, chosen.found.best.layouts))
    others = under(chosen, priced.layouts.take(order)) if len(order) else np.empty((0, 0))
    nearest = sorted(training_trials.rivals(choice), key=lambda trial: trial.cost_usd or 0.0)[:RUNNERS_UP]
    cheaper = (
        training_trials.cheaper_fraction(costs(chosen), [costs(trial) for trial in nearest])
        if nearest
        else 0.0
    )
    return max(flip_fraction(own, others * training_trials.WORTH_SWITCHING), cheaper)


def _scaling(choice: TrainingChoice, step: Drawn, context: Context) -> tuple[ScalingPoint, ...]:
    """Steps with the batch grown in proportion, from one accelerator to the chosen size (R-119).

    Every size runs under the same draws, so that an efficiency spreads only by what differs between sizes:
    throughput per accelerator over that of the smallest size that fits.
    """
    chosen, job, batch = choice.chosen, choice.job, choice.job.global_batch_sequences
    count, node = chosen.cluster.accelerator_count, chosen.offer.node.accelerator_count
    widening = step.samples / step.middle
    points: list[ScalingPoint] = []
    base: tuple[float, NDArray[np.float64]] | None = None  # rate of the smallest, and its steps
    for size in sorted(size for size in {1, node, 8, 64, 512, count} if size <= count <= batch * size):
        sized = replace(job, global_batch_sequences=max(1, batch * size // count))
        cluster = replace(chosen.cluster, accelerator_count=size)
        best = search(sized, cluster, chosen.stack, Limits(vpp_max=8)).best
        if best is None:
            continue
        smaller = replace(job, global_batch_sequences=max(1, round(batch * (size / count))))
        under = step_samples(smaller, best.layouts, cluster, chosen.stack, context.draws)
        ratios = np.ravel(under) / best.step_s
        rate = sized.tokens_per_step / best.step_s / size
        base = base or (rate, ratios)
        efficiency = rate / base[0]
        step_s = Drawn(best.step_s, best.step_s * widening).within(least_step_s(sized, cluster)).estimate("s")
        over = estimate_of(efficiency, efficiency * (base[1] / ratios), "fraction")
        points.append(ScalingPoint(size, step_s, over))
        own = f"scaling.{size}.step_s"
        record.note(
            own, step_s, "the fastest layout of this size, the batch grown with it", f"size.{size}", "step_s"
        )
        said = f"tokens/s per accelerator over that of {points[0].accelerator_count}"
        first = f"scaling.{points[0].accelerator_count}.step_s"
        record.note(f"scaling.{size}.efficiency_fraction", over, said, *dict.fromkeys((own, first)))
    return tuple(points)


def _tenancy(choice: TrainingChoice, step: Drawn, context: Context) -> tuple[training.Tenancy, ...]:
    """The same run on bare metal and on virtual machines, with the overhead that the spec states (R-034)."""
    chosen, job, best = choice.chosen, choice.job, choice.chosen.found.best
    assert best and chosen.run
    saving = choice.entry.checkpoint.write_within_s, choice.entry.checkpoint.stall_s
    work = run_work(job, choice.entry.token_count, *saving)
    overhead = context.spec.supply.virtual_overhead_fraction
    bare = bare_metal(chosen.machines(context), chosen.offer.overhead_fraction).cluster
    rows = []
    for name, share in (("bare metal", 0.0), ("virtual", overhead)):
        cluster = bare.virtualised(share)
        timed = step_time(job.workload, job.precision, best.layouts, cluster, chosen.stack)
        step_s = float(np.max(timed.total_s))
        ratio = step_s / step.middle
        _, cost_usd, *_ = training_trials.run_on(
            choice.entry, work, step_s, chosen.offer, cluster, context.catalog
        )
        cost = None if cost_usd is None else step.times(cost_usd / step.middle).estimate("USD")
        rows.append(training.Tenancy(name, share, step.times(ratio).estimate("s"), cost))
        own = f"tenancy.{name}.step_s"
        record.note(
            own, rows[-1].step_s, "the same layout, slower by the overhead", "step_s", f"overhead.{name}"
        )
        record.note(
            f"tenancy.{name}.cost_usd", cost, "cost × its step over the plan's", "cost_usd", "step_s", own
        )
    return tuple(rows)


def bare_metal(machines: Given, overhead_fraction: float) -> Given:
    """The machines as bare metal, where the plan took a hypervisor's share off them."""
    return replace(machines, cluster=machines.cluster.virtualised(1 / (1 + overhead_fraction) - 1))


def hours_ratios(choice: TrainingChoice, draws: Draws) -> NDArray[np.float64]:
    """Accelerator-hours of a run under every draw over its middle: step and failures."""
    chosen, entry = choice.chosen, choice.entry
    assert chosen.found.best
    layouts = chosen.found.best.layouts
    steps = np.ravel(step_samples(choice.job, layouts, chosen.cluster, chosen.stack, draws))
    saving = entry.checkpoint.write_within_s, entry.checkpoint.stall_s
    work = run_work(choice.job, entry.token_count, *saving)
    step, shares = Drawn(chosen.found.best.step_s, steps), entry.headroom.shares
    middle, runs = runs_under(work, step, chosen.cluster, draws, shares)
    return np.array([run.total_accelerator_h / middle.total_accelerator_h for run in runs])
