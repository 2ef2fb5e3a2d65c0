"""Kernels of the open tables as evidence: long ones, on configurations that no fit saw."""

from pathlib import Path

import numpy as np
import pytest

from twofold.measure.kernel_parts import LEAST_S, kernel_parts
from twofold.measure.kernel_scores import kernel_errors
from twofold.measure.validation import Column
from twofold.perf import load_constants

TRUTH = Path(__file__).parents[3] / "shared" / "truth"


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
