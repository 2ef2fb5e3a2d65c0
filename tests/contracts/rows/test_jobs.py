"""Traces of jobs: ours and published spellings are read in order, what cannot be read names its line."""

from pathlib import Path

import pytest

from twofold.contracts.rows.jobs import JobRow, read_jobs
from twofold.core.errors import TraceError

SHARED = Path(__file__).parents[3] / ".." / "shared" / "traces"


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_jobs_are_read_in_order_from_zero_and_those_without_accelerators_left_out(tmp_path: Path) -> None:
    text = "submit_s,duration_s,gpus,state,kind,team\n110,60,8,completed,sft,red\n105,5,0,,,\n100,30,0.5,,,\n"
    assert list(read_jobs(written(tmp_path / "jobs.csv", text))) == [
        JobRow(0.0, 30.0, 0.5),
        JobRow(10.0, 60.0, 8.0, "completed", "sft", "red"),
    ]


def test_other_spellings_are_known(tmp_path: Path) -> None:
    text = "submit_time,duration,num_gpus,vc\n2017-10-03 10:00:00,60,2,blue\n2017-10-03 10:01:00,60,1,red\n"
    first, second = read_jobs(written(tmp_path / "jobs.csv", text))
    assert (first.team, second.team, second.submit_s) == ("blue", "red", 60.0)


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("", "is empty", 1),
        ("submit_s,gpus\n1,2\n", "no column `duration_s`", 1),
        ("submit_s,duration_s,gpus\n", "holds no job", 1),
        ("submit_s,duration_s,gpus\n1,2,many\n", "`many` is not a count of accelerators", 2),
        ("submit_s,duration_s,gpus\n1,2,1\n,2,1\n", "`` is not a time", 3),
        ("submit_s,duration_s,gpus\n1,-2,1\n", "a job ran -2 s", 2),
    ],
)
def test_what_cannot_be_read_names_its_line(tmp_path: Path, text: str, says: str, line: int) -> None:
    with pytest.raises(TraceError, match=says) as caught:
        list(read_jobs(written(tmp_path / "jobs.csv", text)))
    assert caught.value.place is not None
    assert caught.value.place.line == line


def test_a_published_trace_is_read_whole() -> None:
    path = SHARED / "jobs_acme_kalos_first800.csv.gz"
    if not path.is_file():
        pytest.skip("needs ../shared/traces")
    assert sum(1 for _ in read_jobs(path)) == 800
