"""One machine by Docker Compose: as many replicas as it holds, each on devices of its own."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.object_fields import compose_complaints, documents
from tests.rendered import Files, texts, with_replica
from twofold.contracts.results.plan import Plan

GOLDEN = Path(__file__).parent / "golden"


def services(plan: Plan) -> dict[str, Any]:
    (text,) = texts(plan, "compose").values()
    found: dict[str, Any] = YAML(typ="safe").load(text)["services"]
    return found


def on_nvidia(plan: Plan, **replica: Any) -> Plan:
    plan = with_replica(plan, **replica)
    service = plan.serving[0]
    machine = replace(service.machine, accelerator="H200-SXM5-141GB", accelerators_per_node=8)
    pool = replace(service.pools[0], replica_count=3)
    return replace(plan, serving=(replace(service, machine=machine, pools=(pool,)),))


@pytest.mark.parametrize(("size", "count"), [(1, 3), (4, 2), (8, 1), (16, 0)])
def test_no_device_is_given_twice_and_none_is_invented(
    size: int, count: int, examples: dict[str, Plan]
) -> None:
    found = services(on_nvidia(examples["finetune"], accelerator_count=size))
    devices = [
        each["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for each in found.values()
    ]
    given = [one for ids in devices for one in ids]
    assert len(found) == count
    assert all(len(ids) == size for ids in devices)
    assert len(set(given)) == len(given)
    assert set(given) <= {str(one) for one in range(8)}
    assert len({each["ports"][0]["published"] for each in found.values()}) == count


def test_every_pool_has_one_replica_before_any_has_two(examples: dict[str, Plan]) -> None:
    names = [name.rpartition("-")[0] for name in services(examples["assistant"])]
    assert set(names) == {f"assistant-serve-{each}" for each in ("chat", "documents", "batch")}


def test_what_one_machine_has_no_room_for_is_lost(examples: dict[str, Plan]) -> None:
    (text,) = texts(on_nvidia(examples["finetune"], accelerator_count=4), "compose").values()
    assert "# lost: 1 of 3 replicas of finetune-serve: they need more machines" in text
    assert "# lost: the run finetune" in text


@pytest.mark.parametrize(("size", "count"), [(1, 3), (8, 1)])
def test_replicas_on_ports_of_their_own_have_no_one_address(
    size: int, count: int, examples: dict[str, Plan]
) -> None:
    (text,) = texts(on_nvidia(examples["finetune"], accelerator_count=size), "compose").values()
    said = f"# lost: one address for all replicas: put a gateway before ports 8000 to {7999 + count}"
    assert (said in text) == (count > 1)


def test_health_is_a_completion_by_the_model(examples: dict[str, Plan]) -> None:
    for each in services(examples["finetune"]).values():
        test = each["healthcheck"]["test"]
        port = each["ports"][0]["target"]
        assert f"http://127.0.0.1:{port}/v1/completions" in test
        asked = json.loads(next(word for word in test if word.startswith("{")))
        assert asked["model"] == each["command"][each["command"].index("--served-model-name") + 1]


def test_devices_of_amd_are_named_their_way(planned: Callable[[str], Plan]) -> None:
    made = planned(
        "model: llama-3.1-8b\n"
        "serving: {on: 1xMI300X, classes: {chat: {traffic: {rate: 1 /s}, slo: {ttft_p95: 1 s}}}}\n"
    )
    for each in services(made).values():
        assert "/dev/kfd" in each["devices"]
        assert "deploy" not in each
        assert each["environment"]["HIP_VISIBLE_DEVICES"]


@pytest.mark.parametrize("name", ["assistant", "moe", "finetune", "portfolio", "laptop"])
def test_every_file_has_fields_of_compose_alone(name: str, files_of: Callable[[str, str], Files]) -> None:
    for text in files_of(name, "compose").values():
        (file,) = documents(text)
        assert compose_complaints(file) == []
        assert file["services"] or "# lost: " in text
        for service in file["services"].values():
            for reserved in (
                service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", ())
            ):
                assert len(set(reserved["device_ids"])) == len(reserved["device_ids"])


def test_devices_of_either_maker_are_fields_of_compose(
    examples: dict[str, Plan], planned: Callable[[str], Plan]
) -> None:
    amd = planned(
        "model: llama-3.1-8b\n"
        "serving: {on: 1xMI300X, classes: {chat: {traffic: {rate: 1 /s}, slo: {ttft_p95: 1 s}}}}\n"
    )
    for plan, key in ((amd, "devices"), (on_nvidia(examples["finetune"], accelerator_count=2), "deploy")):
        assert all(key in each for each in services(plan).values())
        assert compose_complaints({"services": services(plan)}) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"imagee": "x"}, "Compose.services.*.* is no field"),
        ({"restart": "sometimes"}, "restart is `sometimes`"),
        ({"command": "vllm"}, "command is `vllm`"),
        ({"environment": {"A": 1}}, "environment.* is `1`"),
        (
            {"deploy": {"resources": {"reservations": {"devices": [{"driver": "nvidia"}]}}}},
            "lacks capabilities",
        ),
    ],
)
def test_the_table_refuses_what_compose_has_not(change: dict[str, Any], said: str) -> None:
    service = {"image": "vllm/vllm-openai", **change}
    found = compose_complaints({"services": {"one": service}})
    assert any(said in each for each in found), found
    assert compose_complaints({"services": {"one": {"image": "vllm/vllm-openai"}}}) == []


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/compose/*.yaml")), ids=lambda each: each.stem)
def test_a_packaged_parser_of_the_specification_reads_it(path: Path) -> None:
    parser = pytest.importorskip(
        "compose_spec", reason="by `make validate-rendered` (pip install compose-spec)"
    )
    # Compose fills variables in before it reads the file.
    filled = re.sub(r"\$\{IMAGE\w*:[-?][^}]*\}", "registry/image", path.read_text("utf-8"))
    filled = re.sub(r"\$\{HF_HOME:-[^}]*\}", "/hub", filled)
    read = parser.PyCompose.from_yaml(filled)
    read.validate()
    assert sorted(read.service_names()) == sorted(YAML(typ="safe").load(filled)["services"] or {})
    with pytest.raises(ValueError, match="imagee"):
        parser.PyCompose.from_yaml(filled.replace("  image:", "  imagee:"))


@pytest.mark.skipif(
    not shutil.which("docker")
    or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,
    reason="no `docker compose` here, whose own parser would read it",
)
def test_compose_takes_it(files_of: Callable[[str, str], Files], tmp_path: Path) -> None:
    ((path, text),) = files_of("finetune", "compose").items()
    (tmp_path / path).write_text(text, "utf-8")
    subprocess.run(["docker", "compose", "-f", str(tmp_path / path), "config", "--quiet"], check=True)
