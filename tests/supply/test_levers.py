"""Levers in order, and the cadence of checkpoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.supply import Pulled, checkpoint_overhead_fraction, lever, ranked
from twofold.supply.levers import best_interval_s


def test_the_largest_saving_stands_first_whether_open_or_in_use() -> None:
    levers = [
        lever("batch", "serve", Pulled.IN_USE, 5.0, 10.0, ""),
        lever("cache", "serve", Pulled.OPEN, -1.0, 10.0, ""),
        lever("source", "serve", Pulled.OPEN, 7.0, 10.0, ""),
    ]
    assert [each.name for each in ranked(levers)] == ["source", "batch", "cache"]
    assert levers[0].saves_fraction == 0.5


@given(st.floats(1.0, 600.0), st.floats(1e5, 1e7), st.floats(0.1, 10.0))
def test_no_cadence_beats_the_best(write_s: float, between_s: float, factor: float) -> None:
    best = best_interval_s(write_s, between_s)
    least = checkpoint_overhead_fraction(best, write_s, between_s)
    assert checkpoint_overhead_fraction(best * factor, write_s, between_s) >= least * (1 - 1e-12)
    assert least == pytest.approx(2 * write_s / best)
