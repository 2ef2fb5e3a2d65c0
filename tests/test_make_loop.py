"""`make loop` with a stand-in for `twofold`: each step's failure is its own, and what stands goes down."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.measure.served_rows import RunOn

ROOT = Path(__file__).parents[1]
STAND_IN = """#!/bin/sh
echo "$*" >> "$LOG"
for word in $FAILS; do case "$1 $*" in *"$word"*) exit 3;; esac; done
case "$1" in diff) exit 4;; esac
"""
MARKS = ("--try-releases", "--prove")
STEPS = ["up --try-releases", "up --prove", "measure", "calibrate", "plan", "diff", "down"]


def made(folder: Path, fails: str, *options: str) -> tuple[int, list[str]]:
    """How `make` ended where steps with this word fail, and which steps it came to."""
    program, log = folder / "twofold", folder / "log"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    for name in (".installed", ".extras"):
        (folder / name).touch()
    told = {**os.environ, "LOG": str(log), "FAILS": fails, "MAKEFLAGS": "", "MAKELEVEL": ""}
    words = [
        f"BIN={folder}",
        f"EXTRAS={folder}/.extras",
        f"STAMP={folder}/.installed",
        "-o",
        f"{folder}/.extras",
    ]
    done = subprocess.run(
        ["make", *words, *options, "loop"], cwd=ROOT, env=told, capture_output=True, text=True, check=False
    )
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    steps = [" ".join([line[0], *(word for word in line if word in MARKS)]) for line in lines]
    return done.returncode, steps


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("fails", "steps"),
    [
        ("", STEPS),
        ("--try-releases", [STEPS[0], "down"]),
        ("--prove", STEPS),
        ("measure", ["up --try-releases", "up --prove", "measure", "down"]),
        ("diff", STEPS),
        ("down", STEPS),
    ],
)
def test_the_loop_fails_where_any_step_does_and_lets_nothing_stand(
    fails: str, steps: list[str], tmp_path: Path
) -> None:
    code, came_to = made(tmp_path, fails)
    assert (code != 0) == bool(fails), code
    assert came_to == steps


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_showing_what_the_loop_would_do_does_nothing(tmp_path: Path) -> None:
    assert made(tmp_path, "", "-n") == (0, [])


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_what_recalibrates_runs_on_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in takes any word; `measure` does not."""
    monkeypatch.chdir(ROOT)
    made(tmp_path, "")
    (line,) = (each for each in (tmp_path / "log").read_text().splitlines() if each.startswith("measure "))
    words = line.split()
    told = {name: words[words.index(name) + 1] for name in ("--as", "--engine", "--weights")}
    ran_on = RunOn(told["--as"], engine=told["--engine"], weights_format=told["--weights"])
    assert Path(ran_on.known(load_catalog()).model) == ROOT / "examples" / "laptop" / "config.json"
