from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.measure.lint_inference import beyond_bounds, read_bounds
from twofold.measure.lint_table import read_table
from twofold.measure.predict_inference import predict_inference
from twofold.measure.truth import read_rows
from twofold.perf.constants import load_constants

SHARED = Path(__file__).parents[3] / "shared"
CATALOG, CONSTANTS = load_catalog(), load_constants()
ROW = {
    "model": "llama-3.1-70b",
    "gpu": "H100-SXM5-80GB",
    "gpus_total": "4",
    "framework": "vllm",
    "framework_version": "0.15.1",
    "precision_weights": "fp8",
    "precision_kv": "bf16",
    "tp": "4",
    "pp": "1",
    "ep": "1",
    "dp": "1",
    "mode": "aggregated",
    "isl_mean": "2000",
    "osl_mean": "200",
    "isl_dist": "fixed",
    "concurrency": "16",
    "spec_decode": "0",
    "prefix_cache": "0",
}


def physics(*rows):
    return read_bounds(read_table("inference", list(rows))[0], CATALOG, CONSTANTS)


def findings(**changes):
    table, _ = read_table("inference", [{**ROW, **changes}])
    return beyond_bounds(table, read_bounds(table, CATALOG, CONSTANTS))


def test_a_token_takes_at_least_one_reading_of_the_weights():
    bounds = physics(ROW)
    weights = 70.6e9 - 128256 * 8192  # bytes in fp8, without the table of input embeddings
    assert bounds.weights_s[0] == pytest.approx(weights / 4 / 3.35e12, rel=0.02)  # less what the caches hold
    assert bounds.kv_bytes[0] == pytest.approx(80 * 2 * 8 * 128 * 2 * 2100)


def test_a_prompt_takes_at_least_its_flops():
    two_per_weight = 2 * (70.6e9 - 2 * 128256 * 8192) * 2000
    attention = 80 * 4 * 64 * 128 * 2000 * 2000 / 2
    assert physics(ROW).prefill_s[0] == pytest.approx((two_per_weight + attention) / 4 / 1978.9e12, rel=0.01)


def test_bounds_fall_with_what_shares_the_reading():
    rows = [{**ROW, "tp": tp, "gpus_total": "8"} for tp in ("1", "2", "8")]
    bounds = physics(*rows, {**ROW, "tp": "", "pp": "", "ep": "", "dp": "", "gpus_total": "8"})
    assert np.all(np.diff(bounds.weights_s[:3]) < 0)
    assert bounds.weights_s[3] == bounds.weights_s[2]  # an open layout is taken as the kindest
    assert bounds.firm.tolist() == [True, True, True, False]


def test_experts_are_read_as_one_token_visits_them():
    bounds = physics({**ROW, "model": "mixtral-8x7b", "precision_weights": "bf16"})
    active = 12.9e9 - 32000 * 4096
    assert bounds.weights_s[0] == pytest.approx(active * 2 / 4 / 3.35e12, rel=0.03)


def test_an_assumed_length_bounds_nothing():
    stated, open_length = physics(ROW, {**ROW, "isl_mean": ""}).prefill_s
    assert open_length < stated / 100


@settings(max_examples=20, deadline=None)
@given(
    model=st.sampled_from(["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "gpt-oss-120b"]),
    gpu=st.sampled_from(["H100-SXM5-80GB", "H200-SXM5-141GB", "B200-SXM-180GB", "A100-SXM4-80GB", "MI300X"]),
    concurrency=st.sampled_from([1, 16, 128]),
    isl=st.sampled_from([100, 1000, 8000]),
)
def test_our_own_predictions_keep_the_bounds(model, gpu, concurrency, isl):
    """No load makes a replica faster than its hardware (INV-9)."""
    row = {**ROW, "model": model, "gpu": gpu, "concurrency": str(concurrency), "isl_mean": str(isl)}
    row["precision_weights"] = "bf16" if gpu.startswith("A100") else ""
    (answer,) = predict_inference([row], CATALOG, CONSTANTS)
    bounds = physics(row)
    if answer["pred_error"]:
        return  # it does not fit
    assert float(answer["pred_tpot_mean_ms"]) / 1e3 > bounds.weights_s[0] + bounds.kv_s[0]
    assert float(answer["pred_ttft_mean_ms"]) / 1e3 > bounds.prefill_s[0]


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"tpot_p50_ms": "4.9"}, "impossible"),
        ({"tpot_p50_ms": "4.9", "spec_decode": ""}, "suspect"),
        ({"tpot_p50_ms": "4.9", "precision_weights": ""}, "suspect"),
        ({"output_tok_s": "3400"}, "impossible"),  # 16 clients cannot have a token every 4.7 ms
        ({"ttft_p50_ms": "30"}, "impossible"),
        ({"ttft_p50_ms": "30", "prefix_cache": "1"}, "suspect"),
        ({"output_tok_s": "60000", "concurrency": "9999"}, "impossible"),
        (
            {"tpot_p50_ms": "5.4", "output_tok_s": "20000", "concurrency": "999"},
            "suspect",
        ),  # 108 caches a step
    ],
)
def test_rooflines_are_firm_where_the_row_is(changes, severity):
    assert severity in {each.severity for each in findings(**changes) if each.rule == "roofline"}


@pytest.mark.parametrize("changes", [{"tpot_p50_ms": "9"}, {"ttft_p50_ms": "90"}, {"output_tok_s": "900"}])
def test_what_hardware_can_do_is_no_finding(changes):
    assert findings(**changes) == []


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"tpot_p50_ms": "9", "tpot_p99_ms": "8"}, "order"),
        ({"tpot_mean_ms": "4", "tpot_p50_ms": "9"}, "order"),
        ({"tpot_mean_ms": "12", "tpot_p99_ms": "11"}, "order"),
        ({"e2e_p50_ms": "100", "ttft_p50_ms": "101"}, "order"),
        ({"mem_gib": "81"}, "memory"),
        ({"gpus_total": "1", "tp": "1", "precision_weights": "bf16"}, "memory"),
        ({"watts_per_gpu": "2800"}, "power"),
        ({"watts_per_gpu": "20"}, "power"),
        ({"tp": "8"}, "layout"),
        ({"gpus_total": "6"}, "layout"),
        ({"ep": "8"}, "layout"),
        ({"mode": "disaggregated", "gpus_total": "16", "decode_workers": "5"}, "layout"),
    ],
)
def test_order_memory_power_and_layout_are_held(changes, rule):
    assert rule in {each.rule for each in findings(**changes)}


def test_published_rows_keep_well_above_the_bounds():
    path = SHARED / "truth" / "inference.csv"
    if not path.exists():
        pytest.skip("needs ../shared/truth/inference.csv")
    rows = [row for row in read_rows(path) if row["tier"] in ("A", "B")][::4]
    table, _ = read_table("inference", rows)
    bounds = read_bounds(table, CATALOG, CONSTANTS)
    tpot_s = table.first("tpot_mean_ms", "tpot_p50_ms") / 1e3
    assert np.nanmax((bounds.weights_s / tpot_s)[table["spec_decode"] == 0]) < 0.95
