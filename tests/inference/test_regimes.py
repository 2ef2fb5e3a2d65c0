from dataclasses import replace
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.worlds.engine_loop import run_requests
from twofold.inference.iteration import iteration_s
from twofold.inference.regimes import (
    LimitHabits,
    at_batch,
    closed_loop,
    disaggregated,
    finite_run,
    held_batch,
    max_throughput,
    most_per_s,
    near_limit_s,
    open_loop,
    static_batch,
)
from twofold.inference.slo import relieved
from twofold.inference.steady import Lengths, batch_limit, steady_steps
from twofold.inference.table import ServiceTable
from twofold.rehearse.engine import engine_settings
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.step_table import StepTable

CHAT = Lengths(1024.0, 256.0)
DOCUMENTS = Lengths(8192.0, 512.0)
HABITS = LimitHabits(0.3, 0.75, 0.2, 1.0)


@pytest.fixture(scope="module")
def replica(replica_of):
    return replica_of("llama-3.1-8b", "H100-SXM", tp=1.0)


def simulate_open(replica, lengths, rate_per_s, requests=800, seed=7):
    """An event loop of its own: Poisson arrivals, whole prompts up to the chunk, one token per step."""
    random = np.random.default_rng(seed)
    arrival = np.cumsum(random.exponential(1 / rate_per_s, requests))
    waiting, running = [], {}
    context = lengths.input_tokens + lengths.output_tokens / 2

    @cache
    def step_s(tokens, decoding):
        return float(iteration_s(replica, tokens, lengths.input_tokens / 2, decoding, context).total_s)

    now, upcoming, ttft, tpot, first_at = 0.0, 0, [], [], {}
    while len(tpot) < requests:
        while upcoming < requests and arrival[upcoming] <= now:
            waiting.append(upcoming)
            upcoming += 1
        if not waiting and not running:
            now = arrival[upcoming]
            continue
        carried = waiting[: max(1, int(replica.chunk_tokens // lengths.input_tokens))]
        waiting = waiting[len(carried) :]
        tokens = len(carried) * lengths.input_tokens
        now += step_s(tokens, float(len(running)))
        for request in list(running):
            running[request] -= 1
            if running[request] == 0:
                del running[request]
                tpot.append((now - first_at[request]) / (lengths.output_tokens - 1))
        for request in carried:
            ttft.append(now - arrival[request])
            first_at[request] = now
            running[request] = int(lengths.output_tokens) - 1
    return np.array(ttft[100:]), np.array(tpot[100:])


@pytest.mark.parametrize("rate_per_s", [2.0, 8.0, 14.0])
def test_open_arrivals_agree_with_an_event_simulation(replica, rate_per_s):
    quiet = replace(replica, engine=replace(replica.engine, first_token_s=0.0, first_token_steps=0.0))
    ttft, tpot = simulate_open(quiet, CHAT, rate_per_s)
    served = open_loop(quiet, CHAT, rate_per_s)
    assert served.tpot.mean_s == pytest.approx(np.mean(tpot), rel=0.10)
    assert served.ttft.mean_s == pytest.approx(np.mean(ttft), rel=0.25)
    assert served.ttft.p95_s == pytest.approx(np.quantile(ttft, 0.95), rel=0.35)


@given(rate=st.floats(0.1, 30), more=st.floats(1.0, 2.0))
@settings(max_examples=20, deadline=None)
def test_more_load_is_never_faster(replica, rate, more):  # INV-9
    light, heavy = open_loop(replica, CHAT, rate), open_loop(replica, CHAT, rate * more)
    assert heavy.tpot.mean_s >= light.tpot.mean_s * 0.999
    assert heavy.ttft.p95_s >= light.ttft.p95_s * 0.999


@given(batch=st.floats(1.0, 200.0))
@settings(max_examples=20, deadline=None)
def test_quantiles_are_ordered(replica, batch):
    served = at_batch(replica, replace(CHAT, input_spread=0.8, output_spread=0.8), batch)
    for latency in (served.ttft, served.tpot):
        assert latency.p50_s <= latency.p95_s <= latency.p99_s
        assert latency.mean_s <= latency.p95_s


def test_an_engine_that_packs_prompts_is_no_slower_for_a_chunk_that_its_clients_never_fill(replica):
    packs = replace(replica, engine=replace(replica.engine, name="transformers"))
    short, clients = Lengths(64.0, 64.0), np.array([1.0, 4.0])
    few, many = (
        closed_loop(replace(packs, chunk_tokens=chunk), short, clients).ttft.mean_s
        for chunk in (512.0, 65536.0)
    )
    assert many == pytest.approx(few)
    step_s = iteration_s(packs, 64.0, 32.0, 1.0, 96.0).total_s
    assert many[0] < 2.5 * step_s + replica.engine.first_token_s


def test_an_engine_that_packs_prompts_keeps_up_with_its_best_batch_not_with_its_largest(replica):
    packs = replace(replica, engine=replace(replica.engine, name="transformers"))
    best, largest = (
        float(each(packs, CHAT)) for each in (most_per_s, lambda *on: max_throughput(*on).requests_per_s)
    )
    assert best > 2.0 * largest
    clients = closed_loop(packs, CHAT, np.array([8.0, 16.0, 32.0, 64.0])).requests_per_s
    assert best > 0.9 * float(np.max(clients))
    assert most_per_s(replica, CHAT) == max_throughput(replica, CHAT).requests_per_s


def test_little_s_law_holds_in_a_closed_loop(replica):
    served = closed_loop(replica, CHAT, np.array([1.0, 8.0, 64.0, 2000.0]))
    residence = served.ttft.mean_s + CHAT.output_tokens * served.tpot.mean_s
    assert np.allclose(served.requests_per_s * residence, [1.0, 8.0, 64.0, 2000.0])


def test_a_lone_client_decodes_at_the_plain_step(replica):
    served = closed_loop(replica, Lengths(16.0, 512.0), 1.0)
    assert served.tpot.mean_s == pytest.approx(
        float(iteration_s(replica, 0.0, 0.0, 1.0, 272.0).total_s), rel=0.05
    )


def test_clients_beyond_the_batch_wait_in_front(replica):
    limited = replace(replica, rank_batch=16.0)
    few, many = (closed_loop(limited, CHAT, clients) for clients in (16.0, 64.0))
    assert many.ttft.p50_s > few.ttft.p50_s + few.e2e.mean_s
    assert many.tpot.mean_s == pytest.approx(few.tpot.mean_s, rel=0.15)


def test_rates_beyond_saturation_have_no_finite_latency(replica):
    most = max_throughput(replica, CHAT).requests_per_s
    served = open_loop(replica, CHAT, 1.5 * most)
    assert served.utilisation_fraction > 1
    assert np.isinf(served.ttft.mean_s)


def test_a_static_batch_takes_its_prefill_and_its_steps(replica):
    served = static_batch(replica, Lengths(512.0, 128.0), 8.0)
    first = iteration_s(replica, 8 * 512.0, 256.0, 0.0, 0.0).total_s
    step = iteration_s(replica, 0.0, 0.0, 8.0, 576.0).total_s
    assert served.e2e.mean_s == pytest.approx(float(first + 127 * step))
    assert served.output_tokens_per_s == pytest.approx(8 * 128 / float(first + 127 * step))


def test_a_batch_that_the_cache_cannot_hold_runs_in_waves(replica_of):
    tight = replica_of("llama-3.1-70b", "H100-SXM", "fp8", tp=1.0)
    one, many = (static_batch(tight, Lengths(2048.0, 128.0), size) for size in (1.0, 64.0))
    assert many.e2e.mean_s > 2 * one.e2e.mean_s
    assert many.batch_sequences <= batch_limit(tight, Lengths(2048.0, 128.0)) + 1


@given(
    resource=st.sampled_from(["bandwidth", "compute", "capacity", "link", "host"]),
    tp=st.sampled_from([1.0, 4.0]),
)
@settings(max_examples=15, deadline=None)
def test_more_of_any_resource_never_lowers_saturated_throughput(replica_of, resource, tp):
    replica = replica_of("llama-3.1-70b", "H200", "fp8", tp=tp)
    before = max_throughput(replica, CHAT).output_tokens_per_s
    assert max_throughput(relieved(replica, resource), CHAT).output_tokens_per_s >= before * (1 - 1e-9)


def test_a_cached_prefix_shortens_the_wait_for_the_first_token(replica):
    cached = replace(replica, cache=replace(replica.cache, shared_prefix_fraction=0.5))
    assert open_loop(cached, CHAT, 5.0).ttft.mean_s < open_loop(replica, CHAT, 5.0).ttft.mean_s


def test_launches_are_paid_once_a_step_however_few_tokens_it_prefills(replica):
    # Counted per token they would make of a full chunk of short prompts minutes, and of any load a queue.
    idle, loaded = (open_loop(replica, Lengths(8.0, 4.0, 0.8, 0.8), rate).ttft.p95_s for rate in (1e-6, 50.0))
    assert idle <= loaded < 1.5 * idle


def test_a_batch_that_is_held_obeys_little_s_law(replica):
    held = held_batch(replica, CHAT, 32.0)
    running = float(held.requests_per_s * CHAT.output_tokens * held.tpot.mean_s)
    assert running == pytest.approx(32.0)


def test_the_median_gap_between_tokens_is_a_plain_step_where_few_steps_carry_prompts(replica):
    long_answers = held_batch(replica, Lengths(512.0, 4096.0), 8.0)
    assert float(long_answers.prefill_share_fraction) < 0.5
    assert float(long_answers.tpot.p50_s) == pytest.approx(float(long_answers.step_s))
    assert float(long_answers.tpot.p50_s) < float(long_answers.tpot.mean_s)


def test_a_rate_chosen_at_a_limit_is_served_near_it(replica):
    most = float(max_throughput(replica, CHAT).requests_per_s)
    rates = [share * most for share in (0.2, 0.9, 0.99)]
    near = [float(near_limit_s(replica, CHAT, rate, (0.1, 0.0), HABITS)[0]) for rate in rates]
    assert near[0] <= near[1] <= near[2] <= 0.1
    assert near[2] > 0.05
    # Where the load is light, the limit tells nothing.
    light = float(open_loop(replica, CHAT, 0.2 * most).tpot.mean_s)
    assert near[0] == pytest.approx(light, rel=0.1)


def test_no_limit_pulls_nothing(replica):
    one = near_limit_s(replica, CHAT, 5.0, (0.1, 0.0), HABITS)
    assert near_limit_s(replica, CHAT, 5.0, (0.1,), HABITS) == one
    assert float(one[1]) == 0.1  # and it is no limit that was met


@given(clients=st.floats(1.0, 200.0), more=st.floats(1.0, 2.0))
@settings(max_examples=15, deadline=None)
def test_first_tokens_come_later_with_more_clients_and_with_longer_prompts(replica, clients, more):  # INV-9
    few, many = (closed_loop(replica, CHAT, count).ttft.mean_s for count in (clients, clients * more))
    assert many >= few * (1 - 0.01)
    longer = closed_loop(replica, replace(CHAT, input_tokens=CHAT.input_tokens * more), clients).ttft.mean_s
    assert longer >= few * (1 - 0.01)


@given(clients=st.floats(1.0, 200.0))
@settings(max_examples=15, deadline=None)
def test_no_first_token_comes_before_a_prefill(replica, clients):
    prefill_s = iteration_s(replica, CHAT.input_tokens, CHAT.input_tokens / 2, 0.0, 0.0).total_s
    assert closed_loop(replica, CHAT, clients).ttft.mean_s >= prefill_s


@pytest.mark.parametrize("clients", [4, 16, 48])
@pytest.mark.parametrize(
    ("model", "part", "tp", "lengths"),
    [
        ("llama-3.1-8b", "H100-SXM", 1.0, (900, 300)),
        ("llama-3.1-8b", "H200", 1.0, (4000, 200)),
        ("llama-3.1-70b", "H200", 4.0, (900, 400)),
        ("gpt-oss-120b", "H100-SXM", 4.0, (2000, 300)),
    ],
)
def test_a_closed_loop_agrees_with_the_twin(replica_of, model, part, tp, lengths, clients):
    """The benchmark that closed loops mean: ten requests a client, the first at once, near-equal lengths.

    Twelve configurations: mean TTFT within 20 %, TPOT within 10 %, p99 of whole answers within 27 %. Those
    ends are where prefill takes most of the time; elsewhere first tokens lie within 9 %.
    """
    replica = replica_of(model, part, tp=tp)
    random = np.random.default_rng(1)
    drawn = [
        tuple(int(random.integers(round(each * 8 / 9), round(each * 10 / 9) + 1)) for each in lengths)
        for _ in range(10 * clients)
    ]
    table = StepTable.from_service_table(ServiceTable.of(replica))
    seen = run_requests(Engine(table, engine_settings(replica, table)), drawn, clients)
    told = closed_loop(replica, Lengths(float(lengths[0]), float(lengths[1]), 0.064, 0.064), float(clients))
    assert told.ttft.mean_s == pytest.approx(seen.ttft.mean_s, rel=0.20)
    assert told.tpot.mean_s == pytest.approx(seen.tpot.mean_s, rel=0.10)
    assert told.e2e.p99_s == pytest.approx(seen.e2e.p99_s, rel=0.27)
    assert told.requests_per_s == pytest.approx(seen.requests_per_s, rel=0.15)


def spread_prompts(lengths, count, random):
    """Log-normal prompts, evenly over their quantiles: their mean and spread do not depend on chance."""
    normal = NormalDist()
    places = np.array([normal.inv_cdf((each + 0.5) / count) for each in range(count)])
    sigma = np.sqrt(np.log1p(lengths.input_spread**2))
    drawn = lengths.input_tokens * np.exp(sigma * places - 0.5 * sigma**2)
    random.shuffle(drawn)
    return [(max(1, round(each)), int(lengths.output_tokens)) for each in drawn]


@pytest.mark.parametrize("load", [0.3, 0.6])
@pytest.mark.parametrize("spread", [0.0, 1.0, 1.85])
@pytest.mark.parametrize(
    ("model", "part", "weights", "layout", "lengths"),
    [
        ("llama-3.1-8b", "H100-SXM", "bf16", {"tp": 1.0}, (1155, 211)),
        ("llama-3.1-8b", "L4", "fp8", {"tp": 1.0, "chunk_tokens": 2048.0, "rank_batch": 256.0}, (809, 150)),
        ("gpt-oss-120b", "H100-SXM", "mxfp4", {"tp": 2.0, "chunk_tokens": 2048.0}, (1000, 300)),
    ],
)
def test_open_arrivals_of_spread_prompts_agree_with_the_twin(
    replica_of, model, part, weights, layout, lengths, spread, load
):
    """Where prompts spread a few long ones hold up all others: 18 loads, from equal prompts to a chat's.

    First tokens: median within 15 %, p95 within 22 %, mean within 33 % (too late, where a fast engine meets
    the longest prompts). Further tokens: mean within 6 %, p95 within 20 %. Whole answers: p95 within 20 %.
    """
    replica, (prompt, answer) = replica_of(model, part, weights, **layout), lengths
    asked, count = Lengths(float(prompt), float(answer), spread), 2500
    rate = load / float(open_loop(replica, Lengths(float(prompt), float(answer)), 1.0).utilisation_fraction)
    random = np.random.default_rng(4)
    at_s = np.cumsum(random.exponential(1.0, count))
    at_s *= count / at_s[-1] / rate
    table = StepTable.from_service_table(ServiceTable.of(replica))
    engine = Engine(table, engine_settings(replica, table))
    seen = run_requests(engine, spread_prompts(asked, count, random), count, at_s.tolist())
    told = open_loop(replica, asked, rate)
    assert told.ttft.mean_s == pytest.approx(seen.ttft.mean_s, rel=0.33)
    assert told.ttft.p50_s == pytest.approx(seen.ttft.p50_s, rel=0.15)
    assert told.ttft.p95_s == pytest.approx(seen.ttft.p95_s, rel=0.22)
    assert told.tpot.mean_s == pytest.approx(seen.tpot.mean_s, rel=0.06)
    assert told.tpot.p95_s == pytest.approx(seen.tpot.p95_s, rel=0.20)
    assert told.e2e.p95_s == pytest.approx(seen.e2e.p95_s, rel=0.20)


def test_a_burst_within_the_batch_waits_for_prompts_alone(replica):
    few, more = (finite_run(replica, CHAT, count) for count in (4.0, 64.0))
    assert few.ttft.mean_s < more.ttft.mean_s
    alone = closed_loop(replica, CHAT, 1.0)
    assert few.tpot.mean_s < 2.0 * alone.tpot.mean_s


def test_each_round_of_a_run_above_capacity_waits_for_all_rounds_before(replica):
    limited = replace(replica, rank_batch=16.0)
    one, two, nine = (finite_run(limited, Lengths(500.0, 100.0), 16.0 * rounds) for rounds in (1.0, 2.0, 9.0))
    round_s = 2.0 * (two.ttft.mean_s - one.ttft.mean_s)
    assert nine.ttft.mean_s - one.ttft.mean_s == pytest.approx(4.0 * round_s, rel=1e-6)
    paced = finite_run(limited, Lengths(500.0, 100.0), 144.0, 8.0 * 16.0 / round_s)
    assert one.ttft.mean_s < paced.ttft.mean_s < nine.ttft.mean_s


def test_a_run_is_never_faster_than_its_arrivals_or_saturation(replica):
    run = finite_run(replica, CHAT, 5_000.0, 3.0)
    assert run.requests_per_s < 3.0
    assert finite_run(replica, CHAT, 5_000.0).requests_per_s < max_throughput(replica, CHAT).requests_per_s


def test_clients_that_stay_together_carry_their_prompts_in_one_step(replica):
    lengths = Lengths(500.0, 200.0)
    apart, together = (closed_loop(replica, lengths, 8.0, 0.0, share) for share in (0.0, 1.0))
    assert together.prefill_step_s > apart.prefill_step_s
    assert together.prefill_share_fraction < apart.prefill_share_fraction
    assert together.ttft.mean_s > apart.ttft.mean_s


def test_decode_without_prefill_is_steadier_than_mixed(replica_of):
    replica = replica_of("llama-3.1-70b", "H200", "fp8", tp=4.0)
    split = disaggregated(replica, replica, DOCUMENTS, 32.0, 2.0, 1.0)
    assert split.tpot.mean_s < closed_loop(replica, DOCUMENTS, 32.0).tpot.mean_s


def test_more_prefill_workers_never_delay_the_first_token(replica_of):
    replica = replica_of("llama-3.1-70b", "H200", "fp8", tp=4.0)
    ttft = [disaggregated(replica, replica, DOCUMENTS, 64.0, n, 1.0).ttft.mean_s for n in (1.0, 2.0, 4.0)]
    assert ttft[0] > ttft[1] > ttft[2]


def test_the_slower_station_sets_the_rate(replica_of):
    replica = replica_of("llama-3.1-70b", "H200", "fp8", tp=4.0)
    one, two = (disaggregated(replica, replica, DOCUMENTS, 512.0, n, 8.0) for n in (1.0, 2.0))
    assert two.requests_per_s == pytest.approx(2 * one.requests_per_s, rel=0.15)


@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
def test_workers_that_only_decode_meet_the_answers_that_others_meet(replica_of, spread):
    replica, lengths = replica_of("llama-3.1-8b", "H100-SXM", tp=1.0), Lengths(1000.0, 1000.0, 0.0, spread)
    split = disaggregated(replica, replica, lengths, 64.0)
    plain = steady_steps(replica, lengths, split.batch_sequences).plain_s
    assert float(split.tpot.mean_s) == pytest.approx(float(plain), rel=1e-9)
