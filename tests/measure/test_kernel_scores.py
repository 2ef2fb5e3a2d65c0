"""Scores of kernels: shipped constants on held-out rows, within the limits that they reach today."""

from pathlib import Path

import numpy as np
import pytest

from twofold.measure.kernel_scores import LEAST_S, KernelError, kernel_errors, kernel_parts, read_classes
from twofold.measure.kernel_tables import gemm_rows, table
from twofold.measure.results import Column
from twofold.perf.constants import load_constants

TRUTH = Path(__file__).parents[3] / "shared" / "truth"


@pytest.fixture(scope="module")
def errors() -> list[KernelError]:
    if not TRUTH.is_dir():
        pytest.skip("the kernel tables are not beside this checkout: ../shared/truth")
    return kernel_errors(TRUTH, load_constants())


def mean_error(rows: list[KernelError]) -> float:
    return float(np.mean([abs(row.predicted_s / row.measured_s - 1.0) for row in rows]))


# Held-out rows above 50 us; the limits stand a point above what the constants reach today.
@pytest.mark.parametrize(
    ("table", "limit"), [("gemm", 0.11), ("attention", 0.19), ("collective", 0.13), ("moe", 0.185)]
)
def test_unseen_configurations_are_predicted_within_the_tables_limit(
    errors: list[KernelError], table: str, limit: float
) -> None:
    rows = [row for row in errors if row.table == table and row.held_out and row.measured_s > 50e-6]
    assert len(rows) > 150
    assert mean_error(rows) <= limit


def test_every_table_is_scored_and_a_fifth_of_it_is_held_out(errors: list[KernelError]) -> None:
    for name in ("gemm", "attention", "collective", "moe"):
        share = np.mean([row.held_out for row in errors if row.table == name])
        assert 0.15 < share < 0.25


def test_a_row_faster_than_the_peak_is_neither_fitted_nor_scored() -> None:
    if not TRUTH.is_dir():
        pytest.skip("the kernel tables are not beside this checkout: ../shared/truth")
    row = next(row for row in table(TRUTH, "gemm") if row["dtype"] == "bfloat16" and int(row["k"]) > 4096)
    built = gemm_rows([row, row | {"time_us": "0.001"}], "bfloat16", load_constants())
    assert list(built.possible) == [True, False]
    assert not built.fitted[1]


def test_no_efficiency_of_a_class_exceeds_one() -> None:
    for key, values in read_classes().items():
        for name, value in values.items():
            if name.endswith("_efficiency_fraction"):
                assert value <= 1.0, key


def test_only_long_kernels_that_no_fit_saw_are_scored() -> None:
    if not TRUTH.exists():
        pytest.skip("the tables of kernels are not beside this checkout: ../shared/truth")
    found = kernel_parts(TRUTH, load_constants())
    errors = kernel_errors(TRUTH, load_constants())
    wanted = [error for error in errors if error.held_out and error.measured_s > LEAST_S]
    assert {part.figure.name for part in found} == {"gemm", "attention", "collective", "moe"}
    assert sum(len(part.rows) for part in found) == len(wanted) < len(errors)
    for part in found:
        values = part.answers[Column.SEEN]
        assert np.all(values.measured > LEAST_S) and np.all(values.predicted > 0)
        assert len(part.facets) == values.measured.size
