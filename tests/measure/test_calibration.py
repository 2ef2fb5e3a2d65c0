"""Calibration from rows of our own model under known factors, and from rows that cannot be true."""

from datetime import date

import numpy as np
import pytest

from twofold.catalog.catalog import Catalog, load_catalog
from twofold.contracts.rows.calibrations import CalibratedStack, Calibration
from twofold.core.errors import TableError
from twofold.measure.calibration import calibrate
from twofold.measure.calibration_sheet import sheets_of
from twofold.measure.truth import Row
from twofold.perf.constants import Constants, load_constants

TODAY = date(2026, 11, 1)
TRUTH = {"compute": 0.9, "memory_bandwidth": 1.05, "host": 0.8}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def constants() -> Constants:
    return load_constants()


def training_rows(count: int = 10) -> list[Row]:
    """Steps of two models in several layouts, nothing measured yet."""
    rows = []
    for index in range(count):
        tp, micro = (1, 2, 4, 8)[index % 4], (1, 2)[index % 2]
        rows.append(
            {
                "model": ("llama-3.1-8b", "llama-3.1-70b")[index % 3 == 2],
                "gpu": "H100-SXM5-80GB",
                "gpus": "64",
                "seq_len": str((2048, 4096, 8192)[index % 3]),
                "precision": "bf16",
                "framework": "Megatron-Core 0.9",
                "tp": str(8 if index % 3 == 2 else tp),
                "pp": str(4 if index % 3 == 2 else 1),
                "dp": "",
                "micro_batch": str(micro),
                "global_batch_seqs": str(64 * (1 + index % 4)),
                "zero_stage": "1",
                "recompute": "full",
                "vpp": "1",
                "step_time_s": "",
                "peak_mem_gib": "",
            }
        )
    return rows


def inference_rows(count: int = 10) -> list[Row]:
    """A model under several loads, nothing measured yet."""
    return [
        {
            "model": "llama-3.1-70b",
            "gpu": "H100-SXM5-80GB",
            "gpus_total": "8",
            "framework": "vllm",
            "framework_version": "0.15.0",
            "precision_weights": "bf16",
            "precision_kv": "bf16",
            "tp": "8",
            "pp": "1",
            "ep": "1",
            "dp": "1",
            "mode": "closed",
            "isl_mean": str((256, 1024, 4096)[index % 3]),
            "osl_mean": str((256, 512)[index % 2]),
            "isl_dist": "fixed",
            "concurrency": str(2 ** (index % 8)),
            "tpot_mean_ms": "",
            "output_tok_s": "",
        }
        for index in range(count)
    ]


def measured(
    rows: list[Row], half: str, catalog: Catalog, constants: Constants, **factors: float
) -> list[Row]:
    """The rows as our model measures them on hardware and software with these factors."""
    (sheet,), refused = sheets_of(half, rows, catalog, constants)  # type: ignore[arg-type]
    assert not refused
    names = [name for name in sheet.metrics if name in rows[0]]
    logs = sheet.log_predicted({name: np.array([[value]]) for name, value in factors.items()})
    filled = [dict(row) for row in rows]
    for at, place in enumerate(sheet.place):
        for name in names:
            filled[place][name] = f"{np.exp(logs[name][0][at]):.6g}"
    return filled


def only(calibration: Calibration) -> CalibratedStack:
    (stack,) = calibration.stacks
    return stack


@pytest.mark.parametrize("half", ["training", "inference"])
def test_rows_of_our_own_model_give_back_its_factors(
    half: str, catalog: Catalog, constants: Constants
) -> None:
    rows = training_rows() if half == "training" else inference_rows()
    stack = only(calibrate(measured(rows, half, catalog, constants, **TRUTH), catalog, constants, "a", TODAY))
    for factor in stack.factors:
        spread = np.log(factor.high / factor.value) / 1.2816
        assert abs(np.log(factor.value / TRUTH.get(factor.name, 1.0))) < 3 * spread, factor
    for figure in stack.figures:
        assert figure.error_after < max(0.02, figure.error_before / 3), figure
    assert stack.rows == 10
    assert stack.half == half


