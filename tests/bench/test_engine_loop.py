"""The twin's engine beside the closed form of `inference`: two ways to the same figures."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.worlds.engine_loop import LoopFigures, run_requests
from tests.step_tables import linear
from twofold.catalog.catalog import load_catalog
from twofold.inference import regimes
from twofold.inference.replica import Replica, engine
from twofold.inference.steady import Lengths
from twofold.inference.table import ServiceTable
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.shape import ModelShape
from twofold.perf.types import Cluster
from twofold.rehearse.engine import engine_settings
from twofold.twin.serving.disaggregated import DisaggregatedEngine
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings, PrefillMode
from twofold.twin.serving.step_table import StepTable

LINEAR = linear(0.008, 2e-5, 2e-5, 2e-9)


@pytest.fixture(scope="module")
def replica() -> Replica:
    catalog, constants = load_catalog(), load_constants()
    part = catalog.accelerator("H100-SXM")
    cluster = Cluster(device(part, constants), network(part, 8, 50e9, "infiniband", constants), 8)
    software = engine(constants, "vllm", "0.15", family=part.family)
    return Replica(ModelShape.of(catalog.model("llama-3.1-8b")), cluster, software, tp=1.0, rank_batch=512.0)


def lengths_of(prompt: int, answer: int, count: int) -> list[tuple[int, int]]:
    """A tenth shorter or longer, as public benchmarks draw them."""
    random = np.random.default_rng(1)
    drawn = random.uniform(0.9, 1.1, (count, 2)) * (prompt, answer)
    return [(int(row[0]), int(row[1])) for row in drawn]


def run(replica: Replica, prompt: int, answer: int, clients: int) -> LoopFigures:
    table = StepTable.from_service_table(ServiceTable.of(replica))
    lengths = lengths_of(prompt, answer, 10 * clients)
    return run_requests(Engine(table, engine_settings(replica, table)), lengths, clients)


@pytest.mark.parametrize(
    ("prompt", "answer", "clients"), [(1024, 1024, 8), (1024, 256, 32), (4096, 512, 16), (1024, 256, 96)]
)
def test_a_closed_loop_agrees_with_the_closed_form(replica, prompt, answer, clients):
    figures = run(replica, prompt, answer, clients)
    form = regimes.closed_loop(replica, Lengths(float(prompt), float(answer), 0.06, 0.06), float(clients))
    assert figures.tpot.mean_s == pytest.approx(float(form.tpot.mean_s), rel=0.06)
    assert figures.e2e.mean_s == pytest.approx(float(form.e2e.mean_s), rel=0.06)
    assert figures.ttft.mean_s == pytest.approx(float(form.ttft.mean_s), rel=0.2)
    assert figures.output_tokens_per_s == pytest.approx(float(form.output_tokens_per_s), rel=0.08)


@pytest.mark.parametrize("rate_per_s", [2.0, 10.0])
def test_open_arrivals_agree_with_the_closed_form(replica, rate_per_s):
    table, random = StepTable.from_service_table(ServiceTable.of(replica)), np.random.default_rng(2)
    at_s = np.cumsum(random.exponential(1 / rate_per_s, 800)).tolist()
    figures = run_requests(Engine(table, engine_settings(replica, table)), [(1155, 211)] * 800, 10_000, at_s)
    form = regimes.open_loop(replica, Lengths(1155.0, 211.0), rate_per_s)
    assert figures.tpot.mean_s == pytest.approx(float(form.tpot.mean_s), rel=0.10)
    assert figures.ttft.mean_s == pytest.approx(float(form.ttft.mean_s), rel=0.25)


@pytest.mark.parametrize(("prompt", "clients"), [(1024, 8), (4096, 4), (1024, 48)])
def test_prefill_and_decode_apart_agree_with_the_closed_form(replica, prompt, clients):
    table = StepTable.from_service_table(ServiceTable.of(replica))
    quiet = replace(engine_settings(replica, table), first_token_s=0.0, first_token_steps=0.0)
    moved_bytes = float(replica.shape.kv_bytes(replica.kv_format, 1.0))
    pair = DisaggregatedEngine(
        [Engine(table, replace(quiet, prefill_mode=PrefillMode.EXCLUSIVE))],
        [Engine(table, quiet)],
        moved_bytes / replica.cluster.network.nic_bytes_per_s,
        first_token_s=replica.engine.first_token_s,
    )
    figures = run_requests(pair, lengths_of(prompt, 512, 10 * clients), clients)
    form = regimes.disaggregated(replica, replica, Lengths(float(prompt), 512.0), float(clients))
    assert figures.tpot.mean_s == pytest.approx(float(form.tpot.mean_s), rel=0.03)
    assert figures.e2e.mean_s == pytest.approx(float(form.e2e.mean_s), rel=0.04)
    assert figures.ttft.mean_s == pytest.approx(float(form.ttft.mean_s), rel=0.25)


def test_a_static_batch_takes_what_the_closed_form_says(replica):
    quiet = replace(replica, engine=replace(replica.engine, first_token_s=0.0, first_token_steps=0.0))
    table = StepTable.from_service_table(ServiceTable.of(quiet))
    static = replace(engine_settings(quiet, table), static_wait_s=0.0)
    figures = run_requests(Engine(table, static), [(512, 128)] * 8, 8)
    form = regimes.static_batch(quiet, Lengths(512.0, 128.0), 8.0)
    assert figures.e2e.mean_s == pytest.approx(float(form.e2e.mean_s), rel=0.03)


@pytest.mark.parametrize("resource", ["memory_bytes_per_s", "kernel_floor_s"])
def test_faster_hardware_is_never_slower(replica, resource):  # INV-2
    held = replica.cluster.device
    gain = 1.3 if resource == "memory_bytes_per_s" else 0.5
    better = replace(held, **{resource: getattr(held, resource) * gain})
    faster = replace(replica, cluster=replace(replica.cluster, device=better))
    for clients in (1, 24):
        usual_run, faster_run = run(replica, 800, 200, clients), run(faster, 800, 200, clients)
        assert faster_run.e2e.mean_s <= usual_run.e2e.mean_s
        assert faster_run.requests_per_s >= usual_run.requests_per_s


@given(clients=st.integers(1, 20), prompt=st.integers(1, 600), answer=st.integers(1, 100))
@settings(max_examples=20, deadline=None)
def test_clients_in_a_loop_obey_little_s_law(clients, prompt, answer):
    """Where all requests are alike, the loop is full but for its last round."""
    count = 12 * clients
    settings = EngineSettings(max_batch=8, chunk_tokens=512)
    figures = run_requests(Engine(LINEAR, settings), [(prompt, answer)] * count, clients)
    in_flight = figures.requests_per_s * figures.e2e.mean_s
    assert 0.9 * clients <= in_flight <= clients * (1 + 1e-9)
    assert figures.finished_count == count


def test_a_lone_request_takes_its_prefill_and_its_steps():
    figures = run_requests(Engine(LINEAR, EngineSettings()), [(100, 11)], 1)
    assert figures.ttft.mean_s == pytest.approx(0.008 + 100 * 2e-5)
    assert figures.tpot.mean_s == pytest.approx(LINEAR.decode_s(1, 100.0, 10) / 10)
    assert figures.duration_s == pytest.approx(figures.e2e.mean_s)


def test_requests_that_never_fit_are_counted_and_nothing_else():
    figures = run_requests(
        Engine(LINEAR, EngineSettings(kv_tokens=1024)), [(100, 11), (5000, 3), (100, 11)], 1
    )
    assert (figures.finished_count, figures.refused_count) == (2, 1)
