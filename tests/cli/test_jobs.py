"""`twofold jobs` at the command line: a command through the queue, and what is refused."""

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from tests.live.test_jobs import STUB, effects, log_replays
from twofold.live.control.supervisor import bring_down
from twofold.live.jobs.orders import read_order
from twofold.live.processes import running
from twofold.policy.cluster import events

EXAMPLE = Path(__file__).parents[2] / "examples" / "laptop"
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _queue(tmp_path: Path) -> Iterator[None]:
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    yield
    bring_down(tmp_path / ".twofold")
    assert not running(tmp_path / ".twofold")


def until_over(run) -> list[dict[str, object]]:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        jobs = json.loads(run("twofold jobs list . --json").out)["jobs"]
        if all(job["state"] in ("finished", "failed", "cancelled", "refused") for job in jobs):
            return jobs
        assert time.monotonic() < deadline_s, jobs
        time.sleep(0.2)


def test_commands_of_two_teams_go_through_the_queue(run) -> None:
    first = run("twofold jobs submit . --team red --ranks 2 --kind evaluate -- sh -c 'echo rank $RANK'")
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith("sh-1 is queued: 2 of 2 slots, team red, priority 0\n")
    second = run("twofold jobs submit . --name wait --team blue --json -- sleep 1000")
    assert json.loads(second.out)["job"] == "wait-1"
    assert run("twofold jobs cancel . wait-1").code == 0
    jobs = until_over(run)
    assert [(job["job_id"], job["state"], job["kind"]) for job in jobs] == [
        ("sh-1", "finished", "evaluate"),
        ("wait-1", "cancelled", "command"),
    ]
    assert sorted(run("twofold jobs logs . sh-1").out.split("\n")) == ["", "rank 0", "rank 1"]
    assert run("twofold jobs logs . sh-1 --follow").code == 0  # it is over, so that nothing is waited for
    head, *rows = run("twofold jobs list .").out.splitlines()
    assert head.split() == ["job", "team", "priority", "state", "ranks", "step", "restarts", "since"]
    assert [row.split()[:4] for row in rows] == [
        ["sh-1", "red", "0", "finished"],
        ["wait-1", "blue", "0", "cancelled"],
    ]
    table = run("twofold jobs list . --csv").out.splitlines()
    assert table[0].startswith("job_id,team,priority,kind,state") and len(table) == 3


