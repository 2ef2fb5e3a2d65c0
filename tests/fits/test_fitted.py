"""The table of constants of fits that did not see something, as the fits write it."""

from pathlib import Path

import pytest

from fits.fitted import format_known, replace_blind, write_constants
from twofold.core.errors import ConstantsError
from twofold.core.estimate import Estimate, exact
from twofold.measure.blind import BlindRow, read_blind
from twofold.perf.constants import ConstantRow, Constants
from twofold.perf.known import Seen, parse_known

TABLE = """# version 3
name,scope,value,low,high,unit,source,rows,fitted_by,note
speed,family=hopper,2,1,3,ratio,f,9,kernels,
speed,family=hopper;format=fp8,3,2,4,ratio,f,9,kernels,
speed,format=int8,4,2,8,ratio,a,0,none,
"""
ROWS = (
    Seen("training", "step", "llama", "H100", "megatron", ("a", "b"), ("0", "1")),
    Seen("training", "step", "mpt", "A100", "fsdp", ("c",), ("0",)),
)


def keep(_name: str) -> bool:
    return True


def test_a_writer_replaces_the_rows_that_it_owns_alone(tmp_path: Path) -> None:
    path = tmp_path / "blind.csv"
    step = BlindRow("training", "source=s", "training_handoff_s", "", Estimate(1e-4, 1e-5, 1e-3, "ratio"))
    ends = BlindRow(
        "training", "source=s", "interval_training_step_ratio", "", Estimate(1.0, 0.9, 1.2, "ratio")
    )
    replace_blind("training", [step, ends], keep, path)
    replace_blind("training", [], lambda name: name.startswith("interval_"), path)
    assert read_blind(path) == {("training", "source=s"): (step,)}
    replace_blind("inference", [], keep, path)
    assert read_blind(path) == {("training", "source=s"): (step,)}


@pytest.mark.parametrize("value", [1.23456, 1.23456e-5])
def test_four_digits_are_kept(tmp_path: Path, value: float) -> None:
    path = tmp_path / "blind.csv"
    replace_blind("training", [BlindRow("training", "fold=0", "x", "", exact(value, "ratio"))], keep, path)
    assert read_blind(path)["training", "fold=0"][0].estimate.value == pytest.approx(value, rel=5e-4)


def test_a_fit_rewrites_its_own_rows_alone(tmp_path: Path) -> None:
    path = tmp_path / "constants.csv"
    path.write_text(TABLE)
    row = ConstantRow(
        2.2, 2.0, 2.4, "ratio", name="speed", scope="family=hopper", rows=12, fitted_by="kernels"
    )
    assert write_constants(path, "kernels", [row]) == 4
    new = Constants.parse(path.read_text())
    assert new.get("speed", family="hopper", format="fp8") == 2.2
    assert new.get("speed", format="int8") == 4
    assert write_constants(path, "kernels", [row]) == 4  # the same rows: the same bytes
    with pytest.raises(ConstantsError, match="rows of others"):
        write_constants(path, "training", [row])


def test_the_text_reads_back() -> None:
    assert set(parse_known(format_known(ROWS)).seen) == set(ROWS)
