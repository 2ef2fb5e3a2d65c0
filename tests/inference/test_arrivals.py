"""Queues for prefill: M/G/1 theory, a queue simulated by its recursion, and what prompts take."""

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.inference import regimes
from twofold.inference.arrivals import (
    Ends,
    backlog_quantile,
    normal_quantile,
    prompt_s,
    prompt_work_spread,
)
from twofold.inference.iteration import iteration_s
from twofold.inference.latency import Prompt, quantile_factor
from twofold.inference.steady import Lengths, full_step, sole_step, step_s

CHAT = Lengths(1024.0, 256.0)
ENDS = Ends(0.012, 0.3, 12.0, 0.2)


@pytest.fixture(scope="module")
def replica(replica_of):
    return replica_of("llama-3.1-8b", "H100-SXM", tp=1.0)


def simulated_backlog(busy, spread, count=200_000):
    """Lindley's recursion: what each arrival finds, in mean services."""
    random = np.random.default_rng(3)
    sigma = np.sqrt(np.log1p(spread**2))
    service = np.exp(sigma * random.standard_normal(count) - 0.5 * sigma**2)
    walk = np.concatenate([[0.0], np.cumsum(service[:-1] - random.exponential(1 / busy, count - 1))])
    return walk - np.minimum.accumulate(walk)


