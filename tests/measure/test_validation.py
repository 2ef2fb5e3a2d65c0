"""Rows of any table beside what each column predicts of them."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from twofold.catalog.catalog import load_catalog
from twofold.core.errors import TableError
from twofold.measure.blind import PRIORS
from twofold.measure.evidence import Evidence, gather
from twofold.measure.predict_inference import predict_inference
from twofold.measure.results import Column
from twofold.measure.truth import Row, fitted_sources, half_of, read_rows, source_of
from twofold.measure.validation import (
    SAMPLE,
    columns_of,
    lines_of,
    means_where_they_are,
    parts_of,
    predict_column,
    read_data,
)
from twofold.perf.constants import load_constants

TRUTH = Path(__file__).parents[3] / "shared" / "truth"
PERMISSIVE = {"MIT", "Apache-2.0", "BSD-3-Clause"}
RUN = {
    "id": "a",
    "source": "mine",
    "model": "llama-3.1-70b",
    "gpu": "H200",
    "gpus_total": "4",
    "framework": "vllm",
    "precision_weights": "fp8",
    "tp": "4",
    "isl_mean": "1000",
    "osl_mean": "200",
    "concurrency": "16",
    "tpot_mean_ms": "16.2",
}


def write(path: Path, rows: list[Row]) -> Path:
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_the_sample_names_the_source_and_the_licence_of_every_row() -> None:  # INV-12
    for half in ("training", "inference"):
        rows = read_rows(SAMPLE / f"{half}.csv")
        assert 60 <= len(rows) <= 100
        assert {row["licence"] for row in rows} <= PERMISSIVE
        assert all("@" in row["source_ref"] or " " in row["source_ref"] for row in rows)
        assert {source_of(row) for row in rows} <= fitted_sources(half)
        assert len({row["id"] for row in rows}) == len(rows)


def test_the_sample_is_what_the_tables_of_open_rows_say() -> None:
    if not TRUTH.exists():
        pytest.skip("the open rows are not beside this checkout: ../shared/truth")
    for half in ("training", "inference"):
        open_rows = {row["id"]: row for row in read_rows(TRUTH / f"{half}.csv")}
        for row in read_rows(SAMPLE / f"{half}.csv"):
            assert row.items() - {("licence", row["licence"])} <= open_rows[row["id"]].items()


def test_a_table_is_of_the_half_that_its_columns_say(tmp_path: Path) -> None:
    assert half_of(RUN, Path("runs.csv")) == "inference"
    assert half_of({"gpu": "", "gpus": "", "seq_len": "", "model": ""}, Path("runs.csv")) == "training"
    with pytest.raises(TableError, match=r"`runs.csv` is no table of training runs"):
        half_of(RUN, Path("runs.csv"), "training")
    with pytest.raises(TableError, match="training or inference"):
        half_of({"a": ""}, Path("runs.csv"))
    with pytest.raises(TableError, match="holds no"):
        read_data(tmp_path)


def test_rows_of_context_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [RUN, RUN | {"id": "b", "tier": "C"}, RUN | {"id": "c", "tier": "B"}]
    data = read_data(write(tmp_path / "runs.csv", [{"tier": ""} | row for row in rows]))
    assert ([row["id"] for row in data.rows["inference"]], data.context_rows) == (["a", "c"], 1)


def test_a_folder_gives_the_halves_that_it_holds(tmp_path: Path) -> None:
    write(tmp_path / "inference.csv", [RUN])
    assert list(read_data(tmp_path).rows) == ["inference"]
    with pytest.raises(TableError, match="table of training runs"):
        read_data(tmp_path, "training")


def test_a_users_rows_are_predicted_by_the_shipped_constants() -> None:
    (answer,) = predict_column("inference", [RUN], Column.LEFT_OUT, PRIORS)
    (shipped,) = predict_inference([RUN], load_catalog(), load_constants())
    assert answer["pred_tpot_mean_ms"] == shipped["pred_tpot_mean_ms"]
    assert Column.SEEN not in columns_of("inference", [RUN], PRIORS)


def test_of_several_statistics_the_first_that_was_measured_counts() -> None:
    rows = [RUN, RUN | {"tpot_mean_ms": "", "tpot_p50_ms": "15"}, RUN | {"tpot_mean_ms": ""}]
    answers = {Column.LEFT_OUT: predict_column("inference", rows, Column.LEFT_OUT, PRIORS)}
    (part,) = parts_of("inference", rows, answers, load_catalog())
    values = part.answers[Column.LEFT_OUT]
    assert part.figure.name == "tpot"
    assert values.measured.tolist() == [16.2, 15.0]
    assert np.all((values.low_95 < values.low_80) & (values.low_80 < values.predicted))
    assert np.all((values.predicted < values.high_80) & (values.high_80 < values.high_95))


def test_a_statistic_that_behaves_as_a_mean_is_scored_as_one() -> None:
    rows = [{"source": "inferencex", "ttft_p50_ms": "5"}, {"source": "blis", "ttft_p50_ms": "5"}]
    moved, kept = means_where_they_are(rows)
    assert (moved["ttft_mean_ms"], moved["ttft_p50_ms"]) == ("5", "")
    assert kept["ttft_p50_ms"] == "5"


@pytest.mark.parametrize("by", [("source",), ("gpu", "arch"), ("framework", "phase")])
def test_groups_hold_every_row_once_stated_and_assumed_apart(sample: Evidence, by: tuple[str, ...]) -> None:
    for part in sample.parts.values():
        lines = lines_of(part, by)
        answered = part.answers[Column.LEFT_OUT].answered
        assert sum(line.scores[Column.LEFT_OUT].rows for line in lines) == answered.sum()
        assert len({(line.group, line.basis) for line in lines}) == len(lines)
        stated = sum(line.scores[Column.LEFT_OUT].rows for line in lines if line.basis == "stated")
        assert stated == (answered & ~part.assumed).sum()


def test_groups_that_are_furthest_off_come_first(sample: Evidence) -> None:
    errors = [line.scores[Column.LEFT_OUT].mean_error for line in lines_of(sample.parts["tpot"], ("source",))]
    told = [error for error in errors if error is not None]
    assert told == sorted(told, reverse=True)


def test_what_was_not_answered_says_why() -> None:
    rows = [RUN, RUN | {"model": "no-such-model"}, RUN | {"gpu": "L4", "gpus_total": "1", "tp": "1"}]
    data = read_data(None, "inference")
    evidence = gather(type(data)("mine", {"inference": tuple(rows)}, 0, PRIORS), only=(Column.LEFT_OUT,))
    (refused,) = evidence.refusals
    assert (refused.rows, refused.by_code, refused.not_fitting) == (3, {"E-memory": 1, "E-name": 1}, 1)


def test_two_processes_predict_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.measure.evidence.FEW_ROWS", 1)
    data = read_data(None, "training")
    heard: list[str] = []
    one = gather(data, heard.append, only=(Column.LEFT_OUT,))
    two = gather(data, only=(Column.LEFT_OUT,), process_count=2)
    first, second = (each.parts["step_time"].answers[Column.LEFT_OUT] for each in (one, two))
    assert np.array_equal(first.predicted, second.predicted)
    assert heard[0].endswith("row 0 of 97") and "step 1 of 1" in heard[-1]


def test_rows_that_the_fits_saw_are_not_called_left_out_without_the_fits_that_missed_them() -> None:
    """As after an install: the priors alone are beside rows that are not the packaged ones."""
    data = read_data(None)
    alone = replace(data, blind=PRIORS)
    assert data.unkept == () and set(alone.unkept) == {"training", "inference"}
    assert replace(alone, rows={"inference": (RUN,)}).unkept == ()
    assert Column.SEEN not in columns_of("inference", data.rows["inference"], PRIORS)
