"""A plan that comes back from a file is whole, or is refused with the path that is broken (INV-8)."""

import copy
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.app.planning import diff, explain, plan_data, plan_screen, plan_to_json, plan_value
from twofold.app.planning import plan as planned
from twofold.contracts.results.plan import Plan
from twofold.core.data import to_data
from twofold.core.errors import InfeasibleError, InputError

# Named one by one: what strategies of numbers draw depends on the modules that are loaded meanwhile.
PLACES = 9973  # of a plan that may be changed, from its first to its last
JUNK = st.sampled_from([None, True, 0, -1, 2**70, 0.5, -1e300, 1e-300, float("nan"), "", "x", "é\0", [], {}])


@pytest.fixture
def plan(examples: dict[str, Plan]) -> Plan:
    return examples["assistant"]


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a tree."""
    items = (
        list(node.items())
        if isinstance(node, dict)
        else list(enumerate(node))
        if isinstance(node, list)
        else []
    )
    return [place for key, item in items for place in [(node, key), *places(item)]]


def test_a_plan_is_whole_after_a_round_trip(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_to_json(plan))
    assert plan_data(path) == plan_data(plan) == plan_data(to_data(plan))
    assert not diff(plan, path)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(where=st.sampled_from(range(PLACES)), junk=st.just(...) | JUNK)
def test_a_plan_changed_by_hand_is_read_or_refused_but_never_breaks(
    plan: Plan, where: int, junk: Any
) -> None:
    changed = json.loads(plan_to_json(plan))
    every = places(changed)
    holder, key = every[where * len(every) // PLACES]
    if junk is ...:
        del holder[key]
    else:
        holder[key] = junk
    for ask in (lambda: str(explain(changed, "")), lambda: str(diff(plan, changed))):
        try:
            assert ask()
        except InputError as error:
            assert "broken at" in error.message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("training", 0, "step_s", "source"), "q"),
        (("training", 0, "step_s", "low"), 1e9),
        (("training", 0, "tried"), True),
        (("serving", 0, "classes"), {}),
        (("derivations",), None),
        (("defaults", 0), ["one"]),
    ],
)
def test_what_is_broken_is_named(path: tuple[str | int, ...], value: object, plan: Plan) -> None:
    changed: Any = copy.deepcopy(to_data(plan))
    node = changed
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    with pytest.raises(InputError) as caught:
        plan_data(changed)
    assert ".".join(map(str, path[: len(path) - (path[-1] == "low")])) in caught.value.message


def test_who_asks_for_both_halves_is_told_that_one_can_be_planned() -> None:
    late = "training: {tokens: 1 Ttok, on: 1x8xH100-SXM, deadline: 1 d}"
    chat = "serving: {on: 1xH100-SXM, classes: {chat: {traffic: {rate: 1 /s}}}}"
    with pytest.raises(InfeasibleError) as caught:
        planned(f"model: llama-3.1-8b\n{late}\n{chat}")
    assert caught.value.hint == "leave out `pretrain`, and the rest is planned"
    with pytest.raises(InfeasibleError) as caught:
        planned(f"model: llama-3.1-8b\n{late}")
    assert not caught.value.hint


def test_nobody_is_told_to_leave_out_a_part_where_the_rest_fits_no_more(tmp_path: Path) -> None:
    late = "training: {tokens: 1 Ttok, on: 1x8xH100-SXM, deadline: 1 d}\n"
    error = screen(f"{late}serving:\n  on: 1xH100-SXM\n{CHAT % ('tpot_p95', '1 us')}", tmp_path / "spec.yaml")
    assert len(error.others) == 1 and not error.hint


CHAT = "  classes: {chat: {traffic: {rate: 1 /s}, slo: {%s: %s}}}"
LATE = "training: {tokens: 1 Ttok, on: 1x8xH100-SXM, deadline: 1 d}\n"


def screen(text: str, path: Path) -> InfeasibleError:
    path.write_text(f"model: llama-3.1-8b\n{text}\n")
    shown = {"full": True, "details": False, "money": False, "rehearse": False, "show_defaults": False}
    with pytest.raises(InfeasibleError) as caught:
        plan_screen(path, **shown, today=date(2026, 11, 1), tell=lambda _: None, as_data=False)
    return caught.value


def test_a_half_that_nothing_meets_does_not_hide_the_other(tmp_path: Path) -> None:
    chat = f"serving:\n  on: 1xH100-SXM\n{CHAT % ('tpot_p95', '60 ms')}"
    left = screen(LATE + chat, tmp_path / "late.yaml").left
    assert left and left.lines[1] == "WITHOUT `pretrain`"
    assert any(line.startswith("SERVING   serve: ") for line in left.lines)
    assert not any("pretrain" in line for line in left.lines[2:])
    soon = f"serving:\n  on: 1xH100-SXM\n{CHAT % ('tpot_p95', '1 us')}"
    left = screen(LATE.replace("1 Ttok", "1 Gtok") + soon, tmp_path / "soon.yaml").left
    assert left and left.lines[1] == "WITHOUT `serve`"
    assert any(line.startswith("TRAINING  pretrain:") for line in left.lines)
    neither = screen(LATE + soon, tmp_path / "neither.yaml")
    assert neither.left is None and [each.whose for each in neither.others] == ["serve"]
    alone = screen(LATE, tmp_path / "alone.yaml")
    assert alone.left is None and not alone.others


def test_what_is_left_is_a_plan_as_data_with_what_nothing_meets(tmp_path: Path) -> None:
    """Of three runs two are too late: the third is planned, and both refusals stand in it."""
    runs = "training:\n" + "".join(
        f"- {{name: {name}, tokens: {tokens}, on: 1x8xH100-SXM, deadline: 1 d}}\n"
        for name, tokens in (("long", "1 Ttok"), ("short", "1 Gtok"), ("longer", "2 Ttok"))
    )
    error = screen(runs, tmp_path / "three.yaml")
    assert error.left and error.left.lines[1] == "WITHOUT `long`, `longer`"
    made = plan_value(json.loads(error.left.json))
    assert [run.name for run in made.training] == ["short"]
    assert [(each.name, each.message) for each in made.infeasible] == [
        (each.whose, each.message) for each in (error, *error.others)
    ]
    assert all(dict(each.lines)["would fit"] for each in made.infeasible)


def test_a_later_deadline_never_costs_more() -> None:
    """What the choice leaves out, such as the file system that the machines need, turned this round once."""
    run = "training: {tokens: 100 Gtok, sequence: 4096 tok, global_batch: 256 seq, deadline: %d d}"
    made = [planned(f"model: llama-3.1-8b\n{run % days}").first_year_usd for days in (14, 30)]
    assert made[0] and made[1] and made[1].value <= made[0].value
