"""Sources calibrated with ten of their own rows."""

from twofold.catalog.catalog import load_catalog
from twofold.measure.blind import PRIORS
from twofold.measure.calibration_after import after_calibration
from twofold.measure.predict_training import predict_training
from twofold.measure.truth import Row
from twofold.perf.constants import load_constants

COUNT = 24


def rows_of(source: str, count: int, slower: float) -> list[Row]:
    """A source whose every step takes the same factor longer than ours predicts."""
    rows = [
        {
            "id": f"{source}-{index}", "source": source, "tier": "A", "model": "llama-3.1-8b",
            "gpu": "H100-SXM5-80GB", "gpus": "8", "seq_len": "4096", "precision": "bf16",
            "framework": "Megatron-Core 0.9", "tp": "1", "pp": "1", "dp": "8", "micro_batch": "1",
            "global_batch_seqs": str(8 * (1 + index)), "zero_stage": "1", "recompute": "full",
        }
        for index in range(count)
    ]  # fmt: skip
    answers = predict_training(rows, load_catalog(), load_constants())
    return [
        row | {"step_time_s": f"{slower * float(answer['pred_step_time_s']):.6g}"}
        for row, answer in zip(rows, answers, strict=True)
    ]


def test_only_rows_that_did_not_calibrate_are_answered() -> None:
    rows = rows_of("one", COUNT, 1.2)
    answered = after_calibration("training", rows, load_catalog(), load_constants(), PRIORS)
    assert len(answered) == COUNT - 10
    assert len({row["id"] for row in answered}) == COUNT - 10


def test_a_source_that_is_slow_in_one_way_is_predicted_after_ten_rows() -> None:
    rows = rows_of("one", COUNT, 1.25)
    for row in after_calibration("training", rows, load_catalog(), load_constants(), PRIORS):
        measured, predicted = float(row["step_time_s"]), float(row["pred_step_time_s"])
        assert abs(predicted / measured - 1) < 0.05
        low, high = float(row["pred_step_time_s_low"]), float(row["pred_step_time_s_high"])
        assert low < predicted < high
        assert float(row["pred_step_time_s_low_95"]) < low


def test_sources_with_few_rows_are_left_out_and_none_teaches_another() -> None:
    catalog, constants = load_catalog(), load_constants()
    alone = after_calibration("training", rows_of("one", COUNT, 1.2), catalog, constants, PRIORS)
    rows = rows_of("one", COUNT, 1.2) + rows_of("two", COUNT, 0.9) + rows_of("few", 8, 1.2)
    together = after_calibration("training", rows, catalog, constants, PRIORS)
    assert {row["source"] for row in together} == {"one", "two"}
    assert [row for row in together if row["source"] == "one"] == alone
