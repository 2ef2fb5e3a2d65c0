"""The figures of one training run on its chosen machines, with ranges, bounds and reasons."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.answer.calibrated import with_letters
from twofold.answer.context import Context, carbon, fabric_warnings, facility_energy, known, price_warnings
from twofold.answer.question import Given
from twofold.answer.ranges import Drawn
from twofold.answer.training_choice import (
    TrainingChoice,
    Trial,
    peak_flops_per_s,
    planned_run,
)
from twofold.answer.training_run import RunEstimate, estimate_run
from twofold.answer.training_step import TrainedStep, step_samples, trained_step
from twofold.answer.training_trials import (
    WORTH_SWITCHING,
    MachineChoice,
    MachineTrial,
    Tried,
    cheaper_fraction,
    front,
    losers,
    rivals,
)
from twofold.answer.uncertainty import estimate_of, flip_fraction, flip_warning
from twofold.contracts.results import Count, Part, ScalingPoint, TrainingPlan, training
from twofold.contracts.spec import TrainingRun
from twofold.core import Estimate
from twofold.training import Limits, Priced, price_layouts, search, step_time

RUNNERS_UP = 8


def training_plan(choice: TrainingChoice, context: Context) -> TrainingPlan:
    """Re-evaluate the chosen layout over the draws and say everything about it."""
    chosen, job, entry = choice.chosen, choice.job, choice.entry
    trained = trained_trial(choice, context)
    run = estimate_run(trained, entry.token_count, entry.checkpoint.write_within_s, entry.headroom.shares)
    priced = price_layouts(job, chosen.cluster, chosen.stack)
    flips = _flips(choice, priced, context)
    plan = TrainingPlan(
        **trained.figures(),
        **machine_figures(choice, run, context),
        peak_ratio=_peak_ratio(trained),
        bounds=trained.bounds(priced),
        tried=sum(trial.found.evaluated_count for trial in (chosen, *choice.others)),
        rejected=tuple(Count(reason, count) for reason, count in chosen.found.reasons.items()),
        losers=tuple(losers(choice, lambda trial: _kind(trial, chosen))),
        scaling=_scaling(choice, trained.step, context),
        flip_fraction=flips,
        warnings=(
            *choice.warnings,
            *price_warnings(chosen.offer, context),
            *fabric_warnings(chosen.offer, chosen.node_count, context),
            *flip_warning(flips, "a runner-up wins"),
        ),
        tokens=entry.token_count,
        batch_tokens=entry.batch_tokens,
        tenancy=_tenancy(choice, trained.step, context),
    )
    return with_letters(plan, chosen.offer.accelerator.name, context.constants, choice.scope)


def trained_trial(choice: TrainingChoice, context: Context) -> TrainedStep:
    """The step of the chosen machines under every draw."""
    chosen = choice.chosen
    best, machines = chosen.found.best, chosen.machines(context)
    assert best
    return trained_step(choice.job, machines, chosen.stack, best, context.draws, context.constants)


def machine_figures(choice: MachineChoice[Tried], run: RunEstimate, context: Context) -> dict[str, Any]:
    """What a plan says of the run on the chosen machines, however its step is known."""
    entry, chosen = choice.entry, choice.chosen
    return {
        "name": entry.name,
        "run": _run(entry, chosen, run, context),
        "release_after_s": None if chosen.offer.owned else run.total_s.value,
        "deadline_s": entry.time_limit_s,
        "cost_usd": run.cost_usd,
        "front": front(choice),
        "samples": entry.sample_count,
        "batch_samples": entry.global_batch_sequences,
    }


def _run(entry: TrainingRun, chosen: MachineTrial, run: RunEstimate, context: Context) -> training.Run:
    """A run with what its spec keeps for other causes, energy at the meter."""
    shares = entry.headroom.shares
    total = sum(shares.values()) or 1.0
    energy_j = facility_energy(run.energy_j, chosen.offer.price, context)
    own: Mapping[str, Any] = {
        "headroom": tuple(
            Part(name, known(share, "fraction"), share / total) for name, share in shares.items() if share
        ),
        "energy_j": energy_j,
        "carbon_gco2": carbon(energy_j, chosen.offer.price, context),
    }
    same = {
        field.name: getattr(run, field.name) for field in fields(training.RunTotals) if field.name not in own
    }
    return training.Run(**same, **own)


def _peak_ratio(trained: TrainedStep) -> Estimate:
    """Model FLOPs over what the datasheet promises for the format that the products run in."""
    cluster = trained.machines.cluster
    peak = peak_flops_per_s(cluster.device, trained.job.precision)
    ratio = trained.model_flops() / (peak * cluster.accelerator_count)
    return trained.step.inverse(ratio).estimate("ratio")


def _kind(trial: Trial, chosen: Trial) -> str:
    """Machines of which the best alone is shown: accelerator and fabric, and of the chosen node each size."""
    kind = trial.offer.accelerator.name + trial.offer.node.fabric
    return f"{kind}{trial.node_count}" if trial.offer.node is chosen.offer.node else kind


def _flips(choice: TrainingChoice, priced: Priced, context: Context) -> float:
    """How often another layout of the same machines is faster, or another machine cheaper."""
    chosen = choice.chosen
    assert chosen.found.best
    fits = priced.high_bytes <= chosen.cluster.device.memory_bytes
    order = np.argsort(np.where(fits, priced.step_s, np.inf), kind="stable")[1:RUNNERS_UP]
    order = order[fits[order]]
    args = choice.job, priced.layouts.take(order), chosen.cluster, chosen.stack, context.draws
    own = np.ravel(_best_samples(choice, chosen, context))
    flips = flip_fraction(own, step_samples(*args) * WORTH_SWITCHING) if len(order) else 0.0
    nearest = sorted(rivals(choice), key=lambda trial: trial.cost_usd or 0.0)[:RUNNERS_UP]
    if not nearest:
        return flips
    costs = [_costs(choice, trial, context) for trial in nearest]
    return max(flips, cheaper_fraction(_costs(choice, chosen, context), costs))


def _best_samples(choice: TrainingChoice, trial: Trial, context: Context) -> NDArray[np.float64]:
    """Step seconds of a trial's layout under every draw."""
    assert trial.found.best
    layouts = trial.found.best.layouts
    return np.ravel(step_samples(choice.job, layouts, trial.cluster, trial.stack, context.draws))


