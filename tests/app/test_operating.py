"""`status`, `top` and `logs` of a service of stand-ins, and of none."""

import json
import math
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from twofold.app.loop_settings import LoopRequest
from twofold.app.loop_stages import (
    LOAD_ENDED,
    SERVING_FILE,
    measured_service,
    others_asked_ago_s,
    own_load_ended_s,
)
from twofold.app.operating import ShownLogs, logs, status, top, without_checks
from twofold.contracts.results.loop import ServingMeasured
from twofold.core.data import to_json
from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings
from twofold.live.control.status import ServiceStatus
from twofold.live.control.store import Happened
from twofold.live.control.supervisor import Service, bring_down, bring_up
from twofold.live.processes import free_port, log_path, running
from twofold.report.service import status_lines

STUB = Path(__file__).parents[1] / "live" / "stub_server.py"
PARSED = [sys.executable, "-m", "twofold"]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("operated")
    (folder / "twofold.yaml").write_text("name: stand-in\n")
    program = folder / "stub"
    program.write_text(f'#!/bin/sh\necho loading >&2\nexec {sys.executable} {STUB} "$@"\n')
    program.chmod(0o755)
    engine = EngineSettings(str(folder / "v1"), "float32", 1, 256, 64, program=str(program))
    settings = ServiceSettings(engine, 1, 4, free_port(), 0.001, 0.01, name="stand-in", zones=("east",))
    try:
        bring_up(settings, folder / ".twofold")
        yield folder
    finally:
        bring_down(folder / ".twofold")
        assert running(folder / ".twofold") == []


def test_what_was_never_brought_up_is_an_error_that_says_how(tmp_path: Path) -> None:
    (tmp_path / "twofold.yaml").write_text("name: x\n")
    for asked in (status, lambda path: top(path, lambda _: False), lambda path: logs(path, lambda _: False)):
        with pytest.raises(FileError, match=r"nothing serves|no logs") as caught:
            asked(tmp_path)
        assert "twofold up" in caught.value.hint
    assert not (tmp_path / ".twofold").exists()


def test_a_service_that_is_well_says_so_on_one_screen_and_as_data(spec: Path) -> None:
    shown = status(spec)
    assert shown.exit_code == 0
    assert shown.lines[0] == "stand-in   1 of 1 replicas ready   release v1 at 100 %"
    assert shown.lines[1] == "  0.0 req/s   refused 0.0 %   failed 0.0 %"
    assert any("replica-0 ready" in line for line in shown.lines)
    assert all(len(line) <= 100 for line in shown.lines)
    data = json.loads(shown.json)
    assert (data["schema"], data["well"], data["ready"]) == ("twofold/status/1", True, 1)


def test_who_else_asked_the_service_is_known_so_that_no_load_is_put_on_users(spec: Path) -> None:
    state, found = spec / ".twofold", status(spec).status
    assert others_asked_ago_s(state, -math.inf) is None
    body = json.dumps({"prompt": "once", "max_tokens": 2}).encode()
    asked = urllib.request.Request(f"{found.url}/v1/completions", body, {"content-type": "application/json"})
    urllib.request.urlopen(asked, timeout=20).close()
    ago_s = others_asked_ago_s(state, own_load_ended_s(state))
    assert ago_s is not None and 0 <= ago_s < 20
    (state / LOAD_ENDED).write_text(str(time.monotonic()))  # that was our own load
    assert others_asked_ago_s(state, own_load_ended_s(state)) is None
    (state / LOAD_ENDED).write_text(str(time.monotonic() + 1e6))  # of an earlier boot
    assert own_load_ended_s(state) == -math.inf


def test_kept_loads_say_under_which_gate_they_were_measured(tmp_path: Path) -> None:
    serving = SimpleNamespace(engine="e", server="http://there")
    request = cast(LoopRequest, SimpleNamespace(state=tmp_path, serving=serving))
    kept = ServingMeasured("e", 2, 16_384.0, None, "v1", (), gate_digest="0" * 64)

    def note(before: ServingMeasured, gate_digest: str) -> str:
        (tmp_path / SERVING_FILE).write_text(to_json(before))
        shown, [said] = measured_service(request, Service(2, None), Path("v1"), gate_digest, load_asked=False)
        assert shown == before
        return said

    same = "loads as measured by an earlier `up`; `--load-for` measures them again"
    assert note(kept, "0" * 64) == note(replace(kept, gate_digest=""), "1" * 64) == same
    assert note(kept, "1" * 64) == (
        "loads as measured by an earlier `up` under gate 000000000000, the twin's column under this one;"
        " `--load-for` measures them again"
    )