@pytest.mark.parametrize("busy", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
def test_the_backlog_is_that_of_a_simulated_queue(busy, spread):
    found = simulated_backlog(busy, spread)
    for level in (0.95, 0.99):
        assert backlog_quantile(busy, spread, level) == pytest.approx(np.quantile(found, level), rel=0.15)


def test_a_queue_near_saturation_is_exponential():
    for level in (0.5, 0.95, 0.99):
        # Of M/D/1 in heavy traffic: mean ρ/(2(1 − ρ)).
        exponential = -0.98 / 0.04 * np.log(1.0 - level)
        assert backlog_quantile(0.98, 0.0, level) == pytest.approx(exponential, rel=0.15)


def test_most_arrivals_at_a_quiet_queue_find_nothing():
    assert backlog_quantile(0.04, 1.0, 0.95) == 0.0
    assert backlog_quantile(0.04, 1.0, 0.99) > 0.0


@given(busy=st.floats(0.0, 0.97), more=st.floats(0.0, 1.0), spread=st.floats(0.0, 4.0))
@settings(max_examples=200)
def test_more_work_is_found_the_busier_the_queue(busy, more, spread):
    """So is what a quantile has above the mean; both carry INV-2."""
    busier = busy + more * (0.98 - busy)
    for level in (0.5, 0.95, 0.99):
        few, many = (backlog_quantile(each, spread, level) for each in (busy, busier))
        assert many >= few * (1.0 - 1e-9)
        means = [each * (1.0 + spread**2) / (2.0 * (1.0 - each)) for each in (busy, busier)]
        if level > 0.5:
            assert max(many - means[1], 0.0) >= max(few - means[0], 0.0) - 1e-9


@pytest.mark.parametrize(
    ("probability", "deviations"), [(0.5, 0.0), (0.95, 1.645), (0.99, 2.326), (0.8, 0.842)]
)
def test_quantiles_of_a_normal(probability, deviations):
    assert normal_quantile(probability) == pytest.approx(deviations, abs=0.015)
    assert normal_quantile(1.0 - probability) == pytest.approx(-deviations, abs=0.015)


@given(
    factor=st.floats(0.01, 50.0), more=st.floats(1.0, 2.0), tokens=st.floats(10.0, 20_000.0),
    chunk=st.sampled_from([512.0, 2048.0, 8192.0]), spread=st.floats(0.0, 2.0),
)  # fmt: skip
def test_longer_prompts_take_longer(replica, factor, more, tokens, chunk, spread):
    chunked = replace(replica, chunk_tokens=chunk)
    prompt = Prompt(tokens, spread, 0.03, min(tokens, chunk))
    shorter, longer = (prompt_s(chunked, ENDS, prompt, each) for each in (factor, factor * more))
    assert 0.012 * (1 - 1e-9) <= shorter <= longer * (1 + 1e-9)
    assert prompt_s(chunked, ENDS, prompt) == pytest.approx(0.03 * max(1.0, tokens / chunk))


@given(rate=st.floats(0.1, 12.0), spread=st.floats(0.0, 2.0), more=st.floats(0.0, 1.0))
@settings(max_examples=25, deadline=None)
def test_prompts_that_spread_more_wait_longer(replica, rate, spread, more):
    even, uneven = (
        regimes.open_loop(replica, replace(CHAT, input_spread=each), rate) for each in (spread, spread + more)
    )
    assert uneven.ttft.mean_s >= even.ttft.mean_s * (1 - 1e-6)
    assert uneven.tpot.mean_s >= even.tpot.mean_s * (1 - 1e-6)


def test_a_lone_request_s_first_token_takes_its_prompt(replica):
    quiet = replace(replica, engine=replace(replica.engine, first_token_s=0.0, first_token_steps=0.0))
    spread = replace(CHAT, input_spread=1.0)
    served = regimes.open_loop(quiet, spread, 1e-6)
    longest = regimes.open_loop(quiet, Lengths(1024.0 * float(quantile_factor(1.0, 1.645)), 256.0), 1e-6)
    assert served.ttft.p95_s == pytest.approx(float(longest.ttft.mean_s), rel=0.1)
    assert served.ttft.p50_s < served.ttft.mean_s


def test_prompts_that_share_a_small_cache_wait_for_room_earlier(replica_of):
    tight = replica_of("llama-3.1-8b", "L4", "fp8", tp=1.0, rank_batch=256.0, chunk_tokens=2048.0)
    even, uneven = (Lengths(809.0, 211.0, spread, 0.6) for spread in (0.0, 1.5))
    most = 1.0 / float(regimes.open_loop(tight, even, 1.0).utilisation_fraction)
    waits = [float(regimes.open_loop(tight, each, 0.85 * most).ttft.mean_s) for each in (even, uneven)]
    assert waits[1] > 2.0 * waits[0]


def test_one_prompt_is_not_split_over_the_stages_that_share_a_chunk_of_many(replica_of):
    staged = replica_of("llama-3.1-70b", "H100-SXM", weights="fp8", tp=2.0, pp=2.0)
    lengths = Lengths(1155.0, 211.0, 1.5, 0.5)
    lone = regimes.open_loop(staged, lengths, 1e-4)
    late = 1155.0 * float(quantile_factor(1.5, 1.645))
    alone_s = float(iteration_s(staged, late, late / 2.0, 0.0, 0.0).total_s)
    assert float(lone.ttft.p95_s) == pytest.approx(alone_s, rel=0.15)
    whole = replace(staged, pp=1.0)
    sole_s, full_s = (
        [float(step_s(each, 8.0, step(each, lengths))) for each in (whole, staged)]
        for step in (sole_step, full_step)
    )
    assert sole_s[0] == pytest.approx(full_s[0])
    assert sole_s[1] > 1.5 * full_s[1]


def test_work_of_prompts_spreads_further_than_they_do_where_attention_is_much_of_it(replica_of):
    replica = replica_of("llama-3.1-8b", "H100-SXM", tp=1.0)
    short, long = (prompt_work_spread(replica, Lengths(tokens, 200.0, 0.8)) for tokens in (10.0, 16_000.0))
    assert float(short) == pytest.approx(0.8, rel=0.03)
    sizes = np.exp(np.random.default_rng(1).normal(0.0, sqrt(log(1.64)), 100_000))
    sizes *= 16_000.0 / sizes.mean()
    flops = 2.0 * 8.03e9 * sizes + 4.0 * 32 * 32 * 128 * sizes**2 / 2.0
    assert float(long) == pytest.approx(float(flops.std() / flops.mean()), rel=0.1)
