"""`up` serves through the gate that `simulate` rehearses."""

import json
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from twofold.app.gates import DIFFERS, ONE_POOL, served_gate
from twofold.app.simulating import SimulateOptions, simulate
from twofold.contracts.spec.scenario import parse_scenario
from twofold.core.errors import InputErrors, ValueRefusedError
from twofold.live.gateway.gateway_config import GatewayConfig, read_gateway_config, write_gateway_config

LAPTOP = Path(__file__).parents[2] / "examples" / "laptop" / "twofold.yaml"
SHORT = "horizon: 5 min\nwarm_up: 10 s\nbeliefs: {error: 0 %}\n"


def test_the_gateways_file_carries_the_digest_that_the_rehearsal_shows(tmp_path: Path) -> None:
    rehearsed = simulate(LAPTOP, SimulateOptions(scenario=parse_scenario(SHORT, "s.yaml"))).data
    gate = served_gate(LAPTOP, 2, None)
    assert rehearsed.gate_digests == {"serve/chat": gate.built.digest}
    told = gate.built
    config = GatewayConfig(
        "127.0.0.1", 8700, (), told.beliefs, "log", gate=told.settings, gate_digest=told.digest
    )
    path = tmp_path / "config.json"
    path.write_text(write_gateway_config(config), "utf-8")
    read = read_gateway_config(path)
    assert read.gate_digest == json.loads(path.read_text())["gate_digest"] == gate.built.digest
    assert (read.gate, read.beliefs) == (told.settings, told.beliefs)


def test_as_many_replicas_stand_there_as_are_planned_or_the_machine_holds() -> None:
    planned = served_gate(LAPTOP, 99, None)
    assert planned.differs == DIFFERS and planned.replica_count > 1
    fewer = served_gate(LAPTOP, 1, None)
    assert (fewer.replica_count, fewer.built) == (1, planned.built)
    assert (
        fewer.differs[0] == f"1 replicas, as many as this machine holds, of {planned.replica_count} planned"
    )


def test_pools_that_are_planned_apart_are_one_on_one_machine(tmp_path: Path) -> None:
    night = "    night:\n      traffic: {tokens_per_day: 1 Mtok, input: 128 tok, output: 48 tok}\n"
    spec = tmp_path / "twofold.yaml"
    spec.write_text(
        LAPTOP.read_text("utf-8").replace("  on: 1xthis-machine #", f"{night}  on: 1xthis-machine #")
    )
    (tmp_path / "config.json").write_bytes(LAPTOP.with_name("config.json").read_bytes())
    gate = served_gate(spec, 9, None)
    assert gate.differs[0] == ONE_POOL
    assert [(each.name, each.priority) for each in gate.built.settings.classes] == [("chat", 0), ("night", 1)]
    together = parse_scenario(f"{SHORT}policies: {{pools: priority}}", "s.yaml")
    rehearsed = simulate(spec, SimulateOptions(scenario=together)).data
    assert list(rehearsed.gate_digests.values()) == [gate.built.digest]


def parted(folder: Path, kind: str) -> Path:
    """The laptop with bulk work beside its chat, in pools of that kind."""
    night = "    night:\n      traffic: {tokens_per_day: 1 Mtok, input: 128 tok, output: 48 tok}\n"
    spec = with_policies(folder, f"{{pools: {kind}}}")
    text = spec.read_text("utf-8").replace("  policies: {pools", f"{night}  policies: {{pools")
    spec.write_text(text, "utf-8")
    return spec


def test_pools_that_a_spec_splits_are_two_behind_the_gate_that_is_rehearsed(tmp_path: Path) -> None:
    spec = parted(tmp_path, "split")
    gate = served_gate(spec, 9, None)
    assert gate.differs == DIFFERS and [each.name for each in gate.pools] == ["chat", "night"]
    assert sum(each.replica_count for each in gate.pools) == gate.replica_count >= 2
    rules = gate.built.settings.routes.pools
    assert rules is not None and (rules.latency_pool, rules.bulk_pool) == ("chat", "night")
    rehearsed = simulate(spec, SimulateOptions(scenario=parse_scenario(SHORT, "s.yaml"))).data
    assert list(rehearsed.gate_digests.values()) == [gate.built.digest] and "pools" in rehearsed.policies
    fewest = served_gate(spec, 2, None)
    assert [each.replica_count for each in fewest.pools] == [1, 1] and fewest.built == gate.built
    with pytest.raises(ValueRefusedError, match="2 pools need a replica each, and this machine holds 1"):
        served_gate(spec, 1, None)


def with_policies(folder: Path, said: str) -> Path:
    spec = folder / "twofold.yaml"
    text = LAPTOP.read_text("utf-8").replace(
        "  on: 1xthis-machine #", f"  policies: {said}\n  on: 1xthis-machine #"
    )
    spec.write_text(text, "utf-8")
    (folder / "config.json").write_bytes(LAPTOP.with_name("config.json").read_bytes())
    return spec


