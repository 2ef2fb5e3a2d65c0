"""Slips of units: which single correction makes a figure agree with its neighbours, or with the prediction.

One quantity told twice (tokens/s and step time × batch, output tokens/s per GPU and in all) either agrees or
is off by a factor; where that factor is that of a usual slip (1000, 60, GiB over GB, the GPU count, the
sequence length), the finding names it. `lint_agreements.csv` lists what is told twice, `lint_slips.csv` the
usual slips.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from twofold.catalog.types import Accelerator
from twofold.measure.lint_table import Mask, Table, Values
from twofold.measure.results import RowFinding, Severity
from twofold.measure.truth import Row, number, read_rows, text
from twofold.perf.formats import bytes_per_weight

AGREEMENTS = Path(__file__).parent / "lint_agreements.csv"
SLIPS = Path(__file__).parent / "lint_slips.csv"
NEAR_FACTOR = 1.03  # a slip is exact; what is measured beside it is not
BEYOND_RANGE = 1.5  # how far outside its 80 % range a measurement may lie before it is odd
FAR_BEYOND = 4.0  # and from where on it is suspect rather than noted
EVIDENT = 100.0  # a factor that no draft, no sick machine and no error of ours comes to
UNEXPLAINED = 0.25  # of a surprise, as a logarithm, that a slip may leave: else it is a coincidence
GIB_OVER_GB = 2**30 / 1e9
UNKNOWN = "an unhealthy run, a limit or release not stated, a slip in the configuration, or our error"


@dataclass(frozen=True, slots=True)
class Slip:
    """A mistake that multiplies a figure: what is stated is `factor` times what is true."""

    factor: float | Values
    cause: str

    def at(self, i: int) -> float:
        """The factor of row `i`; NaN where it is unknown, or so near to one that it would change nothing."""
        factor = float(self.factor[i] if isinstance(self.factor, np.ndarray) else self.factor)
        known = np.isfinite(factor) and factor > 0 and abs(np.log(factor)) > np.log(NEAR_FACTOR)
        return factor if known else np.nan


def slips(groups: str, column: str, figures: Mapping[str, Values]) -> list[Slip]:
    """The slips of `lint_slips.csv` that may happen to a column, of groups such as `time in ms;latency`."""
    told = [row for group in groups.split(";") for row in _rows_by(SLIPS, "slips")[group]]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return [Slip(_quotient(row["factor"], figures), row["cause"].format(column=column)) for row in told]


@cache
def _rows_by(path: Path, column: str) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in read_rows(path):
        found.setdefault(row[column], []).append(row)
    return found


def _quotient(words: str, figures: Mapping[str, Values]) -> float | Values:
    """A number or a figure, or one of them over another: `1/60`, `lengths/osl_mean`."""
    above, below = (
        figures[word] if word in figures else float(word)
        for word in (words if "/" in words else f"{words}/1").split("/")
    )
    return above / below


def disagreements(
    table: Table,
    key: str,
    implied: Values,
    figures: Mapping[str, Values],
    *,
    stated: Values | None = None,
    limits: tuple[Values, Values] | None = None,
) -> list[RowFinding]:
    """A finding per row that tells one quantity twice and not alike, with the slip that would explain it.

    `key` names the line of `lint_agreements.csv`: stated over implied lies within its limits where both are
    right, and within them times its factor where both can be. `stated` is its column unless it is given, as
    `limits` are.
    """
    told = _rows_by(AGREEMENTS, "key")[key][0]
    columns, others = (tuple(told[name].split(";")) for name in ("stated", "implied"))
    ends = limits or (_quotient(told["low"], {}), _quotient(told["high"], {}))
    low, high = (np.broadcast_to(limit, len(table.rows)) for limit in ends)
    stated, hard_factor = table[columns[0]] if stated is None else stated, float(told["hard_factor"])
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ratio = stated / implied
        off = (ratio < low) | (ratio > high)
        hard = (ratio < low / hard_factor) | (ratio > high * hard_factor)
    possible = slips(told["slips"], columns[0], figures)
    findings = []
    for i in np.flatnonzero(off).tolist():
        near = np.log(max(NEAR_FACTOR, min(float(high[i]), 1.1)))
        causes = [slip.cause for slip in possible if abs(np.log(ratio[i] / slip.at(i))) <= near]
        said = []
        for names, value in ((columns, stated[i]), (others, implied[i])):
            filled = [name for name in names if text(table.rows[i], name)]
            said.append(f"{', '.join(filled)} {'gives' if len(filled) == 1 else 'give'} {value:.4g}")
        rule = "unit" if causes else told["rule"]
        severity: Severity = "impossible" if hard[i] else "suspect"
        message = f"{told['quantity']}: {', '.join(said)}: {_times(ratio[i])}"
        hint = " or ".join(causes) or told["hint"]
        findings.append(table.finding(i, rule, severity, (*columns, *others), message, hint))
    return findings


def surprises(
    table: Table,
    rows: Sequence[Row],
    like: Sequence[str],
    measured: Values,
    unit: str,
    slips: Sequence[Slip],
) -> list[RowFinding]:
    """Measurements far outside their predicted range, with the slip that would bring them back.

    `rows` are predicted: the middle is that of the first of the columns `like`, the 80 % range is wide enough
    for all of them. A slip explains a measurement if the corrected figure lies within the range × 1.5 and
    three quarters of the way nearer to the middle. A slip of more than `EVIDENT` is a slip, but for a first
    token that may have waited that long. What no slip explains may as well be our error: beyond the range × 4
    it is suspect, else a note.
    """

    def predicted(name: str, end: str) -> Values:
        return np.array([number(row, f"pred_{name}{end}") or np.nan for row in rows], float)

    middles = predicted(like[0], "")
    lows = np.fmin.reduce([predicted(name, "_low") for name in like])
    highs = np.fmax.reduce([predicted(name, "_high") for name in like])
    with np.errstate(invalid="ignore"):
        off = (measured < lows / BEYOND_RANGE) | (measured > highs * BEYOND_RANGE)
    findings, waits = [], like[0].startswith("ttft")
    for i in np.flatnonzero(off).tolist():
        value, middle, low, high = measured[i], middles[i], lows[i], highs[i]
        distance, factor, cause = abs(np.log(value / middle)) * UNEXPLAINED, 1.0, ""
        for slip in slips:
            corrected = value / slip.at(i)
            inside = low / BEYOND_RANGE <= corrected <= high * BEYOND_RANGE
            if inside and abs(np.log(corrected / middle)) < distance:
                distance, factor, cause = abs(np.log(corrected / middle)), slip.at(i), slip.cause
        if cause:
            grave = abs(np.log(factor)) > np.log(high / low)  # a factor within the range may be chance
            hint = f"{cause}? {value / factor:.4g} {unit} would agree with the prediction"
        else:
            grave = not low / FAR_BEYOND <= value <= high * FAR_BEYOND
            hint = UNKNOWN
        evident = cause and abs(np.log(factor)) > np.log(EVIDENT) and not (waits and value > middle)
        severity: Severity = "impossible" if evident else "suspect" if grave else "note"
        shown = (
            f"{like[0]} is {value:.4g} {unit}, {_times(value / middle)} the predicted "
            f"{middle:.4g} ({low:.4g} to {high:.4g})"
        )
        rule = "unit" if cause else "prediction"
        findings.append(table.finding(i, rule, severity, (like[0],), shown, hint))
    return findings


def fastest_flops_per_s(accelerator: Accelerator, number_bytes: float, words: Sequence[str]) -> float:
    """The highest dense peak among the formats `words` no narrower than `number_bytes`; NaN without."""
    peaks = [
        getattr(accelerator, f"{word}_flops_per_s")
        for word in words
        if bytes_per_weight(word) >= number_bytes
    ]
    return max((peak for peak in peaks if peak), default=float("nan"))


def whole(value: Values, by: Values) -> Mask:
    """Where `by` divides `value`, or either is unknown."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rest = np.mod(value, by)
    divides: Mask = np.isnan(rest) | (rest == 0)
    return divides


def _times(ratio: float) -> str:
    """A ratio in words.

    >>> _times(1000.0), _times(0.25), _times(1.07)
    ('1000 ×', '1/4 of', '1.07 ×')
    """
    return f"{ratio:.4g} ×" if ratio >= 1 or not ratio > 0 else f"1/{1 / ratio:.4g} of"
