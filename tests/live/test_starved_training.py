"""Real runs that wait: for a source that is slow, and for cores that something else has."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests import tiny_llama
from tests.slow_files import slow_files
from twofold.contracts.results.loop import TrainingMeasured
from twofold.live.processes import stop_all
from twofold.live.training.train_job import TrainJob, run_training
from twofold.measure.doctor import INPUT_LIMIT_FRACTION, busy_machine, input_bound

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

MODEL = {**tiny_llama.MODEL, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4}
FILES, DELAY_S = 6, 2.0


@pytest.fixture(scope="module")
def slow_source() -> Iterator[str]:
    with slow_files(FILES, DELAY_S) as addresses:
        yield addresses


def trained(state: Path, name: str, **changes: object) -> TrainingMeasured:
    config = state / "config.json"
    config.write_text(json.dumps(MODEL), "utf-8")
    job = TrainJob(name, state / "train" / name, config, 1, 15, 32, 8, checkpoint_every_steps=100)
    try:
        return run_training(replace(job, **changes), state, lambda _: None)  # type: ignore[arg-type]
    finally:
        stop_all(state)


Runs = tuple[TrainingMeasured, TrainingMeasured, TrainingMeasured]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, slow_source: str) -> Runs:
    """One run from a slow source, one of the same text once it is staged, and one that stages it anew, into a
    cache of its own, by more workers."""
    state = tmp_path_factory.mktemp("starved")
    slow = trained(state, "slow", data=slow_source, data_workers=1)
    staged = trained(state, "staged", data=slow_source, data_workers=1)
    anew = tmp_path_factory.mktemp("anew")
    return slow, staged, trained(anew, "anew", data=slow_source, data_workers=FILES)


def test_r_170_a_slow_source_is_input_bound_and_no_accelerator_is_bought(runs: Runs) -> None:
    slow, *_ = runs
    finding = input_bound(slow)
    assert finding.verdict == "warn" and "the source gives" in finding.saw, finding
    assert "input bound: do not buy accelerators" in finding.advice and "the data nearer" in finding.advice
    assert slow.data is not None and slow.data.files >= 5 and slow.data.fetch_s >= 4 * DELAY_S


def test_r_025_a_staging_cache_keeps_the_ranks_fed_and_so_do_more_workers_without_one(runs: Runs) -> None:
    slow, staged, anew = runs
    assert slow.data is not None and staged.last_loss == anew.last_loss == slow.last_loss
    assert staged.data == replace(slow.data, staged_bytes=0, fetch_s=0, tokenise_s=0)
    assert anew.data is not None and anew.data.staged_bytes == slow.data.staged_bytes > 0
    assert anew.data.fetch_s >= 4 * DELAY_S  # as slow a source, whose files came at once
    # On a quiet machine below 5 %; short steps that share their cores wait for the reading thread too.
    assert input_bound(staged).verdict == "ok", staged
    assert (staged.data_fraction or 0.0) < (slow.data_fraction or 0.0) / 4, (staged, slow)
    assert (anew.data_fraction or 0.0) <= INPUT_LIMIT_FRACTION < (slow.data_fraction or 0.0), (anew, slow)


SPIN = """
import os
parent = os.getppid()
while os.getppid() == parent:
    pass
"""


@contextmanager
def burnt_cores() -> Iterator[None]:
    """Two processes for each core that compute without end, each a session of its own as a stranger's would
    be: whether a scheduler shares by process or by session, a rank has a half or less of its cores.

    They end with this process, however it ends.
    """
    count = 2 * len(os.sched_getaffinity(0))
    command = [sys.executable, "-I", "-c", SPIN]
    spinners = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def test_burnt_cores_say_that_this_machine_is_busy(tmp_path: Path) -> None:
    with burnt_cores():
        record = trained(tmp_path, "crowded", corpus_bytes=60_000)
    finding = busy_machine(record)
    assert finding.verdict == "warn" and finding.advice.startswith("this machine is busy"), finding
    assert input_bound(record).verdict == "ok"
