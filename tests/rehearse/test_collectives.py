"""Collectives hop by hop: the formula when nothing disturbs, a tail when something does."""

from dataclasses import replace

import numpy as np
import pytest

from twofold.perf import collectives
from twofold.perf.types import Network
from twofold.rehearse.collectives import (
    Ring,
    StepAtSize,
    jittered_step,
    ring_reduce_s,
    rising_shares,
    step_parts,
)
from twofold.rehearse.training_figures import ALARM_INFLATION_FRACTION

RING = Ring(payload_bytes=1e9, rank_count=64, link_bytes_per_s=50e9, hop_latency_s=5e-6, compute_s=0.5)


def quiet(rank_count: int) -> Network:
    """Links without protocol losses, all ranks in one domain."""
    return Network(
        node_size=rank_count,
        domain_size=rank_count,
        link_bytes_per_s=50e9,
        link_latency_s=5e-6,
        link_half_bytes=0.0,
        nic_bytes_per_s=1e9,
        nic_latency_s=0.0,
        jitter_fraction=0.0,
        fabric="",
        launch_s=0.0,
        pair_loss_fraction=0.0,
    )


@pytest.mark.parametrize("rank_count", [2, 8, 64])
def test_an_idle_ring_takes_what_the_formula_says(rank_count: int) -> None:
    ring = replace(RING, rank_count=rank_count)
    simulated = ring_reduce_s(ring, 0.0, np.random.default_rng(0), 1)[0]
    formula = float(collectives.all_reduce_s(quiet(rank_count), ring.payload_bytes, rank_count))
    assert simulated == pytest.approx(formula, rel=0.01)


def test_jitter_raises_the_tail_and_rings_beyond_five_percent() -> None:
    rows = [jittered_step(RING, each, 0, 50) for each in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)]
    _, tails, inflations = zip(*rows, strict=True)
    assert inflations[0] == pytest.approx(0.0, abs=1e-9)
    assert [*tails] == sorted(tails)
    assert ALARM_INFLATION_FRACTION == 0.05
    assert inflations[1] < ALARM_INFLATION_FRACTION < inflations[-1]
    assert all(p99_s >= p50_s for p50_s, p99_s, _ in rows)


def test_a_fault_that_grows_with_scale_is_found_at_the_size_where_it_was_put() -> None:
    parts = [
        step_parts(replace(RING, rank_count=count), 0.1 if count >= 64 else 0.0, 0.1, repeat_count=20)
        for count in (8, 16, 32, 64, 128)
    ]
    found = rising_shares(parts)
    assert [(one.part, one.accelerator_count) for one in found] == [("sync", 64)]


def test_a_shared_store_shows_as_input() -> None:
    parts = [step_parts(replace(RING, rank_count=count), 0.0, count / 50) for count in (8, 16, 32, 64)]
    assert [(one.part, one.accelerator_count) for one in rising_shares(parts)] == [("input", 32)]


def test_equal_shares_at_all_sizes_are_no_fault() -> None:
    assert rising_shares([StepAtSize(n, 1.0, 0.3, 0.1, 0.1) for n in (8, 64, 512)]) == ()
