import math

import pytest

from twofold.policy.gate import Beliefs, GateSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempt_limit": 0},
        {"failure_limit": 0},
        {"failure_window_s": 0.0},
        {"open_s": 0.0},
        {"open_s": 2.0, "open_s_max": 1.0},
        {"probe_every_s": 0.0},
        {"retry_after_s_max": 0.0},
    ],
)
def test_settings_that_could_not_work_are_our_mistake(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        GateSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_beliefs_are_finite_seconds(wrong: float) -> None:
    with pytest.raises(AssertionError):
        Beliefs(wrong, 0.0)
    with pytest.raises(AssertionError):
        Beliefs(0.0, wrong)
