"""A plan as a spreadsheet: its formulas come to the plan's totals to the cent, and follow a price."""

import csv
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pages.formulas import Book, read_book
from twofold.contracts.results.ledger import UnitCost, line_item, total_usd
from twofold.contracts.results.plan import Plan
from twofold.core.errors import MissingExtraError
from twofold.pages.plan_workbook import BILL, HEADS, OWNING, PRICES, YEARS, plan_sheets, plan_workbook
from twofold.pages.workbook import Formula, Input, Sheet, written

RECALCULATE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load"><prop oor:name="OOXMLRecalcMode" oor:op="fuse">
<value>0</value></prop></item></oor:items>
"""
OWN = """
name: own
model: llama-3.2-1b
training: {kind: finetune, tokens: 1 Gtok, deadline: 14 d}
supply: {own: [{node: DGX-H100, count: 4}]}
"""
EVERY_SHEET = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false,false,false,-1"
OFFICE = shutil.which("soffice")


@pytest.fixture(scope="module")
def priced(examples: dict[str, Plan]) -> dict[str, Plan]:
    pytest.importorskip("xlsxwriter")
    found = {name: plan for name, plan in examples.items() if plan.money}
    assert len(found) > 2
    return found


def book_of(plan: Plan) -> Book:
    return read_book(plan_workbook(plan, "0" * 64))


def total_of(book: Book, sheet: str, letter: str) -> float:
    """The last cell of a column, which is its sum."""
    rows = [int(cell[1:]) for name, cell in book.cells if name == sheet and cell[0] == letter]
    return book.value(sheet, f"{letter}{max(rows)}")


def test_the_formulas_of_every_example_come_to_the_plans_totals_to_the_cent(priced: dict[str, Plan]) -> None:
    for name, plan in priced.items():
        book = book_of(plan)
        assert plan.money and total_of(book, BILL, "K") == plan.money.total_usd, name
        owning = plan.money.owning
        if owning:
            assert total_of(book, OWNING, "K") == owning.owned_usd, name
            assert total_of(book, YEARS, "F") == owning.owned_usd, name
            assert total_of(book, YEARS, "G") == owning.rented_usd, name


def test_each_line_and_each_year_comes_to_ours(priced: dict[str, Plan]) -> None:
    for plan in priced.values():
        book = book_of(plan)
        assert plan.money
        for row, line in enumerate(plan.money.lines, 2):
            assert round(book.value(BILL, f"K{row}"), 2) == line.total_usd
            assert book.value(BILL, f"E{row}") == pytest.approx(line.unit_usd, rel=1e-12)
        for row, step in enumerate(plan.money.owning.cash if plan.money.owning else (), 2):
            for letter, usd in zip(
                "BCDEFG",
                (
                    *(step.capex_usd, step.financing_usd, step.opex_usd),
                    *(step.resale_usd, step.owned_usd, step.rented_usd),
                ),
                strict=True,
            ):
                assert round(book.value(YEARS, f"{letter}{row}"), 2) == usd


def test_the_values_that_a_file_keeps_are_those_of_its_formulas(priced: dict[str, Plan]) -> None:
    for plan in priced.values():
        book = book_of(plan)
        assert len(book.kept) > 10
        for place, kept in book.kept.items():
            assert book.value(*place) == pytest.approx(kept, rel=1e-9, abs=0.0051), place


def test_a_price_that_changes_moves_every_line_that_rests_on_it_and_no_other(priced: dict[str, Plan]) -> None:
    """Twice the price of the first line's source, worked out by the ledger's own rule."""
    plan = priced["assistant"]
    assert plan.money
    book, first = book_of(plan), plan.money.lines[0]
    book.change(PRICES, "C2", 2 * first.unit_usd)
    expected = []
    for line in plan.money.lines:
        moved = (line.source, line.unit, line.unit_usd) == (first.source, first.unit, first.unit_usd)
        cost = UnitCost(line.unit_usd * (2 if moved else 1), line.source)
        expected.append(line_item(line.what, line.category, line.quantity, line.unit, cost))
        assert not line.discount_usd and not line.tax_usd
    assert total_of(book, BILL, "K") == pytest.approx(total_usd(expected), abs=0.005)
    assert total_of(book, BILL, "K") > plan.money.total_usd + first.total_usd * 0.99
    assert total_of(book, YEARS, "G") > plan.money.owning.rented_usd if plan.money.owning else True


def test_rent_follows_no_price_of_electricity(planned: Callable[[str], Plan]) -> None:
    """The rent of what is owned was a share of its bill, which is energy."""
    plan = planned(OWN)
    assert plan.money and plan.money.owning
    book = book_of(plan)
    assert {line.unit for line in plan.money.lines} == {"kWh", "month"}
    book.change(PRICES, "C2", 3 * plan.money.lines[0].unit_usd)
    assert total_of(book, BILL, "K") > plan.money.total_usd
    assert total_of(book, YEARS, "G") == plan.money.owning.rented_usd > 0.0


def test_a_price_stands_once(priced: dict[str, Plan]) -> None:
    for plan in priced.values():
        book = book_of(plan)
        rows = list(zip(*(book.column(PRICES, letter) for letter in "ABC"), strict=True))
        assert len(set(rows)) == len(rows)


def test_what_support_interest_and_rests_are_of_follows(priced: dict[str, Plan]) -> None:
    owned = next(plan for plan in priced.values() if plan.money and plan.money.owning)
    assert owned.money and owned.money.owning
    lines = owned.money.owning.lines
    loan = next(row for row, line in enumerate(lines, 2) if line.unit == "loan")
    book = book_of(owned)
    before = book.value(OWNING, f"E{loan}")
    [place] = [
        cell
        for (sheet, cell), held in book.cells.items()
        if sheet == PRICES and cell[0] == "C" and held == lines[0].unit_usd
    ]
    book.change(PRICES, place, 2 * lines[0].unit_usd)
    bought = sum(each.total_usd for each in lines[: loan - 2] if each.category == "capex")
    more = before * lines[0].total_usd / bought
    assert book.value(OWNING, f"E{loan}") >= before + 0.99 * more > before


def test_half_a_cent_discounts_and_taxes_add_up(priced: dict[str, Plan]) -> None:
    """Spreadsheets round half a cent up, the ledger to the even one."""
    plan = priced["assistant"]
    assert plan.money
    cases = [
        (0.125, 1.0, 0.0, 0.0),
        (3.0, 0.335, 0.1, 0.19),
        (7.0, 33.335, 0.3, 0.0),
        (1e6, 2.345, 0.05, 0.21),
    ]
    lines = tuple(
        line_item(
            f"line {at}",
            "rent",
            quantity,
            "h",
            UnitCost(usd, f"row {at}"),
            discount_fraction=off,
            tax_fraction=tax,
        )
        for at, (quantity, usd, off, tax) in enumerate(cases)
    )
    money = replace(plan.money, lines=lines, total_usd=total_usd(lines), owning=None, detail=None)
    book = book_of(replace(plan, money=money))
    assert total_of(book, BILL, "K") == money.total_usd
    assert [round(book.value(BILL, f"K{row}"), 2) for row in range(2, 6)] == [
        line.total_usd for line in lines
    ]


def test_no_text_is_a_formula_and_names_of_sheets_are_ones(priced: dict[str, Plan]) -> None:
    plan = replace(priced["assistant"], name="=HYPERLINK(1)")
    book = book_of(plan)
    assert book.cells["Summary", "B2"] == "=HYPERLINK(1)" and ("Summary", "B2") not in book.kept
    names = [sheet.name for sheet in plan_sheets(plan, "0")]
    assert len(set(names)) == len(names) and all(0 < len(name) < 32 for name in names)


def test_each_row_is_as_wide_as_the_heads(priced: dict[str, Plan]) -> None:
    for plan in priced.values():
        for sheet in plan_sheets(plan, "0"):
            assert {len(row) for row in sheet.rows} <= {len(sheet.heads)}, sheet.name
            assert not sheet.formats or len(sheet.formats) == len(sheet.heads), sheet.name
    assert len(HEADS) == 12


def test_the_same_plan_has_the_same_bytes(priced: dict[str, Plan]) -> None:
    assert plan_workbook(priced["assistant"], "0") == plan_workbook(priced["assistant"], "0")


def test_a_plan_without_a_price_says_so(priced: dict[str, Plan]) -> None:
    book = book_of(replace(priced["assistant"], money=None))
    assert "nothing of this plan has a price" in book.column("Summary", "B")


def test_without_the_extra_it_is_named(priced: dict[str, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.core.extras.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError) as caught:
        plan_workbook(priced["assistant"], "0")
    assert caught.value.hint == "pip install 'twofold[xlsx]'"


@pytest.mark.skipif(OFFICE is None, reason="LibreOffice (Debian's libreoffice-calc) is not installed")
def test_libreoffice_comes_to_our_totals_and_follows_a_price(priced: dict[str, Plan], tmp_path: Path) -> None:
    """Files whose kept values are all wrong, so that what comes back was computed there."""
    plan = priced["assistant"]
    assert plan.money
    sheets = [_without_values(sheet) for sheet in plan_sheets(plan, "0")]
    dearer = [replace(s, rows=(_doubled(s.rows[0]), *s.rows[1:])) if s.name == PRICES else s for s in sheets]
    for name, made in (("plan", sheets), ("dearer", dearer)):
        (tmp_path / f"{name}.xlsx").write_bytes(written(made, name))
    (tmp_path / "profile" / "user").mkdir(parents=True)
    (tmp_path / "profile" / "user" / "registrymodifications.xcu").write_text(RECALCULATE)
    profile = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
    command = [OFFICE or "", profile, "--headless", "--convert-to", EVERY_SHEET, "plan.xlsx", "dearer.xlsx"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    book = book_of(plan)
    assert office_total(tmp_path / f"plan-{BILL}.csv", 10) == plan.money.total_usd
    if plan.money.owning:
        assert office_total(tmp_path / f"plan-{OWNING}.csv", 10) == plan.money.owning.owned_usd
        assert office_total(tmp_path / f"plan-{YEARS}.csv", 6) == plan.money.owning.rented_usd
    book.change(PRICES, "C2", 2 * plan.money.lines[0].unit_usd)
    assert (
        office_total(tmp_path / f"dearer-{BILL}.csv", 10) == total_of(book, BILL, "K") > plan.money.total_usd
    )


def office_total(path: Path, column: int) -> float:
    return float(list(csv.reader(path.read_text("utf-8").splitlines()))[-1][column])


def _without_values(sheet: Sheet) -> Sheet:
    rows = tuple(
        tuple(Formula(cell.text, -1.0) if isinstance(cell, Formula) else cell for cell in row)
        for row in sheet.rows
    )
    return replace(sheet, rows=rows)


def _doubled(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(Input(2 * cell.value) if isinstance(cell, Input) else cell for cell in row)
