from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.contracts import Plan, plan_to_dict
from twofold.core import FileError, InfeasibleError, ValueRefusedError
from twofold.plan.paths import is_estimate, leaves

Planned = Callable[[str], Plan]


def spec(path: Path, goal: str = "300 ms", on: str = "  on: 1xL40S\n") -> str:
    return f"""
name: vision
serving:
  name: embed
  model: {{measured: {path}}}
  classes:
    images: {{traffic: {{rate: 100 /s, peak: 2x}}, slo: {{e2e_p95: {goal}}}}}
{on}"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("batch_size,service_s\n1,0.010\n8,0.040\n32,0.120\n", "utf-8")
    return path


def test_measured_batches_become_replicas_within_the_goal(planned: Planned, rows: Path) -> None:
    service = planned(spec(rows)).serving[0]
    images = service.classes[0]
    assert images.slos[0].met and images.peak_per_s == 200
    assert images.rate_per_replica_per_s.value <= 32 / 0.120
    assert service.cost_usd_per_year and service.machine.accelerator == "L40S"
    assert images.percentiles["e2e_p95"].source.value == "m"


def test_a_tighter_goal_takes_more_replicas(planned: Planned, rows: Path) -> None:
    loose, tight = (planned(spec(rows, goal)).serving[0].replica_count for goal in ("2 s", "40 ms"))
    assert tight > loose


def test_its_numbers_have_derivations_too(planned: Planned, rows: Path) -> None:
    data = plan_to_dict(planned(spec(rows)))
    known = {row["path"] for row in data["derivations"]}
    assert [path for path, leaf in leaves(data) if is_estimate(leaf) and path not in known] == []


def test_a_goal_below_one_batch_is_infeasible(planned: Planned, rows: Path) -> None:
    with pytest.raises(InfeasibleError, match="embed"):
        planned(spec(rows, "5 ms"))


def test_machines_must_be_named(planned: Planned, rows: Path) -> None:
    with pytest.raises(ValueRefusedError, match="not where"):
        planned(spec(rows, on=""))


@pytest.mark.parametrize(
    ("text", "says"), [("a,b\n1,2\n", "no measured rows"), ("batch_size,service_s\n1,x\n", "x")]
)
def test_bad_rows_name_their_line(planned: Planned, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(FileError, match=says):
        planned(spec(path))


def test_a_missing_file_is_an_input_error(planned: Planned, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot read"):
        planned(spec(tmp_path / "none.csv"))


def test_work_by_the_day_says_when_it_is_done(planned: Planned, rows: Path) -> None:
    day = "images: {traffic: {tokens_per_day: 10 Gtok, input: 900 tok, output: 100 tok}"
    promised = "slo: {finish_within: 6 h}}"
    head = spec(rows).split("    images")[0]
    images = planned(f"{head}    {day}, {promised}\n  on: 1xL40S\n").serving[0].classes[0]
    (promise,) = images.slos
    assert promise.metric == "finish_within" and promise.met
    requests_a_day = 10e9 / 1000
    carried_per_s = images.replica_count * 32 / 0.120
    assert promise.predicted.value == pytest.approx(requests_a_day / carried_per_s, rel=0.01)