def test_a_version_that_is_a_name_is_left_whole_and_long_events_are_folded() -> None:
    happened = Happened(1, 0.0, "gateway", "the gateway restarts: " + "policies.limits, " * 5 + "changed")
    figures = ("http://x", True, True, (), 1.0, 0.25, 0.125, None, None, 0, 0)
    for version, shown in (("sha256-" + "0e49d338189a" * 5, "0e49d338189a"), ("llama-3-70b-instruct",) * 2):
        first, second, *events = status_lines(ServiceStatus("s" * 60, *figures, version, (happened,)))
        assert first == "s" * 60 + f"   0 of 0 replicas ready   release {shown} at 0 %"
        assert second == "  1.0 req/s   refused 25.0 %   failed 12.5 %"
        assert len(events) == 2 and all(len(line) <= 100 for line in events)
        assert " ".join(" ".join(events).split()).endswith(happened.what)


def test_lost_keys_are_told_on_the_screen_and_are_not_well() -> None:
    figures = ("http://x", True, True, (), 1.0, 0.0, 0.0, None, None, 0, 0, "v", ())
    lost = ServiceStatus("s", *figures, keys="the file of keys `/srv/" + "a/" * 30 + "keys.json` is lost")
    lines = status_lines(lost)
    assert f"nobody is let in: {lost.keys}" in " ".join(" ".join(lines).split())
    assert all(len(line) <= 100 for line in lines) and not lost.is_well


def test_top_shows_one_frame_where_nobody_watches_and_more_until_it_is_stopped(spec: Path) -> None:
    frames = []

    def watched(text: str) -> bool:
        frames.append(text)
        if len(frames) == 2:
            raise KeyboardInterrupt
        return True

    assert any(line.split()[:2] == ["replica-0", "ready"] for line in top(spec, lambda _: False).lines)
    assert top(spec, watched).exit_code == 0
    assert len(frames) == 2 and "east" in frames[0]


def test_logs_are_told_by_program_and_one_that_wrote_none_is_refused(spec: Path) -> None:
    assert logs(spec, lambda _: True, "replica-0").lines[0] == "loading"
    assert "replica-0: loading" in logs(spec, lambda _: True).lines
    with pytest.raises(ValueRefusedError, match="`engine` has no log") as caught:
        logs(spec, lambda _: True, "engine")
    assert "replica-0" in caught.value.hint


def test_checks_that_went_well_are_counted_and_left_out() -> None:
    checked = 'INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK'
    sick = checked.replace("200 OK", "503 Service Unavailable")
    lasting = [sick, "GET /metrics1 200", "loaded"]
    assert without_checks([checked, checked, sick, checked, *lasting[1:]]) == (lasting, 3)
    many = [line for number in range(60) for line in (checked, f"line {number}")]
    assert without_checks(many) == ([f"line {number}" for number in range(10, 60)], 49)
    shown = ShownLogs({"replica-0": ("loaded",)}, {"replica-0": 1234})
    assert shown.lines == ["loaded", "(1,234 checks of health and metrics, answered 200, are left out)"]


def test_followed_logs_come_line_by_line_until_ctrl_c(spec: Path) -> None:
    command = [*PARSED, "logs", str(spec), "replica-0", "--follow"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        with log_path(spec / ".twofold", "replica-0").open("a") as log:
            log.write("half")
            log.flush()
            log.write(" and whole\n")
        line = process.stdout.readline()
        while line not in ("half and whole\n", ""):  # the stand-in may have words of its own
            line = process.stdout.readline()
        assert line == "half and whole\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.communicate()


def test_without_a_controller_the_screen_says_what_that_means_and_exits_3(spec: Path) -> None:
    """`down` leaves none; here it is only not heard, as after a boot."""
    state = spec / ".twofold"
    # Both are found before either is killed: whoever is left starts the other.
    there = {child.role: child for child in running(state)}
    for role in ("watchdog", "controller"):
        os.kill(there[role].process_id, signal.SIGKILL)
    shown = status(spec)
    assert shown.exit_code == 3
    assert "no controller is alive" in shown.lines[2]
    assert subprocess.run([*PARSED, "top", str(spec)], capture_output=True, check=False).returncode == 3
