"""Bars, distributions and the value of measuring."""

import numpy as np
import pytest
from numpy.typing import NDArray

from twofold.money.draws import distribution, tornado, value_of_measuring


def figure(name: str, value: float) -> float:
    inputs = {"price": 1.0, "rate": 1.0, "nothing": 1.0} | {name: value}
    return 100.0 * inputs["price"] * inputs["rate"]


def test_the_longest_bar_is_the_input_that_moves_most() -> None:
    ranges = {"nothing": (0.1, 10.0), "rate": (0.5, 2.0), "price": (0.9, 1.2)}
    bars = tornado(figure, ranges)
    assert [bar.name for bar in bars] == ["rate", "price", "nothing"]
    assert (bars[0].at_low_usd, bars[0].at_high_usd) == (50.0, 200.0)
    assert bars[2].at_low_usd == bars[2].at_high_usd
    assert len(tornado(figure, ranges, most=2)) == 2


def test_a_distribution_has_its_deciles_and_its_share_above_a_limit() -> None:
    found = distribution(np.arange(101.0), limit=89.5)
    assert (found.low, found.median, found.high, found.mean) == (10.0, 50.0, 90.0, 50.0)
    assert found.width == 80.0 and found.over_limit_fraction == pytest.approx(11 / 101)
    assert distribution(np.ones(5)).over_limit_fraction is None


def test_measuring_what_spreads_most_narrows_most_and_measuring_nothing_does_nothing() -> None:
    generator = np.random.default_rng(7)
    draws = {"price": generator.normal(0, 3.0, 4000), "rate": generator.normal(0, 1.0, 4000)}

    def samples(held: frozenset[str]) -> NDArray[np.float64]:
        parts = [values for name, values in draws.items() if name not in held]
        return np.sum(parts, axis=0) if parts else np.zeros(4000)

    asked = {"a quote": ("", ("price",)), "a trace": ("", ("rate",)), "a guess": ("", ("weather",))}
    rows = value_of_measuring(samples, asked)
    assert [row.name for row in rows] == ["a quote", "a trace", "a guess"]
    narrowed = [row.before_usd - row.after_usd for row in rows]
    assert narrowed[0] > 5 * narrowed[1] > 0 and narrowed[2] == 0
