"""Constants of fits that did not see something."""

from collections.abc import Callable

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.measure.blind import ALL, OF_THE_SAMPLE, fold_of, hidden_constants, hidden_source, predict_blind
from twofold.measure.predict_training import predict_training
from twofold.measure.truth import Row, read_rows
from twofold.measure.validation import SAMPLE
from twofold.perf.constants import load_constants
from twofold.perf.known import load_known

ROW = {"id": "a", "source": "s", "model": "m", "gpu": "H100-SXM", "seq_len": "4096", "gpus": "8", "tp": "8"}


def test_a_fold_is_told_by_the_configuration_and_by_nothing_measured() -> None:
    again = ROW | {"id": "b", "source": "t", "step_time_s": "3", "notes": "n", "framework": "NeMo 25.02"}
    assert fold_of(again) == fold_of(ROW)
    assert len({fold_of(ROW | {"tp": str(tp)}) for tp in range(32)}) == 4


def test_the_load_of_a_service_stays_with_its_configuration() -> None:
    row = {"model": "m", "gpu": "H100-SXM", "concurrency": "4"}
    assert {fold_of(row | {"concurrency": str(load)}) for load in range(1, 20)} == {fold_of(row)}


def test_a_source_hides_under_its_name() -> None:
    assert hidden_source(ROW) == "source=s"


@pytest.mark.parametrize("hidden_of", [hidden_source, fold_of])
def test_a_row_is_predicted_by_constants_that_never_saw_it(hidden_of: Callable[[Row], str]) -> None:
    """INV-18."""
    rows = read_rows(SAMPLE / "training.csv")[::9]
    catalog, constants, known = load_catalog(), load_constants(), load_known()
    shipped = set(constants.rows)
    answers = predict_blind("training", rows, catalog, constants, hidden_of, OF_THE_SAMPLE)
    for row, answer in zip(rows, answers, strict=True):
        hidden = hidden_of(row)
        told = hidden_constants("training", hidden, constants, OF_THE_SAMPLE)
        assert [each for each in told.rows if each not in shipped and not each.name.startswith("interval_")]
        assert [answer] == predict_training([row], catalog, told, known.without(hidden))


@pytest.mark.parametrize("source", ["nanotron-ultrascale", "bigscience-bloom", "inferencex"])
def test_no_range_without_a_source_stands_on_that_source(source: str) -> None:
    """INV-18: what its errors alone had shaped is gone, the factor by which memory must fit included."""
    half = "inference" if source == "inferencex" else "training"
    shipped = load_constants()
    told = {
        (row.name, row.scope): row for row in hidden_constants(half, f"source={source}", shipped, ALL).rows
    }
    for row in shipped.rows:
        if row.fitted_by == "ranges" and row.note == source:
            assert row != told.get((row.name, row.scope)), row
