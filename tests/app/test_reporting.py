"""`report` knows what it is given by its schema, and refuses what no page is made of before it writes."""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.app.test_loop_page import PAGE
from tests.rehearsed import ROOT, rehearsal
from twofold.answer import serving_choice, training_choice, training_plan
from twofold.app import planning
from twofold.app.kinds import LARGEST_BYTES
from twofold.app.loop_page import LoopShown
from twofold.app.planning import plan_to_json
from twofold.app.reporting import write_page, write_report
from twofold.charts.chart import Chart
from twofold.charts.of_plan import charts_of_plan
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.spec import Spec
from twofold.core.data import to_data, to_json
from twofold.core.errors import FileError, InputError
from twofold.pages import plan_page


@pytest.fixture
def saved(tmp_path: Path, examples: dict[str, Plan]) -> dict[str, Path]:
    """A plan, a rehearsal and a run as their verbs write them."""
    texts = {
        "plan": plan_to_json(examples["laptop"]),
        "simulation": to_json(rehearsal("as-planned")),
        "run": LoopShown(PAGE).json,
    }
    files = {name: tmp_path / f"{name}.json" for name in texts}
    for name, text in texts.items():
        files[name].write_text(text, "utf-8")
    return files


def refused(file: Path, said: str) -> None:
    """Bad input, in words, and no page."""
    out = file.parent / "page.html"
    with pytest.raises(InputError, match=said) as told:
        write_page(file, out)
    assert told.value.exit_code == 2 and told.value.hint
    assert not out.exists() and not list(file.parent.glob(".*"))


SEARCHES = (
    (planning, "build_plan"),
    (serving_choice, "search"),
    (training_choice, "search"),
    (training_plan, "search"),
)


@pytest.mark.parametrize("kind", ["page", "markdown", "table"])
def test_of_a_plan_s_file_nothing_is_planned_again(
    saved: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What keeps a report within a second beside its plan: no search, and each picture drawn once."""
    drawn: list[str] = []

    def searched(*_: object, **__: object) -> None:
        raise AssertionError("a plan is searched for")

    def draw(plan: Plan) -> tuple[Chart, ...]:
        drawn.append(plan.name)
        return charts_of_plan(plan)

    for module, name in SEARCHES:
        monkeypatch.setattr(module, name, searched)
    monkeypatch.setattr(plan_page, "charts_of_plan", draw)
    out = tmp_path / "out"
    write_report(saved["plan"], out, as_markdown=kind == "markdown", as_table=kind == "table")
    assert out.stat().st_size > 0
    assert drawn == ["laptop"] * (kind == "page")
    with pytest.raises(AssertionError, match="searched for"):  # as a spec is
        write_page(str(ROOT / "examples" / "laptop"), out)


def test_of_a_spec_one_plan_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    build = planning.build_plan

    def counted(spec: Spec, *rest: Any, **more: Any) -> Any:
        made.append(spec.name)
        return build(spec, *rest, **more)

    monkeypatch.setattr(planning, "build_plan", counted)
    write_page(str(ROOT / "examples" / "laptop"), tmp_path / "page.html")
    assert made == ["laptop"]


@pytest.mark.parametrize("as_markdown", [False, True])
def test_each_kind_of_answer_gets_its_own_page(
    saved: dict[str, Path], tmp_path: Path, as_markdown: bool
) -> None:
    out = tmp_path / "page"
    heads = {"plan": "laptop", "simulation": "laptop: as-planned", "run": "laptop: planned, then real"}
    for name, file in saved.items():
        answer = write_page(file, out, as_markdown)
        made = out.read_text("utf-8")
        assert heads[name] in made.replace("\\", "") and answer.files[0][1] == len(made.encode())
        assert made.startswith("# " if as_markdown else "<!doctype html>")
        assert not answer.notes


def test_data_is_known_like_its_file(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    write_page(to_data(rehearsal("as-planned")), out)
    assert "laptop: as-planned" in out.read_text("utf-8")


def test_a_plan_of_another_version_is_refused(saved: dict[str, Path]) -> None:
    for name, schema in (("plan", "twofold/plan"), ("simulation", "twofold/simulation")):
        text = saved[name].read_text("utf-8").replace(f"{schema}/1", f"{schema}/2", 1)
        saved[name].write_text(text, "utf-8")
        refused(saved[name], f"{schema}/2, of another version: this Twofold reads {schema}/1")


def test_a_foreign_or_broken_json_is_refused(saved: dict[str, Path]) -> None:
    file = saved["plan"]
    whole = saved["simulation"].read_text("utf-8")
    for text, said in (
        ('{"a": 1}', "no answer of Twofold"),
        ('{"schema": "twofold/sweep/1"}', "twofold/sweep/1"),
        ('{"schema": "somebody/else"}', "no answer of Twofold"),
        (whole[: len(whole) // 2], "not whole JSON"),
        (whole.replace('"seed": 0', '"seed": "x"', 1), "broken at `seed`"),
        ('{"a":' * 100_000, "not whole JSON"),
    ):
        file.write_text(text, "utf-8")
        refused(file, said)


def test_a_plan_that_somebody_changed_is_refused(saved: dict[str, Path]) -> None:
    data = json.loads(saved["plan"].read_text("utf-8"))
    data["budget_usd"] = "much"
    saved["plan"].write_text(json.dumps(data), "utf-8")
    refused(saved["plan"], "broken at `budget_usd`")


def test_a_stale_plan_is_written_as_it_stands_and_says_so(
    tmp_path: Path, saved: dict[str, Path], examples: dict[str, Plan]
) -> None:
    plan = examples["laptop"]
    old = replace(plan, digests=replace(plan.digests, catalog="0" * 64), twofold="0.0.1")
    saved["plan"].write_text(plan_to_json(old), "utf-8")
    answer = write_page(saved["plan"], tmp_path / "page.html")
    (note,) = answer.notes
    assert "catalogue" in note and "0.0.1" in note and "constants" not in note
    assert note.partition(";")[0] in (tmp_path / "page.html").read_text("utf-8")
    assert any("a new plan may differ" in line for line in answer.lines)
    other = replace(plan, digests=replace(plan.digests, constants="0" * 64))
    saved["plan"].write_text(plan_to_json(other), "utf-8")
    (note,) = write_page(saved["plan"], tmp_path / "page.html").notes
    assert "made with other fitted constants;" in note


@pytest.mark.parametrize("name", ["proof.json", "rows.csv"])
def test_an_answer_that_is_not_there_is_no_spec_to_begin(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileError, match=f"{name}` does not exist") as told:
        write_page(tmp_path / name, tmp_path / "page.html")
    assert "`simulate`, `up` or `validate`" in told.value.hint


def test_a_run_of_100_mb_is_refused_before_it_is_read(saved: dict[str, Path]) -> None:
    file = saved["run"]
    with file.open("r+b") as handle:
        handle.truncate(100_000_000)  # a hole: nothing is written
    refused(file, "has 100 MB")
    assert LARGEST_BYTES < 100_000_000


def test_a_read_only_folder_is_refused_and_stays_empty(saved: dict[str, Path]) -> None:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    root = os.geteuid() == 0
    text = json.loads(saved["simulation"].read_text("utf-8"))
    try:
        if root:  # whom nothing is forbidden
            os.seteuid(65534)
        with pytest.raises(FileError, match="cannot write"):
            write_page(text, folder / "page.html")
    finally:
        if root:
            os.seteuid(0)
    assert list(folder.iterdir()) == []
    folder.chmod(0o755)
    folder.rmdir()
