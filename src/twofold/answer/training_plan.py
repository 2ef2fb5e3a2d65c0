"""The figures of one training run on its chosen machines, with ranges, bounds and reasons."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twofold.answer.context import Context, fabric_warnings, known, price_used, price_warnings
from twofold.answer.offers import Offer
from twofold.answer.question import Given
from twofold.answer.quick_run import QuickRun, quick_run
from twofold.answer.quick_train import (
    answer,
    layout_of,
    memory_by_format,
    memory_estimate,
    memory_parts,
    step_bounds,
    step_parts,
)
from twofold.answer.ranges import Drawn, drawn_run
from twofold.answer.site_energy import carbon, facility_energy
from twofold.answer.training_choice import TrainingChoice, Trial, headroom_shares, planned_run
from twofold.answer.uncertainty import estimate_of, flip_fraction, flip_warning
from twofold.contracts.results import Count, FrontPoint, Loser, Part, Run, ScalingPoint, Tenancy, TrainingPlan
from twofold.contracts.spec import TrainingRun
from twofold.core import Estimate, format_seconds, format_usd
from twofold.perf import Cluster
from twofold.training import (
    Layouts,
    Priced,
    ScalingRow,
    model_flops_per_token,
    model_flops_utilisation,
    price_layouts,
    step_time,
    virtualised,
    weak_scaling,
    workload,
)

RUNNERS_UP = 8
WORTH_SWITCHING = 1.03  # a layout or machine that is 1 % better in some draw is no other decision


def training_plan(choice: TrainingChoice, context: Context) -> TrainingPlan:
    """Re-evaluate the chosen layout over the draws and say everything about it."""
    chosen, job, entry = choice.chosen, choice.job, choice.entry
    best = chosen.found.best
    assert best and chosen.run
    machines = given_of(chosen, context)
    answered = answer(job, machines, chosen.stack, best, context.draws, context.constants)
    step = answered.step
    figures = quick_run(
        job,
        machines,
        step,
        context.draws,
        entry.token_count,
        entry.checkpoint.write_within_s,
        headroom_shares(choice.entry),
    )
    work = workload(job)
    utilisation = float(np.max(model_flops_utilisation(work, best.layouts, chosen.cluster, best.step_s)))
    priced = price_layouts(job, chosen.cluster, chosen.stack)
    flips = _flips(choice, priced, context)
    return TrainingPlan(
        name=entry.name,
        model=job.model.name,
        parameters=job.model.parameters,
        kind=job.kind,
        precision=job.precision,
        framework=job.framework,
        machine=machines.machine,
        layout=layout_of(best.layouts),
        step_s=step.estimate("s"),
        step_parts=step_parts(best.step, step),
        communication_exposed_fraction=float(np.max(best.step.communication_s)) / best.step_s,
        mfu_fraction=step.inverse(utilisation * best.step_s).estimate("fraction"),
        peak_ratio=_peak_ratio(choice, step),
        memory_bytes=memory_estimate(best.memory),
        memory_parts=memory_parts(best.memory),
        memory_by_format=memory_by_format(job, best.memory, chosen.stack),
        memory_capacity_bytes=chosen.cluster.device.memory_bytes,
        run=run_of(entry, chosen.offer, figures, context),
        release_after_s=None if chosen.offer.owned else figures.total_s.value,
        deadline_s=entry.time_limit_s,
        cost_usd=figures.cost_usd,
        bounds=step_bounds(job, machines, chosen.stack, best, priced),
        tried=sum(trial.found.evaluated_count for trial in (chosen, *choice.others)),
        rejected=tuple(Count(reason, count) for reason, count in chosen.found.reasons.items()),
        losers=_losers(choice),
        front=_front(choice),
        scaling=_scaling(choice, step, context),
        flip_fraction=flips,
        warnings=(
            *choice.warnings,
            *price_warnings(chosen.offer, context),
            *fabric_warnings(chosen.offer, chosen.node_count, context),
            *flip_warning(flips, "a runner-up wins"),
        ),
        tokens=entry.token_count,
        batch_tokens=entry.batch_tokens,
        samples=entry.sample_count,
        batch_samples=entry.global_batch_sequences,
        tenancy=_tenancy(choice, step, context),
    )


def given_of(trial: Trial, context: Context) -> Given:
    """A trial's machines as the quick answers know them."""
    node, count = trial.offer.node, trial.node_count
    nic = node.nic_bytes_per_s / node.accelerator_count
    return Given(
        trial.offer.accelerator,
        node,
        count,
        node.accelerator_count,
        node.fabric,
        nic,
        trial.cluster,
        price_used(trial.offer, context),
        (),
    )


