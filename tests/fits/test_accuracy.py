"""The page of accuracy: goals first, long tables last, all of it from the same evidence."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from fits.accuracy import (
    claims_table,
    goals_table,
    ledger_table,
    page,
    peers_summary,
    peers_table,
    reliability_table,
    remains_table,
    write_figures,
)
from twofold.measure.evidence import Evidence, gather
from twofold.measure.gate import GateFigure, read_figures
from twofold.measure.goals import read_goals
from twofold.measure.results import Column, Judged, Reached
from twofold.measure.validation import read_data

FIGURE = GateFigure("truth", "training", "step_time", "dense", "a", 20, 20, "d1", 0.10, 0.08)
PEER = {
    "half": "training",
    "tool": "roofline",
    "version": "",
    "figure": "Step time",
    "source": "a",
    "rows": "10",
    "mean_error": "0.5",
    "median_error": "0.4",
    "bias": "-0.5",
    "ours_constants": "left out",
    "ours_mean_error": "0.1",
    "ours_median_error": "0.1",
    "ours_bias": "0.01",
}
TERM = {"half": "training", "term": "host floor", "why": "small kernels", "rows": "1056", "before": "20 %"}


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return gather(read_data(None, "training"), only=(Column.LEFT_OUT,))


def test_the_page_puts_goals_first_and_long_tables_last(evidence: Evidence, tmp_path: Path) -> None:
    text = page(evidence, tmp_path, tmp_path)
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    assert heads[0] == "## Goals" and heads[-1] == "## Training, source by source"
    assert "vtrain-single" in text and "**mean of sources**" in text


def test_tables_have_as_many_cells_in_every_line(evidence: Evidence, tmp_path: Path) -> None:
    widths: set[int] = set()
    for line in [*page(evidence, tmp_path, tmp_path).splitlines(), ""]:
        if line.startswith("|"):
            widths.add(line.count("|"))
        else:
            assert len(widths) < 2, line
            widths = set()


def test_limits_at_the_ends_of_ranges_are_said_to_hold_with_10_and_90_per_cent(evidence: Evidence) -> None:
    steps = evidence.parts["step_time"]
    values = steps.answers[Column.LEFT_OUT]
    for measured, said, held in (
        (values.high_80 * 0.999, 0.9, "100%, 100%"),
        (values.high_80 * 1.001, 0.9, "0%, 0%"),
        (values.low_80 * 0.999, 0.1, "100%, 100%"),
    ):
        moved = replace(steps, answers={Column.LEFT_OUT: replace(values, measured=measured)})
        head, _, line = (each.split("|") for each in reliability_table([moved])[-4:-1])
        assert line[head.index(f" said {said:.0%} ")].strip() == held


def test_a_goal_that_is_missed_says_by_how_much() -> None:
    reached = {
        Column.SEEN: Reached(0.05, 9, 0.05, 0.06, 0.0),
        Column.LEFT_OUT: Reached(0.15, 9, 0.2, 0.12, 0.03),
    }
    line = goals_table([Judged("step", "mean error", False, reached)])[-2]
    assert "| 5.0 %, goal ≤ 6.0 % met |" in line
    assert "| **15.0 %**, goal ≤ 12.0 % missed by 3.0 % (all rows 20.0 %) |" in line


def test_peers_are_means_over_sources_with_ours_on_the_same_rows() -> None:
    other = PEER | {"source": "b", "rows": "90", "mean_error": "0.7", "ours_mean_error": "0.3"}
    assert peers_summary([PEER, other])[-2] == "| Step time | roofline | 2 | 100 | 60.0% | 20.0% |"
    assert len([line for line in peers_table([PEER, other]) if line.startswith("| Step time")]) == 2
    assert peers_summary([]) == peers_table([]) == []


def test_what_failed_stands_last_in_the_ledger() -> None:
    failed = TERM | {"term": "placebo", "after": "20 %", "kept": "no"}
    kept = TERM | {"after": "11 %", "kept": "yes"}
    lines = [line for line in ledger_table([failed, kept]) if line.startswith("| training")]
    assert ["host floor" in lines[0], "placebo" in lines[1]] == [True, True]
    assert ledger_table([]) == []


def test_what_remains_says_what_would_settle_it() -> None:
    row = {"goal": "TPOT, 6 %", "remains": "large batches", "measurement": "a sweep of batches"}
    assert remains_table([row])[-2] == "| TPOT, 6 % | large batches | a sweep of batches |"
    assert remains_table([]) == []


def test_claims_of_peers_stand_beside_the_goal_of_the_same_kind() -> None:
    reached = {Column.SEEN: Reached(0.15, 10, None, None, None)}
    goal = Judged("TTFT, closed loop, median", "median error", at_least=False, reached=reached)
    row = dict.fromkeys(("tool", "figure", "claim", "basis", "source"), "x")
    known, unknown = (row | {"goal": name} for name in (goal.title, "no such goal"))
    lines = claims_table([known, unknown], [goal])
    assert lines[-3].endswith("| 15.0 % | – |") and lines[-2].endswith("| – | – |")
    assert claims_table([], [goal]) == []


def test_every_claim_of_a_peer_names_a_goal_and_its_source() -> None:
    path = Path(__file__).parents[2] / "docs" / "peer_claims.csv"
    with path.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert rows and {row["goal"] for row in rows} <= {goal.title for goal in read_goals()}
    assert all(row["claim"] and row["source"] for row in rows)


def test_figures_come_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    write_figures([FIGURE, replace(FIGURE, data="sample")], path)
    assert read_figures("truth", ["training"], path) == [FIGURE]
    assert read_figures("truth", ["inference"], path) == []
