"""A saved plan knows its spec: what changed since is said by `render` and `report`; nothing else is."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from twofold.app.planning import SPEC_KEY, explain, plan_digest, plan_value, read_plan
from twofold.app.rendering import render
from twofold.app.reporting import write_page
from twofold.app.simulate_inputs import Rehearsable, opened
from twofold.app.simulating import simulate
from twofold.cli import main
from twofold.core.errors import ValueRefusedError
from twofold.money.first_year import letter_of


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


def test_explain_says_of_a_stale_plan_what_render_says(saved: Path) -> None:
    explained = explain(saved, "training.ranker.step_s").lines
    data = json.loads(saved.read_text("utf-8"))
    del data["content_sha256"]
    data["digests"]["catalog"] = "0" * 64
    saved.write_text(json.dumps(data), "utf-8")
    (note,) = render(saved).notes
    assert "made with another catalogue" in note
    said = explain(saved, "training.ranker.step_s").lines[len(explained) :]
    assert " ".join(" ".join(said).split()) == f"NOTE {note}"
    spec = spec_of(saved)
    spec.write_text(spec.read_text("utf-8").replace("6000 /s", "7000 /s", 1), "utf-8")
    said = explain(saved, "training.ranker.step_s").lines[len(explained) :]
    wanted = "".join(f"NOTE{each}" for each in render(saved).notes)
    assert "".join("".join(said).split()) == "".join(
        wanted.split()
    )  # a long path is broken where a line ends


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


def test_a_saved_plan_is_rehearsed_by_its_spec_with_its_rows_and_policies(saved: Path) -> None:
    """As the spec is; with another figure in the rows it is not, and says why."""
    spec = spec_of(saved)
    given = opened(saved, None)
    assert isinstance(given, Rehearsable) and given.saved
    assert set(given.tables.measured) == {"rank"} and set(given.tables.policies) == {"rank"}
    one, other = simulate(saved), simulate(spec)
    assert one.data.classes == other.data.classes and not one.data.fleets[0].has_tokens
    said = "\n".join(one.lines)
    assert "tok/s" not in said and "KV cache" not in said and "per million requests" in said
    rows = spec.with_name("batches.csv")
    rows.write_text(rows.read_text("utf-8").replace("0.0021", "0.0022"), "utf-8")
    said = "a plan does not carry them; `ads/twofold.yaml`, or a file that it names, has changed"
    with pytest.raises(ValueRefusedError, match=re.escape(said)):
        simulate(saved)


def test_what_nobody_wrote_and_nobody_lists_is_told_from_what_the_spec_says(saved: Path) -> None:
    plan = plan_value(read_plan(saved))
    leaves = {
        (leaf.label, leaf.reference): leaf.source
        for row in plan.derivations
        for leaf in row.inputs
        if not leaf.path
    }
    assert leaves["samples", "spec training.ranker.samples"] == ""
    assert leaves["checkpoint write", "spec training.ranker.checkpoint.write_within"] == ""
    assert leaves["retries", "by default training.ranker.headroom.retries"] == "a"
    assert leaves["accelerators", "the machines that meet the goals for the least money"] == "a"
    assert not any(where.startswith("spec training.ranker.headroom") for _, where in leaves)
    of_tokens = ("quantisation", "engine", "weigh", "traffic.input", "traffic.output", "shared_prefix")
    assert not [path for path, _ in plan.defaults if path.endswith(of_tokens)]
    assert "serving.rank.classes.slots.traffic.profile" in dict(plan.defaults)


@pytest.mark.parametrize(
    ("source", "letter"),
    [
        ("spec supply.economics.salary", ""),
        ("assumed: economics.csv engineer", "a"),
        ("economics.csv object storage", "v"),
        ("prices.csv lambda gpu_8x_h100_sxm5 us-east-1 on_demand", "v"),
    ],
)
def test_a_line_s_letter_says_who_names_its_price(source: str, letter: str) -> None:
    assert letter_of(source) == letter
