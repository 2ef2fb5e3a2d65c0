"""The controller has answers of a release watched: when there is something to watch, and what it says."""

import asyncio
import json
import sys
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
        (2, {}, "error[E-extra]: needs the extra", ["answers are not watched: error[E-extra]"]),
    ],
)
def test_an_alert_is_noted_once_and_so_is_why_nothing_is_watched(
    exit_code: int, out: object, error: str, notes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    command = stand_in(tmp_path, exit_code, out, error)
    monkeypatch.setattr(drifting, "python_module", lambda *words: [*command, *words[1:]])
    for _ in range(2):
        asyncio.run(watch_once(store, tmp_path, SETTINGS, "sha256-5f2c"))
    assert (tmp_path / "asked").read_text().split() == ["sha256:5f2c"] * 2
    told = [each.what for each in store.happened(9)]
    assert len(told) == len(notes)
    assert all(note in line and "5f2c" in line for note, line in zip(notes, told, strict=True))


def test_a_watch_that_hangs_is_ended_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    monkeypatch.setattr(drifting, "python_module", lambda *words: [*command, *words])
    monkeypatch.setattr(drifting, "LIMIT_S", 0.2)
    asyncio.run(watch_once(store, tmp_path, SETTINGS, "sha256-5f2c"))
    assert "took more than" in store.happened(9)[0].what


def test_nothing_is_watched_where_no_samples_are_kept_or_none_are_new(tmp_path: Path) -> None:
    assert may_watch(SETTINGS, ("", 0), ("a", 9)) and may_watch(SETTINGS, ("a", 9), ("b", 9))
    assert may_watch(SETTINGS, ("a", 9), ("a", 9 + GREW_BYTES))
    assert not may_watch(SETTINGS, ("a", 9), ("a", 8 + GREW_BYTES))
    assert not may_watch(SETTINGS, ("", 0), ("a", 0)) and samples_bytes(tmp_path) == 0
    for without in ({"samples_fraction": 0.0}, {"registry": ""}, {"registered": ""}):
        assert not may_watch(replace(SETTINGS, **without), ("", 0), ("a", 9))