def _costs(choice: TrainingChoice, trial: Trial, context: Context) -> NDArray[np.float64]:
    assert trial.found.best and trial.cost_usd
    return trial.cost_usd * _best_samples(choice, trial, context) / trial.found.best.step_s


def _scaling(choice: TrainingChoice, step: Drawn, context: Context) -> tuple[ScalingPoint, ...]:
    """Steps with the batch grown in proportion, from one accelerator to the chosen size (R-119).

    Every size runs under the same draws, so that an efficiency spreads only by what differs between sizes:
    throughput per accelerator over that of the smallest size that fits.
    """
    chosen, job = choice.chosen, choice.job
    count, node, batch = (
        chosen.cluster.accelerator_count,
        chosen.offer.node.accelerator_count,
        job.global_batch_sequences,
    )
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
        points.append(
            ScalingPoint(
                size,
                estimate_of(best.step_s, best.step_s * widening, "s"),
                estimate_of(efficiency, efficiency * (base[1] / ratios), "fraction"),
            )
        )
    return tuple(points)


def _tenancy(choice: TrainingChoice, step: Drawn, context: Context) -> tuple[training.Tenancy, ...]:
    """The same run on bare metal and on virtual machines, with the overhead that the spec states (R-034)."""
    chosen = choice.chosen
    overhead = context.spec.supply.virtual_overhead_fraction
    bare = bare_metal(chosen.machines(context), chosen.offer.overhead_fraction).cluster
    rows = []
    for name, share in (("bare metal", 0.0), ("virtual", overhead)):
        cluster = bare.virtualised(share)
        best = chosen.found.best
        assert best and chosen.run
        job = choice.job
        timed = step_time(job.workload, job.precision, best.layouts, cluster, chosen.stack)
        step_s = float(np.max(timed.total_s))
        ratio = step_s / step.middle
        run = planned_run(choice.entry, choice.job, cluster, step_s)
        price = chosen.offer.usd_per_accelerator_h
        cost = (
            None
            if price is None
            else step.times(run.total_accelerator_h * price / step.middle).estimate("USD")
        )
        rows.append(training.Tenancy(name, share, step.times(ratio).estimate("s"), cost))
    return tuple(rows)


def bare_metal(machines: Given, overhead_fraction: float) -> Given:
    """The machines as bare metal, where the plan took a hypervisor's share off them."""
    return replace(machines, cluster=machines.cluster.virtualised(1 / (1 + overhead_fraction) - 1))
