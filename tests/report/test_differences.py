"""The table of `diff`: every change on a line, in units that people read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core.display import format_usd
from twofold.planner.explained import Change
from twofold.report.differences import SHOWN, Difference, difference_lines, telling_lines
from twofold.report.lines import WIDTH

STEP = {"value": 6.9, "low": 6.1, "high": 7.4, "unit": "s", "source": "f"}
INTERRUPTIONS = {"value": 3.3, "low": 1.7, "high": 6.3, "unit": "1", "source": "f"}


def shown(path: str, old: object) -> str:
    return "\n".join(difference_lines([Change(path, old, None, None)]))


@pytest.mark.parametrize(
    ("path", "leaf", "text"),
    [
        ("training.a.deadline_s", 2.592e6, "30.0 d"),
        ("training.a.run.data_bytes_per_s", 2.4e6, "2.4 MB/s"),
        ("training.a.communication_exposed_fraction", 0.071, "7.1 %"),
        ("confidence.joint_probability", 0.9987, ">99 %"),
        ("training.a.step_s", STEP, "6.9 s [6.1–7.4] f"),
        ("training.a.run.interruptions", INTERRUPTIONS, "3.3 [1.7–6.3] f"),
        ("training.a.losers.x.why", "slower", "slower"),
    ],
)
def test_a_number_is_shown_in_the_unit_of_its_name(path: str, leaf: object, text: str) -> None:
    assert f"  {text}  " in shown(path, leaf)


def test_changes_stand_below_their_run_and_keep_their_names_whole() -> None:
    paths = [f"training.pretrain.memory_parts.activations.{name}" for name in ("value", "share_fraction")]
    lines = difference_lines([Change(path, 0.5, 0.7, 0.4) for path in ("name", *paths)])
    assert lines.count("  training.pretrain") == 1
    assert any("memory_parts.activations.share_fraction" in line for line in lines)
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[-1] == "3 changes"


def test_of_many_changes_those_that_matter_stand_first_and_the_others_are_counted() -> None:
    telling = [
        Change("training.pretrain.layout.text", "TP 8", "TP 4", None),
        Change("serving.chat.classes.users.slos.ttft_p95.met", True, False, None),
        Change("portfolio.usd", 1e6, 2e6, 1.0),
        Change("serving.chat.replica_count", 3, 4, 1 / 3),
    ]
    noise = [Change(f"building.racks.{index}.kw", 1.0, 2.0, 1.0) for index in range(500)]
    ranged = [Change("first_year_usd", STEP, {**STEP, "low": 6.0}, 0.0)]  # the middle is the same
    lines = telling_lines([*noise, *ranged, *telling])
    heads = [line.strip() for line in lines if line.startswith("  ") and not line.startswith("    ")]
    assert heads[1:] == [
        "totals", "layouts of training.pretrain", "replicas of serving.chat", "SLOs of serving.chat",
    ]  # fmt: skip
    assert not any("building" in line or "first_year" in line for line in lines)
    assert lines[-1] == "505 changes, 501 more: --all"


def test_no_group_of_changes_hides_another_and_few_are_all_shown() -> None:
    promises = [
        Change(f"serving.s.classes.c{index}.holds_until_per_s", 1.0, 3.0, 2.0) for index in range(100)
    ]
    price = Change("serving.s.machine.price.region", "us-east-1", "us-west-2", None)
    lines = telling_lines([*promises, price])
    assert any("price.region" in line for line in lines) and len(lines) <= SHOWN + 8
    assert telling_lines(promises[:SHOWN]) == difference_lines(promises[:SHOWN])
    other = [Change(f"building.{index}", 1.0, 2.0, 1.0) for index in range(30)]
    assert telling_lines(other)[-1] == "30 changes, 10 more: --all"


FLEETS = st.dictionaries(
    st.sampled_from(["pretrain", "tune", "serve"]),
    st.tuples(
        st.sampled_from(["64 × 8 H100, nebius contract", "64 × 8 H100, lambda contract", "2 × 8 B200, oci"]),
        st.none() | st.floats(0.0, 1e9),
    ),
)


def plan_of(fleets: dict[str, tuple[str, float | None]]) -> dict[str, object]:
    actions = [
        {"kind": "rent", "name": name, "text": text, "usd": usd} for name, (text, usd) in fleets.items()
    ]
    return {"actions": [*actions, {"kind": "risk", "name": "serve", "text": "one", "usd": None}]}


@given(FLEETS, FLEETS)
def test_what_moves_to_other_machines_or_providers_stands_first_with_the_money_that_changes(
    old: dict[str, tuple[str, float | None]], new: dict[str, tuple[str, float | None]]
) -> None:
    found = Difference.between(plan_of(old), plan_of(new))
    elsewhere = {name for name in {*old, *new} if old.get(name, ("",))[0] != new.get(name, ("",))[0]}
    assert {each.name for each in found.moves} == elsewhere
    assert found.exit_code == (4 if old != new else 0) and (not elsewhere or found.lines[0] != "no change")
    lines = "\n".join(found.lines)
    for each in found.moves:
        assert f"{each.name}: {each.old or 'not in the old plan'}" in lines
        was, now = each.old_usd, each.new_usd
        if was is not None and now is not None:
            assert f"({'-' if now < was else '+'}{format_usd(abs(now - was))})" in lines
    assert all(len(line) <= WIDTH for line in found.lines)
    assert not Difference.between(plan_of(old), plan_of(old)).moves
