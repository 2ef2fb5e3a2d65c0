"""`twofold jobs` at the command line: a command through the queue, and what is refused."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")

from twofold.live.control.supervisor import bring_down
from twofold.live.processes import running

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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("jobs list .", "no jobs were submitted"),
        ("jobs logs . nobody", "there is no job `nobody`"),
        ("jobs cancel . ../nobody", "there is no job `../nobody`"),
        ("jobs submit . --ranks 3 -- true", "`true-1` asks for 3 slots, and there are 2"),
        ("jobs submit . --ranks 2 --slots 3 -- true", "3 slots do not divide among 2 ranks"),
        ("jobs submit . --name huge", "no training run is named `--name huge`"),
        ("jobs submit . --expect soon -- true", "soon"),
        ("jobs submit nowhere -- true", "nowhere"),
        ("jobs submit . --scenario nowhere -- true", "`--scenario nowhere` is not a scenario"),
        ("jobs sumbit .", "is no question of `jobs`"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write_instead(line, said, run, tmp_path) -> None:
    done = run(f"twofold {line}")
    assert done.code == 2 and said in done.err and "Traceback" not in done.err
    assert "hint: " in done.err
    assert not running(tmp_path / ".twofold")
