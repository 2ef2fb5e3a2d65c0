"""A replica checks its own model before it becomes the engine."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from twofold.live.control.engines import EngineSettings, engine_command
from twofold.live.training.artefact import MANIFEST, write_manifest


@pytest.fixture
def settings(tmp_path: Path) -> EngineSettings:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    write_manifest(folder)
    digest = f"sha256:{hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()}"
    program = tmp_path / "engine"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import os; print(os.getpid())"\n')
    program.chmod(0o755)
    return EngineSettings(str(folder), "float32", 1, 4, 8, program=str(program), digest=digest)


def test_the_engine_takes_the_place_of_the_check_in_one_process(settings: EngineSettings) -> None:
    plain = engine_command(replace(settings, digest=""))
    assert engine_command(settings)[-len(plain) :] == plain
    with subprocess.Popen(engine_command(settings), stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and int(said) == process.pid


def test_other_bytes_are_named_and_nothing_is_started(settings: EngineSettings) -> None:
    (Path(settings.artefact) / "config.json").write_text("[]")
    done = subprocess.run(engine_command(settings), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and done.stdout == ""
    assert done.stderr.startswith("error[E-altered]: `config.json` has other bytes")
