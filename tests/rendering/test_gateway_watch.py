"""Alarms and a dashboard of a gateway: what Prometheus reads, fires on and finds on the gateway's page."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.live.outcomes import outcome_of
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.live.gateway.counters import Counters
from twofold.live.gateway.telemetry import Telemetry
from twofold.live.metrics_text import families_text
from twofold.live.training.run_series import RunSeries
from twofold.live.training.run_watch import RunWatch
from twofold.live.training.training_record import StepLine
from twofold.policy.gate.events import ReplicaAdded
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import Beliefs, ClassSettings, GateSettings
from twofold.rendering.gateway_watch import ALERTS, DASHBOARD, PROMETHEUS, watch_files

NEEDED = "needs promtool, of Debian's package prometheus: `make system`"
SERIES = re.compile(r"twofold_[a-z_]+")


def gated(service: ServicePlan) -> tuple[ClassSettings, ...]:
    """Classes as a gate has them: the promise of one percentile each."""
    limits = {each.name: {slo.metric: slo.limit_s for slo in each.slos} for each in service.classes}
    return tuple(
        ClassSettings(name, ttft_slo_s=own.get("ttft_p95"), tpot_slo_s=own.get("tpot_p95"))
        for name, own in limits.items()
    )


def watched(service: ServicePlan) -> dict[str, str]:
    return watch_files(service, gated(service), "127.0.0.1", 8080)


def rules_of(service: ServicePlan) -> list[dict[str, Any]]:
    [group] = YAML(typ="safe").load(watched(service)[ALERTS])["groups"]
    return list(group["rules"])


def promtool(*words: str, **more: Any) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip(NEEDED)
    done = subprocess.run([program, *words], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def services(examples: dict[str, Plan]) -> list[ServicePlan]:
    return [service for plan in examples.values() for service in plan.serving]


def test_prometheus_reads_the_files_of_every_example(examples: dict[str, Plan], tmp_path: Path) -> None:
    found = services(examples)
    assert len(found) > 3
    for number, service in enumerate(found):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in watched(service).items():
            (folder / name).write_text(text, "utf-8")
        assert "SUCCESS" in promtool("check", "rules", ALERTS, cwd=folder)
        assert "SUCCESS" in promtool("check", "config", PROMETHEUS, cwd=folder)


def test_every_query_of_the_dashboard_is_one(examples: dict[str, Plan], tmp_path: Path) -> None:
    queries = {
        target["expr"].replace("$__rate_interval", "5m")
        for service in services(examples)
        for panel in json.loads(watched(service)[DASHBOARD])["panels"]
        for target in panel["targets"]
    }
    rules = [{"record": f"q:{number}", "expr": query} for number, query in enumerate(sorted(queries))]
    path = tmp_path / "queries.yaml"
    path.write_text(json.dumps({"groups": [{"name": "q", "rules": rules}]}), "utf-8")
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))


def test_what_is_asked_for_is_on_the_gateways_page_or_on_that_of_a_run(
    examples: dict[str, Plan], tmp_path: Path
) -> None:
    pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")  # what memory there is
    service = examples["assistant"].serving[0]
    classes = gated(service)
    gate = Gate(GateSettings(classes=classes), Beliefs(0.001, 0.01))
    gate.handle(ReplicaAdded("r", 4), 0.0)
    meters = Counters(classes)
    meters.saw(outcome_of(class_name=classes[0].name, zone="eu-west"))
    page = meters.page(gate.view, Telemetry(), {"events": 0})
    line = StepLine(1, 0, 1, (2.5).hex(), 0.0, 0.25, *[0.0] * 6, 10**9)
    run = RunSeries(RunWatch(tmp_path, 1, line), {}, 1)
    page += families_text(run.families())
    names = set(SERIES.findall("".join(watched(service).values())))
    assert len(names) > 10 and all(f"\n{name}" in page or f"{name} " in page for name in names)
    buckets = set(re.findall(r'twofold_\w+_bucket\{class=[^}]*le="[^"]+"\}', page))
    for rule in rules_of(service):
        assert set(re.findall(r'twofold_\w+_bucket\{class=[^}]*le="[^"]+"\}', rule["expr"])) <= buckets


def test_goals_that_the_gate_does_not_know_of_have_no_alarm(examples: dict[str, Plan]) -> None:
    service = examples["assistant"].serving[0]
    known, *others = gated(service)
    text = watch_files(service, (replace(known),), "::1", 8080)
    labels = {
        rule["labels"]["class"]
        for rule in YAML(typ="safe").load(text[ALERTS])["groups"][0]["rules"]
        if "class" in rule["labels"]
    }
    assert labels <= {known.name} and "[::1]:8080" in text[PROMETHEUS]
    assert not {each.name for each in others} & labels


@pytest.mark.parametrize(("late_fraction", "fires"), [(0.9, True), (0.01, False)])
def test_the_alarm_fires_when_requests_are_late_and_is_silent_when_few_are(
    late_fraction: float, fires: bool, examples: dict[str, Plan], tmp_path: Path
) -> None:
    service = examples["assistant"].serving[0]
    [kind, *_] = [each for each in service.classes if any(slo.metric == "ttft_p95" for slo in each.slos)]
    [goal] = [slo for slo in kind.slos if slo.metric == "ttft_p95"]
    (tmp_path / ALERTS).write_text(watched(service)[ALERTS], "utf-8")
    own = f'class="{kind.name}"'
    bucket = f'twofold_ttft_seconds_bucket{{{own},le="{goal.limit_s!r}"}}'
    series = [
        {"series": bucket, "values": f"0+{100 * (1 - late_fraction):g}x120"},
        {"series": f"twofold_ttft_seconds_count{{{own}}}", "values": "0+100x120"},
    ]
    labels = {"service": service.name, "class": kind.name, "goal": "ttft_p95"}
    said = {"summary": f"{service.name} {kind.name}: ttft_p95 is missed"}
    calls = [
        {"exp_labels": {**labels, "severity": severity, "over": over}, "exp_annotations": said}
        for severity, over in (("page", "1h"), ("page", "6h"), ("ticket", "3d"))
    ]
    expected = {
        "eval_time": "90m",
        "alertname": "LatencyBudgetBurns",
        "exp_alerts": calls if fires else [],
    }
    case = {"interval": "1m", "input_series": series, "alert_rule_test": [expected]}
    told = {"rule_files": [ALERTS], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yaml").write_text(json.dumps(told), "utf-8")
    promtool("test", "rules", "test.yaml", cwd=tmp_path)


@pytest.mark.parametrize(
    ("host", "trusted"),
    [("127.0.0.1", {"insecure_skip_verify": True}), ("gate.example", {"ca_file": "/etc/gate.pem"})],
)
def test_a_gateway_that_speaks_tls_is_scraped_by_tls(
    examples: dict[str, Plan], host: str, trusted: object
) -> None:
    """By its certificate, under its name; on this machine by no name, which no certificate has."""
    service = examples["assistant"].serving[0]
    told = watch_files(service, gated(service), host, 8443, certificate="/etc/gate.pem")[PROMETHEUS]
    [job] = YAML(typ="safe").load(told)["scrape_configs"]
    assert job["scheme"] == "https" and job["tls_config"] == trusted
    assert job["static_configs"] == [{"targets": [f"{host}:8443"]}]
