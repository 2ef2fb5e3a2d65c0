"""An engine is set as the scenario says, and parted by prompt and answer where it says that."""

import pickle
from dataclasses import replace
from functools import partial

import pytest

from bench.worlds.engine_loop import run_requests
from tests.step_tables import linear
from twofold.app.simulate_inputs import Rehearsable, opened, rehearsable
from twofold.app.simulating import SimulateOptions, simulate
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.simulated import Simulation
from twofold.contracts.spec.scenario import Scenario, parse_scenario
from twofold.contracts.spec.scenario_fleet import EngineChange
from twofold.core.errors import InputErrors
from twofold.inference.iteration import iteration_s
from twofold.inference.replica import Replica, engine
from twofold.inference.table import ServiceTable
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.shape import ModelShape, model_kind
from twofold.perf.software import ENGINES
from twofold.perf.types import Cluster
from twofold.rehearse.engine import changed_engine, engine_of, engine_settings, transfer_token_s
from twofold.rehearse.pools import grouped, planned_replica, pool_world
from twofold.twin.serving.disaggregated import DisaggregatedEngine
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSettings, PrefillMode, Reservation
from twofold.twin.serving.step_table import StepTable

SPEC = """\
name: helpdesk
model: llama-3.1-8b
serving:
  zones: 2
  on: 1xL4
  classes:
    chat:
      traffic: {rate: 2 /s, peak: 2x, input: 900 tok, output: 60 tok}
      slo: {ttft_p95: 3 s, tpot_p95: 100 ms}
"""


@pytest.fixture(scope="module")
def given() -> Rehearsable:
    return rehearsable(opened(SPEC, None))


def scenario(text: str = "") -> Scenario:
    return parse_scenario(f"horizon: 60 s\nwarm_up: 10 s\nbeliefs: {{error: 0 %}}\n{text}", "s.yaml")


def change(**keys: object) -> EngineChange:
    return EngineChange.model_validate(keys)


def test_what_a_scenario_does_not_say_stays_as_the_software_sets_it() -> None:
    preset = EngineSettings(prefill_mode=PrefillMode.EXCLUSIVE, prefix_cache_tokens=64)
    assert changed_engine(preset, EngineChange()) == preset
    changed = changed_engine(preset, change(prefill="mixed", prefix_cache="off"))
    assert (changed.prefill_mode, changed.prefix_cache_tokens) == (PrefillMode.MIXED, 0)


def test_a_group_costs_and_draws_what_its_workers_do(given: Rehearsable) -> None:
    (service,) = given.plan.serving
    (pool,) = service.pools
    plain = pool_world(service, pool, given.tables)
    apart = pool_world(service, pool, given.tables, change(prefill="separate", decode_workers="2"))
    for name in ("accelerator_count", "weight_bytes", "idle_w", "busy_w", "price_usd_per_h"):
        assert getattr(apart.model, name) == pytest.approx(3 * getattr(plain.model, name)), name
    assert apart.model.warm_up_s == plain.model.warm_up_s
    engine = pickle.loads(pickle.dumps(apart.model.new_engine))()
    assert isinstance(engine, DisaggregatedEngine)
    assert isinstance(plain.model.new_engine(), Engine)


@pytest.mark.parametrize(
    ("total", "spare", "groups"), [(6, 2, (3, 1)), (5, 2, (2, 0)), (1, 0, (1, 0)), (7, 1, (3, 0))]
)
def test_as_many_whole_groups_as_there_are_replicas_for(
    given: Rehearsable, total: int, spare: int, groups: tuple[int, int]
) -> None:
    pool = replace(given.plan.serving[0].pools[0], replica_count=total, spare_count=spare)
    made = grouped(pool, change(prefill="separate"))
    assert (made.replica_count, made.spare_count) == groups
    assert grouped(pool, EngineChange()) == pool


def test_the_cache_of_a_token_moves_at_the_network_card_s_rate(given: Rehearsable) -> None:
    (service,) = given.plan.serving
    replica = planned_replica(service, service.pools[0], given.tables)
    # 32 layers, 8 heads of 128 for keys and for values, 2 bytes each.
    expected_s = 32 * 2 * 8 * 128 * 2 / float(replica.cluster.network.nic_bytes_per_s)
    assert transfer_token_s(replica) == pytest.approx(expected_s)
    steps = linear(0.008, 2e-5, 2e-5, 2e-9)
    made = engine_of(replica, steps, change(prefill="separate"))
    assert isinstance(made, partial)


