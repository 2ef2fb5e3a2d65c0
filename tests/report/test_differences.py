"""The table of `diff`: every change on a line, in units that people read."""

import pytest

from twofold.planner.explained import Change
from twofold.report.differences import SHOWN, difference_lines, telling_lines
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
