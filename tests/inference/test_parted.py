"""Prompts on workers of their own: the limits of the two stations, and an event simulation of them."""

from dataclasses import replace

import numpy as np
import pytest

from twofold.inference.iteration import iteration_s
from twofold.inference.parted import moved_latency, moved_s, parted, received
from twofold.inference.regimes import HANDOFF_S
from twofold.inference.replica import Replica
from twofold.inference.slo import Slo, TrafficClass
from twofold.inference.steady import Lengths
from twofold.inference.table import ServiceTable
from twofold.perf.types import one
from twofold.rehearse.engine import engine_settings, separate_engine, transfer_token_s
from twofold.twin.serving.engine_types import EngineWork, Finished, FirstToken
from twofold.twin.serving.step_table import StepTable

DOCUMENTS = TrafficClass("documents", Lengths(6000.0, 300.0, 0.5, 0.5), 3.0, Slo({"e2e_p95": 15.0}))


@pytest.fixture(scope="module")
def worker(replica_of) -> Replica:
    return replica_of("llama-3.1-70b", "H100-SXM", "fp8", tp=4.0)


def on_fabric(replica: Replica, factor: float) -> Replica:
    network = replica.cluster.network
    slower = replace(network, nic_bytes_per_s=network.nic_bytes_per_s * factor)
    return replace(replica, cluster=replace(replica.cluster, network=slower))


def test_a_lone_request_is_computed_moved_and_answered(worker):
    own = replace(DOCUMENTS, lengths=Lengths(4000.0, 300.0))
    found = parted(worker, worker, (own,), own, 1e-6, 1.0, 1.0)
    prompt_s = one(iteration_s(worker, 4000.0, 2000.0, 0.0, 0.0).total_s)
    step_s = one(iteration_s(worker, 0.0, 0.0, 1.0, 4150.0).total_s)
    least = prompt_s + HANDOFF_S + one(moved_s(worker, worker, own)) + step_s
    assert least < found.ttft.mean_s < least + 2.5 * step_s
    assert found.tpot.mean_s == pytest.approx(step_s, rel=0.02)


def test_a_transfer_costs_more_on_a_slower_fabric_and_to_fewer_accelerators(worker):
    speeds = [0.1, 0.3, 1.0, 3.0]
    ways = [on_fabric(worker, factor) for factor in speeds]
    moved = [moved_latency(each, each, (DOCUMENTS,), DOCUMENTS, 1.0) for each in ways]
    for name in ("mean_s", "p95_s", "p99_s"):
        seconds = [one(getattr(each, name)) for each in moved]
        assert seconds == sorted(seconds, reverse=True) and seconds[0] > seconds[-1]
    whole = [one(parted(each, each, (DOCUMENTS,), DOCUMENTS, 1.0, 2, 2).ttft.p95_s) for each in ways]
    assert whole == sorted(whole, reverse=True) and whole[0] > whole[-1]
    assert one(moved_s(replace(worker, tp=1.0), worker, DOCUMENTS)) == pytest.approx(
        4 * one(moved_s(worker, worker, DOCUMENTS))
    )


def test_what_a_station_cannot_carry_never_comes(worker):
    def first_s(rate: float, way: Replica = worker) -> float:
        return one(parted(way, way, (DOCUMENTS,), DOCUMENTS, rate, 1.0, 1.0).ttft.mean_s)

    assert np.isfinite(first_s(0.5))
    assert np.isinf(first_s(100.0))
    assert np.isinf(first_s(0.5, on_fabric(worker, 1e-4)))  # the link alone


def test_prompts_that_come_computed_are_kept_but_take_no_steps(worker):
    """Further tokens do not know of prompts; the cache does."""
    own = received(DOCUMENTS)
    found, whole = own.on(worker), DOCUMENTS.on(worker)
    long = replace(DOCUMENTS, lengths=replace(DOCUMENTS.lengths, input_tokens=12_000.0))
    tpot = [parted(worker, worker, (each,), each, 0.3, 1.0, 1.0).tpot for each in (DOCUMENTS, long)]
    for each in tpot:
        assert each.p99_s < 1.12 * each.mean_s  # other prompts' caches are longer by chance
    assert found.cache.received_fraction == 1.0 and whole.cache.received_fraction == 0.0


@pytest.mark.parametrize("rate_per_s", [1.5, 3.0])
def test_closed_form_and_event_simulation_agree(worker, rate_per_s):
    random, count, lengths = np.random.default_rng(4), 1500, DOCUMENTS.lengths
    prompts, answers = (
        np.exp(random.normal(np.log(mean) - 0.5 * np.log1p(0.25), np.sqrt(np.log1p(0.25)), count))
        for mean in (lengths.input_tokens, lengths.output_tokens)
    )
    at_s = np.cumsum(random.exponential(1.0 / rate_per_s, count))
    steps = StepTable.from_service_table(ServiceTable.of(worker))
    engine = separate_engine(steps, engine_settings(worker, steps), (3, 2), transfer_token_s(worker))
    out = []
    for key, now_s in enumerate(at_s.tolist()):
        while (next_s := engine.next_at_s()) is not None and next_s <= now_s:
            out += engine.advance(next_s)
        engine.submit(EngineWork(key, int(prompts[key]) + 1, int(answers[key]) + 2), now_s)
    while (next_s := engine.next_at_s()) is not None:
        out += engine.advance(next_s)
    first = {each.key: each.at_s for each in out if isinstance(each, FirstToken)}
    done = {each.key: each.at_s for each in out if isinstance(each, Finished)}
    kept = range(count // 5, count)
    ttft = np.array([first[key] - at_s[key] for key in kept])
    tpot = np.array([(done[key] - first[key]) / (int(answers[key]) + 1) for key in kept])
    found = parted(worker, worker, (DOCUMENTS,), DOCUMENTS, rate_per_s, 3, 2)
    assert one(found.tpot.mean_s) == pytest.approx(tpot.mean(), rel=0.05)
    # Workers are dealt prompts by their queues, the formula draws them: it says a little later.
    assert 0.95 < one(found.ttft.p50_s) / np.median(ttft) < 1.5
    assert 0.9 < one(found.ttft.p95_s) / np.percentile(ttft, 95) < 2.0