def test_policies_of_the_spec_are_served_and_rehearsed_and_a_scenario_stands_over_them(
    tmp_path: Path,
) -> None:
    spec = with_policies(tmp_path, "{answer_cache: {age: 1 min}, hedge: on, queue: {depth: 7}}")
    gate = served_gate(spec, 2, None).built
    assert gate.settings.answer_cache is not None and gate.settings.answer_cache.age_s == 60
    assert gate.settings.hedge is not None and gate.settings.classes[0].queue_limit_count == 7
    assert gate.digest != served_gate(LAPTOP, 2, None).built.digest
    rehearsed = simulate(spec, SimulateOptions(scenario=parse_scenario(SHORT, "s.yaml"))).data
    assert rehearsed.gate_digests == {"serve/chat": gate.digest} and "hedge" in rehearsed.policies
    other = parse_scenario(f"{SHORT}policies: {{hedge: off, queue: {{depth: 9}}}}", "s.yaml")
    over = served_gate(spec, 2, None, other).built.settings
    assert over.hedge is None and over.classes[0].queue_limit_count == 9
    assert over.answer_cache == gate.settings.answer_cache


def test_policies_of_a_spec_are_read_with_its_care(tmp_path: Path) -> None:
    for said, why in (
        ("{warm: on}", "`scaling` is off"),
        ("{limits: {classes: {class: moon, requests: 1 /s}}}", "`moon` is limited, and is not a class"),
    ):
        with pytest.raises(InputErrors) as caught:
            served_gate(with_policies(tmp_path, said), 2, None)
        [error] = caught.value.errors
        assert why in error.message and error.place is not None
    warm = with_policies(tmp_path, "{warm: on, scaling: {most: 2}}")
    with pytest.raises(ValueRefusedError, match="the scenario turns `scaling` off"):
        served_gate(warm, 2, None, parse_scenario("policies: {scaling: off}", "s.yaml"))


def test_what_answers_in_need_is_rehearsed_and_takes_a_place_of_the_machine(tmp_path: Path) -> None:
    spec = with_policies(tmp_path, "{degradation: {smaller: int8}}")
    gate = served_gate(spec, 2, None)
    assert gate.replica_count == 1 and gate.built.settings.classes[0].smaller_model == "int8 copy"
    rehearsed = simulate(spec, SimulateOptions(scenario=parse_scenario(SHORT, "s.yaml"))).data
    assert rehearsed.gate_digests == {"serve/chat": gate.built.digest}
    assert "degradation to 1 x int8 copy" in rehearsed.policies and rehearsed.fleets[0].smaller_count == 0
    assert rehearsed.fleets[0].replica_count == served_gate(LAPTOP, 9, None).replica_count
    with pytest.raises(ValueRefusedError, match="1 to answer in need and one besides are more than this"):
        served_gate(spec, 1, None)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{model: ./config.json}", "is not smaller than"),
        ("{model: llama-3.1-8b}", "`llama-3.1-8b` is not smaller than"),
        ("{quantisation: int8, replicas: 30000}", "30,000 replicas that answer in need are more"),
    ],
)
def test_what_answers_in_need_is_smaller_and_not_without_number(said: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueRefusedError, match=why):
        served_gate(with_policies(tmp_path, f"{{degradation: {{smaller: {said}}}}}"), 40_000, None)


def test_under_overload_a_smaller_model_saves_answers(tmp_path: Path) -> None:
    """On the same replicas, and one more: fewer requests go without an answer."""
    load = parse_scenario(f"{SHORT}traffic: {{scale: 60x}}", "s.yaml")
    failed = []
    for smaller in ("", ", smaller: {quantisation: int8}"):
        spec = with_policies(tmp_path, "{queue: {depth: 20}, degradation: {shortest: 100 %" + smaller + "}}")
        [chat] = simulate(spec, SimulateOptions(scenario=load)).data.classes
        failed.append(chat.arrived_count - chat.finished_count)
    assert failed[1] < 0.5 * failed[0], failed


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{degradation: {smaller: int3}}", "int8"),
        ("{degradation: {smaller: {replicas: 2}}}", "what answers in need is one thing"),
        ("{degradation: {smaller: {quantisation: int8, model: llama-3.1-8b}}}", "one thing"),
        ("{degradation: {switch: off, smaller: int8}}", "the policy is off"),
    ],
)
def test_what_cannot_answer_in_need_is_refused_where_it_stands(tmp_path: Path, said: str, why: str) -> None:
    with pytest.raises(InputErrors) as caught:
        served_gate(with_policies(tmp_path, said), 2, None)
    [error] = caught.value.errors
    assert why in f"{error.message} {error.hint}" and error.place is not None


def test_no_more_replicas_may_be_started_than_the_machine_holds() -> None:
    scaled = "policies: {scaling: {most: 2}}"
    assert served_gate(LAPTOP, 2, None, parse_scenario(scaled, "s.yaml")).built.settings.scaling is not None
    with pytest.raises(ValueRefusedError, match="may start 4 replicas, and this machine holds 2"):
        served_gate(LAPTOP, 2, None, parse_scenario("policies: {scaling: on}", "s.yaml"))


def test_the_laptop_is_refused_less_than_one_request_in_a_hundred_at_its_own_load() -> None:
    """The gate believes what the plan says of two requests at once, not of the 512 that memory would hold."""
    for load in ("", "traffic: {scale: 3x}\n"):
        text = f"{SHORT}{load}policies: {{admission: on, degradation: on}}"
        found = simulate(LAPTOP, SimulateOptions(scenario=parse_scenario(text, "s.yaml"))).data
        [chat] = found.classes
        assert chat.arrived_count > 400 and chat.finished_count >= 0.99 * chat.arrived_count