def _peak_ratio(choice: TrainingChoice, step: Drawn) -> Estimate:
    """Model FLOPs over what the datasheet promises for the format that the products run in."""
    chosen, job = choice.chosen, choice.job
    peaks = chosen.cluster.device.peak_flops_per_s
    peak = float(
        np.max(peaks.get(job.precision) or peaks.get("bf16") or peaks.get("fp16") or max(peaks.values()))
    )
    flops = float(np.max(model_flops_per_token(workload(job)))) * job.tokens_per_step
    return step.inverse(flops / (peak * chosen.cluster.accelerator_count)).estimate("ratio")


def run_of(entry: TrainingRun, offer: Offer, figures: QuickRun, context: Context) -> Run:
    """The figures of a run as the plan's schema writes them, energy at the meter."""
    shares = headroom_shares(entry)
    total = sum(shares.values()) or 1.0
    energy_j = facility_energy(figures.energy_j, offer.price, context)
    return Run(
        steps=figures.steps,
        flops=figures.flops,
        compute_s=figures.compute_s,
        checkpoint_s=figures.checkpoint_s,
        failure_s=figures.failure_s,
        wall_s=figures.wall_s,
        headroom=tuple(
            Part(name, known(share, "fraction"), share / total) for name, share in shares.items() if share
        ),
        total_s=figures.total_s,
        accelerator_h=figures.accelerator_h,
        interruptions=figures.interruptions,
        goodput_fraction=figures.goodput_fraction,
        checkpoints=figures.checkpoints,
        data_bytes_per_s=figures.data_bytes_per_s,
        energy_j=energy_j,
        carbon_gco2=carbon(energy_j, offer.price, context),
    )


def _flips(choice: TrainingChoice, priced: Priced, context: Context) -> float:
    """How often another layout of the same machines is faster, or another machine cheaper."""
    chosen = choice.chosen
    assert chosen.found.best
    fits = priced.high_bytes <= chosen.cluster.device.memory_bytes
    order = np.argsort(np.where(fits, priced.step_s, np.inf), kind="stable")[1:RUNNERS_UP]
    order = order[fits[order]]
    layouts = _steps(choice, chosen, priced.layouts.take(order), context)
    own = np.ravel(_steps(choice, chosen, chosen.found.best.layouts, context))
    flips = flip_fraction(own, layouts * WORTH_SWITCHING) if len(order) else 0.0
    rivals = [trial for trial in choice.others if not trial.misses and trial.cost_usd is not None]
    if chosen.cost_usd is None or not rivals or chosen.offer.fixed_count:
        return flips
    nearest = sorted(rivals, key=lambda trial: trial.cost_usd or 0.0)[:RUNNERS_UP]
    costs = np.stack([_costs(choice, trial, context) for trial in nearest], axis=1)
    return max(flips, flip_fraction(_costs(choice, chosen, context), costs * WORTH_SWITCHING))


def _steps(choice: TrainingChoice, trial: Trial, layouts: Layouts, context: Context) -> NDArray[np.float64]:
    """Step seconds of layouts under every draw, (draws, layouts)."""
    drawn = drawn_run(trial.cluster, trial.stack, choice.job, context.draws)
    return np.asarray(step_time(choice.job, layouts, *drawn).total_s, float)


def _costs(choice: TrainingChoice, trial: Trial, context: Context) -> NDArray[np.float64]:
    assert trial.found.best and trial.cost_usd
    steps: NDArray[np.float64] = np.ravel(_steps(choice, trial, trial.found.best.layouts, context))
    return trial.cost_usd * steps / trial.found.best.step_s


def _losers(choice: TrainingChoice) -> tuple[Loser, ...]:
    """Each other machine at its best, and the sizes beside the chosen one."""
    chosen = choice.chosen
    best_of: dict[str, Trial] = {}
    for trial in choice.others:
        key = trial.offer.accelerator.name + trial.offer.node.fabric
        if trial.offer.node is chosen.offer.node:
            key += str(trial.node_count)
        if key not in best_of or _loser_order(trial) < _loser_order(best_of[key]):
            best_of[key] = trial
    ranked = sorted(best_of.values(), key=_loser_order)
    losers = [Loser(trial.text, trial.misses or _dearer(trial, chosen)) for trial in ranked]
    return (*losers, *choice.left_out)


def _loser_order(trial: Trial) -> tuple[bool, float]:
    return (bool(trial.misses), trial.cost_usd or (trial.run.total_s if trial.run else np.inf))


