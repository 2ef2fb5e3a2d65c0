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

from twofold.answer.uncertainty import COVARIANCE, Spread
from twofold.contracts.rows import calibrations
from twofold.core.estimate import Estimate, Source
from twofold.inference.fleet import MEASURED_WARM_UP
from twofold.inference.replica import Engine
from twofold.perf.constants import ConstantRow, Constants, format_scope
from twofold.perf.types import Cluster, Device
from twofold.training.job import TrainingJob
from twofold.training.stack import Stack, software_family

OWNER = "calibration"
FACTOR = "calibration_factor"
SPREAD = "calibration_spread_ratio"
METRICS = {"step_time_s": "step", "peak_mem_gib": "memory"}  # others by their first word: ttft tpot output

Scope = Mapping[str, str]
T = TypeVar("T")
Software = TypeVar("Software", Stack, Engine)
TIMED_UNITS = frozenset({"s", "tok/s", "1/s", "req/s", "ratio"})  # bytes and money are not the device's


def calibration_rows(calibration: calibrations.Calibration, path: Path) -> list[ConstantRow]:
    """The calibration as constants: factors, the covariance of their logarithms, and ranges by figure."""
    return [row for stack in calibration.stacks for row in _rows_of(stack, calibration, path)]


def _rows_of(
    stack: calibrations.CalibratedStack, calibration: calibrations.Calibration, path: Path
) -> Iterable[ConstantRow]:
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
    widths: dict[str, float] = {}  # half of each metric's range, in logarithms; the wider of two figures
    for figure in stack.figures:
        metric = METRICS.get(figure.name, figure.name.split("_")[0])
        widths[metric] = max(widths.get(metric, 0.0), figure.range_after_log)
    for metric, width in widths.items():
        for kind in stack.kinds:
            yield row(SPREAD, {"metric": metric, "kind": kind}, 1.0, exp(-width), exp(width))


def run_scope(accelerator: str, job: TrainingJob) -> dict[str, str]:
    """Where a run's calibration stands, and what kind of model it is."""
    own = training_scope(accelerator, job.framework, job.precision)
    return own | {"kind": "moe" if job.model.arch == "moe" else "dense"}


def training_scope(accelerator: str, framework: str, precision: str) -> dict[str, str]:
    """Where a calibration of training stands."""
    software = software_family(framework, precision)
    return {"half": "training", "accelerator": accelerator, "software": software}


def service_scope(device: Device, engine: Engine) -> dict[str, str]:
    """Where a service's calibration stands."""
    return {"half": "inference", "accelerator": device.name, "software": engine.name, "era": engine.era}


def factors_in(constants: Constants, scope: Scope) -> dict[str, ConstantRow]:
    """The calibrated factors by name; none where no calibration holds."""
    found: dict[str, ConstantRow] = {}
    for pairs, row in constants.by_name.get(FACTOR, ()):
        told = dict(pairs)
        name = told.pop("factor")
        if told.items() <= scope.items() and (name not in found or len(row.pairs) > len(found[name].pairs)):
            found[name] = row
    return found


def calibrated(
    cluster: Cluster, software: Software, scope: Scope, constants: Constants
) -> tuple[Cluster, Software]:
    """Hardware and software as the user's rows have them."""
    factors = {name: row.value for name, row in factors_in(constants, scope).items()}
    return (cluster.calibrated(factors), software.scaled(factors)) if factors else (cluster, software)


def spread_of_rows(
    constants: Constants, metric: str, own: Scope, kind: str, interval: str, scope: Scope
) -> Spread | None:
    """How far rows that no fit saw lay from predictions: the user's left out, else those of `interval`."""
    told = {**own, "metric": metric, "kind": kind}
    if constants.has(SPREAD, **told):
        row = constants.estimate(SPREAD, **told)
        return Spread(row.low, row.high, SPREAD)
    if not constants.has(interval, **scope):
        return None
    row = constants.estimate(interval, **scope)
    return Spread(row.low / row.value, row.high / row.value, interval)


def calibration_notes(constants: Constants, scopes: Mapping[str, Scope]) -> tuple[str, ...]:
    """What was calibrated, by name of run or service; and that nothing was, where a calibration is there."""
    if FACTOR not in constants.by_name:
        return ()
    notes: list[str] = []
    for name, scope in scopes.items():
        if factors := factors_in(constants, scope):
            moved = sorted(factors.items(), key=lambda item: -abs(log(item[1].value)))[:3]
            said = ", ".join(f"{factor.replace('_', ' ')} ×{row.value:.2f}" for factor, row in moved)
            notes.append(f"`{name}` is calibrated by {next(iter(factors.values())).note}: {said}")
    if notes:
        return tuple(notes)
    scopes_told = [dict(pairs) for pairs, _ in constants.by_name[FACTOR]]
    stacks = {
        f"{told['half']} on {told['accelerator']} under {told['software']} {told.get('era', '')}".strip()
        for told in scopes_told
    }
    path = constants.by_name[FACTOR][0][1].note.partition(" of ")[0]
    return (f"`{path}` is not used: nothing here is {' or '.join(sorted(stacks))}",)


def with_letters(part: T, accelerator: str, constants: Constants, scope: Scope) -> T:
    """The same figures; times and rates of a part measured here, or calibrated, are marked as measured."""
    pair = ("accelerator", accelerator)
    measured_here = any(
        row.source == Source.MEASURED and pair in row.pairs and row.fitted_by != OWNER
        for row in constants.rows
        if row.name != MEASURED_WARM_UP  # which says nothing of steps
    )
    changed: T = _marked(part) if measured_here or factors_in(constants, scope) else part
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
