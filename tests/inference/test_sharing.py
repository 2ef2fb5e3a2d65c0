"""Time per further token among others: limits of the mix, and laws of its quantiles."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.inference import Lengths, open_loop
from twofold.inference.sharing import Mix, arrivals_tpot, met_deviation, token_s

MIX = Mix(
    plain_s=0.01, carrying_s=0.04, full_s=0.2, carried_tokens=1000.0, chunk_tokens=8000.0, own_tokens=1000.0,
    input_spread=1.0, output_tokens=200.0, gained_tokens=1.0, rate_per_s=8.0,
)  # fmt: skip
MEAN_S = 0.01 / (1.0 - 8.0 * 0.03)  # T = t(0) + λT·(t(S) − t(0))


@pytest.fixture(scope="module")
def replica(replica_of):
    return replica_of("llama-3.1-8b", "H100-SXM", tp=1.0)


def test_without_deviations_the_mean_is_what_an_answer_takes():
    assert token_s(MIX, MEAN_S, 0.0) == pytest.approx(MEAN_S)


def test_without_prefill_and_fuller_batches_all_answers_are_alike():
    calm = replace(MIX, rate_per_s=0.0)
    same = arrivals_tpot(calm, 0.01, 0.01, 0.04)
    assert float(same.mean_s) == float(same.p95_s) == float(same.p99_s) == 0.01


def test_long_answers_see_the_average_and_short_ones_see_chance():
    short, long = (token_s(replace(MIX, output_tokens=each), MEAN_S, 1.645) for each in (20.0, 20_000.0))
    assert short > 1.3 * MEAN_S
    assert long == pytest.approx(MEAN_S, rel=0.05)


def test_prefill_that_holds_up_the_others_makes_the_batch_deviate_beyond_poisson():
    batch = 8.0 * 200.0 * MEAN_S
    poisson = 2.326 * np.sqrt(batch)
    assert met_deviation(replace(MIX, own_tokens=1e-6), MEAN_S) == pytest.approx(poisson, rel=1e-3)
    assert met_deviation(MIX, MEAN_S) > 1.1 * poisson


@given(
    deviations=st.floats(0.0, 3.0), further=st.floats(0.0, 1.0), rate=st.floats(0.01, 20.0),
    more=st.floats(1.0, 1.5), spread=st.floats(0.0, 3.0), output=st.floats(1.0, 2000.0),
)  # fmt: skip
@settings(max_examples=200)
def test_time_per_token_never_falls_with_chance_load_or_slower_steps(
    deviations, further, rate, more, spread, output
):
    mix = replace(MIX, rate_per_s=rate, input_spread=spread, output_tokens=output)
    base = token_s(mix, 0.01, deviations)
    slower = [
        token_s(mix, 0.01, deviations + further),
        token_s(replace(mix, rate_per_s=rate * more), 0.01, deviations),
        token_s(replace(mix, plain_s=min(0.04, 0.01 * more)), 0.01, deviations),
        token_s(replace(mix, carrying_s=0.04 * more), 0.01, deviations),
        token_s(replace(mix, full_s=0.2 * more), 0.01, deviations),
    ]
    assert min(slower) >= base * (1.0 - 1e-9)
    assert 0.01 <= base <= 0.2


@given(rate=st.floats(0.1, 12.0), spread=st.floats(0.0, 2.0))
@settings(max_examples=20, deadline=None)
def test_quantiles_are_ordered_at_any_spread(replica, rate, spread):
    served = open_loop(replica, Lengths(1024.0, 256.0, spread, 0.5), rate)
    for latency in (served.ttft, served.tpot, served.e2e):
        assert latency.p50_s <= latency.p95_s <= latency.p99_s
        assert latency.mean_s <= latency.p95_s