def _dearer(trial: Trial, chosen: Trial) -> str:
    assert trial.run and chosen.run
    if trial.cost_usd is not None and chosen.cost_usd:
        more = f"{format_usd(trial.cost_usd)} ({100 * (trial.cost_usd / chosen.cost_usd - 1):+,.0f} %)"
    else:
        hours = trial.run.total_accelerator_h / chosen.run.total_accelerator_h - 1
        more = f"{100 * hours:+,.0f} % accelerator-hours"
    return f"{format_seconds(trial.run.total_s)}, {more}"


def _front(choice: TrainingChoice) -> tuple[FrontPoint, ...]:
    """Sizes and machines that no other beats in time, cost and count at once, fastest first."""
    rows = [trial for trial in (choice.chosen, *choice.others) if trial.run]
    return tuple(
        FrontPoint(
            f"{trial.text} · {trial.found.best.describe() if trial.found.best else ''}",
            trial.cluster.accelerator_count,
            trial.run.total_s if trial.run else np.inf,
            trial.cost_usd,
            not trial.misses,
        )
        for trial in sorted(rows, key=lambda trial: trial.run.total_s if trial.run else np.inf)
        if not any(_beats(other, trial) for other in rows)
    )


def _beats(other: Trial, trial: Trial) -> bool:
    mine, theirs = _axes(trial), _axes(other)
    return theirs != mine and all(a <= b for a, b in zip(theirs, mine, strict=True))


def _axes(trial: Trial) -> tuple[float, float, int]:
    assert trial.run
    cost = trial.run.total_accelerator_h if trial.cost_usd is None else trial.cost_usd
    return (trial.run.total_s, cost, trial.cluster.accelerator_count)


def _scaling(choice: TrainingChoice, step: Drawn, context: Context) -> tuple[ScalingPoint, ...]:
    """Steps with the batch grown in proportion, from one accelerator to the chosen size (R-119).

    Every size runs under the same draws, so that an efficiency spreads only by what differs between sizes.
    """
    chosen, job = choice.chosen, choice.job
    count, node = chosen.cluster.accelerator_count, chosen.offer.node.accelerator_count
    sizes = {1, node, 8, 64, 512, count}
    counts = sorted(size for size in sizes if size <= count <= job.global_batch_sequences * size)
    rows = [row for row in weak_scaling(job, chosen.cluster, chosen.stack, counts) if row.candidate]
    under = [_scaled_steps(choice, row, context) for row in rows]
    widening = step.samples / step.middle
    return tuple(
        ScalingPoint(
            row.accelerator_count,
            estimate_of(row.candidate.step_s, row.candidate.step_s * widening, "s"),
            estimate_of(row.efficiency_fraction, row.efficiency_fraction * (under[0] / ratios), "fraction"),
        )
        for row, ratios in zip(rows, under, strict=True)
        if row.candidate
    )


def _scaled_steps(choice: TrainingChoice, row: ScalingRow, context: Context) -> NDArray[np.float64]:
    """A size's step under every draw over its middle."""
    assert row.candidate
    chosen, job = choice.chosen, choice.job
    share = row.accelerator_count / chosen.cluster.accelerator_count
    smaller = replace(job, global_batch_sequences=max(1, round(job.global_batch_sequences * share)))
    cluster = replace(chosen.cluster, accelerator_count=row.accelerator_count)
    drawn = drawn_run(cluster, chosen.stack, job, context.draws)
    steps = np.ravel(np.asarray(step_time(smaller, row.candidate.layouts, *drawn).total_s, float))
    ratios: NDArray[np.float64] = steps / row.candidate.step_s
    return ratios


def _tenancy(choice: TrainingChoice, step: Drawn, context: Context) -> tuple[Tenancy, ...]:
    """The same run on bare metal and on virtual machines, with the overhead that the spec states (R-034)."""
    chosen = choice.chosen
    overhead = context.spec.supply.virtual_overhead_fraction
    bare = _without_overhead(chosen.cluster, chosen.offer.overhead_fraction)
    rows = []
    for name, share in (("bare metal", 0.0), ("virtual", overhead)):
        cluster = virtualised(bare, share, share)
        best = chosen.found.best
        assert best and chosen.run
        step_s = float(np.max(step_time(choice.job, best.layouts, cluster, chosen.stack).total_s))
        ratio = step_s / step.middle
        run = planned_run(choice.entry, choice.job, cluster, step_s)
        price = chosen.offer.usd_per_accelerator_h
        cost = (
            None
            if price is None
            else step.times(run.total_accelerator_h * price / step.middle).estimate("USD")
        )
        rows.append(Tenancy(name, share, step.times(ratio).estimate("s"), cost))
    return tuple(rows)


def _without_overhead(cluster: Cluster, overhead_fraction: float) -> Cluster:
    return virtualised(cluster, 1 / (1 + overhead_fraction) - 1, 1 / (1 + overhead_fraction) - 1)
