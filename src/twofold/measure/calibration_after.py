"""What ten rows of a stack are worth: every source is calibrated as if it were the user's, and scored.

The constants are those of the fit that never saw the source; the rows that calibrate are not scored.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twofold.catalog.catalog import Catalog
from twofold.core.errors import TwofoldError
from twofold.measure.blind import PREDICT, hidden_constants, hidden_source
from twofold.measure.calibration import Fitted, calibrated_logs, fit_sheet, ranges_of
from twofold.measure.calibration_sheet import Sheet, sheets_of
from twofold.measure.truth import Row, number, text
from twofold.perf.constants import Constants
from twofold.perf.known import Half, load_known
from twofold.perf.shape import model_kind

FEWEST_ROWS = 20  # of one stack in one source
CALIBRATING_ROWS = 10
STACKS_PER_SOURCE = 8
ROWS_PER_STACK = 40
SHARES = (("_low", "_high", 0.8), ("_low_95", "_high_95", 0.95))


def after_calibration(
    half: Half, rows: Sequence[Row], catalog: Catalog, constants: Constants, blind: Path
) -> list[Row]:
    """Rows with `pred_…` columns, each by factors from ten other rows of its source and stack.

    Of every source those stacks (accelerator, software and kind of model) count that have 20 rows, at most
    eight, each thinned evenly to 40 rows. The rows that calibrate, spread evenly over the configurations, are
    left out of the answer.
    """
    by_source: dict[str, list[Row]] = {}
    for row in rows:
        by_source.setdefault(hidden_source(row), []).append(row)
    answered: list[Row] = []
    for source, own in by_source.items():
        stacks = _stacks(half, own, catalog)
        told = hidden_constants(half, source, constants, blind) if stacks else constants
        for stack in stacks:
            answers = PREDICT[half](stack, catalog, told, load_known().without(source))
            ranges = ranges_of(half, answers)
            for sheet in sheets_of(half, stack, catalog, told)[0]:
                if sheet.place.size >= FEWEST_ROWS:
                    keep = _calibrating(sheet, stack)
                    answered += _overlaid(fit_sheet(sheet, stack, ranges, told, keep), answers, ~keep)
    return answered


def _stacks(half: Half, rows: Sequence[Row], catalog: Catalog) -> list[list[Row]]:
    """Rows by accelerator, framework and kind of model, those with rows enough, thinned.

    What a user runs on one stack is of one kind: dense, moe or mla.
    """
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        name, kind = text(row, "framework"), ""
        if half == "training":
            name, kind = name.partition(" ")[0], "moe" if number(row, "experts") else "dense"
        else:
            with suppress(TwofoldError):
                kind = model_kind(catalog.model(text(row, "model")))
        found.setdefault((text(row, "gpu"), name, kind), []).append(row)
    large = sorted((each for each in found.values() if len(each) >= FEWEST_ROWS), key=len, reverse=True)
    return [[each[i] for i in _spread(len(each), ROWS_PER_STACK)] for each in large[:STACKS_PER_SOURCE]]


def _spread(size: int, count: int) -> list[int]:
    """`count` of `size` places, evenly; all of them where there are no more."""
    return [int((at + 0.5) * size / count) for at in range(count)] if size > count else list(range(size))


def _calibrating(sheet: Sheet, rows: Sequence[Row]) -> NDArray[np.bool_]:
    """The rows that calibrate: evenly over the order of model, size and load."""
    columns = ("model", "gpus", "gpus_total", "tp", "pp", "seq_len", "concurrency", "max_batch", "isl_mean")
    order = sorted(
        range(sheet.place.size),
        key=lambda at: tuple(text(rows[int(sheet.place[at])], name).zfill(12) for name in columns),
    )
    keep = np.zeros(sheet.place.size, bool)
    keep[[order[at] for at in _spread(len(order), CALIBRATING_ROWS)]] = True
    return keep


def _overlaid(fitted: Fitted, answers: Sequence[Row], wanted: NDArray[np.bool_]) -> list[Row]:
    """The answers of the wanted rows with calibrated middles and ranges."""
    logs = calibrated_logs(fitted)
    widths = {(name, share): fitted.half_range(name, share) for name in logs for _, _, share in SHARES}
    out = []
    for at in np.flatnonzero(wanted):
        row = dict(answers[int(fitted.sheet.place[at])])
        for name, values in logs.items():
            if np.isfinite(values[at]):
                row[f"pred_{name}"] = f"{np.exp(values[at]):.6g}"
                for low, high, share in SHARES:
                    width = widths[name, share]
                    row[f"pred_{name}{low}"] = f"{np.exp(values[at] - width):.6g}"
                    row[f"pred_{name}{high}"] = f"{np.exp(values[at] + width):.6g}"
        out.append(row)
    return out
