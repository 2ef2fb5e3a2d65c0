"""The search finds constants that explain seconds, inside bounds; without rows it keeps its priors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.device.search import Unknown, Values, fit_logs, spread_log

SIZES = np.array([1e3, 1e4, 1e5, 1e6, 1e7])
UNKNOWNS = (Unknown("floor_s", 1e-4, 3.0, 1e-9, 1.0), Unknown("rate_per_s", 1e8, 3.0, 1e3, 1e12))


def line(values: Values) -> np.ndarray:
    return values["floor_s"] + SIZES / values["rate_per_s"]


@settings(max_examples=25)
@given(floor_s=st.floats(1e-6, 1e-2), rate_per_s=st.floats(1e7, 1e10))
def test_known_constants_are_found_again(floor_s: float, rate_per_s: float) -> None:
    truth = {"floor_s": floor_s, "rate_per_s": rate_per_s}
    found = fit_logs(line, line(truth), UNKNOWNS)
    assert line(found) == pytest.approx(line(truth), rel=0.15)


def test_one_disturbed_row_moves_little() -> None:
    truth = {"floor_s": 1e-3, "rate_per_s": 1e9}
    measured_s = line(truth)
    measured_s[2] *= 5.0
    found = fit_logs(line, measured_s, UNKNOWNS)
    assert found["floor_s"] == pytest.approx(1e-3, rel=0.15)
    assert found["rate_per_s"] == pytest.approx(1e9, rel=0.15)


def test_bounds_hold_and_no_rows_leave_the_priors() -> None:
    bounded = (Unknown("floor_s", 1e-4, 3.0, 5e-5, 2e-4), UNKNOWNS[1])
    found = fit_logs(line, line({"floor_s": 1e-2, "rate_per_s": 1e9}), bounded)
    assert found["floor_s"] == pytest.approx(2e-4)
    nothing = fit_logs(lambda _: np.zeros(0), np.zeros(0), UNKNOWNS)
    assert nothing == pytest.approx({"floor_s": 1e-4, "rate_per_s": 1e8})


def test_beginning_near_the_answer_keeps_it() -> None:
    truth = {"floor_s": 1e-3, "rate_per_s": 1e9}
    assert fit_logs(line, line(truth), UNKNOWNS, near=truth) == pytest.approx(truth, rel=0.1)


def test_a_range_is_never_narrower_than_a_machine_repeats_itself() -> None:
    assert spread_log(np.zeros(5), 0.05) == 0.05
    assert spread_log(np.array([-0.3, 0.1, 0.3, 0.3, -0.3]), 0.05) == pytest.approx(0.3)
    assert spread_log(np.zeros(0), 0.05) == 0.05
