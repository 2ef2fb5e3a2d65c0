"""`validate` on tables of the user: scores, screens of 100 columns, what is refused."""

from pathlib import Path

import pytest

from twofold.app.measured_rows import lint_table, validate
from twofold.core.errors import TableError, UsageError, ValueRefusedError
from twofold.measure.results import Column, Gate, Judged, Line, Moved, Reached, RowFinding
from twofold.measure.scores import Score
from twofold.report.validate import Linted, gate_lines, goal_lines, group_lines, lint_lines

HEADER = "id,model,gpu,gpus_total,framework,precision_weights,tp,isl_mean,osl_mean,concurrency,tpot_mean_ms"
ROW = "monday,llama-3.1-70b,H200,4,vllm,fp8,4,1000,200,16,16.2"
SCORE = Score(9, 0.123, 0.1, -0.05, 0.9, 0.5, 0.8, 1.0, 0.78, 1.5, 0.95, 2.0, 0.1)


def table(folder: Path, *rows: str) -> Path:
    path = folder / "runs.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def test_a_users_table_is_scored_by_itself(tmp_path: Path) -> None:
    done = validate(data=table(tmp_path, ROW, ROW.replace("16.2", "32.4")))
    (line,) = done.groups
    score = line.scores[Column.LEFT_OUT]
    assert (line.figure, score.rows, done.row_counts) == ("tpot", 2, {"inference": 2})
    assert score.mean_error is not None and score.mean_error > 0.1
    assert all(len(text) <= 100 for text in done.lines)
    assert done.as_data["groups"][0]["scores"]["left_out"]["rows"] == 2


def test_what_cannot_be_asked_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`cooking` is no half"):
        validate("cooking")
    with pytest.raises(ValueRefusedError, match="grouped by `colour`"):
        validate(by=("colour",))
    with pytest.raises(ValueRefusedError, match="no committed figures"):
        validate(data=table(tmp_path, ROW), gate=True)
    with pytest.raises(TableError, match="no table of training runs"):
        validate("training", table(tmp_path, ROW))


def test_a_lint_names_the_line_and_the_likely_slip(tmp_path: Path) -> None:
    done = lint_table(table(tmp_path, ROW, ROW.replace("16.2", "0.0162")))
    assert done.row_count == 2
    assert any(finding.line == 3 and "seconds" in finding.hint for finding in done.findings)
    assert all(len(text) <= 100 for text in done.lines)


def goal(statistic: str, value: float, limit: float, missed: float, at_least: bool = False) -> Judged:
    return Judged("a goal", statistic, at_least, {Column.LEFT_OUT: Reached(value, 9, value, limit, missed)})


def test_a_goal_shows_its_figure_its_limit_and_what_is_missing() -> None:
    shown = [
        (goal("mean error", 0.141, 0.12, 0.021), "14.1  ≤12 +2.1"),
        (goal("mean error", 0.114, 0.12, 0.0), "11.4  ≤12 met"),
        (goal("width", 2.37, 2.2, 0.17), "2.37  ≤2.2 +0.17"),
        (goal("Spearman in sources", 0.91, 0.95, 0.04, at_least=True), "0.91  ≥0.95 −0.04"),
        (goal("groups off", 3.0, 0.0, 3.0), "3  ≤0 +3"),
    ]
    for one, text in shown:
        assert goal_lines([one])[-1].endswith(text), goal_lines([one])


def test_groups_are_lines_of_100_columns_whatever_their_names() -> None:
    group = ("a-source-of-a-rather-long-name", "H200-SXM5-141GB")
    lines = [Line("inference", "tpot", group, "stated", dict.fromkeys(Column, SCORE))]
    shown = group_lines("tpot", lines, ("source", "gpu"))
    assert all(len(text) <= 100 for text in shown)
    assert "12.3" in " ".join(shown) and "50/80/100" in " ".join(shown)


def test_the_gate_says_what_moved_and_by_how_much() -> None:
    gate = Gate(7, (Moved("tpot · dense · a", 40, 0.10, 0.14, 0),), ("ttft · moe · b",), "tpot is worse")
    first, *others = gate_lines(gate)
    assert first.startswith("GATE fails: tpot is worse")
    assert any("10.0 %" in line and "14.0 %" in line and "+4.0" in line for line in others)
    assert "ttft · moe · b" in others[-1]
    assert gate_lines(Gate(7, (), (), "")) == ["GATE holds · 7 groups compared, 0 moved"]


def test_findings_fit_the_screen() -> None:
    finding = RowFinding(
        12, "row-12", "roofline", "impossible", ("tpot_mean_ms",), "too fast " * 30, "write ms " * 20
    )
    shown = list(lint_lines(Linted("runs.csv", "inference", 3, (finding,) * 70)))
    assert all(len(text) <= 100 for text in shown)
    assert shown[-1].startswith("and 10 more")
