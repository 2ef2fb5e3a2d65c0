"""Tables of answers: every figure of the data is in one of them, once, in the row that it belongs to."""

from collections.abc import Iterator
from typing import Any

import pytest

from twofold.answer import paths
from twofold.contracts.results.plan import Plan
from twofold.core.data import to_data
from twofold.report.answers import ShownData
from twofold.report.tables import CALLED, tables_of


def numbers_in(node: Any) -> Iterator[float]:
    """Every number of plain data that stands by itself, not in a list of plain values."""
    if isinstance(node, dict):
        for value in node.values():
            yield from numbers_in(value)
    elif isinstance(node, list):
        pairs = all(isinstance(each, list) and len(each) == 2 for each in node)
        for each in node:
            if isinstance(each, dict | list):
                yield from numbers_in(each[1:] if pairs else each)
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield node


def test_every_number_of_every_example_is_in_its_tables(examples: dict[str, Plan]) -> None:
    for plan in examples.values():
        data = to_data(plan)
        cells = sorted(
            cell
            for table in tables_of(data)
            for row in table.rows
            for head, cell in zip(table.heads, row, strict=True)
            if isinstance(cell, int | float) and not isinstance(cell, bool) and head.name not in owners(table)
        )
        assert cells == pytest.approx(sorted(numbers_in(data)), rel=0, abs=0)


def owners(table: Any) -> set[str]:
    """Columns that say what a row belongs to: they repeat what stands in another table."""
    return {head.name for head in table.heads if table.name.startswith(f"{head.name}.")}


def test_heads_are_told_apart_and_no_table_stands_twice(examples: dict[str, Plan]) -> None:
    for plan in examples.values():
        tables = tables_of(to_data(plan))
        assert len({table.name for table in tables}) == len(tables)
        for table in tables:
            names = [head.name for head in table.heads]
            assert names and len(set(names)) == len(names), table.name


def test_a_row_says_which_run_service_and_class_it_is_of(plan: Plan) -> None:
    [goals] = [table for table in tables_of(to_data(plan)) if table.name == "goals"]
    rows = [dict(zip((head.name for head in goals.heads), row, strict=True)) for row in goals.rows]
    outcomes = [
        (service.name, one.name, slo)
        for service in plan.serving
        for one in service.classes
        for slo in one.slos
    ]
    assert len(rows) == len(outcomes) > 1
    for row, (service, name, slo) in zip(rows, outcomes, strict=True):
        assert (row["serving"], row["serving.classes"], row["metric"]) == (service, name, slo.metric)
        assert slo.predicted and row["predicted"] == slo.predicted.value
        assert (row["predicted_low"], row["predicted_high"]) == (slo.predicted.low, slo.predicted.high)


def test_a_column_has_the_unit_of_its_figures(examples: dict[str, Plan]) -> None:
    tables = tables_of(to_data(examples["assistant"]))
    units = {head.name: head.unit for table in tables for head in table.heads}
    assert units["limit_s"] == units["predicted"] == "s"
    assert (units["total_usd"], units["usd"], units["memory_bytes"]) == ("USD", "USD", "B")
    assert paths.unit_of("peak_flops_per_s") == "FLOP/s"


def test_the_bill_comes_first_and_adds_up(examples: dict[str, Plan]) -> None:
    priced = [plan for plan in examples.values() if plan.money]
    assert priced
    for plan in priced:
        bill = tables_of(to_data(plan))[0]
        totals = [head.name for head in bill.heads].index("total_usd")
        assert plan.money and bill.name == "bill"
        assert sum(row[totals] for row in bill.rows) == pytest.approx(plan.money.total_usd, abs=0.004)


def test_what_nothing_changed_has_an_empty_table_and_no_other_main_one() -> None:
    assert tables_of({"schema": "twofold/diff/1", "changes": [], "moves": []})[0].csv == ""


def test_a_short_name_is_of_one_table() -> None:
    for asked in CALLED.values():
        assert len(set(asked.values())) == len(asked)


def test_an_answer_gives_a_frame_of_any_of_its_tables(examples: dict[str, Plan]) -> None:
    pytest.importorskip("pandas")
    plan = examples["assistant"]
    answer = ShownData(plan, ())
    assert plan.money
    assert answer.to_frame()["total_usd"].sum() == pytest.approx(plan.money.total_usd)
    assert set(answer.to_frame("goals")["metric"]) >= {"ttft_p95"}