def test_factors_far_from_what_was_known_are_found_from_few_rows(
    catalog: Catalog, constants: Constants
) -> None:
    """A small processor is half as fast as its table says: the slopes there are others than at 1."""
    rows = [
        {
            "model": "llama-3.1-8b",
            "gpu": "CPU-4-core-AVX2",
            "gpus": "1",
            "seq_len": str(tokens),
            "precision": "fp32",
            "framework": "PyTorch FSDP2",
            "tp": "1",
            "pp": "1",
            "dp": "1",
            "micro_batch": str(batch),
            "global_batch_seqs": str(batch),
            "zero_stage": "0",
            "recompute": "none",
            "step_time_s": "",
            "layers": "6",
            "hidden": "256",
            "heads": "4",
            "kv_heads": "2",
            "head_dim": "64",
            "ffn_hidden": "768",
            "vocab": "4096",
            "params_total": "5800000",
        }
        for batch in (2, 4, 8, 16)
        for tokens in (64, 128)
    ]
    told = measured(rows, "training", catalog, constants, compute=0.45, memory_bandwidth=0.5, host=2.0)
    (figure,) = only(calibrate(told[::2], catalog, constants, "a", TODAY)).figures
    assert figure.error_before > 0.2 and figure.error_fitted < 0.02 and figure.error_after < 0.04, figure


def test_rows_that_agree_change_next_to_nothing(catalog: Catalog, constants: Constants) -> None:
    rows = measured(training_rows(), "training", catalog, constants)
    stack = only(calibrate(rows, catalog, constants, "a", TODAY))
    assert all(factor.value == pytest.approx(1.0, abs=0.005) for factor in stack.factors)
    assert all(figure.error_after < 0.005 for figure in stack.figures)


def test_the_order_of_rows_changes_no_factor(catalog: Catalog, constants: Constants) -> None:
    rows = measured(training_rows(), "training", catalog, constants, **TRUTH)
    one, other = (only(calibrate(each, catalog, constants, "a", TODAY)) for each in (rows, rows[::-1]))
    for first, second in zip(one.factors, other.factors, strict=True):
        assert first.value == pytest.approx(second.value, rel=1e-6)


def test_one_row_moves_less_and_leaves_more_doubt_than_ten(catalog: Catalog, constants: Constants) -> None:
    rows = measured(training_rows(), "training", catalog, constants, compute=0.85)
    one, ten = (only(calibrate(each, catalog, constants, "a", TODAY)) for each in (rows[:1], rows))
    assert one.figures[0].range_after_log > ten.figures[0].range_after_log
    doubts = [np.log(stack.factors[0].high / stack.factors[0].low) for stack in (one, ten)]
    assert doubts[0] > doubts[1]


def test_peak_memory_has_a_factor_of_its_own(catalog: Catalog, constants: Constants) -> None:
    rows = measured(training_rows(), "training", catalog, constants, memory_use=1.15)
    found = {
        factor.name: factor.value for factor in only(calibrate(rows, catalog, constants, "a", TODAY)).factors
    }
    assert 1.05 < found["memory_use"] < 1.2
    assert found["compute"] == pytest.approx(1.0, abs=0.01)


def test_a_slip_of_a_thousand_is_refused_with_its_line_and_reason(
    catalog: Catalog, constants: Constants
) -> None:
    rows = measured(training_rows(), "training", catalog, constants)
    rows[4]["step_time_s"] = f"{float(rows[4]['step_time_s']) / 1000:.6g}"
    found = calibrate(rows, catalog, constants, "a", TODAY)
    assert [row.line for row in found.refused] == [6]
    assert found.refused[0].reason
    assert only(found).rows == 9


def test_rows_of_two_halves_make_two_stacks(catalog: Catalog, constants: Constants) -> None:
    trained = measured(training_rows(5), "training", catalog, constants)
    served = measured(inference_rows(5), "inference", catalog, constants)
    columns = {**dict.fromkeys(trained[0], ""), **dict.fromkeys(served[0], "")}
    rows = [{**columns, **row, "half": "training"} for row in trained]
    rows += [{**columns, **row, "half": "inference"} for row in served]
    found = calibrate(rows, catalog, constants, "a", TODAY)
    assert {stack.half for stack in found.stacks} == {"training", "inference"}
    assert found.rows == 10


def test_rows_without_a_figure_or_of_an_unknown_part_are_refused(
    catalog: Catalog, constants: Constants
) -> None:
    rows = measured(training_rows(4), "training", catalog, constants)
    rows[1]["step_time_s"] = rows[1]["peak_mem_gib"] = ""
    rows[2]["gpu"] = "no such part"
    found = calibrate(rows, catalog, constants, "a", TODAY)
    assert [row.line for row in found.refused] == [3, 4]
    assert "nothing measured" in found.refused[0].reason
    assert "no such part" in found.refused[1].reason


def test_a_table_without_a_usable_row_is_an_error(catalog: Catalog, constants: Constants) -> None:
    with pytest.raises(TableError, match=r"line 2: .*nothing measured"):
        calibrate(training_rows(1), catalog, constants, "rows.csv", TODAY)
