"""Slips of units: which single correction makes a figure agree with its neighbours, or with the prediction.

One quantity told twice (tokens/s and step time × batch, output tokens/s per GPU and in all) either agrees or
is off by a factor; where that factor is that of a usual slip (1000, 60, GiB over GB, the GPU count, the
sequence length), the finding names it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twofold.catalog import Accelerator
from twofold.measure.lint_table import Mask, RowFinding, Severity, Table, Values
from twofold.measure.truth import text
from twofold.perf import FORMAT_BYTES

NEAR_FACTOR = 1.03  # a slip is exact; what is measured beside it is not
BEYOND_RANGE = 1.5  # how far outside its 80 % range a measurement may lie before it is odd
FAR_BEYOND = 4.0  # and from where on it is suspect rather than noted
UNEXPLAINED = 0.25  # of a surprise, as a logarithm, that a slip may leave: else it is a coincidence
GIB_OVER_GB = 2**30 / 1e9


@dataclass(frozen=True, slots=True)
class Slip:
    """A mistake that multiplies a figure: what is stated is `factor` times what is true."""

    factor: float | Values
    cause: str


Side = tuple[tuple[str, ...], Values]
"""A quantity, and the columns that say it."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """One quantity told twice: `stated` over `implied` lies within the limits where both are right."""

    rule: str
    quantity: str
    stated: Side
    implied: Side
    limits: tuple[float | Values, float | Values]
    slips: Sequence[Slip]
    hint: str
    hard_factor: float = 1.5  # beyond the limits times this the two cannot both be true


def disagreements(table: Table, agreement: Agreement) -> list[RowFinding]:
    """A finding per row whose two figures differ, with the slip that would explain it."""
    count = len(table.rows)
    low, high = (np.broadcast_to(limit, count) for limit in agreement.limits)
    sides = agreement.stated, agreement.implied
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ratio = agreement.stated[1] / agreement.implied[1]
        off = (ratio < low) | (ratio > high)
        hard = (ratio < low / agreement.hard_factor) | (ratio > high * agreement.hard_factor)
    findings = []
    for i in (int(each) for each in np.flatnonzero(off)):
        near = np.log(max(NEAR_FACTOR, min(float(high[i]), 1.1)))
        causes = [
            slip.cause
            for slip in agreement.slips
            if _is_slip(slip, i) and abs(np.log(ratio[i] / _factor(slip, i))) <= near
        ]
        one, other = (_said(table, i, columns, values[i]) for columns, values in sides)
        message = f"{agreement.quantity}: {one}, {other}: {_times(ratio[i])}"
        findings.append(
            table.finding(
                i,
                "unit" if causes else agreement.rule,
                "impossible" if hard[i] else "suspect",
                (*agreement.stated[0], *agreement.implied[0]),
                message,
                " or ".join(causes) or agreement.hint,
            )
        )
    return findings


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the models say of one measured column: the middle and the ends of its 80 % range."""

    column: str
    measured: Values
    middle: Values
    ends: tuple[Values, Values]
    unit: str
    slips: Sequence[Slip]


