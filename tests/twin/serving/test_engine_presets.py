from dataclasses import replace

import pytest

from bench.worlds.engine_loop import run_requests
from twofold.catalog import load_catalog
from twofold.inference import Replica, default_activation_format, engine, iteration_s, model_kind, model_shape
from twofold.perf import Cluster, device, load_constants, network
from twofold.perf.software import ENGINES
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_presets import engine_settings, step_table
from twofold.twin.serving.engine_types import Reservation


def replica_of(software: str = "vllm", **layout: float) -> Replica:
    catalog, constants = load_catalog(), load_constants()
    part, model = catalog.accelerator("H100-SXM"), catalog.model("llama-3.1-8b")
    cluster = Cluster(device(part, constants), network(part, 8, 50e9, "infiniband", constants), 8)
    held = engine(constants, software, None, family=part.family, model=model_kind(model))
    whole = Replica(
        model_shape(model), cluster, held, activation_format=default_activation_format(cluster.device, "bf16")
    )
    return replace(whole, tp=1.0, **layout)  # type: ignore[arg-type]  # numbers by field


@pytest.mark.parametrize("software", sorted(ENGINES))
def test_an_engine_takes_its_replica_s_limits(software):
    replica = replica_of(software, max_batch=64.0, chunk_tokens=2048.0)
    table = step_table(replica)
    settings = engine_settings(replica, table)
    assert (settings.max_batch, settings.chunk_tokens) == (64, 2048)
    assert settings.kv_tokens == table.kv_tokens > 100_000
    assert settings.first_token_s == replica.engine.first_token_s


def test_plain_steps_are_the_model_s():
    replica = replica_of()
    exact = float(iteration_s(replica, 0.0, 0.0, 8.0, 1500.0).total_s)
    assert step_table(replica).decode_s(8, 1500.0, 1) == pytest.approx(exact, rel=0.01)
    assert step_table(replica, 1.3).decode_s(8, 1500.0, 1) == pytest.approx(1.3 * exact, rel=0.01)


def test_software_differs_in_what_it_reserves():
    replicas = {name: replica_of(name) for name in ("vllm", "trtllm")}
    reserved = {name: engine_settings(one, step_table(one)).reservation for name, one in replicas.items()}
    assert reserved["trtllm"] is Reservation.ANSWER and reserved["vllm"] is Reservation.PROMPT


@pytest.mark.parametrize("software", sorted(ENGINES))
def test_every_software_serves_a_burst(software):
    replica = replica_of(software, max_batch=64.0)
    table = step_table(replica)
    figures = run_requests(Engine(table, engine_settings(replica, table)), [(500, 50)] * 100, 32)
    assert figures.finished_count == 100 and figures.ttft.mean_s > replica.engine.first_token_s
