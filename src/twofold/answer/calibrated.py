"""A user's calibration in a plan: rows of constants that hold for one accelerator under one software.

Medians are scaled by the factors, draws take the factors' doubt after the rows, ranges what rows left out
showed. Nothing here applies where accelerator or software differ. Times that rest on what was
measured here get its letter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any, TypeVar

from twofold.answer.derivation import Leaves
from twofold.answer.uncertainty import COVARIANCE, Spread
from twofold.contracts.results import Input
from twofold.contracts.rows import CalibratedFigure, CalibratedStack, Calibration
from twofold.core import Estimate, Source
from twofold.inference import Engine
from twofold.perf import Cluster, ConstantRow, Constants, format_scope
from twofold.training import Stack, TrainingJob, software_family

OWNER = "calibration"
FACTOR = "calibration_factor"
SPREAD = "calibration_spread_ratio"
METRICS = {"step_time_s": "step", "peak_mem_gib": "memory"}  # others by their first word: ttft tpot output

Scope = Mapping[str, str]
T = TypeVar("T")
TIMED_UNITS = frozenset({"s", "tok/s", "1/s", "req/s", "ratio"})  # bytes and money are not the device's


def calibration_rows(calibration: Calibration, path: Path) -> list[ConstantRow]:
    """The calibration as constants: factors, the covariance of their logarithms, and ranges by figure."""
    return [row for stack in calibration.stacks for row in _rows_of(stack, calibration, path)]


def _rows_of(stack: CalibratedStack, calibration: Calibration, path: Path) -> Iterable[ConstantRow]:
    scope = {"half": stack.half, "accelerator": stack.accelerator, "software": stack.software}
    scope |= {"era": stack.era} if stack.era else {}
    note = f"{path} of {calibration.calibrated_on}, {stack.rows} rows of {calibration.measurements}"

    def row(name: str, further: Scope, value: float, low: float, high: float) -> ConstantRow:
        told = {"name": name, "scope": format_scope({**scope, **further}), "fitted_by": OWNER, "note": note}
        return ConstantRow(value, low, high, "ratio", Source.MEASURED, rows=stack.rows, **told)

    for index, factor in enumerate(stack.factors):
        yield row(FACTOR, {"factor": factor.name}, factor.value, factor.low, factor.high)
        for other, value in zip(stack.factors, stack.log_covariance[index], strict=True):
            yield row(COVARIANCE, {"factor": factor.name, "with": other.name}, value, value, value)
    for metric, width in _widths(stack.figures).items():
        for kind in stack.kinds:
            yield row(SPREAD, {"metric": metric, "kind": kind}, 1.0, exp(-width), exp(width))


def _widths(figures: Iterable[CalibratedFigure]) -> dict[str, float]:
    """Half of the range of each metric, in logarithms; the wider where a metric has two figures."""
    widths: dict[str, float] = {}
    for figure in figures:
        metric = METRICS.get(figure.name, figure.name.split("_")[0])
        widths[metric] = max(widths.get(metric, 0.0), figure.range_after_log)
    return widths


def run_scope(accelerator: str, job: TrainingJob) -> dict[str, str]:
    """Where a run's calibration stands, and what kind of model it is."""
    return {
        "half": "training",
        "accelerator": accelerator,
        "software": software_family(job.framework, job.precision),
        "kind": "moe" if job.model.arch == "moe" else "dense",
    }


def service_scope(accelerator: str, engine: str, era: str) -> dict[str, str]:
    """Where a service's calibration stands."""
    return {"half": "inference", "accelerator": accelerator, "software": engine, "era": era}


def factors_in(constants: Constants, scope: Scope) -> dict[str, ConstantRow]:
    """The calibrated factors by name; none where no calibration holds."""
    found: dict[str, ConstantRow] = {}
    for pairs, row in constants.by_name.get(FACTOR, ()):
        told = dict(pairs)
        name = told.pop("factor")
        if told.items() <= scope.items() and (name not in found or len(row.pairs) > len(found[name].pairs)):
            found[name] = row
    return found


def _values(constants: Constants, scope: Scope) -> dict[str, float]:
    return {name: row.value for name, row in factors_in(constants, scope).items()}


