"""Stations before replicas: against published values, against simulation, and their laws."""

import heapq
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.inference.latency import Latency
from twofold.inference.spreads import sigma_of
from twofold.inference.stations import (
    erlang_wait_probability,
    fewest_servers,
    in_turn,
    rate_within,
    station_latency,
)
from twofold.perf.types import one

WORK_S, P95_S = 0.04, 0.12


def test_the_share_that_waits_is_erlangs() -> None:
    """Published values of C(c, a): Kleinrock 1975, and the tables of Cooper 1981."""
    assert erlang_wait_probability(1, 0.7) == pytest.approx(0.7)
    assert erlang_wait_probability(2, 0.5) == pytest.approx(1.0 / 3.0)
    assert erlang_wait_probability(10, 0.8) == pytest.approx(0.4092, abs=1e-4)


def test_alone_a_request_takes_its_work_and_saturated_servers_let_nobody_through() -> None:
    alone = station_latency(0.0, WORK_S, P95_S, 4)
    assert one(alone.mean_s) == pytest.approx(WORK_S) and one(alone.p95_s) == pytest.approx(P95_S)
    assert one(station_latency(4 / WORK_S, WORK_S, P95_S, 4).mean_s) == math.inf


@pytest.mark.parametrize("places", [1, 4, 16])
@pytest.mark.parametrize("busy", [0.5, 0.8])
def test_a_simulated_station_agrees(places: int, busy: float) -> None:
    """One line, so many places, random arrivals, log-normal work: a simulation that shares no code."""
    rng, count, sigma = np.random.default_rng(7), 300_000, sigma_of(P95_S / WORK_S)
    work = np.minimum(WORK_S * np.exp(sigma * rng.standard_normal(count) - sigma**2 / 2), 3.5 * P95_S)
    at = np.cumsum(rng.exponential(WORK_S / (busy * places), count))
    free, took = [0.0] * places, np.empty(count)
    for number, (comes_s, needs_s) in enumerate(zip(at.tolist(), work.tolist(), strict=True)):
        begins_s = max(comes_s, heapq.heappop(free))
        heapq.heappush(free, begins_s + needs_s)
        took[number] = begins_s + needs_s - comes_s
    told = station_latency(busy * places / WORK_S, WORK_S, P95_S, places)
    assert one(told.mean_s) == pytest.approx(took.mean(), rel=0.08)
    assert one(told.p95_s) == pytest.approx(np.quantile(took, 0.95), rel=0.15)
    assert one(told.p99_s) == pytest.approx(np.quantile(took, 0.99), rel=0.20)


@given(
    rate=st.floats(0.0, 90.0),
    more=st.floats(1.0, 1.1),
    places=st.integers(4, 40),
    ratio=st.floats(1.0, 3.5),
)
def test_more_load_is_never_faster_and_more_places_are_never_slower(
    rate: float, more: float, places: int, ratio: float
) -> None:
    def p95(per_s: float, count: int) -> float:
        return one(station_latency(per_s, WORK_S, ratio * WORK_S, count).p95_s)

    assert p95(rate, places) <= p95(rate * more, places) * (1 + 1e-9)
    assert p95(rate, places + 1) <= p95(rate, places) * (1 + 1e-9)
    alone = station_latency(rate, WORK_S, ratio * WORK_S, places)
    assert one(alone.p50_s) <= one(alone.p95_s) <= one(alone.p99_s)


@given(rate=st.floats(0.1, 500.0), ratio=st.floats(1.2, 6.0), each=st.integers(1, 8))
def test_the_fewest_servers_hold_and_one_less_does_not(rate: float, ratio: float, each: int) -> None:
    limit_s = ratio * P95_S
    count = fewest_servers(rate, limit_s, WORK_S, P95_S, each)
    assert count is not None
    assert rate_within(limit_s, WORK_S, P95_S, count * each) >= rate * (1 - 1e-6)
    assert count == 1 or rate_within(limit_s, WORK_S, P95_S, (count - 1) * each) <= rate * (1 + 1e-6)


def test_no_number_of_servers_is_faster_than_the_work() -> None:
    assert fewest_servers(10.0, 0.9 * P95_S, WORK_S, P95_S, 4) is None


def test_two_in_turn_are_close_to_the_sum_of_draws() -> None:
    """Two exponential latencies: the sum is an Erlang, whose quantiles are known."""
    own = Latency(1.0, math.log(2), -math.log(0.05), -math.log(0.01))
    both = in_turn(own, own)
    assert one(both.mean_s) == 2.0
    assert one(both.p95_s) == pytest.approx(4.744, rel=0.03)
    assert one(both.p50_s) == pytest.approx(1.678, rel=0.08)
    nothing = Latency(0.0, 0.0, 0.0, 0.0)
    assert all(
        one(getattr(in_turn(nothing, own), f"{q}_s")) == pytest.approx(getattr(own, f"{q}_s"))
        for q in ("mean", "p50", "p95", "p99")
    )
    never = Latency(math.inf, math.inf, math.inf, math.inf)
    assert one(in_turn(own, never).p95_s) == math.inf
