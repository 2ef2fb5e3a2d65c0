"""`report` as a spreadsheet and as a table: what is written, under which name, and what is refused."""

import csv
from pathlib import Path

import pytest

from tests.app.test_loop_page import PAGE
from tests.pages.formulas import read_book
from twofold.app.loop_page import LoopShown
from twofold.app.reporting import write_report
from twofold.cli import main
from twofold.contracts.results.plan import Plan
from twofold.core.errors import FileError, InfeasibleError, MissingExtraError, UnknownNameError, UsageError


@pytest.fixture
def plan(examples: dict[str, Plan]) -> Plan:
    return examples["assistant"]


def test_a_workbook_is_written_and_its_bytes_are_counted(plan: Plan, tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")
    out = tmp_path / "plan.xlsx"
    assert write_report(plan, out, as_workbook=True).files == ((str(out), out.stat().st_size),)
    assert plan.money and read_book(out.read_bytes()).value("Summary", "B5") == plan.money.total_usd


def test_a_table_is_the_bill_or_what_is_named(plan: Plan, tmp_path: Path) -> None:
    out = tmp_path / "plan.csv"
    assert write_report(plan, out, as_table=True).files == ((str(out), out.stat().st_size),)
    rows = list(csv.DictReader(out.read_text("utf-8").splitlines()))
    assert plan.money and [row["what"] for row in rows] == [line.what for line in plan.money.lines]
    write_report(plan, out, table="ladder")
    assert len(out.read_text("utf-8").splitlines()) == 1 + len(plan.ladder)


def test_what_cannot_be_written_leaves_nothing(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownNameError):
        write_report(plan, tmp_path / "plan.csv", table="gaols")
    with pytest.raises(FileError, match="cannot write"):
        write_report(plan, tmp_path / "absent" / "plan.csv", as_table=True)
    monkeypatch.setattr("twofold.core.extras.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError):
        write_report(plan, tmp_path / "plan.xlsx", as_workbook=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [{"as_table": True}, {"as_workbook": True}])
def test_the_half_that_is_met_is_written_as_a_table_and_as_a_workbook_too(
    kind: dict[str, bool], tmp_path: Path
) -> None:
    if "as_workbook" in kind:
        pytest.importorskip("xlsxwriter")
    out = tmp_path / "half"
    with pytest.raises(InfeasibleError) as caught:
        write_report(Path("tests/requirements/specs/one-half.yaml"), out, **kind)
    assert caught.value.left is not None and out.stat().st_size > 100


def test_a_saved_answer_has_tables_and_no_workbook(tmp_path: Path) -> None:
    saved, out = tmp_path / "run.json", tmp_path / "run.csv"
    saved.write_text(LoopShown(PAGE).json)
    write_report(saved, out, as_table=True)
    assert len(out.read_text("utf-8").splitlines()) == 1 + len(PAGE.rows)
    with pytest.raises(UsageError, match="plans alone"):
        write_report(saved, tmp_path / "run.xlsx", as_workbook=True)


def test_one_file_is_written_at_a_time() -> None:
    with pytest.raises(UsageError, match="one file"):
        write_report(Path("twofold.yaml"), Path("out"), as_markdown=True, as_table=True)


def test_a_page_that_is_named_as_markdown_is_markdown(tmp_path: Path) -> None:
    spec = Path(__file__).parents[2] / "examples" / "laptop"
    write_report(spec, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text("utf-8").startswith("# ")


def test_a_file_is_what_its_ending_says_or_refused(tmp_path: Path) -> None:
    spec = Path(__file__).parents[2] / "examples" / "assistant"
    write_report(spec, tmp_path / "bill.CSV")
    assert (tmp_path / "bill.CSV").read_text("utf-8").startswith("what,")
    with pytest.raises(UsageError, match=r"`page.pdf` ends in `.pdf`"):
        write_report(spec, tmp_path / "page.pdf")
    with pytest.raises(UsageError, match="one file"):
        write_report(spec, tmp_path / "bill.csv", as_markdown=True)
    assert [each.name for each in tmp_path.iterdir()] == ["bill.CSV"]


@pytest.mark.parametrize(
    ("words", "name"), [([], "html"), (["--md"], "md"), (["--xlsx"], "xlsx"), (["--table", "goals"], "csv")]
)
def test_a_file_is_named_by_what_it_is(
    words: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "xlsx":
        pytest.importorskip("xlsxwriter")
    spec = Path(__file__).parents[2] / "examples" / "laptop"
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(spec), *words]) == 0
    assert [each.name for each in tmp_path.iterdir()] == [f"report.{name}"]
    assert main(["report", str(spec), *words]) == 2  # it is there already
