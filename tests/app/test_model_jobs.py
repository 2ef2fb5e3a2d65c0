"""A version of a registry is evaluated and quantised by jobs of a queue, on the slots of this machine."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

from tests.live.test_jobs import log_replays
from tests.standing import taught_in
from twofold.app.jobs import Wanted, job_logs, list_jobs, submit_job
from twofold.app.model_jobs import ModelWanted
from twofold.app.registering import show_version
from twofold.core.errors import FileError, TwofoldError, UnknownNameError, UsageError
from twofold.live import processes
from twofold.live.control.supervisor import bring_down
from twofold.live.jobs.listing import OVER, JobStatus
from twofold.live.registry.task_sets import OWN_TASKS

EXAMPLE = Path(__file__).parents[2] / "examples" / "laptop"
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught_in(tmp_path_factory.mktemp("taught") / "model")


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[Path]:
    for name in ("twofold.yaml", "config.json"):
        (tmp_path / name).write_bytes((EXAMPLE / name).read_bytes())
    yield tmp_path
    bring_down(tmp_path / ".twofold")
    assert not processes.running(tmp_path / ".twofold")


def wanted_of(taught: Path, kind: str, **model: object) -> Wanted:
    told = ModelWanted(version="chat:1", registry=taught / "registry")
    return Wanted(kind=kind, model=replace(told, **model))  # type: ignore[arg-type]


def until(spec: Path, true: Callable[[list[JobStatus]], object]) -> list[JobStatus]:
    deadline_s = time.monotonic() + PATIENCE_S
    while not true(jobs := list(list_jobs(spec).jobs)):
        assert time.monotonic() < deadline_s, jobs
        time.sleep(0.1)
    return jobs


def over(jobs: list[JobStatus]) -> bool:
    return all(each.state in OVER for each in jobs)


def said_by(spec: Path, job: str) -> str:
    return "\n".join(job_logs(spec, print, job).logs[job])


def test_a_version_is_evaluated_and_a_smaller_copy_of_it_made_by_jobs(spec: Path, taught: Path) -> None:
    registry = taught / "registry"
    asked = wanted_of(taught, "evaluate", texts=taught / "texts.jsonl", tasks=("own",))
    assert submit_job(spec, wanted=replace(asked, team="red")).job == "evaluate-1"
    assert submit_job(spec, wanted=wanted_of(taught, "quantise", bits="4")).job == "quantise-1"
    jobs = until(spec, over)
    assert [(each.kind, each.team, each.state) for each in jobs] == [
        ("evaluate", "red", "finished"),
        ("quantise", "default", "finished"),
    ], [said_by(spec, each.job_id) for each in jobs]
    found = show_version("chat:1", registry).version.evaluation
    assert found is not None and found.loss_nats < 1.0  # it knows the sentence by heart
    assert {each.name for each in found.tasks} & set(OWN_TASKS)
    smaller = show_version("chat:2", registry).version
    assert smaller.quantised_from == show_version("chat:1", registry).version.version.digest
    assert smaller.stored.size_bytes < show_version("chat:1", registry).version.stored.size_bytes
    assert "chat:2" in said_by(spec, "quantise-1")
    log_replays(spec / ".twofold")


def test_an_evaluation_that_is_killed_is_done_again(spec: Path, taught: Path) -> None:
    asked = wanted_of(taught, "evaluate", texts=taught / "texts.jsonl")
    state, role = spec / ".twofold", f"job-{submit_job(spec, wanted=asked).job}"
    until(spec, lambda _: len(processes.running(state, role)) > 1)  # the verb, and its worker
    for child in processes.running(state, role):
        os.kill(child.process_id, signal.SIGKILL)
    (job,) = until(spec, over)
    assert (job.state, job.restarts) == ("finished", 1)


def test_a_job_of_what_cannot_be_says_why_and_is_given_up_at_its_second_try(
    spec: Path, taught: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("")
    submit_job(spec, wanted=wanted_of(taught, "evaluate", texts=tmp_path / "empty.txt"))
    (job,) = until(spec, over)
    assert (job.state, job.restarts) == ("failed", 1)
    assert "holds less than two tokens" in " ".join(said_by(spec, job.job_id).split())


@pytest.mark.parametrize(
    ("kind", "model", "error", "said"),
    [
        ("command", {}, UsageError, "a version is evaluated or quantised"),
        ("evaluate", {}, UsageError, "nothing says what it is evaluated on"),
        ("evaluate", {"texts": Path("nowhere.txt")}, FileError, "`nowhere.txt` does not exist"),
        ("evaluate", {"texts": Path(__file__), "bits": "4"}, UsageError, "`--bits` says nothing to"),
        ("quantise", {"texts": Path(__file__)}, UsageError, "`--on` says nothing to `--kind quantise`"),
        ("quantise", {"version": "chat:99"}, UnknownNameError, "chat"),
        ("quantise", {"version": ""}, UsageError, "are of a version"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_queued(
    spec: Path, taught: Path, kind: str, model: dict[str, object], error: type[TwofoldError], said: str
) -> None:
    with pytest.raises(error, match=said):
        submit_job(spec, wanted=wanted_of(taught, kind, **model))
    assert not (spec / ".twofold" / "jobs").exists()


def test_a_version_takes_no_command_and_no_ranks_beside(spec: Path, taught: Path) -> None:
    asked = wanted_of(taught, "quantise")
    for command, wanted in ((("true",), asked), ((), replace(asked, ranks=2))):
        with pytest.raises(UsageError, match="by one process of ours"):
            submit_job(spec, command, wanted)
