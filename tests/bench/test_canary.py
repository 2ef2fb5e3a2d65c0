"""The bench of releases: its rates, and one trial of each kind on stages that are small enough for a test."""

from dataclasses import replace

import pytest

from bench.canary import GATE, KINDS, Trial, bounds, line, tried
from twofold.policy.gate.settings import CanarySettings, Stage

SMALL = replace(GATE, canary=CanarySettings((Stage(0.25, 100), Stage(0.5, 200))))


def test_bounds_of_a_rate_are_clopper_and_pearson_s() -> None:
    assert bounds(95, 100) == pytest.approx((0.8872, 0.9836), abs=1e-4)
    assert bounds(0, 10) == pytest.approx((0.0, 0.3085), abs=1e-4)
    assert bounds(10, 10) == pytest.approx((0.6915, 1.0), abs=1e-4)


def test_a_trial_that_never_ends_is_not_right() -> None:
    trials = [Trial(True, "", 900, 10.0), Trial(False, "tpot worse", 100, 5.0), Trial(False, None, 50, 9.0)]
    assert line("equal", trials).split()[1] == "1/3"
    assert line("slower", trials).split()[1] == "1/3"


@pytest.mark.parametrize("kind", ["equal", "slower"])
def test_a_trial_ends_as_it_should(kind: str) -> None:
    trial = tried(KINDS[kind], seed=3, replicas=4, gate=SMALL)
    assert trial.promoted == (kind == "equal") and trial.reason is not None
    assert 0 < trial.canary_count <= 2100
