"""R-180: two hosts, which are network namespaces of this machine, train one job and survive a lost rank.

As root: `make two-hosts`.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from twofold.live.processes import running
from twofold.live.training.training_record import read_events, read_steps, unequal_steps

if not os.environ.get("TWOFOLD_NETWORKS"):
    pytest.skip("makes network namespaces, as root: `make two-hosts`", allow_module_level=True)
pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")

from tests.two_hosts import Host, training, two_hosts

STEPS, EVERY = 14, 4


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with two_hosts() as both:
        yield both


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


def train(hosts: tuple[Host, Host], state: Path, name: str, *, kills: bool = False) -> dict[int, str]:
    with training(hosts, state, name, STEPS, EVERY):
        if kills:
            kill_joined_worker(state, name)
    lines = read_steps(state / name)
    assert unequal_steps(lines) == []
    return {line.step: line.loss for line in lines}


def test_r_180_two_hosts_train_one_job_and_a_rank_lost_on_one_resumes(
    tmp_path: Path, hosts: tuple[Host, Host]
) -> None:
    calm = train(hosts, tmp_path, "calm")
    killed = train(hosts, tmp_path, "killed", kills=True)
    assert killed == calm and set(calm) == set(range(1, STEPS + 1))
    assert [event["step"] for event in read_events(tmp_path / "killed", "resumed")][:2] == [0, EVERY]
