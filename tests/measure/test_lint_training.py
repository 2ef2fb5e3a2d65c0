from pathlib import Path

import numpy as np
import pytest

from twofold.catalog.catalog import load_catalog
from twofold.measure.lint_table import read_table
from twofold.measure.lint_training import HIGHEST_MFU, lint_training, read_bounds
from twofold.measure.predict_training import predict_training
from twofold.measure.truth import read_rows
from twofold.perf.constants import load_constants

SHARED = Path(__file__).parents[3] / "shared"
CATALOG, CONSTANTS = load_catalog(), load_constants()
ROW = {
    "model": "llama-3.1-8b",
    "seq_len": "8192",
    "gpu": "H100-SXM5-80GB",
    "gpus": "64",
    "framework": "NeMo 24.07",
    "precision": "bf16",
    "dp": "32",
    "tp": "2",
    "pp": "1",
    "cp": "1",
    "zero_stage": "0",
    "micro_batch": "1",
    "global_batch_seqs": "256",
    "recompute": "none",
    "flops_counting": "model",
}


def physics(*rows):
    return read_bounds(read_table("training", list(rows))[0], CATALOG, CONSTANTS)


def findings(*rows):
    table, _ = read_table("training", list(rows))
    return lint_training(table, predict_training(rows, CATALOG, CONSTANTS), CATALOG, CONSTANTS)


def test_the_least_flops_are_six_per_weight_and_causal_attention():
    bounds = physics(ROW)
    weights = 6 * (8.03e9 - 128256 * 4096)  # the table of embeddings is looked up
    attention = 3 * 2 * 32 * 8192 * 4096  # 32 layers: two products over half of 8192 tokens, 4096 wide
    assert bounds.least_flops[0] == pytest.approx(weights + attention, rel=0.01)
    table = 6 * 128256 * 4096
    assert bounds.most_flops[0] == pytest.approx(weights + 2 * attention + table, rel=0.01)


def test_hardware_flops_may_hold_one_more_forward():
    model, hardware = physics(ROW), physics({**ROW, "flops_counting": "hardware"})
    assert hardware.most_flops[0] == pytest.approx(4 / 3 * model.most_flops[0])
    assert hardware.least_flops[0] == model.least_flops[0]


def test_the_peak_is_that_of_the_precision():
    half, narrow = physics(ROW), physics({**ROW, "precision": "fp8"})
    assert narrow.peak_flops_per_s[0] == pytest.approx(2 * half.peak_flops_per_s[0], rel=1e-3)
    assert narrow.half_peak_flops_per_s[0] == half.half_peak_flops_per_s[0] == half.peak_flops_per_s[0]


def test_states_shrink_with_the_zero_stage():
    bounds = physics(*({**ROW, "zero_stage": stage} for stage in "013"))
    assert np.all(np.diff(bounds.states_bytes) < 0)
    assert bounds.states_bytes[0] == pytest.approx(8.03e9 / 2 * (2 + 12), rel=0.02)  # tp 2, bf16 and Adam


def test_a_step_is_implied_by_a_rate():
    table, _ = read_table("training", [{**ROW, "tokens_per_s_per_gpu": "8192"}])
    assert read_bounds(table, CATALOG, CONSTANTS).step_s(table)[0] == pytest.approx(256 / 64)


@pytest.mark.parametrize(("mfu", "severity"), [(0.79, None), (0.85, "suspect"), (1.02, "impossible")])
def test_the_roofline_is_an_mfu_of_one(mfu, severity):
    bounds = physics(ROW)
    floor_s = bounds.tokens[0] * bounds.least_flops[0] / 64 / bounds.peak_flops_per_s[0]
    found = findings({**ROW, "step_time_s": str(floor_s / mfu)})
    assert [each.severity for each in found if each.rule == "roofline"] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"experts": "8", "ep": "3"}, "does not divide experts"),
        ({"layers": "32", "pp": "5", "gpus": "320"}, "does not divide layers"),
        ({"layers": "32", "pp": "64", "gpus": "4096"}, "more than the 32 layers"),
        ({"ep": "128"}, "more than dp·tp·cp"),
        ({"gpus": "512", "ep": "8"}, "not multiplied in"),
    ],
)
def test_sizes_that_cannot_be_are_explained(changes, said):
    found = findings({**ROW, **changes})
    assert any(said in each.message + each.hint for each in found if each.rule == "layout")


def test_an_unread_row_is_still_held_against_arithmetic():
    row = {**ROW, "model": "our-own", "step_time_s": "4", "tokens_per_s_per_gpu": "999", "mfu": "1.2"}
    rules = {each.rule for each in findings(row)}
    assert {"rate", "roofline"} <= rules


def test_no_published_row_comes_near_the_bound_that_nobody_reaches():
    path = SHARED / "truth" / "training.csv"
    if not path.exists():
        pytest.skip("needs ../shared/truth/training.csv")
    rows = [row for row in read_rows(path) if row["tier"] in ("A", "B")][::3]
    table, _ = read_table("training", rows)
    bounds = read_bounds(table, CATALOG, CONSTANTS)
    floor_s = bounds.tokens * bounds.least_flops / (table["gpus"] * bounds.peak_flops_per_s)
    assert np.nanmax(floor_s / bounds.step_s(table)) < HIGHEST_MFU
