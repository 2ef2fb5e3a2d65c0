"""The scripts of examples/laptop as a person starts them: our trainer's first steps, a first token."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from twofold.app.rendering import render
from twofold.live.processes import free_port, stop_all
from twofold.live.training.training_record import read_steps

for library, extra in {"torch": "train", "transformers": "train", "psutil": "live"}.items():
    pytest.importorskip(library, reason=f"needs the extra [{extra}]: `make extras`")

LAPTOP = Path(__file__).parents[2] / "examples" / "laptop"
STEPS = 4
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The example's files, rendered from a copy of its spec that trains for a few steps only."""
    made = tmp_path_factory.mktemp("rendered") / "laptop"  # a model of one file is called by its folder
    made.mkdir()
    spec = (LAPTOP / "twofold.yaml").read_text("utf-8")
    assert spec.count("steps: 110") == 1
    (made / "twofold.yaml").write_text(spec.replace("steps: 110", f"steps: {STEPS}"), "utf-8")
    (made / "config.json").write_text((LAPTOP / "config.json").read_text("utf-8"), "utf-8")
    render(made, "shell", made / "files")
    try:
        yield made
    finally:
        stop_all(made / "runs" / ".state")


@pytest.fixture(scope="module")
def started(folder: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts a script of the folder by its name; ends what is left of it."""
    processes = []
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def start(script: str, *words: str, **told: str) -> "subprocess.Popen[bytes]":
        command = [str(folder / "files" / script), *words]
        environment = {**os.environ, "PATH": programs, "HF_HUB_OFFLINE": "1", **told}
        log = (folder / f"{script}.log").open("wb")
        with log:
            processes.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True
                )
            )
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def artefact(folder: Path, started: Callable[..., "subprocess.Popen[bytes]"]) -> Path:
    """What the rendered training script exported."""
    run = started("laptop-tiny.sh", CONFIG=str(folder / "config.json"))
    assert run.wait(PATIENCE_S) == 0, (folder / "laptop-tiny.sh.log").read_text("utf-8")
    return folder / "runs" / "laptop-tiny" / "hf"


def test_the_script_of_a_run_trains_to_its_end_and_exports(folder: Path, artefact: Path) -> None:
    lines = read_steps(folder / "runs" / "laptop-tiny")
    assert [line.step for line in lines] == [*range(1, STEPS + 1)]
    assert all(float.fromhex(line.loss) > 0.0 for line in lines)
    assert (artefact / "config.json").is_file()


def test_a_script_without_what_the_plan_cannot_know_says_what_to_set(
    folder: Path, started: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    assert started("laptop-tiny.sh").wait(PATIENCE_S) != 0
    assert "CONFIG: set it to the config.json of laptop" in (folder / "laptop-tiny.sh.log").read_text("utf-8")


def test_the_script_of_a_pool_answers_with_a_first_token(
    folder: Path, artefact: Path, started: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    port = free_port()
    engine = started(
        "laptop-serve.sh", "--host", "127.0.0.1", "--port", str(port), WEIGHTS_LAPTOP=str(artefact)
    )
    body = {"model": str(artefact), "prompt": "import os", "max_tokens": 2, "stream": True}
    until_s = time.monotonic() + PATIENCE_S
    while True:
        assert engine.poll() is None, (folder / "laptop-serve.sh.log").read_text("utf-8")
        try:
            first = first_event(port, body)
            break
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < until_s
            time.sleep(0.2)
    assert json.loads(first.removeprefix(b"data: "))["choices"][0]["text"] is not None


def first_event(port: int, body: dict[str, object]) -> bytes:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=PATIENCE_S) as answer:
        return next(line for line in answer if line.startswith(b"data: {"))