def calibrated_run(
    cluster: Cluster, stack: Stack, job: TrainingJob, constants: Constants
) -> tuple[Cluster, Stack]:
    """Hardware and training software as the user's rows have them."""
    factors = _values(constants, run_scope(cluster.device.name, job))
    if not factors:
        return cluster, stack
    return cluster.calibrated(factors), stack.scaled(factors)


def calibrated_service(cluster: Cluster, engine: Engine, constants: Constants) -> tuple[Cluster, Engine]:
    """Hardware and serving software as the user's rows have them."""
    factors = _values(constants, service_scope(cluster.device.name, engine.name, engine.era))
    if not factors:
        return cluster, engine
    return cluster.calibrated(factors), engine.scaled(factors)


def calibrated_spread(constants: Constants, metric: str, kind: str, scope: Scope) -> Spread | None:
    """How far rows left out lay from predictions; None where no row of this kind of model was measured."""
    told = {**scope, "metric": metric, "kind": kind}
    if not constants.has(SPREAD, **told):
        return None
    row = constants.estimate(SPREAD, **told)
    return Spread(row.low, row.high, SPREAD)


def calibration_notes(constants: Constants, scopes: Mapping[str, Scope]) -> tuple[str, ...]:
    """What was calibrated, by name of run or service; and that nothing was, where a calibration is there."""
    if FACTOR not in constants.by_name:
        return ()
    notes = tuple(
        note for name, scope in scopes.items() for note in _note(name, factors_in(constants, scope))
    )
    if notes:
        return notes
    scopes_told = [dict(pairs) for pairs, _ in constants.by_name[FACTOR]]
    stacks = {
        f"{told['half']} on {told['accelerator']} under {told['software']} {told.get('era', '')}".strip()
        for told in scopes_told
    }
    path = constants.by_name[FACTOR][0][1].note.partition(" of ")[0]
    return (f"`{path}` is not used: nothing here is {' or '.join(sorted(stacks))}",)


def _note(name: str, factors: Mapping[str, ConstantRow]) -> list[str]:
    if not factors:
        return []
    moved = sorted(factors.items(), key=lambda item: -abs(log(item[1].value)))[:3]
    said = ", ".join(f"{factor.replace('_', ' ')} ×{row.value:.2f}" for factor, row in moved)
    note = next(iter(factors.values())).note
    return [f"`{name}` is calibrated by {note}: {said}"]


def spread_inputs(leaves: Leaves, interval: str, scope: Scope, metric: str, kind: str) -> tuple[Input, ...]:
    """What a derivation names for a range: the calibration and its factors, or sources left out."""
    own = Leaves(leaves.constants, (*scope.items(), ("metric", metric), ("kind", kind)))
    factors = tuple(
        Leaves(leaves.constants, (*scope.items(), ("factor", name))).constant(FACTOR, f"calibrated {name}")
        for name in factors_in(leaves.constants, scope)
    )
    if leaves.constants.has(SPREAD, **dict(own.scope)):
        return (*factors, own.constant(SPREAD, "spread on your rows left out"))
    return (*factors, leaves.constant(interval, "spread on left-out sources"))


def is_calibrated(constants: Constants, scope: Scope) -> bool:
    """Whether the user's rows shaped the figures of a stack."""
    return bool(factors_in(constants, scope))


def is_measured(constants: Constants, accelerator: str) -> bool:
    """Whether the constants hold what was measured here of this very part."""
    pair = ("accelerator", accelerator)
    return any(
        row.source == Source.MEASURED and pair in row.pairs and row.fitted_by != "calibration"
        for row in constants.rows
    )


def with_letters(part: T, accelerator: str, constants: Constants, scope: Scope) -> T:
    """The same figures; times and rates of a part measured here, or calibrated, are marked as measured."""
    own = is_measured(constants, accelerator) or is_calibrated(constants, scope)
    changed: T = _marked(part) if own else part
    return changed


def _marked(value: Any) -> Any:
    """What holds no such figure is returned as it is."""
    if isinstance(value, Estimate):
        timed = value.unit in TIMED_UNITS and value.source == Source.FITTED
        return replace(value, source=Source.MEASURED) if timed else value
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        changed = tuple(_marked(each) for each in value)
        return value if all(a is b for a, b in zip(changed, value, strict=True)) else changed
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
        differing = {name: new for name, old in parts.items() if (new := _marked(old)) is not old}
        return replace(value, **differing) if differing else value
    return value
