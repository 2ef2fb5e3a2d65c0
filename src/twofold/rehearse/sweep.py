"""A sweep of one key of a scenario: figures at each value, and what the values say together."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf, log, sqrt

from twofold.contracts.results import simulated, sweeps
from twofold.core.display import format_seconds, format_si
from twofold.rehearse.collectives import StepAtSize, rising_shares
from twofold.rehearse.figure_table import STEP_PART_HEADINGS, flat_figures
from twofold.rehearse.simulation import mean_interval
from twofold.rehearse.training_figures import ALARM_INFLATION_FRACTION, METADATA_ALARM_FRACTION

ENOUGH = 0.002  # of the hours that are paid for: what a further step has to gain to be worth it
CAUSES = {
    "communication": "links, or what of them is shared",
    "input": "storage that nodes share for reading",
    "sync": "jitter, or a slow node that all wait for",
}


def _mean(point: sweeps.SweepPoint, name: str) -> float:
    return point.figures[f"training.{name}"].mean


def _jitter(points: Sequence[sweeps.SweepPoint]) -> sweeps.SweepFinding:
    """The least jitter whose p99 step is too long."""
    if "training.step_p99_s" not in points[0].figures:
        return sweeps.SweepFinding("alarm", "the plan has no run whose steps could jitter")
    beyond = [one for one in points if _mean(one, "step_inflation_fraction") > ALARM_INFLATION_FRACTION]
    limit = f"{100 * ALARM_INFLATION_FRACTION:.0f} %"
    if not beyond:
        return sweeps.SweepFinding("alarm", f"none: p99 steps stay within {limit} of the undisturbed one")
    first = min(beyond, key=lambda one: _mean(one, "step_inflation_fraction"))
    over = _mean(first, "step_inflation_fraction")
    text = (
        f"from a jitter of {first.value} the p99 step is {100 * over:.0f} % over the undisturbed one, beyond "
        f"{limit}"
    )
    return sweeps.SweepFinding("alarm", text, over)


def _metadata(points: Sequence[sweeps.SweepPoint]) -> sweeps.SweepFinding:
    """The fewest files that throttle a checkpoint."""

    def fraction(one: sweeps.SweepPoint) -> float:
        metadata_s, data_s = _mean(one, "checkpoint_metadata_s"), _mean(one, "checkpoint_data_s")
        return metadata_s / (metadata_s + data_s) if metadata_s else 0.0

    limit = f"{100 * METADATA_ALARM_FRACTION:.0f} %"
    beyond = [one for one in points if fraction(one) > METADATA_ALARM_FRACTION]
    if not beyond:
        return sweeps.SweepFinding(
            "small files", f"none are too many: metadata takes less than {limit} of a checkpoint"
        )
    first = min(beyond, key=fraction)
    text = (
        f"from {first.value} an accelerator, {_mean(first, 'checkpoint_files_count'):,.0f} in all, they take "
        f"{format_seconds(_mean(first, 'checkpoint_metadata_s'))}: {100 * fraction(first):.0f} % of a "
        f"checkpoint, {limit} at most; write fewer, larger ones"
    )
    return sweeps.SweepFinding("small files", text, fraction(first))


def _imbalance(points: Sequence[sweeps.SweepPoint]) -> list[sweeps.SweepFinding]:
    """Parts of the step whose share rises with the run, and what that comes from."""
    if "training.step_compute_s" not in points[0].figures:
        return [sweeps.SweepFinding("imbalance", "the plan has no run that could grow")]
    rows = []
    for one in points:
        parts_s = (_mean(one, f"step_{part}_s") for part in STEP_PART_HEADINGS)
        rows.append(StepAtSize(round(_mean(one, "run_accelerators")), *parts_s))
    found = rising_shares(sorted(rows, key=lambda row: row.accelerator_count))
    if not found:
        text = "none: no part of the step rises by more than 5 points of it"
        return [sweeps.SweepFinding("imbalance", text)]
    return [
        sweeps.SweepFinding(
            "imbalance",
            f"{one.part} rises from {100 * one.first_share:.0f} % to {100 * one.share:.0f} % of a step at "
            f"{one.accelerator_count:,} accelerators: look at {CAUSES[one.part]}",
            one.share,
        )
        for one in found
    ]


def _enough(key: str, points: Sequence[sweeps.SweepPoint]) -> sweeps.SweepFinding:
    """The smallest value beyond which nothing is gained for each hour that is paid for."""
    worth = [_mean(one, "work_fraction") for one in points]
    best = max(worth)
    enough = next(one for one, each in zip(points, worth, strict=True) if each >= best * (1.0 - ENOUGH))
    text = (
        f"{key} {enough.value}: more gains less than {100 * ENOUGH:g} % of work kept per hour paid for "
        f"(back after a failure in {format_seconds(_mean(enough, 'recovery_s_mean'))})"
    )
    return sweeps.SweepFinding("enough", text)


GROWTH = 1.0  # of ln(latency) per ln(throughput): from here on latency grows faster
KV_FULL_FRACTION = 0.9
BUSY_FRACTION = 0.9
Flat = Mapping[str, float]
Runs = Sequence[Sequence[simulated.Simulation]]  # by value, then by seed


def swept(key: str, values: Sequence[str], runs: Runs) -> sweeps.Sweep:
    """Every value's figures over its seeds, and the findings. `runs[i][j]`: value i under seed j."""
    flat = [[flat_figures(run) for run in of_value] for of_value in runs]
    points = []
    for value, figures, of_value in zip(values, flat, runs, strict=True):
        names = [name for name in figures[0] if all(name in each for each in figures)]
        over_seeds = {name: sweeps.Swept(*mean_interval([each[name] for each in figures])) for name in names}
        points.append(sweeps.SweepPoint(value, over_seeds, all(run.slos_met for run in of_value)))
    first, findings = runs[0][0], list[sweeps.SweepFinding]()
    match key:  # of each key what it is swept for
        case "cluster.jitter" if first.training:
            findings = [_jitter(points)]
        case "cluster.files" if first.training:
            findings = [_metadata(points)]
        case "cluster.run_nodes" if first.training:
            findings = _imbalance(points)
        case _ if first.training:
            findings = [_enough(key, points)]
        case "traffic.scale":
            for each in first.classes:
                findings += _knee(each.name, points, flat)
            findings += _target_utilisation(points)
        case _:
            findings = [*_cheapest(key, points), *_buffer(key, points, runs), *_pareto(points)]
    seeds = tuple(run.seed for run in runs[0])
    return sweeps.Sweep(
        sweeps.SWEEP_SCHEMA, first.name, "", "", first.scenario, key, seeds, tuple(points), tuple(findings)
    )


