"""Runs and services under the same names: on pages that Prometheus reads, and through OpenTelemetry's SDK."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.live.test_gateway import STREAM, configured, gateway
from twofold.contracts.results.plan import Plan
from twofold.live.metrics_text import Family, families_text
from twofold.live.training.fragments import fragmented_fraction
from twofold.live.training.run_series import FILE, RunSeries
from twofold.live.training.run_watch import RunWatch
from twofold.live.training.training_record import StepLine, append_event, append_step
from twofold.live.watched import SERVING, TRAINING, resource_of
from twofold.rendering.gateway_watch import ALERTS, DASHBOARD, LATE_RATIO, watch_files

NEEDED = "needs promtool, of Debian's package prometheus: `make system`"
INFO = re.compile(r"^target_info\{(.*)\} 1$", re.MULTILINE)
LINE = StepLine(1, 0, 7, (2.5).hex(), 0.0, 0.25, *[0.0] * 6, 10**9, 0.0, 0.125)
FRAGMENTS = """
import ctypes, json
from twofold.live.training.fragments import fragmented_fraction
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
before = fragmented_fraction()
blocks = [libc.malloc(2000) for _ in range(40_000)]
full = fragmented_fraction()
for block in blocks[::2]:
    libc.free(block)
print(json.dumps([before, full, fragmented_fraction()]))
"""


def promtool(*words: str, **more: Any) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip(NEEDED)
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def run_in(folder: Path, write_s: float = 3.0) -> RunSeries:
    """A run that has done seven steps and saved once."""
    append_event(folder, "checkpoint", step=5, write_s=write_s)
    append_step(folder, 0, LINE)
    watch = RunWatch(folder, LINE.launch)
    watch.look()
    return RunSeries(watch, resource_of(TRAINING, "tiny", {}), tokens_per_step=256)


def read_bytes() -> int:
    """What this process has read so far, of whatever."""
    path = Path("/proc/self/io")
    if not path.exists():
        pytest.skip("needs the counters of /proc/self/io")
    return int(path.read_text().split()[1])


def test_a_look_at_a_run_reads_what_is_new_however_much_has_happened(tmp_path: Path) -> None:
    series = run_in(tmp_path)

    def look() -> int:
        """Bytes that are read when one event is new."""
        append_event(tmp_path, "checkpoint", step=6, write_s=2.0)
        before = read_bytes()
        assert series.watch.look() == ([], True)
        text = families_text(series.families())
        assert f"twofold_checkpoints_total {series.watch.saved_count}" in text
        return read_bytes() - before

    first = look()
    path = tmp_path / "events.jsonl"
    # It reads on from where it was, within one of the first of them.
    path.write_text(path.read_text("utf-8").splitlines(keepends=True)[0] * 20_100, "utf-8")
    while series.watch.look()[1]:
        pass
    assert look() < first + 10_000 < path.stat().st_size
    assert series.watch.saved_count > 20_000


def labels_of(page: str) -> dict[str, str]:
    (told,) = INFO.findall(page)
    return dict(re.findall(r'(\w+)="([^"]*)"', told))


def test_r_179_a_run_and_a_service_have_the_same_names_for_who_they_are_and_what_memory_is_left(
    tmp_path: Path, stub_engines: Any
) -> None:
    run = run_in(tmp_path)
    run.write()
    run.write()  # a moment later: not again

    async def scenario() -> tuple[str, list[Family]]:
        async with (
            stub_engines(1) as [engine],
            gateway(configured(tmp_path, [engine], model_name="chat")) as through,
        ):
            assert (await through.ask(STREAM))[0] == 200
            async with through.client.get(f"{through.url}/metrics") as answer:
                return await answer.text(), list(through.driver.families())

    page, families = asyncio.run(scenario())
    of_run = (tmp_path / FILE).read_text("utf-8")
    for text in (of_run, page):
        assert promtool("check", "metrics", input=text) == ""
    who, whose = labels_of(of_run), labels_of(page)
    assert who.keys() == whose.keys() >= {"service_name", "service_namespace", "twofold_part"}
    assert (who["service_name"], whose["service_name"]) == ("tiny", "chat")
    assert (who["twofold_part"], whose["twofold_part"]) == (TRAINING, SERVING)
    for name in ("twofold_memory_limit_bytes", "twofold_memory_available_bytes"):
        both = [re.search(rf"^{name} (\d+)$", text, re.MULTILINE) for text in (of_run, page)]
        assert all(each and int(each[1]) > 0 for each in both)
    assert "twofold_train_steps_total 7" in of_run and "twofold_train_tokens_total 1792" in of_run
    assert read_by_the_sdk(run.resource, list(run.families())) >= {
        ("twofold_checkpoint_seconds", 3.0),
        ("twofold_train_loss", 2.5),
    }
    assert ("twofold_requests_total", 1.0) in read_by_the_sdk(resource_of(SERVING, "chat", {}), families)


def read_by_the_sdk(resource: dict[str, str] | Any, families: Iterable[Family]) -> set[tuple[str, float]]:
    """Names and values as OpenTelemetry's own reader in memory has them; whose they are is checked here."""
    pytest.importorskip("opentelemetry.sdk", reason="needs the extra [otel]: `make extras`")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from twofold.live.otel_metrics import metrics_to

    reader = InMemoryMetricReader()
    provider = metrics_to(reader, resource, lambda: families)
    data = reader.get_metrics_data()
    provider.shutdown()
    assert data is not None
    (told,) = data.resource_metrics
    assert dict(resource).items() <= dict(told.resource.attributes).items()
    return {
        (metric.name, float(point.value))
        for scope in told.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_a_sender_that_nobody_knows_is_refused_and_none_is_the_default() -> None:
    from twofold.core.errors import MissingExtraError, ValueRefusedError
    from twofold.live.otel_metrics import metrics_from

    assert metrics_from({}, {}, list) is None
    assert metrics_from({"OTEL_METRICS_EXPORTER": "none"}, {}, list) is None
    with pytest.raises((ValueRefusedError, MissingExtraError)):
        metrics_from({"OTEL_METRICS_EXPORTER": "carrier-pigeon"}, {}, list)


def test_what_is_free_inside_a_process_is_told_and_grows_when_it_is_in_pieces() -> None:
    if fragmented_fraction() is None:
        pytest.skip("this C library has no mallinfo2")
    done = subprocess.run([sys.executable, "-c", FRAGMENTS], capture_output=True, text=True, check=True)
    before, full, in_pieces = json.loads(done.stdout)
    assert 0.0 <= full < 0.3 and 0.0 <= before <= 1.0
    assert in_pieces > 0.3 + full


def test_r_143_memory_fragments_and_checkpoints_are_series_with_thresholds_and_alarms(
    examples: dict[str, Plan], tmp_path: Path
) -> None:
    """Each series is on the page of a run or a gateway, each has its picture, each alarm fires and ends."""
    service = examples["assistant"].serving[0]
    planned_s = 2.0
    files = watch_files(service, (), "127.0.0.1", 8080, planned_s)
    (tmp_path / ALERTS).write_text(files[ALERTS], "utf-8")
    cases = {
        "MemoryShort": ("page", "twofold_memory_available_bytes", 50.0, 500.0),
        "MemoryFragmented": ("ticket", 'twofold_memory_fragmented_fraction{process="rank-0"}', 0.8, 0.1),
        "CacheFull": ("ticket", 'twofold_replica_kv_used_fraction{replica="r0"}', 0.99, 0.4),
        "CheckpointSlow": ("ticket", "twofold_checkpoint_seconds", LATE_RATIO * planned_s + 1, planned_s),
    }
    pages = families_text(run_in(tmp_path).families())
    panels = {
        target["expr"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        for panel in json.loads(files[DASHBOARD])["panels"]
        for target in panel["targets"]
    }
    tests = []
    for name, (severity, series, bad, good) in cases.items():
        bare = series.partition("{")[0]
        assert f"\n{bare}" in pages or bare == "twofold_replica_kv_used_fraction"  # which gateways have
        assert any(bare in query and len(steps) > 1 for query, steps in panels.items()), name
        for value, fires in ((bad, True), (good, False)):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', series))
            expected = {"eval_time": "10m", "alertname": name, "exp_alerts": []}
            told = next(rule for rule in rules_in(files[ALERTS]) if rule["alert"] == name)
            if fires:
                expected["exp_alerts"] = [
                    {
                        "exp_labels": {"service": service.name, "severity": severity, **labels},
                        "exp_annotations": told["annotations"],
                    }
                ]
            values = [{"series": series, "values": f"{value}x20"}]
            values.append({"series": "twofold_memory_limit_bytes", "values": "1000x20"})
            tests.append({"interval": "1m", "input_series": values, "alert_rule_test": [expected]})
    told_all = {"rule_files": [ALERTS], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(json.dumps(told_all), "utf-8")
    promtool("test", "rules", "test.yaml", cwd=tmp_path)


def rules_in(text: str) -> list[dict[str, Any]]:
    from ruamel.yaml import YAML

    [group] = YAML(typ="safe").load(text)["groups"]
    return list(group["rules"])
