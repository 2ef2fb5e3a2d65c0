"""Draws of a calibrated stack: as correlated and as wide as its rows left them, beside the common ones."""

from datetime import date
from pathlib import Path

import numpy as np
import pytest

from twofold.answer.calibrated import calibration_rows
from twofold.answer.calibrated_draws import draws_in
from twofold.answer.uncertainty import FACTORS, draw_factors
from twofold.contracts.rows import CalibratedFactor, CalibratedStack, Calibration
from twofold.perf import Constants, load_constants, with_rows

SCOPE = {"half": "inference", "accelerator": "B200", "software": "vllm", "era": "0.12+", "kind": "dense"}
COVARIANCE = ((0.0004, 0.0003, 0.0), (0.0003, 0.0009, 0.0), (0.0, 0.0, 0.01))
NAMES = ("compute", "host", "prefill")


@pytest.fixture(scope="module")
def constants() -> Constants:
    factors = tuple(CalibratedFactor(name, 1.1, 1.0, 1.2, 0.9, 1.1) for name in NAMES)
    stack = CalibratedStack(
        "inference", "B200", "vllm", "0.12+", "0.15", ("dense",), 5, factors, COVARIANCE, ()
    )
    found = Calibration("rows.csv", date(2026, 11, 1), 1, "", (stack,), ())
    return with_rows(load_constants(), calibration_rows(found, Path("calibration.json")))


def test_a_stack_draws_with_the_covariance_after_its_rows(constants: Constants) -> None:
    own = draws_in(draw_factors(constants, 2000), SCOPE)
    logs = np.log([np.ravel(own[name]) for name in NAMES])
    assert np.cov(logs) == pytest.approx(np.array(COVARIANCE), abs=1e-4 + 0.06 * 0.01)
    assert np.abs(np.median(logs, axis=1)).max() < 0.01  # medians are scaled elsewhere


def test_a_lucky_draw_stays_lucky(constants: Constants) -> None:
    draws = draw_factors(constants)
    for name in ("compute", "host"):
        pair = np.log([np.ravel(draws[name]), np.ravel(draws_in(draws, SCOPE)[name])])
        assert np.corrcoef(pair)[0, 1] > 0.8


def test_other_stacks_and_other_factors_keep_the_common_draws(constants: Constants) -> None:
    draws, plain = draw_factors(constants), draw_factors(load_constants())
    elsewhere = draws_in(draws, SCOPE | {"accelerator": "H100"})
    for name in FACTORS:
        assert np.array_equal(elsewhere[name], plain[name])
    assert np.array_equal(draws_in(draws, SCOPE)["overlap"], plain["overlap"])
    assert "prefill" not in elsewhere
