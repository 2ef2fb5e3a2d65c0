"""The screen of a calibration keeps to its width, however much there is to say."""

from dataclasses import replace
from datetime import date

from twofold.contracts.rows.calibrations import (
    CalibratedFactor,
    CalibratedFigure,
    CalibratedStack,
    Calibration,
    RefusedRow,
)
from twofold.report.calibrate import LINES_OF_REFUSALS, calibration_lines

STACK = CalibratedStack(
    "inference",
    "H100-SXM5-80GB",
    "vllm",
    "0.12+",
    "0.15.0",
    ("dense",),
    1,
    (CalibratedFactor("compute", 0.9, 0.8, 1.0, 0.7, 1.3),),
    ((0.01,),),
    (CalibratedFigure("tpot_mean_ms", 1, 0.2, 0.01, 0.15, 0.4, 0.3),),
)


def lines_of(refused: int) -> list[str]:
    rows = tuple(RefusedRow(line, "a reason " * 20) for line in range(2, refused + 2))
    return calibration_lines(Calibration("rows.csv", date(2026, 11, 1), 1, "", (STACK,), rows))


def test_a_row_is_one_row_and_a_range_stands_around_one() -> None:
    text = "\n".join(lines_of(0))
    assert "1 row of rows.csv, 2026-11-01" in text
    assert "H100-SXM5-80GB under vllm 0.12+, inference" in text
    assert "×0.67–1.49" in text
    assert lines_of(0)[-1] != ""


def test_a_fit_that_is_worse_than_none_says_so_with_the_lines_that_are_off() -> None:
    """Errors went from 55.9 % to 176.9 % without a word."""
    worse = CalibratedFigure("output_tok_s", 4, 0.559, 0.9, 1.769, 0.4, 0.9, worse_lines=(3, 2))
    stack = replace(STACK, figures=(*STACK.figures, worse))
    lines = calibration_lines(Calibration("rows.csv", date(2026, 11, 1), 1, "", (stack,), ()))
    text = " ".join(" ".join(lines).split())
    assert "output tokens/s: rows left out are predicted worse than before, 55.9 % → 176.9 %" in text
    assert "lines 3, 2 of the file most" in text and "NOTE" not in "\n".join(lines_of(0))
    assert all(len(line) <= 100 for line in lines)


def test_many_refusals_are_counted_and_no_line_is_too_wide() -> None:
    lines = lines_of(LINES_OF_REFUSALS + 5)
    assert all(len(line) <= 100 for line in lines)
    assert lines[-1].split() == ["REFUSED", "5", "further", "rows"]
