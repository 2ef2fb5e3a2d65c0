"""Figures of unseen sources: what counts as one source, as one row, and that each source weighs the same."""

from pathlib import Path

import numpy as np
import pytest

from fits.unseen import LINES, by_source, lines_of, once_each, source_of, tokens_each
from twofold.measure.evidence import gather
from twofold.measure.results import FIGURES, Column
from twofold.measure.scores import Values, mean_error
from twofold.measure.validation import read_data

ADDED = Path(__file__).parents[3] / "shared" / "truth" / "added"
ROW = {"seq_len": "2048", "global_batch_seqs": "1024", "gpus": "512", "source": "mlperf-train-v4.1"}


def values(measured: list[float], predicted: list[float]) -> Values:
    ends = np.full(len(measured), np.nan)
    return Values(np.array(measured), np.array(predicted), ends, ends, ends, ends)


def test_all_exports_of_one_benchmark_are_one_source() -> None:
    names = ("mlperf-train-v4.0", "mlperf-train-v5.0", "mlperf-v5.1", "inferencex", "nim")
    told = [source_of({"source": name}) for name in names]
    assert told == ["mlperf-train", "mlperf-train", "mlperf", "inferencex", "nim"]


def test_each_source_weighs_the_same_and_one_of_a_few_rows_not_at_all() -> None:
    rows = values([1.0] * 13, [1.5] * 8 + [1.1] * 4 + [9.0])
    sources = ["many"] * 8 + ["few"] * 4 + ["lone"]
    assert by_source(mean_error)(rows, sources) == pytest.approx((0.5 + 0.1) / 2)


def test_tokens_are_counted_per_accelerator_and_step() -> None:
    assert tokens_each(ROW) == 4096


def test_every_line_is_of_a_figure_that_is_measured() -> None:
    assert {line.figure for line in LINES} <= {figure.name for figure in FIGURES}


@pytest.mark.skipif(not ADDED.is_dir(), reason="the tables of measurements are not beside this checkout")
def test_the_table_has_a_figure_for_every_goal_of_training() -> None:
    data = read_data(ADDED / "training.csv")
    parts = gather(data, only=(Column.LEFT_OUT,)).parts
    rows, _ = once_each(parts["step_time"], "training")
    assert len(rows) < len(parts["step_time"].rows), "repeats of one configuration count once"
    assert {source_of(row) for row in rows} >= {"mlperf-train", "simumax", "megascale"}
    told = lines_of(parts.values())
    assert all("–" not in line for line in told if line.startswith(("step", "strong", "peak")))
