"""The controller has answers of a release watched: when there is something to watch, and what it says."""

import asyncio
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from twofold.live.control import drifting
from twofold.live.control.drifting import GREW_BYTES, may_watch, samples_bytes, watch_once
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings
from twofold.live.control.store import Store

ENGINE = EngineSettings("", "", 1, 256, 64)
SETTINGS = ServiceSettings(ENGINE, 2, 8, 1, 0, 0, registry="r", registered="chat", samples_fraction=0.05)
WINDOW = {"number": 2, "mean_nats": 1.5, "reference_nats": 1.0, "alert": True}


def stand_in(tmp_path: Path, exit_code: int, out: object, error: str = "") -> list[str]:
    """A program that says what `registry watch` would, and counts how often it was asked."""
    said = f"import sys; open({str(tmp_path / 'asked')!r}, 'a').write(sys.argv[3] + chr(10)); "
    said += f"print({json.dumps(out)!r}); print({error!r}, file=sys.stderr); sys.exit({exit_code})"
    return [sys.executable, "-c", said]


@pytest.mark.parametrize(
    ("exit_code", "out", "error", "notes"),
    [
        (0, {"windows": []}, "", []),
        (3, {"windows": [WINDOW]}, "", ["ALARM: answers of window 2 are worse by 0.500 nats"]),
        (2, {"windows": []}, "error[E-extra]: needs the extra", ["answers are not watched: error[E-extra]"]),
    ],
)
def test_an_alert_is_noted_once_and_so_is_why_nothing_is_watched(
    exit_code: int,
    out: dict[str, list[object]],
    error: str,
    notes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(tmp_path)
    command = stand_in(tmp_path, exit_code, out, error)
    monkeypatch.setattr(drifting.processes, "python_module", lambda *words: [*command, *words[1:]])
    asyncio.run(watch_once(store, tmp_path, SETTINGS, "sha256-5f2c"))
    later = {"windows": [WINDOW | {"number": 3, "mean_nats": 1.6}]}
    command[2] = stand_in(tmp_path, exit_code, later if out["windows"] else out, error)[2]
    asyncio.run(watch_once(store, tmp_path, SETTINGS, "sha256-5f2c"))
    assert (tmp_path / "asked").read_text().split() == ["sha256:5f2c"] * 2
    told = [each.what for each in store.happened(9)]
    assert len(told) == len(notes)
    assert all(note in line and "5f2c" in line for note, line in zip(notes, told, strict=True))


def test_a_watch_that_hangs_is_ended_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    started = tmp_path / "worker"  # what the program has started in its turn
    said = (
        "import os, signal, subprocess, sys; wait = [sys.executable, '-c', 'import signal; signal.pause()'];"
    )
    said += f" file = open({str(started)!r}, 'w');"
    said += " file.write(f'{subprocess.Popen(wait).pid} {os.environ[\"TWOFOLD_ROLE\"]}'); file.close();"
    command = [sys.executable, "-c", f"{said} signal.pause()"]
    monkeypatch.setattr(drifting.processes, "python_module", lambda *words: [*command, *words])
    monkeypatch.setattr(drifting, "LIMIT_S", 3.0)
    asyncio.run(watch_once(store, tmp_path, SETTINGS, "sha256-5f2c"))
    worker, role = started.read_text().split()
    assert role == "drift"
    stat = Path(f"/proc/{worker}/stat")
    deadline_s = time.monotonic() + 20.0
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline_s, "what the program had started goes on"
        time.sleep(0.01)
    assert "took more than" in store.happened(9)[0].what


def test_nothing_is_watched_where_no_samples_are_kept_or_none_are_new(tmp_path: Path) -> None:
    assert may_watch(SETTINGS, ("", 0), ("a", 9)) and may_watch(SETTINGS, ("a", 9), ("b", 9))
    assert may_watch(SETTINGS, ("a", 9), ("a", 9 + GREW_BYTES))
    assert not may_watch(SETTINGS, ("a", 9), ("a", 8 + GREW_BYTES))
    assert not may_watch(SETTINGS, ("", 0), ("a", 0)) and samples_bytes(tmp_path) == 0
    for without in ({"samples_fraction": 0.0}, {"registry": ""}, {"registered": ""}):
        assert not may_watch(replace(SETTINGS, **without), ("", 0), ("a", 9))
