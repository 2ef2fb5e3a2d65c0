"""Collectives: the ring law on an idle network, k rings across domains, and what latency and jitter add."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.perf.collectives import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    point_to_point_s,
    reduce_scatter_s,
    serving_all_reduce_s,
    straggler_factor,
)
from twofold.perf.types import Floats, Network

shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
Collective = Callable[..., Floats]
COLLECTIVES = (all_gather_s, reduce_scatter_s, all_reduce_s, all_to_all_s, serving_all_reduce_s)
PAYLOAD_BYTES = 8e9


def simulated_ring_s(ranks: int, payload_bytes: float, bytes_per_s: float) -> float:
    """All-reduce of a ring, step by step: each sends one chunk to its neighbour until all hold the sum."""
    chunk_bytes = payload_bytes / ranks
    held = [{(rank, chunk) for chunk in range(ranks)} for rank in range(ranks)]  # whose share of which chunk
    seconds = 0.0
    for step in range(2 * (ranks - 1)):
        sent = [
            (rank, {part for part in held[rank] if part[1] == (rank - step) % ranks}) for rank in range(ranks)
        ]
        for rank, parts in sent:
            held[(rank + 1) % ranks] |= parts
        seconds += chunk_bytes / bytes_per_s
    assert all(len(parts) == ranks * ranks for parts in held)  # every rank has every share of every chunk
    return seconds


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_an_idle_saturated_network_obeys_the_ring_law(idle: Network, ranks: int) -> None:
    rate = float(idle.link_bytes_per_s)
    expected_s = simulated_ring_s(ranks, PAYLOAD_BYTES, rate)
    assert float(all_reduce_s(idle, PAYLOAD_BYTES, ranks)) == pytest.approx(expected_s, rel=0.01)
    assert float(all_gather_s(idle, PAYLOAD_BYTES, ranks)) == pytest.approx(expected_s / 2, rel=0.01)
    assert float(reduce_scatter_s(idle, PAYLOAD_BYTES, ranks)) == pytest.approx(expected_s / 2, rel=0.01)
    assert float(all_to_all_s(idle, PAYLOAD_BYTES, ranks)) == pytest.approx(expected_s / 2, rel=0.01)


def test_ranks_alone_in_their_domains_ring_over_their_nics(idle: Network) -> None:
    expected_s = simulated_ring_s(16, PAYLOAD_BYTES, float(idle.nic_bytes_per_s))
    assert float(all_reduce_s(idle, PAYLOAD_BYTES, 16, stride=8)) == pytest.approx(expected_s, rel=0.01)


def test_every_member_of_a_domain_drives_its_own_nic(idle: Network) -> None:
    """Eight nodes: eight rings carry an eighth each, side by side: an eighth of one ring's time."""
    fast_links = replace(idle, link_bytes_per_s=1e15)
    one_ring_s = simulated_ring_s(64, PAYLOAD_BYTES, float(idle.nic_bytes_per_s))
    assert float(all_reduce_s(fast_links, PAYLOAD_BYTES, 64)) == pytest.approx(one_ring_s / 8, rel=0.01)


def test_links_inside_carry_what_all_nics_bring(idle: Network) -> None:
    fast_nics = replace(idle, nic_bytes_per_s=1e15)
    expected_s = simulated_ring_s(64, PAYLOAD_BYTES, float(idle.link_bytes_per_s))
    assert float(all_reduce_s(fast_nics, PAYLOAD_BYTES, 64)) == pytest.approx(expected_s, rel=0.01)


def test_the_domain_is_not_the_node(nvl72: Network) -> None:
    assert nvl72.domain_size == 72
    across_trays = float(all_reduce_s(nvl72, 1e9, 64))
    assert across_trays < 2 * float(all_reduce_s(nvl72, 1e9, 4))
    assert float(all_reduce_s(nvl72, 1e9, 4, stride=72)) > 5 * across_trays


@pytest.mark.parametrize("collective", COLLECTIVES)
@shared
@given(payload=st.floats(1.0, 1e11), ranks=st.sampled_from([2, 4, 8, 16, 64, 512]), gain=st.floats(1.0, 10.0))
def test_more_bytes_cost_more_and_more_bandwidth_less(
    hgx: Network, collective: Collective, payload: float, ranks: int, gain: float
) -> None:
    base = float(collective(hgx, payload, ranks))
    wide = replace(
        hgx, link_bytes_per_s=hgx.link_bytes_per_s * gain, nic_bytes_per_s=hgx.nic_bytes_per_s * gain
    )
    assert base > 0
    assert float(collective(hgx, payload * gain, ranks)) >= base
    assert float(collective(wide, payload, ranks)) <= base


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_rank_alone_waits_for_nobody(hgx: Network, collective: Collective) -> None:
    assert float(collective(hgx, 1e9, 1)) == 0.0
    assert collective(hgx, 1e9, np.array([1.0, 8.0]))[0] == 0.0


def test_an_all_reduce_is_a_scatter_and_a_gather(idle: Network) -> None:
    for ranks, stride in ((8, 1), (64, 1), (16, 8), (32, 4)):
        halves = all_gather_s(idle, 1e9, ranks, stride) + reduce_scatter_s(idle, 1e9, ranks, stride)
        assert float(all_reduce_s(idle, 1e9, ranks, stride)) == pytest.approx(float(halves))


def test_a_small_serving_all_reduce_is_far_faster_than_the_library_s(hgx: Network) -> None:
    assert float(serving_all_reduce_s(hgx, 16e3, 8)) < 0.5 * float(all_reduce_s(hgx, 16e3, 8))
    assert float(serving_all_reduce_s(hgx, 16e3, 16)) == float(all_reduce_s(hgx, 16e3, 16))


def test_a_hand_off_knows_its_neighbour(hgx: Network) -> None:
    inside, outside = (
        float(point_to_point_s(hgx, 1e9, 1)),
        float(point_to_point_s(hgx, 1e9, 8)),
    )
    assert outside == pytest.approx(1e9 / float(hgx.nic_bytes_per_s), rel=0.01)
    assert inside < outside / 3


def test_jitter_raises_the_tail_as_the_largest_of_many_normals_does() -> None:
    drawn = np.random.default_rng(2).normal(1.0, 0.05, (400, 1024)).max(axis=1).mean()
    assert straggler_factor(0.05, 1024) == pytest.approx(drawn, rel=0.03)
    assert straggler_factor(0.05, 1) == 1.0
    assert straggler_factor(0.1, 64) > straggler_factor(0.05, 64) > straggler_factor(0.05, 8) > 1.0


def test_eight_h100_reach_the_published_bus_bandwidth(hgx: Network) -> None:
    """Public tables: an all-reduce of 256 MB over eight H100 moves 320–470 GB/s on the bus."""
    bus = 2 * 7 / 8 * 268435456 / float(all_reduce_s(hgx, 268435456, 8))
    assert 300e9 <= bus <= 470e9


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_draws_broadcast_over_candidates(hgx: Network, collective: Collective) -> None:
    draws = np.linspace(0.8, 1.2, 5)[:, None]
    drawn = replace(
        hgx, link_bytes_per_s=hgx.link_bytes_per_s * draws, nic_bytes_per_s=hgx.nic_bytes_per_s * draws
    )
    ranks = np.array([1.0, 4.0, 8.0, 64.0])
    seconds = np.asarray(collective(drawn, 1e8, ranks))
    assert seconds.shape == (5, 4)
    assert np.all(np.diff(seconds[:, 1:], axis=0) < 0)  # faster links, draw by draw
    np.testing.assert_allclose(seconds[2], collective(hgx, 1e8, ranks))
