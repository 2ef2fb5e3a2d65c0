"""What the fits write about sources that they never saw."""

from pathlib import Path

import numpy as np
import pytest

from twofold.measure.left_out import left_out_errors, read_left_out, write_left_out

ERRORS = {("b", "dense"): np.log([1.1, 0.9, 2.0]), ("a", "moe"): np.log([1.0])}


def test_errors_are_fractions_of_the_measured_value_by_source_and_kind() -> None:
    exact, off = left_out_errors("training", "step time", ERRORS)
    assert (exact.source, exact.kind, exact.rows, exact.mean_error, exact.bias) == ("a", "moe", 1, 0.0, 0.0)
    assert off.mean_error == pytest.approx((0.1 + 0.1 + 1.0) / 3)
    assert off.median_error == pytest.approx(0.1)
    assert off.bias == pytest.approx((1.1 * 0.9 * 2.0) ** (1 / 3) - 1)


def test_each_half_replaces_its_own_lines_alone(tmp_path: Path) -> None:
    path = tmp_path / "left_out.csv"
    write_left_out("training", left_out_errors("training", "step time", ERRORS), path)
    write_left_out("inference", left_out_errors("inference", "tpot", ERRORS), path)
    write_left_out("training", left_out_errors("training", "peak memory", ERRORS), path)
    assert [(line.half, line.figure) for line in read_left_out(path)] == [
        ("inference", "tpot"),
        ("inference", "tpot"),
        ("training", "peak memory"),
        ("training", "peak memory"),
    ]
