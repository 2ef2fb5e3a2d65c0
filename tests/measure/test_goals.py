"""Goals are data: each counts the rows that it is about, and says by how much it is missed."""

import numpy as np
import pytest

from twofold.measure.evidence import Evidence
from twofold.measure.goals import OF_EVIDENCE, OF_ROWS, judge, read_goals
from twofold.measure.results import FIGURES, Column, Judged, Refusals
from twofold.measure.scores import Values
from twofold.measure.truth import Facets
from twofold.measure.validation import Part
from twofold.perf.constants import load_constants

KERNELS = {"gemm", "attention", "collective", "moe"}


def part(figure: str, rows: list[tuple[Facets, float, float]], column: Column = Column.LEFT_OUT) -> Part:
    """Rows of facets, measured and predicted; ranges are a fifth either way, each row has a layout."""
    measured, predicted = (np.array([row[place] for row in rows]) for place in (1, 2))
    low, high = predicted / 1.2, predicted * 1.2
    values = Values(measured, predicted, low, high, low, high)
    told = tuple(
        {"source": row[0].source, "model": "m", "gpus": "8", "tp": str(n)} for n, row in enumerate(rows)
    )
    (kind,) = (each for each in FIGURES if each.name == figure)
    return Part(kind, told, tuple(row[0] for row in rows), np.zeros(len(rows), bool), {column: values})


def facets(**changed: str) -> Facets:
    usual = {
        "source": "a",
        "gpu": "H100-SXM5-80GB",
        "framework": "megatron",
        "arch": "dense",
        "phase": "training",
        "precision": "16 bits",
        "recompute": "stated",
        "known": "yes",
    }
    return Facets(**(usual | changed))


def judged(*parts: Part) -> dict[str, Judged]:
    evidence = Evidence({each.figure.name: each for each in parts}, (), load_constants())
    return {goal.title: goal for goal in judge(evidence)}


def test_every_goal_names_a_figure_and_a_statistic_that_there_are() -> None:
    names = {figure.name for figure in FIGURES} | KERNELS
    for goal in read_goals():
        assert set(goal.figures) <= names, goal.title
        assert (goal.statistic in OF_ROWS) != (goal.statistic in OF_EVIDENCE), goal.title
        assert set(goal.only) | set(goal.never) <= set(Facets.__slots__), goal.title
        assert all(limit >= 0 for limit in goal.limits.values()), goal.title
    assert len({goal.title for goal in read_goals()}) == len(read_goals())


def test_sources_weigh_the_same_however_many_rows_they_have() -> None:
    rows = [(facets(), 1.0, 1.0)] * 9 + [(facets(source="b"), 1.0, 1.5)]
    found = judged(part("step_time", rows))["step, dense, nanotron apart"].reached[Column.LEFT_OUT]
    assert found.value == pytest.approx(0.25)
    assert found.otherwise == pytest.approx(0.05)
    assert found.missed_by == pytest.approx(0.13)


def test_medians_are_of_all_rows_and_sources_stand_beside_them() -> None:
    rows = [(facets(), 1.0, 1.0)] * 9 + [(facets(source="b"), 1.0, 1.5)]
    found = judged(part("tpot", rows))["TPOT, dense, median"].reached[Column.LEFT_OUT]
    assert (found.value, found.otherwise) == (0.0, pytest.approx(0.25))


def test_a_goal_that_is_met_is_missed_by_nothing() -> None:
    found = judged(part("step_time", [(facets(), 1.0, 1.05)]))["step, dense, nanotron apart"]
    assert found.reached[Column.LEFT_OUT].missed_by == 0.0


def test_rows_go_to_the_goals_that_are_about_them() -> None:
    rows = [
        (facets(), 1.0, 1.0),
        (facets(arch="moe"), 1.0, 1.1),
        (facets(precision="8 bits"), 1.0, 1.2),
        (facets(framework="nanotron"), 1.0, 1.3),
        (facets(framework="fsdp"), 1.0, 1.4),
    ]
    reached = {title: goal.reached for title, goal in judged(part("step_time", rows)).items()}
    found = {title: each[Column.LEFT_OUT] for title, each in reached.items() if Column.LEFT_OUT in each}
    assert found["step, dense, nanotron apart"].value == pytest.approx(0.2)
    assert found["step, dense, Megatron, NeMo"].value == pytest.approx(0.0)
    assert found["step, MoE"].value == pytest.approx(0.1)
    assert found["step, dense, fp8"].value == pytest.approx(0.2)
    assert found["nanotron sweep, median"].value == pytest.approx(0.3)


def test_a_cold_start_counts_rows_whose_parts_others_knew_a_warm_one_all() -> None:
    rows = [(facets(), 1.0, 1.0), (facets(known=""), 1.0, 2.0)]
    for column, error in ((Column.LEFT_OUT, 0.0), (Column.PRIORS, 0.0), (Column.SEEN, 0.5)):
        found = judged(part("step_time", rows, column))["step, dense, nanotron apart"].reached[column]
        assert found.value == pytest.approx(error)


def test_a_floor_is_missed_from_below() -> None:
    rows = [(facets(framework="nanotron"), measured, 5.0 - measured) for measured in (1.0, 2.0, 3.0)]
    found = judged(part("step_time", rows, Column.SEEN))["rank, nanotron"].reached[Column.SEEN]
    assert (found.value, found.missed_by) == (pytest.approx(-1.0), pytest.approx(1.95))


def test_regret_is_of_runs_that_differ_by_their_layout_alone() -> None:
    rows = [(facets(), 1.0, 2.0), (facets(), 1.5, 1.0), (facets(source="b"), 9.0, 9.0)]
    found = judged(part("step_time", rows))["regret, nanotron apart"].reached[Column.LEFT_OUT]
    assert (found.value, found.rows) == (pytest.approx(0.5), 1)


def test_groups_whose_ranges_hold_too_much_or_too_little_are_counted() -> None:
    inside, outside = (facets(), 1.0, 1.0), (facets(), 1.0, 2.0)
    few = judged(part("step_time", [inside] * 49))
    assert "80 % ranges off 75–90 %" not in few
    for rows, off in (([inside] * 50, 1.0), ([inside] * 40 + [outside] * 10, 0.0), ([outside] * 50, 1.0)):
        reached = judged(part("step_time", rows))["80 % ranges off 75–90 %"].reached
        assert reached[Column.LEFT_OUT].value == off


def test_a_figure_that_priors_predict_better_is_counted() -> None:
    values = part("tpot", [(facets(), 1.0, 1.3)]).answers[Column.LEFT_OUT]
    better = part("tpot", [(facets(), 1.0, 1.1)]).answers[Column.LEFT_OUT]
    base = part("tpot", [(facets(), 1.0, 1.3)])
    both = Part(
        base.figure, base.rows, base.facets, base.assumed, {Column.LEFT_OUT: values, Column.PRIORS: better}
    )
    assert judged(both)["better by priors alone"].reached[Column.LEFT_OUT].value == 1.0


def test_the_share_of_runs_refused_as_not_fitting_has_no_limit() -> None:
    base = part("step_time", [(facets(), 1.0, 1.0)])
    evidence = Evidence({"step_time": base}, (Refusals("training", 10, {}, 2),), load_constants())
    (found,) = (goal for goal in judge(evidence) if goal.statistic == "share refused")
    assert found.reached[Column.LEFT_OUT].value == pytest.approx(0.2)
    assert found.reached[Column.LEFT_OUT].missed_by is None