def surprises(table: Table, predicted: Prediction) -> list[RowFinding]:
    """Measurements far outside their predicted range, with the slip that would bring them back.

    A slip explains a measurement if the corrected figure lies within the range × 1.5 and three quarters of
    the way nearer to the middle. What no slip explains may as well be our error: beyond the range × 4 it is
    suspect, else a note.
    """
    lows, highs = predicted.ends
    with np.errstate(invalid="ignore"):
        off = (predicted.measured < lows / BEYOND_RANGE) | (predicted.measured > highs * BEYOND_RANGE)
    findings = []
    for i in (int(each) for each in np.flatnonzero(off)):
        value, middle = predicted.measured[i], predicted.middle[i]
        shown = (
            f"{predicted.column} is {value:.4g} {predicted.unit}, {_times(value / middle)} the predicted "
            f"{middle:.4g} ({lows[i]:.4g} to {highs[i]:.4g})"
        )
        slip = _best_slip(predicted, i)
        if slip is not None:
            factor = _factor(slip, i)
            hint = f"{slip.cause}? {value / factor:.4g} {predicted.unit} would agree with the prediction"
            clear = abs(np.log(factor)) > np.log(highs[i] / lows[i])
            severity: Severity = "suspect" if clear else "note"  # a factor within the range may be chance
            findings.append(table.finding(i, "unit", severity, (predicted.column,), shown, hint))
            continue
        far = not lows[i] / FAR_BEYOND <= value <= highs[i] * FAR_BEYOND
        hint = "an unhealthy run, a limit or release not stated, a slip in the configuration, or our error"
        severity = "suspect" if far else "note"
        findings.append(table.finding(i, "prediction", severity, (predicted.column,), shown, hint))
    return findings


def _best_slip(predicted: Prediction, i: int) -> Slip | None:
    value, middle = predicted.measured[i], predicted.middle[i]
    low, high = (end[i] for end in predicted.ends)
    distance, best = abs(np.log(value / middle)) * UNEXPLAINED, None
    for slip in predicted.slips:
        if not _is_slip(slip, i):
            continue
        corrected = value / _factor(slip, i)
        inside = low / BEYOND_RANGE <= corrected <= high * BEYOND_RANGE
        if inside and abs(np.log(corrected / middle)) < distance:
            distance, best = abs(np.log(corrected / middle)), slip
    return best


def time_slips(column: str, unit: str) -> tuple[Slip, ...]:
    """What goes wrong with a time that should be in `unit` ("s" or "ms")."""
    if unit == "s":
        units = {1e3: "milliseconds", 1e6: "microseconds", 1 / 60: "minutes", 1 / 3600: "hours"}
        slips = [Slip(1e-3, f"{column} was seconds already, and divided by 1000")]
    else:
        units, slips = {1e3: "microseconds", 1e6: "nanoseconds", 1e-3: "seconds", 1e-3 / 60: "minutes"}, []
    return (*(Slip(factor, f"{column} is in {name}") for factor, name in units.items()), *slips)


def fastest_flops_per_s(accelerator: Accelerator, number_bytes: float, words: Sequence[str]) -> float:
    """The highest dense peak among the formats `words` no narrower than `number_bytes`; NaN without."""
    peaks = [
        getattr(accelerator, f"{word}_flops_per_s") for word in words if FORMAT_BYTES[word] >= number_bytes
    ]
    return max((peak for peak in peaks if peak), default=float("nan"))


def whole(value: Values, by: Values) -> Mask:
    """Where `by` divides `value`, or either is unknown."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rest = np.mod(value, by)
    divides: Mask = np.isnan(rest) | (rest == 0)
    return divides


def _said(table: Table, i: int, columns: Sequence[str], value: float) -> str:
    """What the columns that row `i` fills say together."""
    filled = [name for name in columns if text(table.rows[i], name)]
    return f"{', '.join(filled)} {'gives' if len(filled) == 1 else 'give'} {value:.4g}"


def _factor(slip: Slip, i: int) -> float:
    return float(slip.factor[i] if isinstance(slip.factor, np.ndarray) else slip.factor)


def _is_slip(slip: Slip, i: int) -> bool:
    """A factor of nearly one would change nothing."""
    factor = _factor(slip, i)
    return bool(np.isfinite(factor) and factor > 0 and abs(np.log(factor)) > np.log(NEAR_FACTOR))


def _times(ratio: float) -> str:
    """A ratio in words.

    >>> _times(1000.0), _times(0.25), _times(1.07)
    ('1000 ×', '1/4 of', '1.07 ×')
    """
    return f"{ratio:.4g} ×" if ratio >= 1 or not ratio > 0 else f"1/{1 / ratio:.4g} of"
