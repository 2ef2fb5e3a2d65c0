"""`calibrate`: a user's rows become named factors of their accelerator under their software.

Three to six factors with shrinkage, never a constant per row: what a row says about its own configuration
alone stays in the range. Rows that cannot be true are refused with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from twofold.catalog.catalog import Catalog
from twofold.contracts.rows import calibrations
from twofold.core.errors import InputError, TableError
from twofold.measure.blind import PREDICT
from twofold.measure.calibration_sheet import FACTORS, Sheet, half_of_row, measured_logs, sheets_of
from twofold.measure.calibration_solve import (
    NOISE_LOG,
    Z_80,
    Belief,
    Gaps,
    Solved,
    calibrated,
    prior_covariance,
    repeat_noise,
    spread_after,
)
from twofold.measure.lint import lint
from twofold.measure.truth import METRICS, Row, number, text
from twofold.perf.constants import Constants
from twofold.perf.known import Half, load_known

Array = NDArray[np.float64]
STEP_LOG = 0.05  # of a factor, for its slope
PASSES = 4  # the model is priced again at the factors found: its slopes are not constant
# A factor without a range of its own has that of what it scales.
NAMED_AS: Mapping[str, str] = MappingProxyType({"prefill": "compute", "communication": "link"})
CONTEXT = "C"  # the tier of rows that say something, and measure no machine
FIRST_LINE = 2  # of a table, below its header
WORSE_ROWS = 3  # that are named where a fit predicts worse than before it
MEMORY = "peak_mem_gib"
TTFT_WEIGHT = 0.4  # as in the fits: much of it is waiting, which no factor of the stack explains
MEMORY_FACTOR = "memory_use"


@dataclass(frozen=True, slots=True)
class Fitted:
    """One stack's factors, and what they rest on."""

    sheet: Sheet
    names: tuple[str, ...]
    belief: Belief
    gaps: Gaps
    before: Array  # log(measured / predicted) without factors
    solved: Solved
    left_out: Array  # log(measured / predicted) by factors that never saw the row

    def half_range(self, metric: str, share: float = 0.8) -> float:
        """Half of the width of a figure's range, in logarithms; as before where no row measured it."""
        own = self.gaps.metric == metric
        spread = self.belief.spread_log[metric]
        return spread_after(self.left_out[own], spread, self.belief.noise_log, share)


def calibrate(
    rows: Sequence[Row], catalog: Catalog, constants: Constants, name: str, today: date
) -> calibrations.Calibration:
    """The calibration of every accelerator and software that the rows measured.

    `rows` are a table of the truth schema in file order; each is training or inference as `half` or its
    columns say. Raises TableError where no row can be used.
    """
    stacks: list[calibrations.CalibratedStack] = []
    refused: dict[int, str] = {}  # by place
    halves: dict[Half, list[int]] = {}
    columns = list(rows[0]) if rows else []
    for place, row in enumerate(rows):
        try:
            halves.setdefault(half_of_row(row, columns), []).append(place)
        except InputError as error:
            refused[place] = error.message
    for half, places in halves.items():
        reasons = _impossible(half, [rows[place] for place in places], catalog, constants)
        refused |= {places[at]: reason for at, reason in reasons.items()}
        usable = [place for place in places if place not in refused]
        kept = [rows[place] for place in usable]
        sheets, unread = sheets_of(half, kept, catalog, constants)
        refused |= {usable[at]: reason for at, reason in unread.items()}
        if kept:
            ranges = ranges_of(half, PREDICT[half](kept, catalog, constants, load_known()))
            lines = [place + FIRST_LINE for place in usable]
            stacks += [_stack(fit_sheet(sheet, kept, ranges, constants), lines) for sheet in sheets]
    refusals = tuple(calibrations.RefusedRow(at + FIRST_LINE, why) for at, why in sorted(refused.items()))
    if not stacks:
        said = "".join(f"; line {row.line}: {row.reason}" for row in refusals[:3])
        raise TableError(f"`{name}` holds no row to calibrate with{said}")
    return calibrations.Calibration(
        measurements=name,
        calibrated_on=today,
        constants_version=constants.version,
        constants_digest=constants.digest,
        stacks=tuple(stacks),
        refused=refusals,
    )


