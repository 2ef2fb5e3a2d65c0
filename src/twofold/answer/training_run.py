"""The run around a training step: accelerator-hours, failures, checkpoints, storage, energy and cost."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twofold.answer.free_hours import Calendar
from twofold.answer.question import Given
from twofold.answer.ranges import Drawn
from twofold.answer.refusals import never_ahead
from twofold.answer.training_step import TrainedStep
from twofold.answer.uncertainty import Draws, estimate_of
from twofold.contracts.results import training
from twofold.contracts.results.parts import Part, PriceUsed
from twofold.core import record
from twofold.core.estimate import Estimate, Source
from twofold.perf.types import Cluster
from twofold.training.run import Reliability, RunPlan, RunWork, run_plan, run_work

Ends = tuple[float | None, Calendar | None]  # the deadline, and who shares the machines


@dataclass(frozen=True, slots=True)
class RunEstimate(training.RunTotals):
    """A whole run: base × (1 + headroom) = `accelerator_h`, its headroom in hours, its energy that of the
    accelerators. Measured rows have no tokens, no FLOPs, and maybe no sizes: these are None.
    """

    tokens: float | None
    base_accelerator_h: Estimate
    cost_usd: Estimate | None  # None: no price


def estimate_run(
    trained: TrainedStep,
    tokens: float,
    headroom: Mapping[str, float],
    write_within_s: float,
    stall_s: float | None,
    ends: Ends = (None, None),
) -> RunEstimate:
    """Everything that `tokens` take beyond the step, over the draws of step, failures, power and price."""
    job, step, draws = trained.job, trained.step, trained.draws
    work = run_work(job, tokens, write_within_s, stall_s)
    figures = run_figures(work, trained.machines, step, draws, headroom, ends)
    return replace(figures, tokens=tokens, flops=float(np.max(job.workload.model_flops_per_token)) * tokens)


def run_figures(
    work: RunWork,
    machines: Given,
    step: Drawn,
    draws: Draws,
    headroom: Mapping[str, float],
    ends: Ends,
    source: Source = Source.FITTED,
) -> RunEstimate:
    """Everything that the steps of a run take beyond the step; `source` is the step's own.

    What adds failures to it is no better than the published runs that their rate was read from.
    Raises InfeasibleError where failures come faster than a restart and a checkpoint take.
    """
    whole = max(source, Source.FITTED, key=list(Source).index)
    middle, runs = runs_under(work, step, machines.cluster, draws, headroom)
    if not middle.gets_ahead:
        raise never_ahead(middle, machines)

    def figure(name: str, unit: str, letter: Source = whole) -> Estimate:
        samples = np.array([getattr(each, name) for each in runs])
        return estimate_of(getattr(middle, name), samples, unit, letter)

    total = Drawn(middle.total_s, np.array([each.total_s for each in runs]))
    hours = Drawn(middle.total_accelerator_h, np.array([each.total_accelerator_h for each in runs]))
    energy = Drawn(middle.energy_j, np.array([each.energy_j for each in runs]) * np.ravel(draws["power"]))
    storage, price = middle.storage, machines.machine.price
    # Accelerator-hours of the run itself and of each cause add up to what is paid.
    parts = {"run": middle.base_accelerator_h, **middle.headroom_accelerator_h} if headroom else {}
    cost = _cost(price, machines.machine.accelerator_count, hours, draws, whole) if price else None
    return RunEstimate(
        tokens=None,
        steps=middle.steps_count,
        flops=None,
        compute_s=figure("compute_s", "s", source),
        checkpoint_s=figure("checkpoint_stall_s", "s"),
        failure_s=figure("failure_s", "s"),
        wall_s=figure("wall_s", "s"),
        headroom=tuple(
            Part(name, hours.times(value / hours.middle).estimate("h", whole), value / hours.middle)
            for name, value in parts.items()
        ),
        total_s=total.estimate("s", whole),
        base_accelerator_h=figure("base_accelerator_h", "h"),
        accelerator_h=hours.estimate("h", whole),
        interruptions=figure("failures_count", "1"),
        goodput_fraction=figure("goodput_fraction", "fraction"),
        checkpoints=training.Checkpoints(
            middle.checkpoint_bytes,
            figure("checkpoint_interval_s", "s", Source.FITTED),
            middle.checkpoint_write_s,
            storage.checkpoint_write_bytes_per_s,
            storage.needed_bytes_per_s,
            storage.source,
            middle.checkpoint_pause_s,
        ),
        data_bytes_per_s=storage.ingest_bytes_per_s,
        energy_j=energy.estimate("J", whole),
        cost_usd=cost,
        **_ending(total, *ends, whole),
    )


def _cost(price: PriceUsed, count: int, hours: Drawn, draws: Draws, source: Source) -> Estimate:
    """What the hours of `count` accelerators cost; a contract's least term is paid however soon they end."""
    paid, least_h = price.usd_per_accelerator_h, price.least_h * count
    billed = Drawn(max(hours.middle, least_h), np.maximum(hours.samples, least_h))
    # The user's own price is not in doubt.
    in_doubt = paid.low != paid.high or paid.source != Source.ASSUMED
    samples = billed.samples * np.ravel(draws["price"]) if in_doubt else billed.samples
    cost = Drawn(billed.middle, samples).times(paid.value).estimate("USD", source)
    hours_and_price = "run.total_accelerator_h", "machine.price.usd_per_accelerator_h"
    said = "accelerator-hours × price"
    if billed.middle > hours.middle:
        said = f"those of a contract of {price.least_h / 24.0:g} d × price"
    return record.note("cost_usd", cost, said, *hours_and_price)


def _ending(
    total: Drawn, deadline_s: float | None, calendar: Calendar | None, source: Source
) -> dict[str, Any]:
    """When a run is over on machines that it shares, and the probability that it ends within its deadline."""
    ended, of, found = total, "run.total_s", dict[str, Any]()
    if calendar:
        ended = calendar.dated(total)
        said = f"its hours in those that are left on machines of one's own: {calendar.text}"
        found["done_s"] = record.note("run.done_s", ended.estimate("s", source), said, of)
        of = "run.done_s"
    if deadline_s is not None:
        said = "share of the draws, stretched as the range is, that are within the deadline"
        name, holds = "run.deadline_holds_probability", ended.probability_within(deadline_s)
        found["deadline_holds_probability"] = record.note(name, holds, said, of, "deadline")
    return found


def runs_under(
    work: RunWork,
    step: Drawn,
    cluster: Cluster,
    draws: Draws,
    headroom: Mapping[str, float],
) -> tuple[RunPlan, list[RunPlan]]:
    """The run in its middle, and under every draw of its step and of failures."""
    usual = Reliability()

    def run(step_s: float, failure_factor: float) -> RunPlan:
        between = usual.accelerator_h_between_failures / failure_factor
        reliability = replace(usual, accelerator_h_between_failures=between)
        return run_plan(work, step_s, cluster, headroom, reliability)

    middle = run(step.middle, 1.0)
    failing = np.broadcast_to(np.ravel(draws["failure_rate"]), step.samples.shape)
    return middle, [run(float(s), float(f)) for s, f in zip(step.samples, failing, strict=True)]
