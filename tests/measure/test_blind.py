"""Constants of fits that did not see something."""

from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.catalog import load_catalog
from twofold.measure import blind
from twofold.measure.blind import (
    BlindRow,
    fold_of,
    hidden_constants,
    predict_blind,
    read_blind,
    source_of,
    write_blind,
)
from twofold.measure.predict_training import predict_training
from twofold.measure.truth import Row, read_rows
from twofold.perf import load_constants, load_known

ROW = {"id": "a", "source": "s", "model": "m", "gpu": "H100-SXM", "seq_len": "4096", "gpus": "8", "tp": "8"}


def keep(_name: str) -> bool:
    return True


def test_a_fold_is_told_by_the_configuration_and_by_nothing_measured() -> None:
    again = ROW | {"id": "b", "source": "t", "step_time_s": "3", "notes": "n", "framework": "NeMo 25.02"}
    assert fold_of(again) == fold_of(ROW)
    assert len({fold_of(ROW | {"tp": str(tp)}) for tp in range(32)}) == 4


def test_the_load_of_a_service_stays_with_its_configuration() -> None:
    row = {"model": "m", "gpu": "H100-SXM", "concurrency": "4"}
    assert {fold_of(row | {"concurrency": str(load)}) for load in range(1, 20)} == {fold_of(row)}


def test_a_source_hides_under_its_name() -> None:
    assert source_of(ROW) == "source=s"


def test_a_writer_replaces_the_rows_that_it_owns_alone(tmp_path: Path) -> None:
    path = tmp_path / "blind.csv"
    step = BlindRow("training", "source=s", "training_handoff_s", "", 1e-4, 1e-5, 1e-3)
    ends = BlindRow("training", "source=s", "interval_training_step_ratio", "", 1.0, 0.9, 1.2)
    write_blind("training", [step, ends], keep, path)
    write_blind("training", [], lambda name: name.startswith("interval_"), path)
    assert read_blind(path) == {("training", "source=s"): (step,)}
    write_blind("inference", [], keep, path)
    assert read_blind(path) == {("training", "source=s"): (step,)}


@pytest.mark.parametrize("value", [1.23456, 1.23456e-5])
def test_four_digits_are_kept(tmp_path: Path, value: float) -> None:
    path = tmp_path / "blind.csv"
    write_blind("training", [BlindRow("training", "fold=0", "x", "", value, value, value)], keep, path)
    assert read_blind(path)["training", "fold=0"][0].value == pytest.approx(value, rel=5e-4)


@pytest.mark.parametrize("hidden_of", [source_of, fold_of])
def test_a_row_is_predicted_by_constants_that_never_saw_it(hidden_of: Callable[[Row], str]) -> None:
    """INV-18."""
    rows = read_rows(Path(blind.__file__).parent / "sample" / "training.csv")[::9]
    catalog, constants, known = load_catalog(), load_constants(), load_known()
    shipped = set(constants.rows)
    for row, answer in zip(rows, predict_blind("training", rows, catalog, constants, hidden_of), strict=True):
        hidden = hidden_of(row)
        told = hidden_constants("training", hidden, constants)
        assert [each for each in told.rows if each not in shipped and not each.name.startswith("interval_")]
        assert [answer] == predict_training([row], catalog, told, known.without(hidden))


@pytest.mark.parametrize("source", ["nanotron-ultrascale", "bigscience-bloom", "inferencex"])
def test_no_range_without_a_source_stands_on_that_source(source: str) -> None:
    """INV-18: what its errors alone had shaped is gone, the factor by which memory must fit included."""
    half = "inference" if source == "inferencex" else "training"
    shipped = load_constants()
    told = {(row.name, row.scope): row for row in hidden_constants(half, f"source={source}", shipped).rows}
    for row in shipped.rows:
        if row.fitted_by == "ranges" and row.note == source:
            assert row != told.get((row.name, row.scope)), row
