"""What the bench of step times says in the end."""

import pytest

from bench.train_calibration import verdict


def test_the_verdict_names_what_does_not_hold() -> None:
    pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
    assert verdict([0.02, 0.09], 2) == "verdict: the worst within 10% holds; the ranges hold"
    assert "does not hold, by 3.0%" in verdict([0.02, 0.13], 2)
    assert "do not hold: 2.4 are to be within" in verdict([0.02, 0.09, 0.01], 2)