def _knee(
    name: str, points: Sequence[sweeps.SweepPoint], flat: Sequence[Sequence[Flat]]
) -> list[sweeps.SweepFinding]:
    """The rate from which a class's p95 grows faster than what the fleet puts out, and what would move it.

    Formula  between neighbouring rates, Δ ln p95 > Δ ln output, p95 of the first token or of the answer; the
             knee is at the geometric middle of the two
    Interval the knees of the single seeds: mean ± t·s/√n
    """
    knees = []
    for seed in range(len(flat[0])):
        found = _knee_of(name, sorted((one[seed] for one in flat), key=lambda one: one[f"{name}.rate_per_s"]))
        if found is not None:
            knees.append(found)
    if len(knees) < len(flat[0]):
        return [sweeps.SweepFinding("knee", f"{name}: p95 grows no faster than throughput up to here")]
    knee, low, high = mean_interval(knees)
    low = max(low, 0.0)
    rate, span = format_si(knee, "1/s"), f"{format_si(low, '1/s')} to {format_si(high, '1/s')}"
    text = f"{name}: from {rate} [{span}] p95 grows faster than throughput"
    return [sweeps.SweepFinding("knee", text, knee, low, high), _remedy(name, points, knee)]


def _knee_of(name: str, ordered: Sequence[Flat]) -> float | None:
    """Figures of one seed by rising rate."""
    rate = f"{name}.rate_per_s"
    for before, after in pairwise(ordered):
        more = log(max(after["output_tokens_per_s"], 1e-9) / max(before["output_tokens_per_s"], 1e-9))
        for metric in (f"{name}.e2e_p95_s", f"{name}.ttft_p95_s"):
            if metric not in before or metric not in after or not after[rate] > before[rate] > 0:
                continue
            if log(max(after[metric], 1e-9) / max(before[metric], 1e-9)) > GROWTH * max(more, 0.0):
                return sqrt(before[rate] * after[rate])
    return None


def _remedy(name: str, points: Sequence[sweeps.SweepPoint], knee_per_s: float) -> sweeps.SweepFinding:
    """What is short beyond the knee, and what gives more of it."""
    beyond = next((one for one in points if one.figures[f"{name}.rate_per_s"].mean > knee_per_s), points[-1])
    kv, used = beyond.figures["kv_fraction"].mean, beyond.figures["used_fraction"].mean
    if kv > KV_FULL_FRACTION:
        why = f"the KV cache is {100 * kv:.0f} % full: quantise it, shorten contexts, or add replicas"
    elif used > BUSY_FRACTION:
        why = f"replicas compute {100 * used:.0f} % of the time: add replicas, or faster ones"
    else:
        why = (
            f"replicas compute {100 * used:.0f} % of the time and their caches are {100 * kv:.0f} % full: "
            "bursts queue; spread them, hold them at the gate, or add replicas"
        )
    return sweeps.SweepFinding("remedy", f"{name}: beyond its knee {why}")


