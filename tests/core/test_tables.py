"""One shape for tables: what goes out as CSV comes back, nothing in it runs, and a frame holds the same."""

import csv
import io
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twofold.core.errors import UnknownNameError
from twofold.core.tables import FORMULA_STARTS, Cell, Head, Table, table_named, table_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=12)
CELLS = st.one_of(TEXTS, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())
ROWS = st.lists(st.dictionaries(st.sampled_from(["what", "usd", "=a", "b c"]), CELLS, min_size=1), min_size=1)


def read_back(table: Table) -> list[list[str]]:
    return list(csv.reader(io.StringIO(table.csv, newline=""), strict=True))


@given(ROWS)
def test_every_row_has_as_many_cells_as_there_are_heads(rows: list[dict[str, Cell]]) -> None:
    table = table_of("any", rows, {})
    assert {len(row) for row in table.rows} == {len(table.heads)}
    assert {len(row) for row in read_back(table)} == {len(table.heads)}
    assert len(read_back(table)) == 1 + len(rows)


@given(ROWS)
@example([{"usd": 0.1 + 0.2, "what": 'a "b", c\nd'}])
def test_what_is_written_comes_back(rows: list[dict[str, Cell]]) -> None:
    table = table_of("any", rows, {})
    for row, read in zip(table.rows, read_back(table)[1:], strict=True):
        for cell, text in zip(row, read, strict=True):
            if isinstance(cell, bool):
                assert text == str(cell).lower()
            elif isinstance(cell, int | float):
                assert type(cell)(text) == cell  # unrounded
            else:
                assert text.removeprefix("'") == (cell or "").removeprefix("'")


@given(ROWS)
@example([{"what": "=HYPERLINK(A1)"}, {"what": "\t=1"}, {"what": "@x"}, {"what": "-1+1"}])
def test_no_text_is_a_formula(rows: list[dict[str, Cell]]) -> None:
    table = table_of("any", rows, {})
    cells = [(head.name, text) for head, text in zip(table.heads, read_back(table)[0], strict=True)]
    for row, read in zip(table.rows, read_back(table)[1:], strict=True):
        cells += zip(row, read, strict=True)
    assert not [text for cell, text in cells if isinstance(cell, str) and text.startswith(FORMULA_STARTS)]


def test_a_negative_number_stays_a_number() -> None:
    assert table_of("bill", [{"usd": -2.5}], {}).csv == "usd\n-2.5\n"


def test_a_table_without_rows_prints_nothing() -> None:
    assert table_of("changes", [], {}).csv == ""


def test_a_frame_holds_the_same_cells_and_the_units() -> None:
    pytest.importorskip("pandas")
    table = table_of("bill", [{"what": "rent", "usd": 2.5}, {"what": "power"}], {"usd": "USD"})
    frame = table.to_frame()
    assert list(frame.columns) == ["what", "usd"] and frame["usd"].sum() == 2.5
    assert frame["usd"].isna().tolist() == [False, True]
    assert frame.attrs == {"name": "bill", "units": {"usd": "USD"}}


def test_without_pandas_a_frame_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        table_of("bill", [{"usd": 2.5}], {}).to_frame()


def test_the_first_table_is_the_main_one_and_a_wrong_name_is_told_the_nearest() -> None:
    tables = [Table(name, (Head("a"),), ((1,),)) for name in ("bill", "goals")]
    assert table_named(tables, "") is tables[0] and table_named(tables, "goals") is tables[1]
    with pytest.raises(UnknownNameError) as caught:
        table_named(tables, "gaols")
    assert caught.value.hint == "did you mean `goals`? tables: bill, goals"
