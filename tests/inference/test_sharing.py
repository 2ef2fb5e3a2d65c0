"""Time per further token among others: limits of the mix, and laws of its quantiles."""

from dataclasses import replace
from math import exp, log, sqrt
from statistics import NormalDist, fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.inference import regimes
from twofold.inference.latency import quantile_factor
from twofold.inference.sharing import (
    TOGETHER,
    Mix,
    arrivals_tpot,
    heavy_context_tokens,
    met_deviation,
    token_s,
)
from twofold.inference.steady import Lengths

MIX = Mix(
    share_fraction=0.24, tpot_s=0.01 / 0.76, plain_s=0.01, carrying_s=0.04, full_s=0.2, carried_tokens=1000.0,
    chunk_tokens=8000.0, own_tokens=1000.0, work_spread=1.0, output_tokens=200.0, gained_tokens=1.0,
    rate_per_s=8.0,
)  # fmt: skip
MEAN_S = 0.01 / (1.0 - 8.0 * 0.03)  # T = t(0) + λT·(t(S) − t(0))


@pytest.fixture(scope="module")
def replica(replica_of):
    return replica_of("llama-3.1-8b", "H100-SXM", tp=1.0)


def test_without_deviations_the_mean_is_what_an_answer_takes():
    assert token_s(MIX, MEAN_S, 0.0) == pytest.approx(MEAN_S)


def test_without_prefill_and_fuller_batches_all_answers_are_alike():
    calm = replace(MIX, rate_per_s=0.0)
    steps = (0.01, 0.04, 0.01, 0.04)
    same = arrivals_tpot(calm, 0.01, steps, steps, 0.01)
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


