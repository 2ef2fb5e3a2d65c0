"""Sheets price rows as `predict` does, and again under factors."""

import numpy as np
import pytest

from twofold.catalog.catalog import Catalog, load_catalog
from twofold.core.errors import InputError
from twofold.measure.calibration_sheet import FACTORS, Sheet, half_of_row, measured_logs, sheets_of
from twofold.measure.predict_inference import predict_inference
from twofold.measure.predict_training import predict_training
from twofold.measure.truth import Row
from twofold.perf.constants import load_constants
from twofold.perf.known import Half

TRAINED: Row = {
    "model": "llama-3.1-8b", "gpu": "H100-SXM5-80GB", "gpus": "16", "seq_len": "4096", "precision": "bf16",
    "framework": "NeMo 25.04", "tp": "2", "pp": "1", "dp": "8", "micro_batch": "1", "global_batch_seqs": "64",
    "zero_stage": "1", "recompute": "none", "step_time_s": "3.5",
}  # fmt: skip
SERVED: Row = {
    "model": "llama-3.1-8b", "gpu": "H100-SXM5-80GB", "gpus_total": "1", "framework": "vllm",
    "framework_version": "0.15.0", "precision_weights": "bf16", "tp": "1", "mode": "closed",
    "isl_mean": "1024", "osl_mean": "256", "isl_dist": "fixed", "concurrency": "8", "tpot_mean_ms": "9",
}  # fmt: skip
ROWS: dict[Half, Row] = {"training": TRAINED, "inference": SERVED}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def sheet_of(half: Half, catalog: Catalog) -> Sheet:
    (sheet,), refused = sheets_of(half, [ROWS[half]], catalog, load_constants())
    assert not refused
    return sheet


@pytest.mark.parametrize("half", ["training", "inference"])
def test_without_factors_a_sheet_says_what_predict_says(half: Half, catalog: Catalog) -> None:
    predict = predict_training if half == "training" else predict_inference
    (answer,) = predict([ROWS[half]], catalog, load_constants())
    for name, logs in sheet_of(half, catalog).log_predicted({}).items():
        assert np.exp(logs[0, 0]) == pytest.approx(float(answer[f"pred_{name}"]), rel=1e-5)


@pytest.mark.parametrize("half", ["training", "inference"])
def test_draws_price_as_each_factor_alone_does(half: Half, catalog: Catalog) -> None:
    sheet = sheet_of(half, catalog)
    draws = np.array([[1.0], [0.8], [1.3]])
    together = sheet.log_predicted({"compute": draws, "host": draws})
    for at, value in enumerate(draws):
        alone = sheet.log_predicted({"compute": value[np.newaxis], "host": value[np.newaxis]})
        for name, logs in together.items():
            assert logs[at] == pytest.approx(alone[name][0], rel=1e-9)


@pytest.mark.parametrize("half", ["training", "inference"])
def test_no_better_factor_makes_a_figure_worse(half: Half, catalog: Catalog) -> None:
    sheet = sheet_of(half, catalog)
    for name in FACTORS[sheet.half]:
        if name == "memory_use":
            continue
        priced = sheet.log_predicted({name: np.array([[1.0], [1.2]])})
        for metric, logs in priced.items():
            change = float(logs[1, 0] - logs[0, 0])
            assert change >= -1e-12 if metric == "output_tok_s" else change <= 1e-12, (name, metric)


def test_releases_of_one_engine_in_two_eras_are_two_stacks(catalog: Catalog) -> None:
    rows = [SERVED, SERVED | {"framework_version": "0.6.3"}]
    sheets, _ = sheets_of("inference", rows, catalog, load_constants())
    assert {sheet.software.era for sheet in sheets} == {"0.12+", "0.4+"}


def test_a_row_that_cannot_be_read_says_why(catalog: Catalog) -> None:
    sheets, refused = sheets_of("training", [TRAINED, TRAINED | {"gpu": "X1"}], catalog, load_constants())
    assert len(sheets) == 1
    assert "X1" in refused[1]


def test_a_figure_that_a_row_does_not_give_is_absent(catalog: Catalog) -> None:
    logs = measured_logs(sheet_of("training", catalog), [TRAINED])
    assert logs["step_time_s"][0] == pytest.approx(np.log(3.5))
    assert np.isnan(logs["peak_mem_gib"][0])


def test_a_row_says_its_half_or_its_columns_do() -> None:
    assert half_of_row(TRAINED, list(TRAINED)) == "training"
    assert half_of_row(SERVED, list(SERVED)) == "inference"
    assert half_of_row({"half": "inference"}, ["half", "seq_len"]) == "inference"
    with pytest.raises(InputError, match="no half"):
        half_of_row({"half": "both"}, ["half"])
