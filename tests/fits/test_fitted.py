"""The table of constants of fits that did not see something, as the fits write it."""

from pathlib import Path

import pytest

from fits.fitted import replace_blind
from twofold.measure.blind import BlindRow, read_blind


def keep(_name: str) -> bool:
    return True


def test_a_writer_replaces_the_rows_that_it_owns_alone(tmp_path: Path) -> None:
    path = tmp_path / "blind.csv"
    step = BlindRow("training", "source=s", "training_handoff_s", "", 1e-4, 1e-5, 1e-3)
    ends = BlindRow("training", "source=s", "interval_training_step_ratio", "", 1.0, 0.9, 1.2)
    replace_blind("training", [step, ends], keep, path)
    replace_blind("training", [], lambda name: name.startswith("interval_"), path)
    assert read_blind(path) == {("training", "source=s"): (step,)}
    replace_blind("inference", [], keep, path)
    assert read_blind(path) == {("training", "source=s"): (step,)}


@pytest.mark.parametrize("value", [1.23456, 1.23456e-5])
def test_four_digits_are_kept(tmp_path: Path, value: float) -> None:
    path = tmp_path / "blind.csv"
    replace_blind("training", [BlindRow("training", "fold=0", "x", "", value, value, value)], keep, path)
    assert read_blind(path)["training", "fold=0"][0].value == pytest.approx(value, rel=5e-4)