@pytest.mark.parametrize("spread", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("answers", [0.0, 0.6])
def test_what_holds_up_one_of_very_many_brings_it_no_more_prompts(spread, answers):
    """As many come as others end answers: one fewer than are held, by chance only as long as these."""
    many = replace(MIX, work_spread=spread, output_spread=answers, replica_count=1e12)
    sent = 8.0 * 200.0 * MEAN_S
    came = sent - sent / (1.0 + sent)
    sigma = sqrt(log(1 + (np.tanh(answers) + spread**2) * (1 + answers**2) / came))
    share = came * 1000.0 / 200.0 / 1000.0 * exp(1.645 * sigma - sigma**2 / 2)
    expected = max(MEAN_S, (1 - share) * 0.01 + share * 0.04)
    assert token_s(many, MEAN_S, 1.645) == pytest.approx(expected, rel=1e-6)


def test_of_four_a_quarter_of_what_one_is_held_up_comes_back_to_it():
    four, token = replace(MIX, replica_count=4.0), MEAN_S
    per_s = 8.0 * (1 - 0.75 / (1.0 + 8.0 * 200.0 * MEAN_S))
    for _ in range(50):
        window = 0.75 * MEAN_S + 0.25 * token
        sigma = sqrt(log(1 + (0.25 + 1.0) / (per_s * 200.0 * window)))
        token = 0.01 + 0.03 * per_s * window * exp(1.645 * sigma - sigma**2 / 2)
    assert token_s(four, MEAN_S, 1.645) == pytest.approx(token, rel=0.01)
    alone = met_deviation(replace(MIX, own_tokens=1e-6), MEAN_S)
    assert met_deviation(replace(four, own_tokens=1e-6), MEAN_S) == pytest.approx(alone / 2, rel=1e-3)


def test_longer_caches_slow_those_that_meet_them_and_one_sequence_meets_its_own_prompt():
    steps, calm = (0.01, 0.04, 0.012, 0.042), replace(MIX, rate_per_s=1e-6)
    found = arrivals_tpot(calm, 0.01, steps, steps, 0.01)
    assert float(found.mean_s) == pytest.approx(0.01)
    assert float(found.p95_s) == pytest.approx(0.01 + 0.002 * 1.645 / 2.326, rel=1e-3)
    lengths = Lengths(1000.0, 200.0, 1.0)
    assert heavy_context_tokens(lengths, 1.0) == pytest.approx(100.0 + 1000.0 * quantile_factor(1.0, 2.326))
    assert heavy_context_tokens(lengths, 1e9) == pytest.approx(lengths.mean_context_tokens, rel=1e-3)


def test_caches_met_over_an_answer_vary_as_those_of_prompts_that_come_and_go_do():
    """Poisson prompts that stay for one answer each: what they hold in the mean over it, and what comes."""
    random, held, came = np.random.default_rng(2), [], []
    for _ in range(4000):
        count = random.poisson(40.0)  # twenty at once, from one answer before until this one's end
        at, size = random.uniform(-1.0, 1.0, count), random.choice([0.5, 1.5], count)
        held.append(float(np.sum(size * (1.0 - np.abs(at)))))
        came.append(float(np.sum(size[at > 0.0])))
    assert np.var(held) == pytest.approx(20.0 * 1.25 * 2.0 / 3.0, rel=0.06)
    assert np.corrcoef(held, came)[0, 1] == pytest.approx(TOGETHER, abs=0.03)


def test_answers_that_spread_see_as_much_chance_as_alike_ones_of_their_harmonic_mean():
    sigma = sqrt(log(1 + 0.9**2))
    places = (NormalDist().inv_cdf((each + 0.5) / 20_000) for each in range(20_000))
    harmonic = 200.0 / fmean(exp(sigma**2 / 2 - sigma * place) for place in places)
    spread, alike = replace(MIX, output_spread=0.9), replace(MIX, output_tokens=harmonic)
    assert token_s(spread, MEAN_S, 1.645) == pytest.approx(token_s(alike, MEAN_S, 1.645), rel=1e-3)


@given(count=st.floats(1.0, 50.0), more=st.floats(1.0, 50.0), spread=st.floats(0.0, 2.0))
@settings(max_examples=20)
def test_more_replicas_to_choose_among_never_leave_more_to_chance(count, more, spread):
    few = replace(MIX, work_spread=spread, replica_count=count)
    many = replace(few, replica_count=count * more)
    assert MEAN_S * (1 - 1e-9) <= token_s(many, MEAN_S, 1.645) <= token_s(few, MEAN_S, 1.645) * (1 + 1e-9)
    assert met_deviation(many, MEAN_S) <= met_deviation(few, MEAN_S) * (1 + 1e-9)


@given(
    deviations=st.floats(0.0, 3.0), further=st.floats(0.0, 1.0), rate=st.floats(0.01, 20.0),
    more=st.floats(1.0, 1.5), spread=st.floats(0.0, 3.0), output=st.floats(1.0, 2000.0),
)  # fmt: skip
@settings(max_examples=200)
def test_time_per_token_never_falls_with_chance_load_or_slower_steps(
    deviations, further, rate, more, spread, output
):
    mix = replace(MIX, rate_per_s=rate, work_spread=spread, output_tokens=output)
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
    served = regimes.open_loop(replica, Lengths(1024.0, 256.0, spread, 0.5), rate)
    for latency in (served.ttft, served.tpot, served.e2e):
        assert latency.p50_s <= latency.p95_s <= latency.p99_s
        assert latency.mean_s <= latency.p95_s


FLEETS = (1.0, 2.0, 4.0, 16.0, 1e6, 1e9)


@pytest.mark.parametrize("places", [512.0, 16.0])
def test_replicas_behind_one_gate_lie_between_one_alone_and_what_is_left_among_very_many(replica, places):
    few, lengths = replace(replica, rank_batch=places), Lengths(1024.0, 256.0, 0.5, 0.5)
    alone = regimes.open_loop(few, lengths, 6.0)
    among = [regimes.open_loop(few, lengths, 6.0, fleet_per_s=6.0 * count) for count in FLEETS]
    for metric in ("ttft", "tpot", "e2e"):
        for figure in ("mean_s", "p50_s", "p95_s", "p99_s"):
            one, *rest = (float(getattr(getattr(each, metric), figure)) for each in (alone, *among))
            assert rest[0] == one  # of one replica
            assert rest == sorted(rest, reverse=True)
            assert rest[-1] == pytest.approx(rest[-2], rel=2e-3)
    assert float(among[-1].tpot.p95_s) > float(among[-1].tpot.mean_s) > 0.95 * float(alone.tpot.mean_s)
    # Fewer meet prompts, and the fewer places there are, the fewer wait for one.
    assert float(among[2].ttft.mean_s) < 0.95 * float(alone.ttft.mean_s)
    ends = [float(each.tpot.p95_s) for each in (among[0], among[2], among[-1])]
    # Of four: half of chance is left, and a quarter of what it brings on.
    assert 0.5 < (ends[0] - ends[1]) / (ends[0] - ends[2]) < 0.85
