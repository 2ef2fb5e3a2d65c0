"""The whole loop on a tiny model: killed, called again, served, a replica killed, taken down for good."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tiny_llama
from twofold.live.gateway.replays import entry_from_line, first_difference, read_gate_log
from twofold.live.loads.loader import bare_endpoint, closed_loop, prompts_of
from twofold.live.processes import free_port, running, stop_all
from twofold.live.training.training_record import read_steps
from twofold.policy.gate.events import ReplicaAdded, Send
from twofold.policy.gate.gate import Gate

for library, extra in {
    "torch": "train",
    "transformers": "train",
    "uvicorn": "live",
    "psutil": "live",
}.items():
    pytest.importorskip(library, reason=f"needs the extra [{extra}]: `make extras`")

CONFIG = {
    **tiny_llama.MODEL,
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "torch_dtype": "float32",
}
SPEC = """
name: tiny
model: ./config.json
training: {name: tiny, steps: 480, sequence: 32 tok, global_batch: 4 seq, precision: fp32,
  framework: pytorch-fsdp, on: 1x2xthis-machine}
serving:
  quantisation: fp32
  kv_quantisation: fp32
  engine: transformers
  classes:
    chat:
      traffic: {rate: 1 /s, input: {mean: 32 tok, p95: 64 tok}, output: {mean: 8 tok, p95: 16 tok}}
      slo: {ttft_p95: 2 s}
  on: 1xthis-machine
"""
TIMEOUT_S = 900.0


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    (tmp_path / "twofold.yaml").write_text(SPEC, "utf-8")
    try:
        yield tmp_path
    finally:
        stop_all(tmp_path / ".twofold")


def twofold(*words: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "twofold", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def ended(process: "subprocess.Popen[bytes]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out.decode(), err.decode()


def wait_for_step(process: "subprocess.Popen[bytes]", state: Path, step: int) -> None:
    """Until the run's first rank has logged that step."""
    while not any(line.step >= step for line in read_steps(state / "train" / "tiny")):
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"ended before step {step}: {process.communicate()}")


def test_a_loop_that_is_killed_converges_and_leaves_nothing_behind(spec: Path) -> None:
    state, port = spec / ".twofold", free_port()
    words = ("up", str(spec), "--port", str(port), "--load-for", "2 s", "--json")

    first = twofold(*words)
    wait_for_step(first, state, 5)
    first.kill()
    first.communicate()

    code, out, err = ended(twofold(*words))
    assert code == 0, err
    page = json.loads(out)
    assert page["schema"] == "twofold/loop/1"
    check_page(page)

    check_a_killed_replica_gets_nothing(state, port)

    code, out, err = ended(twofold("down", str(spec)))
    assert (code, err) == (0, "")
    assert running(state) == []
    assert not state.exists()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def check_page(page: dict[str, Any]) -> None:
    """Both halves were measured, the worker's death cost no bit, and the step's parts sum to the step."""
    (run,) = page["training"]
    assert run["steps"] == 480
    assert run["recovery"]["equal_losses"] is True
    assert run["recovery"]["repeated_steps"] >= 1
    (service,) = page["serving"]
    assert [load["name"].split("-")[0] for load in service["loads"]] == ["closed", "closed", "closed", "open"]
    for load in service["loads"]:
        assert load["sent"] == load["finished"] + load["refused"] + load["failed"]
        assert load["finished"] > 0
    measured = {row["name"] for row in page["rows"] if row["measured"] is not None and row["planned"]}
    assert {"step", "rate", "1 client: TPOT p50", "4 clients: TTFT p95", "16 clients: output"} <= measured
    assert [finding["rule"] for finding in page["findings"]] == [
        "input-bound",
        "busy-machine",
        "communication-bound",
        "tail-grows",
        "kv-pressure",
    ]


def check_a_killed_replica_gets_nothing(state: Path, port: int) -> None:
    """A replica is killed under load: a second later nothing is sent to it until another has started in its
    place, which takes longer than that, and the log replays equal."""
    artefact = next((state / "models").glob("sha256-*"))
    prompts = prompts_of(artefact, 32, seed=1)
    victims = [child for child in running(state, "replica-0") if child.role == "replica-0"]
    os.kill(victims[0].process_id, signal.SIGKILL)
    killed_s = time.monotonic()  # the gateway's clock too
    load = closed_loop(
        bare_endpoint(f"http://127.0.0.1:{port}"), prompts, 2, duration_s=4.0, max_tokens=8, seed=1
    )
    assert load.finished > 0
    run = read_gate_log(state / "gateway" / "events.jsonl").runs[-1]
    entries = [entry_from_line(line) for line in run.entries]
    sent = [
        (entry.now_s, effect.replica_id)
        for entry in entries
        for effect in entry.effects
        if isinstance(effect, Send)
    ]
    healed_s = min(
        (
            entry.now_s
            for entry in entries
            if isinstance(entry.event, ReplicaAdded)
            and entry.event.replica_id == "replica-0"
            and entry.now_s > killed_s
        ),
        default=float("inf"),
    )
    assert healed_s > killed_s + 1.0
    assert [replica for at_s, replica in sent if killed_s + 1.0 < at_s < healed_s].count("replica-0") == 0
    assert [replica for at_s, replica in sent if at_s > killed_s].count("replica-1") > 0
    assert first_difference(Gate(run.settings, run.beliefs), map(entry_from_line, run.entries)) is None
