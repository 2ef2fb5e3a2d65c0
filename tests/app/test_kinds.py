"""A file of the wrong kind is named for what it is, with the verb that reads it: nothing is planned."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twofold.app.planning import diff, explain, plan
from twofold.app.rendering import render
from twofold.app.reporting import write_page
from twofold.app.simulating import simulate
from twofold.contracts.results.plan import Plan
from twofold.core.data import to_data
from twofold.core.errors import InputError

SPEC = Path(__file__).parents[2] / "examples" / "laptop"
WANT_SPEC: dict[str, Callable[[Path], Any]] = {"simulate": simulate, "render": render, "plan": plan}
WANT_PLAN: dict[str, Callable[[Path], Any]] = {
    "explain": lambda path: explain(path, "serving"),
    "diff": lambda path: diff(path, path),
}


def of_schema(folder: Path, schema: str) -> Path:
    path = folder / "answer.json"
    path.write_text(json.dumps({"schema": schema, "name": "x", "classes": []}), "utf-8")
    return path


@pytest.mark.parametrize("verb", [*WANT_SPEC, *WANT_PLAN])
@pytest.mark.parametrize(
    ("kind", "words"),
    [("simulation", "a rehearsal"), ("loop", "the page of a live run"), ("sweep", "an answer")],
)
def test_an_answer_of_another_verb_is_named(verb: str, kind: str, words: str, tmp_path: Path) -> None:
    path = of_schema(tmp_path, f"twofold/{kind}/1")
    with pytest.raises(InputError) as error:
        (WANT_SPEC | WANT_PLAN)[verb](path)
    wanted = "spec" if verb in WANT_SPEC else "plan"
    assert error.value.message == f"`{path}` holds {words}, of schema twofold/{kind}/1: it is no {wanted}"
    read_by = "no verb reads" if kind == "sweep" else f"`twofold report {path}` reads it"
    assert (error.value.hint or "").startswith(read_by)


def test_a_plan_given_for_a_spec_names_the_verbs_that_read_it(
    examples: dict[str, Plan], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(to_data(examples["laptop"])), "utf-8")
    with pytest.raises(InputError, match="holds a plan, of schema twofold/plan/1: it is no spec") as error:
        plan(path)
    assert "simulate, render, explain, diff" in (error.value.hint or "")


@pytest.mark.parametrize("verb", [*WANT_PLAN])
@pytest.mark.parametrize("name", ["", "twofold.yaml"])
def test_a_spec_given_for_a_plan_is_told_how_to_plan_it(verb: str, name: str) -> None:
    with pytest.raises(InputError, match="is a spec, and a plan is wanted here") as error:
        WANT_PLAN[verb](SPEC / name)
    assert f"`twofold plan {SPEC / name} --out plan.json`" in (error.value.hint or "")


@pytest.mark.parametrize("verb", ["simulate", "render", "explain", "diff", "report"])
def test_a_plan_of_another_version_says_which_is_read(verb: str, tmp_path: Path) -> None:
    path = of_schema(tmp_path, "twofold/plan/2")
    verbs = WANT_SPEC | WANT_PLAN | {"report": lambda path: write_page(path, tmp_path / "page.html")}
    with pytest.raises(
        InputError, match="twofold/plan/2, of another version: this Twofold reads twofold/plan/1"
    ):
        verbs[verb](path)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("verb", ["simulate", "render", "plan", "explain", "diff", "report"])
@pytest.mark.parametrize(
    ("without_schema", "is_cut", "said"),
    [
        (True, False, "it lacks its `schema`"),
        (False, True, "it is cut short, or broken"),
        (True, True, "it is cut short, or broken"),
    ],
)
def test_a_plan_that_is_cut_short_or_lacks_its_schema_is_known_for_one(
    verb: str, without_schema: bool, is_cut: bool, said: str, examples: dict[str, Plan], tmp_path: Path
) -> None:
    data = to_data(examples["laptop"])
    if without_schema:
        del data["schema"]
    path, text = tmp_path / "my plan.json", json.dumps(data, indent=1)
    path.write_text(text[: len(text) // 2] if is_cut else text, "utf-8")
    verbs = WANT_SPEC | WANT_PLAN | {"report": lambda path: write_page(path, tmp_path / "page.html")}
    with pytest.raises(InputError) as error:
        verbs[verb](path)
    assert error.value.message == f"`{path}` looks like a saved plan, but {said}"
    assert error.value.hint == f"write it again with `twofold plan SPEC --out '{path}' --force`"


def test_a_spec_written_as_json_stays_a_spec(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"model": "llama-3.1-8b", "note": "schema"}), "utf-8")
    with pytest.raises(InputError) as error:
        plan(path)
    assert "it is no spec" not in error.value.message