def _impossible(half: Half, rows: Sequence[Row], catalog: Catalog, constants: Constants) -> dict[int, str]:
    """Why rows cannot be true, are context alone, or measured nothing, by their place."""
    reasons: dict[int, str] = {}
    for finding in lint(half, rows, catalog, constants):
        if finding.severity == "impossible":
            said = f"{finding.rule}: {finding.message}" + (f"; {finding.hint}" if finding.hint else "")
            reasons.setdefault(finding.line - FIRST_LINE, said)
    for at, row in enumerate(rows):
        if text(row, "tier") == CONTEXT:
            told = text(row, "notes")
            reasons[at] = f"tier {CONTEXT}: context, no measurement of a machine{told and f': {told}'}"
        if at not in reasons and not any(number(row, name) for name in METRICS[half]):
            reasons[at] = "nothing measured: fill one of " + ", ".join(METRICS[half])
    return reasons


def ranges_of(half: Half, answers: Sequence[Row]) -> dict[str, Array]:
    """Standard deviation, in logarithms, that the 80 % range of every figure stands for; NaN without one."""
    out = {}
    for name in METRICS[half]:
        ends = [(number(row, f"pred_{name}_low"), number(row, f"pred_{name}_high")) for row in answers]
        out[name] = np.array(
            [np.log(high / low) / (2 * Z_80) if low and high else np.nan for low, high in ends], float
        )
    return out


def fit_sheet(
    sheet: Sheet,
    rows: Sequence[Row],
    ranges: Mapping[str, Array],
    constants: Constants,
    keep: NDArray[np.bool_] | None = None,
) -> Fitted:
    """The factors of one stack from its rows, or from those that `keep` marks."""
    kept = np.ones(sheet.place.size, bool) if keep is None else keep
    measured, names = measured_logs(sheet, rows), FACTORS[sheet.half]
    steps = {
        name: np.exp(STEP_LOG * (np.arange(len(names) + 1) == at + 1))[:, np.newaxis]
        for at, name in enumerate(names)
    }
    priced = sheet.log_predicted(steps)
    spread = {
        name: float(np.nanmedian(own)) if np.isfinite(own := ranges[name][sheet.place]).any() else Z_80
        for name in sheet.metrics
    }
    belief = _belief(names, spread, _noise(sheet, rows, measured), constants)
    first = gaps = _gaps(priced, measured, kept)
    solved, left_out = calibrated(gaps, belief)
    for _ in range(PASSES - 1):
        log_factors = solved.log_factors
        at = sheet.log_predicted(_scaled(steps, _factors(names, log_factors)))
        # As a model with the slopes at these factors has them whose prices there are exact.
        moved = {name: values - log_factors @ _slopes(values) for name, values in at.items()}
        for name, values in moved.items():  # a row that has no price at both is as at factors of 1
            values[:] = np.where(np.isfinite(values + priced[name]).all(axis=0), values, priced[name])
        gaps = _gaps(moved, measured, kept)
        solved, left_out = calibrated(gaps, belief)
    return Fitted(sheet, names, belief, gaps, first.log_gap, solved, left_out)


def _belief(
    names: Sequence[str], spread: Mapping[str, float], noise_log: float, constants: Constants
) -> Belief:
    """The named ranges, and a common part of half the width that uncalibrated predictions have."""
    own = []
    for name in names:
        row = constants.estimate("uncertainty_factor", factor=NAMED_AS.get(name, name))
        own.append(np.log(row.high / row.low) / (2 * Z_80))
    timed = [value for name, value in spread.items() if name != MEMORY and not name.startswith("ttft")]
    common = float(np.median(timed)) / 2
    covariance = prior_covariance(own, [0.0 if name == MEMORY_FACTOR else common for name in names])
    if MEMORY_FACTOR in names:
        at = list(names).index(MEMORY_FACTOR)
        covariance[at, at] += (spread[MEMORY] / 2) ** 2
    return Belief(covariance, spread, noise_log)


def _noise(sheet: Sheet, rows: Sequence[Row], measured: Mapping[str, Array]) -> float:
    """How far repeats of one configuration lie apart, where there are any."""
    # Columns that say what was run, not what came out.
    told = set(METRICS[sheet.half]) | {"id", "notes", "source", "source_ref", "tier", "split"}
    ends = ("_ms", "_w", "_j", "tok_s", "_tok_s_gpu", "mfu")
    groups: dict[tuple[str, ...], list[int]] = {}
    for at, place in enumerate(sheet.place):
        key = tuple(
            value
            for name, value in sorted(rows[place].items())
            if name not in told and not name.endswith(ends) and "tflop" not in name
        )
        groups.setdefault(key, []).append(at)
    logs = [values[members] for values in measured.values() for members in groups.values()]
    finite = [each[np.isfinite(each)] for each in logs]
    return max(repeat_noise(finite) or NOISE_LOG, NOISE_LOG / 5)