def _target_utilisation(points: Sequence[sweeps.SweepPoint]) -> list[sweeps.SweepFinding]:
    """The highest utilisation before the p99 of any class takes off: read from the curve, not a constant."""
    names = [name for name in points[0].figures if name.endswith(".e2e_p99_s")]
    held: sweeps.SweepPoint | None = points[0] if points[0].slos_met else None
    for before, after in pairwise(points):
        if not after.slos_met or any(_takes_off(before, after, name) for name in names):
            break
        held = after
    if held is None:
        return [sweeps.SweepFinding("target", "no swept load meets every goal")]
    most = max(one.figures["output_tokens_per_s"].mean for one in points)
    part = held.figures["output_tokens_per_s"]
    value, low, high = (figure / max(most, 1e-12) for figure in (part.mean, part.low, part.high))
    why = "the highest load swept" if held is points[-1] else "beyond it p99 takes off or a goal is missed"
    text = f"aim for {100 * value:.0f} % of the most output that was reached (at {held.value}): {why}"
    return [sweeps.SweepFinding("target", text, value, low, high)]


def _takes_off(before: sweeps.SweepPoint, after: sweeps.SweepPoint, name: str) -> bool:
    rate = f"{name.split('.')[0]}.rate_per_s"
    if name not in before.figures or name not in after.figures:
        return False
    slower = after.figures[name].mean / max(before.figures[name].mean, 1e-12)
    more = after.figures[rate].mean / max(before.figures[rate].mean, 1e-12)
    return more > 1 and log(max(slower, 1e-12)) > GROWTH * log(more)


def _cheapest(key: str, points: Sequence[sweeps.SweepPoint]) -> list[sweeps.SweepFinding]:
    """The cheapest value that meets every goal under every seed, or that none does."""
    measure = "cost_usd" if all("cost_usd" in one.figures for one in points) else "accelerator_h"
    kept = [one for one in points if one.slos_met]
    if not kept:
        return [sweeps.SweepFinding("cheapest", f"no value of {key} meets every goal")]
    best = min(kept, key=lambda one: one.figures[measure].mean)
    missed = [one.value for one in points if not one.slos_met]
    others = f"; missed at {', '.join(missed)}" if missed else ""
    return [sweeps.SweepFinding("cheapest", f"cheapest that meets every goal: {key} {best.value}{others}")]


def _buffer(key: str, points: Sequence[sweeps.SweepPoint], runs: Runs) -> list[sweeps.SweepFinding]:
    """Replicas beyond those that serve without spares, of all: what the scenario's faults and bursts ask for.

    Formula  (replicas with the fewest spares that meet every goal − replicas with none) / the former
    """
    kept = [index for index, one in enumerate(points) if one.slos_met]
    if key != "fleet.spares" or not kept:
        return []
    counts = [sum(fleet.replica_count for fleet in of_value[0].fleets) for of_value in runs]
    held = min(counts[index] for index in kept)
    bare = min(count - int(one.value) for count, one in zip(counts, points, strict=True))
    part = (held - bare) / held
    text = f"hold {held - bare} of {held} replicas back, {100 * part:.0f} %, for what happens here"
    return [sweeps.SweepFinding("buffer", text, part)]


def _pareto(points: Sequence[sweeps.SweepPoint]) -> list[sweeps.SweepFinding]:
    """Values that no other beats in both output and the slowest class's e2e p95, and the one to choose."""
    names = [name for name in points[0].figures if name.endswith(".e2e_p95_s")]
    if not names:
        return []
    worth = []
    for one in points:
        known = [one.figures[name].mean for name in names if name in one.figures]
        slowest = max(known, default=inf)  # nothing finished
        worth.append((one.figures["output_tokens_per_s"].mean, -slowest))
    front = [
        (own, one)
        for own, one in zip(worth, points, strict=True)
        if not any(other[0] >= own[0] and other[1] >= own[1] and other != own for other in worth)
    ]
    (output, slowest), chosen = max(
        [pair for pair in front if pair[1].slos_met] or front, key=lambda pair: pair[0]
    )
    text = (
        f"no other beats {', '.join(one.value for _, one in front)}; chosen {chosen.value}: "
        f"{output:,.0f} output tok/s, e2e p95 {format_seconds(-slowest)}"
    )
    return [sweeps.SweepFinding("pareto", text)]
