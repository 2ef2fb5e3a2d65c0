"""Percentiles to 0.5 %, parts that merge in any order, and intervals that hold the truth."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.twin.histogram import ERROR_FRACTION, Histogram, Stream, half_width, merged, student_t

values_s = st.lists(st.floats(1e-8, 1e5) | st.just(0.0), min_size=1, max_size=200)


def filled(values: list[float]) -> Histogram:
    histogram = Histogram()
    histogram.add(np.array(values))
    return histogram


@given(values=values_s, fraction=st.floats(0.0, 1.0))
def test_a_quantile_is_the_order_statistic_to_half_a_percent(values: list[float], fraction: float) -> None:
    rank = max(int(np.ceil(fraction * len(values) - 1e-9)), 1)
    exact = sorted(values)[rank - 1]
    assert filled(values).quantile(fraction) == pytest.approx(exact, rel=ERROR_FRACTION * 1.0001, abs=1e-12)


@given(values=values_s, cut=st.integers(0, 200), data=st.data())
def test_parts_merge_to_the_same_whole_in_any_order(
    values: list[float], cut: int, data: st.DataObject
) -> None:
    parts = [filled(values[:cut]), filled(values[cut:]), filled(values[::2])]
    one = merged(parts)
    other = merged(data.draw(st.permutations(parts)))
    assert (one.bins, one.count, one.ticks) == (other.bins, other.count, other.ticks)
    assert one.mean == other.mean


@given(values=values_s)
def test_the_mean_is_exact_to_a_nanosecond_whatever_the_bins(values: list[float]) -> None:
    assert filled(values).mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9)


@given(values=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=600), cut=st.integers(0, 600))
def test_batches_lose_nothing_however_they_are_told(values: list[float], cut: int) -> None:
    stream, other = Stream(), Stream()
    for part in (values[:cut], values[cut:]):
        stream.add(np.array(part))
    other.add(np.array(values))
    assert repr(stream.latency()) == repr(other.latency())
    whole, plain = stream.histogram(), Histogram()
    plain.add(np.array(values))
    assert (whole.bins, whole.count, whole.ticks) == (plain.bins, plain.count, plain.ticks)
    assert len(stream._batches) < 32


def test_nothing_has_no_latency_and_little_has_an_endless_interval() -> None:
    stream = Stream()
    assert stream.latency() is None
    stream.add(np.array([1.0]))
    latency = stream.latency()
    assert latency is not None
    assert latency.interval.p99 is None and latency.interval.mean is None
    assert latency.p99 == pytest.approx(1.0, rel=ERROR_FRACTION * 1.0001)


def covered(correlation: float, fraction: float, truth: float, runs: int, count: int) -> float:
    """How often the interval of an AR(1) sequence's percentile holds the true one."""
    held = 0
    for seed in range(runs):
        noise = np.random.default_rng(seed).normal(size=count) * np.sqrt(1.0 - correlation**2)
        stream, state, values = Stream(), 0.0, []
        for step in noise.tolist():
            state = correlation * state + step
            values.append(state)
        stream.add(np.exp(np.array(values)))
        _, low, high = stream.quantile(stream.histogram(), fraction)
        held += low <= truth <= high
    return held / runs


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_intervals_hold_the_truth_also_where_values_hang_together(correlation: float) -> None:
    # 95 % nominal; of 40 runs, 33 or fewer would come with p < 0.002 if it were so.
    assert covered(correlation, 0.9, float(np.exp(1.2815516)), runs=40, count=2000) > 0.84


def test_alike_neighbours_widen_the_interval() -> None:
    means = [1.0, 2.0] * 8
    assert half_width(sorted(means)) > 2.0 * half_width(means)
    assert half_width(means[:7]) == inf
    assert half_width([1.0] * 16) == 0.0


@pytest.mark.parametrize(("freedom", "published"), [(5, 2.571), (10, 2.228), (20, 2.086), (31, 2.040)])
def test_student_t_is_the_published_one(freedom: int, published: float) -> None:
    assert student_t(freedom) == pytest.approx(published, rel=0.01)


def test_many_alike_are_as_many_one_by_one() -> None:
    values, counts = np.array([0.0, 0.013, 4.0, 0.013]), np.array([2, 5, 1, 3])
    counted, single = Histogram(), Histogram()
    counted.add_counted(values, counts)
    for value, count in zip(values, counts, strict=True):
        single.add(np.full(count, value))
    assert (counted.bins, counted.count, counted.ticks) == (single.bins, single.count, single.ticks)
