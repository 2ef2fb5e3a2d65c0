"""The table of `diff`: every change on a line, in units that people read."""

import pytest

from twofold.app.differences import difference_lines
from twofold.app.lines import WIDTH
from twofold.plan import Change

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