def _slopes(values: Array) -> Array:
    """Change of a logarithm per log factor, (factors, rows), from the middle and one step of each factor; 0
    where one of both has no finite price."""
    with np.errstate(invalid="ignore"):
        slopes = (values[1:] - values[0]) / STEP_LOG
    return np.where(np.isfinite(slopes), slopes, 0.0)


def _gaps(priced: Mapping[str, Array], measured: Mapping[str, Array], kept: NDArray[np.bool_]) -> Gaps:
    """Every measured figure that is predicted, with its slopes."""
    parts: list[tuple[Array, Array, NDArray[np.str_], NDArray[np.intp], Array]] = []
    for metric, values in priced.items():
        here = np.flatnonzero(kept & np.isfinite(measured[metric]) & np.isfinite(values[0]))
        weight = np.full(here.size, TTFT_WEIGHT if metric.startswith("ttft") else 1.0)
        gap = (measured[metric] - values[0])[here]
        parts.append((_slopes(values).T[here], gap, np.full(here.size, metric), here, weight))
    return Gaps(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _factors(names: Sequence[str], log_factors: Array) -> dict[str, Array]:
    return {name: np.exp([[log]]) for name, log in zip(names, log_factors, strict=True)}


def _scaled(steps: Mapping[str, Array], factors: Mapping[str, Array]) -> dict[str, Array]:
    return {name: values * factors[name] for name, values in steps.items()}


def calibrated_logs(fitted: Fitted) -> dict[str, Array]:
    """Logarithm of every figure of every row of the sheet, with the factors."""
    priced = fitted.sheet.log_predicted(_factors(fitted.names, fitted.solved.log_factors))
    return {name: values[0] for name, values in priced.items()}


def _stack(fitted: Fitted, lines: Sequence[int]) -> calibrations.CalibratedStack:
    """The fit as the file says it; `lines` are those of the rows that were given."""
    software, solved, gaps = fitted.sheet.software, fitted.solved, fitted.gaps
    spread = np.sqrt(np.diag(solved.log_covariance))
    before = np.sqrt(np.diag(fitted.belief.log_covariance))
    factors = []
    for name, middle, width, wide in zip(fitted.names, solved.log_factors, spread, before, strict=True):
        logs = middle, middle - Z_80 * width, middle + Z_80 * width, -Z_80 * wide, Z_80 * wide
        factors.append(calibrations.CalibratedFactor(name, *(float(np.exp(log)) for log in logs)))

    def error(log_gap: Array) -> float:
        """Median of |predicted / measured − 1|."""
        return float(np.median(np.abs(np.expm1(-log_gap))))

    figures = []
    for name in fitted.sheet.metrics:
        if (own := gaps.metric == name).any():
            figures.append(
                calibrations.CalibratedFigure(
                    name=name,
                    rows=int(own.sum()),
                    error_before=error(fitted.before[own]),
                    error_fitted=error(gaps.log_gap[own] - gaps.slopes[own] @ solved.log_factors),
                    error_after=error(fitted.left_out[own]),
                    range_before_log=Z_80 * fitted.belief.spread_log[name],
                    range_after_log=fitted.half_range(name),
                    worse_lines=tuple(lines[at] for at in _worse_places(fitted, own)),
                )
            )
    return calibrations.CalibratedStack(
        half=fitted.sheet.half,
        accelerator=software.accelerator,
        software=software.name,
        era=software.era,
        version=software.versions,
        kinds=tuple(sorted(set(fitted.sheet.kind))),
        rows=int(np.unique(gaps.row).size),
        factors=tuple(factors),
        log_covariance=tuple(tuple(map(float, row)) for row in solved.log_covariance),
        figures=tuple(figures),
    )


def _worse_places(fitted: Fitted, own: NDArray[np.bool_]) -> list[int]:
    """Of a figure that the fit predicts worse than before: its rows, those that lost most first."""
    before, after = np.abs(fitted.before[own]), np.abs(fitted.left_out[own])
    if np.median(after) <= np.median(before):
        return []
    more = np.argsort(before - after, kind="stable")[:WORSE_ROWS]
    places = fitted.sheet.place[fitted.gaps.row[own]]
    return [int(places[at]) for at in more if after[at] > before[at]]
