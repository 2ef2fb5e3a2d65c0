"""A saved plan knows its spec: what changed since is said by `render` and `report`; nothing else is."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from twofold.app.planning import SPEC_KEY, explain, plan_digest, plan_value, read_plan
from twofold.app.rendering import render
from twofold.app.reporting import write_page
from twofold.cli import main


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A plan that the command line wrote, in a folder beside that of its spec."""
    shutil.copytree(ROOT / "examples" / "recommender", tmp_path / "ads")
    (tmp_path / "plans").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "ads", "--out", "plans/plan.json"]) == 0
    capsys.readouterr()
    return tmp_path / "plans" / "plan.json"


def spec_of(saved: Path) -> Path:
    return saved.parent.parent / "ads" / "twofold.yaml"


def test_nothing_is_said_of_a_spec_that_is_as_it_was(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads(saved.read_text("utf-8"))[SPEC_KEY] == "../ads/twofold.yaml"
    assert render(saved).notes == ()
    monkeypatch.chdir(tmp_path / "ads")
    assert render(Path("../plans/plan.json")).notes == ()


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("twofold.yaml", "6000 /s", "7000 /s", "has changed since this plan was made"),
        ("batches.csv", "0.0021", "0.0022", "has changed since this plan was made"),
        ("twofold.yaml", "name: ads", "name: [", "cannot be read by now"),
    ],
)
def test_a_spec_or_rows_that_changed_are_said_once(
    file: str, old: str, new: str, said: str, saved: Path, tmp_path: Path
) -> None:
    path = spec_of(saved).with_name(file)
    path.write_text(path.read_text("utf-8").replace(old, new, 1), "utf-8")
    made = render(saved, out=tmp_path / "files")
    (note,) = made.notes
    assert said in note and "`ads/twofold.yaml`" in note
    assert "`twofold plan ads/twofold.yaml --out " in note
    assert (tmp_path / "files" / "ads-rank.sh").is_file()  # the plan as it stands
    assert said.split()[0] in " ".join(made.lines)
    written = write_page(saved, tmp_path / "page.md", as_markdown=True)
    assert written.notes == (note,)
    assert said in " ".join(explain(saved, "first_year_usd").lines)


def test_a_plan_that_was_moved_away_says_nothing(saved: Path, tmp_path: Path) -> None:
    spec_of(saved).write_text("name: other\n", "utf-8")
    (tmp_path / "far" / "away").mkdir(parents=True)
    moved = saved.rename(tmp_path / "far" / "away" / "plan.json")
    assert render(moved).notes == ()


def test_where_its_spec_stands_is_no_part_of_a_plan(saved: Path) -> None:
    data = json.loads(saved.read_text("utf-8"))
    plan = plan_value(data)
    data.pop(SPEC_KEY)
    assert plan_digest(plan) == plan_digest(plan_value(data))
    assert render(saved).files == render(plan).files
    with pytest.raises(Exception, match=SPEC_KEY):
        explain(saved, SPEC_KEY)


@pytest.mark.parametrize("verb", ["render", "report", "simulate", "explain", "diff"])
def test_a_plan_that_somebody_changed_by_hand_is_refused_by_every_verb(
    verb: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its numbers are one answer: a replica less is another bill."""
    data = json.loads(saved.read_text("utf-8"))
    saved.write_text(json.dumps(dict(sorted(data.items())), indent=3), "utf-8")  # the same, set otherwise
    read_plan(saved)
    data["serving"][0]["replica_count"] += 1
    saved.write_text(json.dumps(data), "utf-8")
    words = {"explain": ["first_year_usd"], "diff": [str(saved)], "report": ["-o", str(tmp_path / "p.html")]}
    assert main([verb, str(saved), *words.get(verb, [])]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "was changed since `plan` wrote it" in said and "twofold plan SPEC --out FILE" in said
    assert not (tmp_path / "p.html").exists()