def test_answers_that_no_prompt_disturbs_are_steadier_and_the_figures_say_how_they_were_made(
    given: Rehearsable,
) -> None:
    def ran(text: str) -> Simulation:
        return simulate(given.plan, SimulateOptions(scenario(text))).data

    mixed = ran("fleet: {replicas: 4}")
    apart = ran("fleet: {replicas: 2}\nengine: {prefill: separate}")
    gaps = [made.classes[0].tpot_s for made in (mixed, apart)]
    assert gaps[0] is not None and gaps[1] is not None
    assert gaps[1].p99 - gaps[1].p50 < gaps[0].p99 - gaps[0].p50
    assert apart.fleets[0].accelerator_h == pytest.approx(mixed.fleets[0].accelerator_h, rel=0.05)
    assert apart.fleets[0].replica_text == "each of planned ones: 1 for prompts, 1 for answers"
    assert mixed.fleets[0].replica_text == ""
    assert sum(apart.fleets[0].outcomes.values()) == apart.fleets[0].arrived_count


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("engine: {prefill: mixed, decode_workers: 2}", "belongs to `prefill: separate`"),
        ("engine: {prefill: separate, batching: static}", "a static batch runs to its end where it began"),
        ("engine: {prefill: separate, prefill_workers: 0}", "prefill_workers"),
    ],
)
def test_engines_that_contradict_themselves_are_refused(text: str, says: str) -> None:
    with pytest.raises(InputErrors) as caught:
        scenario(text)
    assert says in str(caught.value.errors[0])


def replica_of(software: str = "vllm", **layout: float) -> Replica:
    catalog, constants = load_catalog(), load_constants()
    part, model = catalog.accelerator("H100-SXM"), catalog.model("llama-3.1-8b")
    cluster = Cluster(device(part, constants), network(part, 8, 50e9, "infiniband", constants), 8)
    held = engine(constants, software, None, family=part.family, model=model_kind(model))
    whole = Replica(
        ModelShape.of(model),
        cluster,
        held,
        activation_format=cluster.device.default_activation_format("bf16"),
    )
    return replace(whole, tp=1.0, **layout)  # type: ignore[arg-type]  # numbers by field


@pytest.mark.parametrize("software", sorted(ENGINES))
def test_an_engine_takes_its_replica_s_limits(software):
    replica = replica_of(software, rank_batch=64.0, chunk_tokens=2048.0)
    table = StepTable.from_service_table(ServiceTable.of(replica))
    settings = engine_settings(replica, table)
    assert (settings.max_batch, settings.chunk_tokens) == (64, 2048)
    assert settings.kv_tokens == table.kv_tokens > 100_000
    assert settings.first_token_s == replica.engine.first_token_s


def test_plain_steps_are_the_model_s():
    replica = replica_of()
    exact = float(iteration_s(replica, 0.0, 0.0, 8.0, 1500.0).total_s)
    assert StepTable.from_service_table(ServiceTable.of(replica)).decode_s(8, 1500.0, 1) == pytest.approx(
        exact, rel=0.01
    )


def test_software_differs_in_what_it_reserves():
    replicas = {name: replica_of(name) for name in ("vllm", "trtllm")}
    reserved = {
        name: engine_settings(one, StepTable.from_service_table(ServiceTable.of(one))).reservation
        for name, one in replicas.items()
    }
    assert reserved["trtllm"] is Reservation.ANSWER and reserved["vllm"] is Reservation.PROMPT


@pytest.mark.parametrize("software", sorted(ENGINES))
def test_every_software_serves_a_burst(software):
    replica = replica_of(software, rank_batch=64.0)
    table = StepTable.from_service_table(ServiceTable.of(replica))
    figures = run_requests(Engine(table, engine_settings(replica, table)), [(500, 50)] * 100, 32)
    assert figures.finished_count == 100 and figures.ttft.mean_s > replica.engine.first_token_s
