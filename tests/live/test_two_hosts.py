"""R-180: two hosts, which are network namespaces of this machine, train one job and survive a lost rank.

As root: `TWOFOLD_NETWORKS=1 python -m pytest tests/live/test_two_hosts.py`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from twofold.live.processes import running, stop_all
from twofold.live.training.training_record import read_events, read_steps, unequal_steps

if not os.environ.get("TWOFOLD_NETWORKS"):
    pytest.skip("makes network namespaces, as root: TWOFOLD_NETWORKS=1", allow_module_level=True)
pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")

MODEL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 320,
    "max_position_embeddings": 64,
}
HOSTS = {"twofold-a": "10.99.7.1", "twofold-b": "10.99.7.2"}
RENDEZVOUS = "10.99.7.1:29431"
STEPS, EVERY = 14, 4


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


@pytest.fixture
def hosts() -> Iterator[None]:
    """Two namespaces with one cable between them."""
    first, second = HOSTS
    try:
        for name in HOSTS:
            ip(f"netns add {name}")
        ip(f"link add tf-a netns {first} type veth peer name tf-b netns {second}")
        for (name, address), link in zip(HOSTS.items(), ("tf-a", "tf-b"), strict=True):
            ip(f"-n {name} addr add {address}/24 dev {link}")
            ip(f"-n {name} link set {link} up")
            ip(f"-n {name} link set lo up")
        yield
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "del", name], check=False)


def started(host: str, state: Path, name: str, *more: str) -> subprocess.Popen[str]:
    told = [
        str(state / f"{name}.json"),
        "--folder",
        str(state / name),
        "--model-config",
        str(state / "c.json"),
    ]
    command = [sys.executable, "-P", "-m", "twofold.live.training.train_job", *told, *more]
    with (state / f"{name}-{host}.log").open("w") as log:
        return subprocess.Popen(["ip", "netns", "exec", host, *command], stdout=log, stderr=log, text=True)


def kill_joined_worker(state: Path, name: str) -> None:
    """Once some steps are behind a checkpoint, kill the worker that runs on the second host."""
    import psutil

    deadline_s = time.monotonic() + 300
    while time.monotonic() < deadline_s:
        if len(read_steps(state / name)) >= EVERY + 2:
            for child in running(state / ".state", f"train-{name}-joined"):
                process = psutil.Process(child.process_id)
                if any("train_worker" in word for word in process.cmdline()) and not process.children():
                    process.kill()
                    return
        time.sleep(0.05)
    raise AssertionError("no step, or no worker to kill")


def train(state: Path, name: str, *, kills: bool = False) -> dict[int, str]:
    order = {"name": name, "rank_count": 2, "host_count": 2, "rendezvous": RENDEZVOUS, "steps": STEPS}
    sizes = {"sequence_tokens": 32, "global_batch_sequences": 4, "checkpoint_every_steps": EVERY}
    (state / "c.json").write_text(json.dumps(MODEL), "utf-8")
    whole = {**order, **sizes, "corpus_bytes": 60_000}
    (state / f"{name}.json").write_text(json.dumps(whole), "utf-8")
    first, second = HOSTS
    both = [started(first, state, name), started(second, state, name, "--join")]
    try:
        if kills:
            kill_joined_worker(state, name)
        for host, process in zip(HOSTS, both, strict=True):
            log = state / f"{name}-{host}.log"
            assert process.wait(timeout=600) == 0, log.read_text("utf-8")[-3000:]
    finally:
        for process in both:
            process.kill()
        stop_all(state / ".state")
    lines = read_steps(state / name)
    assert unequal_steps(lines) == []
    return {line.step: line.loss for line in lines}


def test_r_180_two_hosts_train_one_job_and_a_rank_lost_on_one_resumes(tmp_path: Path, hosts: None) -> None:
    del hosts
    calm = train(tmp_path, "calm")
    killed = train(tmp_path, "killed", kills=True)
    assert killed == calm and set(calm) == set(range(1, STEPS + 1))
    assert [event["step"] for event in read_events(tmp_path / "killed", "resumed")][:2] == [0, EVERY]