def test_three_jobs_of_two_teams_make_room_as_the_scenario_says_and_the_log_replays(run, tmp_path) -> None:
    (tmp_path / "soon.yaml").write_text("cluster: {minimum_run: 100 ms}\n")
    stub = [sys.executable, str(STUB), "300", "0.02"]
    asked = "twofold jobs submit . --team"
    first = f"{asked} red --name long --ranks 2 --saves --scenario soon.yaml -- {shlex.join(stub)}"
    assert run(first).code == 0
    assert run(f"{asked} blue --name urgent --priority 3 --ranks 2 -- true").code == 0
    assert run(f"{asked} blue --name small -- true").code == 0
    jobs = {job["job_id"]: job for job in until_over(run)}
    assert {job["state"] for job in jobs.values()} == {"finished"} and len(jobs) == 3
    assert (jobs["long-1"]["preempted"], jobs["long-1"]["restarts"]) == (1, 1)
    state = tmp_path / ".twofold"
    [stop] = effects(state, events.StopJob)
    assert stop == events.StopJob("long-1", events.StopReason.PREEMPTED)
    assert effects(state, events.SaveCheckpoint)  # which it was stopped after
    lines = (state / "jobs" / "runs" / "long-1" / "run" / "steps.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 301))  # and nothing was done twice
    log_replays(state)


def test_a_job_is_given_the_variables_that_are_named_and_no_other(run, monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "of-the-owner")
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-operator")
    said = "sh -c 'echo $HF_TOKEN and ${OPENAI_API_KEY:-no other}'"
    assert run(f"twofold jobs submit . --env HF_TOKEN -- {said}").code == 0
    assert [job["state"] for job in until_over(run)] == ["finished"]
    assert run("twofold jobs logs . sh-1").out == "of-the-owner and no other\n"


def test_a_broken_log_is_named_with_its_line_and_gone_on_with_once_it_is_mended(run, tmp_path) -> None:
    assert run("twofold jobs submit . -- true").code == 0
    until_over(run)
    path = tmp_path / ".twofold" / "jobs" / "log.jsonl"
    whole = path.read_bytes()
    number = whole.count(b"\n")
    with path.open("ab") as file:
        file.write(b"of another program\n")
    done = run("twofold jobs list .")
    said = " ".join(done.err.split())
    assert done.code == 2 and f"line {number + 1} of `<folder>/.twofold/jobs/log.jsonl`" in said
    assert f"hint: put line {number + 1} right" in said and "Traceback" not in said
    path.write_bytes(whole)
    assert run("twofold jobs submit . -- true").code == 0
    assert [job["state"] for job in until_over(run)] == ["finished"] * 2


ORDER = """\
{"name": "fish", "rank_count": 2,
 "steps": 3, "sequence_tokens": 16, "global_batch_sequences": 4,
 MORE}
"""


def test_a_run_is_trained_by_an_order_of_its_own(run, tmp_path, monkeypatch) -> None:
    pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
    monkeypatch.setattr("twofold.app.jobs._see_to_a_driver", lambda _state: None)
    more = '"compute": "compiled", "evaluate_every_steps": 2, "branch_from": "", "data_digest": "ab"'
    (tmp_path / "run.json").write_text(ORDER.replace("MORE", more))
    done = run("twofold jobs submit . --order run.json --team red --json")
    told = json.loads(done.out)
    assert (told["job"], told["team"], told["ranks"]) == ("fish-1", "red", 2)
    assert told["command"] == "training run of twofold.yaml by run.json"
    state = tmp_path / ".twofold"
    job = json.loads((state / "jobs" / "runs" / "fish-1" / "order.json").read_text())
    assert (job["compute"], job["evaluate_every_steps"], job["data_digest"]) == ("compiled", 2, "ab")
    assert job["checkpoint_every_steps"] == job["steps"] == 3  # others when the queue asks
    order = read_order(state, "fish-1")
    assert Path(order.working_folder) == tmp_path  # from which the order's paths are
    assert order.command[-1] == str(tmp_path / "config.json") and order.saves and order.kind == "pretrain"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('"precison": "bf16"', "run.json:3:2: error[E-value]: `precison` is no key of an order"),
        ('"data_workers": "two"', "run.json:3:2: error[E-value]: `data_workers`: `two` is no whole number"),
        ('"seed": 1,', "run.json:3:12: error[E-file]: this is no order: "),
        ('"recompute": "half"', "run.json:1:1: error[E-value]: recompute `half` is not known"),
        ('"micro_batch_sequences": 3', "run.json:1:1: error[E-value]: the 2 sequences of a rank are not"),
        ('"steps": 4', "run.json:2:2: error[E-value]: `steps` stands twice"),
        ('"device": "cuda"', "run.json:1:1: error[E-value]: no slot here has an accelerator"),
        ('"host_count": 0', "run.json:1:1: error[E-value]: 2 ranks cannot be split evenly over 0 hosts"),
        ('"seed": ' + "[" * 10_000, "run.json:1:1: error[E-file]: this is no order: "),
    ],
)
def test_what_is_wrong_with_an_order_is_said_with_its_place(run, tmp_path, more, said) -> None:
    pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
    (tmp_path / "run.json").write_text(ORDER.replace("MORE", more))
    done = run("twofold jobs submit . --order run.json")
    assert done.code == 2 and said in " ".join(done.err.split()) and "Traceback" not in done.err
    assert "hint: " in done.err and not (tmp_path / ".twofold" / "jobs" / "orders").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("jobs submit . --order nowhere.json", "`--order nowhere.json` is no order: no such file"),
        ("jobs submit . --order nowhere.json -- true", "`--order` is of a training run"),
        ("jobs list .", "no jobs were submitted"),
        ("jobs logs . nobody", "there is no job `nobody`"),
        ("jobs cancel . ../nobody", "there is no job `../nobody`"),
        ("jobs submit . --ranks 3 -- true", "`true-1` asks for 3 slots, and there are 2"),
        ("jobs submit . --ranks 2 --slots 3 -- true", "3 slots do not divide among 2 ranks"),
        ("jobs submit . --name huge", "no training run is named `--name huge`"),
        ("jobs submit . --expect soon -- true", "soon"),
        ("jobs submit . --env NO_SUCH_THING -- true", "this environment has no `--env NO_SUCH_THING`"),
        ("jobs submit nowhere -- true", "nowhere"),
        ("jobs submit . --kind evaluate --on words.txt", "are of a version"),
        ("jobs submit . --version fish:1", "a version is evaluated or quantised"),
        ("jobs submit . --kind quantise --version fish:1 -- true", "by one process of ours"),
        ("jobs submit . --kind quantise --version fish:1", ".twofold-registry"),
        ("jobs submit . --scenario nowhere -- true", "`--scenario nowhere` is not a scenario"),
        ("jobs sumbit .", "is no question of `jobs`"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write_instead(line, said, run, tmp_path) -> None:
    done = run(f"twofold {line}")
    assert done.code == 2 and said in done.err and "Traceback" not in done.err
    assert "hint: " in done.err
    assert not running(tmp_path / ".twofold")
