"""Logs of a gateway cost its clients nothing that can be told: by its own bench, in fewer turns."""

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("uvloop", reason="needs the extra [live]: `make extras`")

from bench.gateway_logs import ratios_of, turns_of

PAIRS, TURN_S, TIMES = 16, 0.5, 4
LIMIT_RATIO = 1.02


def test_r_084_logs_move_the_95th_percentile_by_less_than_2_percent() -> None:
    """Others on the machine blur it: so it goes on until chance alone explains neither side of the limit."""
    with_s: list[float] = []
    without_s: list[float] = []
    for _ in range(TIMES):
        more_with_s, more_without_s, count = turns_of(PAIRS, TURN_S)
        assert count > 100
        with_s += more_with_s
        without_s += more_without_s
        found = ratios_of(with_s, without_s)
        assert found.low < LIMIT_RATIO, found
        if found.high < LIMIT_RATIO:
            return
    pytest.skip(f"others on this machine blur the 2 %: {found.text}")
