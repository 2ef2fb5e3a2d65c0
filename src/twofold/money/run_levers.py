"""Levers of a training run, each priced with the models that planned it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum

import numpy as np

from twofold.answer import Context, TrainingChoice, trial_of_size
from twofold.contracts.results import TrainingPlan, ledger
from twofold.core import ValueRefusedError
from twofold.training import Reliability, failing_time_ratio

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


class Pulled(Enum):
    """Whether the plan rests on a lever already."""

    IN_USE = "in use"
    OPEN = "open"


def lever(
    name: str, of: str, pulled: Pulled, saving_usd_per_year: float, base_usd_per_year: float, how: str
) -> ledger.LeverRow:
    """One optimisation of a run or service, with what it saves of what the same costs without it."""
    share = saving_usd_per_year / base_usd_per_year if base_usd_per_year else 0.0
    return ledger.LeverRow(name, of, pulled.value, saving_usd_per_year, share, how)


def ranked(levers: Iterable[ledger.LeverRow]) -> tuple[ledger.LeverRow, ...]:
    """The largest saving first; of equals by name."""
    return tuple(sorted(levers, key=lambda each: (-each.saves_usd_per_year, each.of, each.name)))
