"""A gateway's configuration is read as it was written, and anything else is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from twofold.core.errors import FileError
from twofold.live.gateway.gateway_config import (
    GatewayConfig,
    GatewayKey,
    GatewayLimits,
    GatewayReplica,
    read_gateway_config,
    write_gateway_config,
)
from twofold.policy.gate.settings import (
    AdmissionSettings,
    Beliefs,
    ClassKind,
    ClassSettings,
    DegradationSettings,
    GateSettings,
    LimitSettings,
    QueueSettings,
    Rate,
    RetryBudgetSettings,
    Routing,
)

CONFIG = GatewayConfig(
    "127.0.0.1",
    8700,
    (GatewayReplica("replica-0", "127.0.0.1", 9001, "/models/a", 16),),
    Beliefs(1e-4, 5e-3),
    "events.jsonl",
    "assistant",
    GateSettings(attempt_limit=3),
    GatewayLimits(grace_s=3.0),
    (GatewayKey("blue", "0" * 64),),
)


def test_a_configuration_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "gateway.json"
    path.write_text(write_gateway_config(CONFIG), "utf-8")
    assert read_gateway_config(path) == CONFIG


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"colour": "red"}, "colour"),
        ({"port": "8700"}, "port"),
        ({"limits": {"grace_s": 0}}, "grace_s"),
        ({"limits": {"patience_s": 1}}, "patience_s"),
        ({"gate": {"attempt_limit": 0}}, "attempt_limit=0"),
        ({"replicas": [json.loads(write_gateway_config(CONFIG))["replicas"][0]] * 2}, "same"),
        ({"replicas": 3}, "configure"),
        ({"keys": [{"tenant": "a", "sha256": "secret"}]}, "`keys` name"),
        ({"keys": [{"tenant": "", "sha256": "0" * 64}]}, "`keys` name"),
        ({"keys": [{"tenant": name, "sha256": "0" * 64} for name in "ab"]}, "two tenants have the same key"),
        ({"gate": {"scaling": {}}}, "`scaling` needs a controller"),
        ({"gate": {"limits": {"tenant": {"burst_s": "long"}}}}, "finite number"),
    ],
)
def test_what_no_gateway_could_run_with_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "gateway.json"
    path.write_text(json.dumps({**json.loads(write_gateway_config(CONFIG)), **change}), "utf-8")
    with pytest.raises(FileError, match=said):
        read_gateway_config(path)


def test_a_whole_number_is_taken_where_a_fraction_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "gateway.json"
    path.write_text(
        json.dumps({**json.loads(write_gateway_config(CONFIG)), "limits": {"grace_s": 3}}), "utf-8"
    )
    assert read_gateway_config(path) == CONFIG


def test_every_part_of_a_gate_that_runs_live_survives_its_file(tmp_path: Path) -> None:
    gate = GateSettings(
        classes=(ClassSettings("chat", ttft_slo_s=1.0), ClassSettings("bulk", ClassKind.BULK, priority=1)),
        limits=LimitSettings(Rate(2.0), (("blue", Rate(None, 100.0)),)),
        admission=AdmissionSettings(),
        queue=QueueSettings(),
        degradation=DegradationSettings(),
        retry_budget=RetryBudgetSettings(),
        routing=Routing.POWER_OF_TWO,
    )
    path = tmp_path / "gateway.json"
    path.write_text(write_gateway_config(replace(CONFIG, gate=gate)), "utf-8")
    assert read_gateway_config(path).gate == gate


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"nowhere\.json"):
        read_gateway_config(tmp_path / "nowhere.json")
