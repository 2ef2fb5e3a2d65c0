import numpy as np
import pytest

from twofold.measure.lint_table import COLUMNS, Table, lint_rules, read_table
from twofold.measure.truth import Row

MASK, ONE = np.array([True]), np.ones(1)


def table(*rows: Row) -> Table:
    return read_table("inference", list(rows))[0]


def test_numbers_are_read_once_and_blanks_are_unknown():
    read = table({"tp": "4", "tpot_mean_ms": "12.5"}, {"tp": "", "tpot_mean_ms": " 7 "})
    np.testing.assert_array_equal(read["tp"], [4.0, np.nan])
    np.testing.assert_array_equal(read["tpot_mean_ms"], [12.5, 7.0])
    np.testing.assert_array_equal(read["dp"], [np.nan, np.nan])


def test_the_first_column_that_holds_a_number_answers():
    read = table({"tpot_mean_ms": "", "tpot_p50_ms": "2"}, {"tpot_mean_ms": "1", "tpot_p50_ms": "2"})
    np.testing.assert_array_equal(read.first("tpot_mean_ms", "tpot_p50_ms"), [2.0, 1.0])


@pytest.mark.parametrize(
    ("column", "cell", "severity", "hint"),
    [
        ("tpot_mean_ms", "12 ms", "impossible", "write 12 in the unit"),
        ("tpot_mean_ms", "1,234.5", "impossible", "write 1234.5"),
        ("tpot_mean_ms", "fast", "impossible", "write a number"),
        ("tpot_mean_ms", "0", "impossible", "blank"),
        ("tpot_mean_ms", "-3", "impossible", "blank"),
        ("tpot_mean_ms", "inf", "impossible", "finite"),
        ("tp", "1.5", "impossible", "whole"),
        ("tp", "1e30", "impossible", "finite"),
        ("tpot_mean_ms", "n/a", "note", "blank"),
        ("tpot_mean_ms", "NaN", "note", "blank"),
    ],
)
def test_a_cell_that_cannot_be_used_is_blanked_and_reported(column, cell, severity, hint):
    read, findings = read_table("inference", [{"id": "x", column: cell}])
    assert read.rows[0][column] == ""
    assert np.isnan(read[column]).all()
    (finding,) = findings
    assert (finding.line, finding.row_id, finding.rule, finding.columns) == (2, "x", "cell", (column,))
    assert finding.severity == severity
    assert hint in finding.hint


@pytest.mark.parametrize("column", COLUMNS["inference"].may_be_zero)
def test_zero_is_an_answer_where_it_can_be(column):
    assert read_table("inference", [{column: "0"}])[1] == []


@pytest.mark.parametrize("half", COLUMNS)
def test_every_known_column_is_known_once(half):
    columns = COLUMNS[half]
    every = (*columns.configuration, *columns.measured)
    assert len(set(every)) == len(every)
    assert set(columns.may_be_zero) <= set(columns.numbers)
    assert read_table(half, [dict.fromkeys(every, "")])[1] == []


def test_a_column_that_nothing_reads_is_a_note_with_the_nearest_name():
    (finding,) = read_table("training", [{"step_time": "1"}])[1]
    assert (finding.line, finding.severity, finding.columns) == (1, "note", ("step_time",))
    assert "step_time_s" in finding.hint


def test_columns_that_predict_appends_are_known():
    assert read_table("training", [{"pred_step_time_s": "1", "id": "x", "notes": "", "tier": "A"}])[1] == []


def test_a_finding_names_the_columns_that_its_row_fills():
    read = table({"ttft_mean_ms": "1"})
    (finding,) = read.find("fast prompt", MASK, ~MASK, took=ONE, prompt=ONE, least=ONE)
    assert finding.columns == ("ttft_mean_ms",)
    assert finding.message.startswith("the first token comes after 1 ms, but 1 tokens of prompt take 1 ms")


def test_a_rule_without_a_severity_is_as_grave_as_what_it_rests_on_is_sure():
    read = table({"ttft_mean_ms": "1"})
    for sure, severity in ((MASK, "impossible"), (~MASK, "suspect")):
        (finding,) = read.find("fast prompt", MASK, sure, took=ONE, prompt=ONE, least=ONE)
        assert (finding.rule, finding.severity) == ("roofline", severity)


@pytest.mark.parametrize("rule", lint_rules().values(), ids=list(lint_rules()))
def test_a_rule_names_columns_of_one_half(rule):
    halves = [{*columns.configuration, *columns.measured} for columns in COLUMNS.values()]
    assert any(set(rule.finding.columns) <= known for known in halves)
    assert rule.finding.message and rule.finding.hint
