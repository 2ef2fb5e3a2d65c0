from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.measure.lint import lint
from twofold.measure.predict_inference import predict_inference
from twofold.measure.predict_training import predict_training
from twofold.measure.truth import read_rows
from twofold.perf.constants import load_constants

SHARED = Path(__file__).parents[3] / "shared"
CATALOG, CONSTANTS = load_catalog(), load_constants()

TRAINED = {
    "id": "monday",
    "model": "llama-3.1-8b",
    "seq_len": "4096",
    "gpu": "H100-SXM5-80GB",
    "gpus": "32",
    "gpus_per_node": "8",
    "framework": "Megatron-LM",
    "precision": "bf16",
    "dp": "8",
    "tp": "4",
    "pp": "1",
    "cp": "1",
    "vpp": "1",
    "sp": "1",
    "zero_stage": "1",
    "micro_batch": "1",
    "global_batch_seqs": "256",
    "recompute": "none",
    "flops_counting": "model",
}
SERVED = {
    "id": "tuesday",
    "model": "llama-3.1-70b",
    "gpu": "H200-SXM5-141GB",
    "gpus_total": "8",
    "framework": "vllm",
    "framework_version": "0.15.1",
    "precision_weights": "fp8",
    "precision_kv": "bf16",
    "tp": "8",
    "pp": "1",
    "ep": "1",
    "dp": "1",
    "mode": "aggregated",
    "isl_mean": "2048",
    "osl_mean": "256",
    "isl_dist": "fixed",
    "concurrency": "32",
    "spec_decode": "0",
    "prefix_cache": "0",
}


def trained(**changes):
    """A run as our own model measures it: every figure follows from the predicted step."""
    row = {**TRAINED, **{name: str(value) for name, value in changes.items()}}
    (answer,) = predict_training([row], CATALOG, CONSTANTS)
    step_s, batch = float(answer["pred_step_time_s"]), float(row["global_batch_seqs"])
    rate = batch * float(row["seq_len"]) / float(row["gpus"]) / step_s
    tflops = rate * 6 * 8.03e9 * 1.05 / 1e12  # a model of 8 G parameters and its attention
    return {
        **row,
        "step_time_s": f"{step_s:.6g}",
        "tokens_per_s_per_gpu": f"{rate:.6g}",
        "model_tflops_per_gpu": f"{tflops:.4g}",
        "mfu": f"{tflops / 989.4:.3f}",
        "peak_mem_gib": answer["pred_peak_mem_gib"],
    }


def served(**changes):
    row = {**SERVED, **{name: str(value) for name, value in changes.items()}}
    (answer,) = predict_inference([row], CATALOG, CONSTANTS)
    tpot, ttft = float(answer["pred_tpot_mean_ms"]), float(answer["pred_ttft_mean_ms"])
    output, outputs = float(answer["pred_output_tok_s"]), float(row["osl_mean"])
    return {
        **row,
        "ttft_mean_ms": f"{ttft:.6g}",
        "ttft_p99_ms": f"{3 * ttft:.6g}",
        "tpot_mean_ms": f"{tpot:.6g}",
        "tpot_p99_ms": f"{2 * tpot:.6g}",
        "e2e_p50_ms": f"{ttft + (outputs - 1) * tpot:.6g}",
        "output_tok_s": f"{output:.6g}",
        "output_tok_s_per_gpu": f"{output / float(row['gpus_total']):.6g}",
        "total_tok_s": f"{output * (1 + float(row['isl_mean']) / outputs):.6g}",
        "tok_s_per_user": f"{1e3 / tpot:.6g}",
        "requests_per_s": f"{output / outputs:.6g}",
        "watts_per_gpu": "500",
        "joules_per_token": f"{500 * float(row['gpus_total']) / output:.6g}",
    }


RUN = {"training": trained, "inference": served}


def scaled(row, column, factor):
    return {**row, column: f"{float(row[column]) * factor:.6g}"}


def found(half, *rows):
    return lint(half, list(rows), CATALOG, CONSTANTS)


@pytest.mark.parametrize("half", RUN)
def test_what_our_own_model_measures_is_clean(half):
    assert found(half, RUN[half]()) == []


@settings(max_examples=15, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    dp=st.sampled_from([1, 2, 8, 32]),
    micro_batches=st.sampled_from([8, 16, 64]),
    seq_len=st.sampled_from([2048, 4096, 8192]),
    precision=st.sampled_from(["bf16", "fp8"]),
    recompute=st.sampled_from(["none", "full"]),
)
def test_clean_training_rows_have_no_finding(tp, dp, micro_batches, seq_len, precision, recompute):
    row = trained(
        tp=tp,
        dp=dp,
        gpus=tp * dp,
        seq_len=seq_len,
        global_batch_seqs=dp * micro_batches,
        precision=precision,
        recompute=recompute,
    )
    row.update(model_tflops_per_gpu="", mfu="")
    if float(row["peak_mem_gib"]) > 79:
        row["peak_mem_gib"] = ""  # our model may price what does not fit
    assert found("training", row) == []


@settings(max_examples=15, deadline=None)
@given(
    model=st.sampled_from(["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b"]),
    tp=st.sampled_from([4, 8]),
    framework=st.sampled_from(["vllm", "trtllm", "sglang"]),
    concurrency=st.sampled_from([1, 8, 64, 200]),
    isl=st.sampled_from([128, 1000, 4096]),
    osl=st.sampled_from([128, 1000]),
)
def test_clean_serving_rows_have_no_finding(model, tp, framework, concurrency, isl, osl):
    row = served(
        model=model,
        tp=tp,
        gpus_total=tp,
        framework=framework,
        concurrency=concurrency,
        isl_mean=isl,
        osl_mean=osl,
        framework_version="",
    )
    assert found("inference", row) == []


TIMES = {
    "training": ("step_time_s",),
    "inference": ("ttft_mean_ms", "tpot_mean_ms", "e2e_p50_ms"),
}


@pytest.mark.parametrize("half", RUN)
@settings(max_examples=12, deadline=None)
@given(data=st.data(), factor=st.sampled_from([1000.0, 0.001]), alone=st.booleans())
def test_a_time_in_another_unit_is_always_caught(half, data, factor, alone):
    column = data.draw(st.sampled_from(TIMES[half]))
    size = data.draw(st.sampled_from([1, 2, 4]))
    name = "gpus" if half == "training" else "concurrency"
    clean = RUN[half](**({"dp": 8 * size, name: 32 * size} if half == "training" else {name: 8 * size}))
    row = scaled(clean, column, factor)
    keeps = set(TIMES["inference"]) if column == "e2e_p50_ms" else {column}
    if alone:  # nothing else was measured, save what an end to end latency is made of
        measured = set(clean) - set(TRAINED if half == "training" else SERVED)
        row.update(dict.fromkeys(measured - keeps, ""))
    findings = found(half, row)
    assert any(each.severity != "note" and column in each.columns for each in findings), findings
    assert any(each.rule == "unit" for each in findings) or alone


TRAINING_SLIPS = {
    "milliseconds": (lambda row: scaled(row, "step_time_s", 1e3), "unit", "milliseconds"),
    "minutes": (lambda row: scaled(row, "step_time_s", 1 / 60), "unit", "minutes"),
    "all GPUs' rate": (lambda row: scaled(row, "tokens_per_s_per_gpu", 32), "unit", "all GPUs"),
    "sequences, not tokens": (lambda row: scaled(row, "tokens_per_s_per_gpu", 1 / 4096), "unit", "sequences"),
    "batch in tokens": (lambda row: scaled(row, "global_batch_seqs", 4096), "unit", "in tokens"),
    "batch of a replica": (lambda row: scaled(row, "global_batch_seqs", 1 / 8), "unit", "one replica"),
    "all GPUs' FLOP/s": (lambda row: scaled(row, "model_tflops_per_gpu", 32), "unit", "all GPUs"),
    "MFU in percent": (lambda row: scaled(row, "mfu", 100), "unit", "percent"),
    "rate a little off": (lambda row: scaled(row, "tokens_per_s_per_gpu", 1.2), "rate", ""),
    "FLOP/s of another run": (lambda row: scaled(row, "model_tflops_per_gpu", 1.6), "flops", ""),
    "MFU of another peak": (lambda row: scaled(row, "mfu", 1.6), "mfu", ""),
    "MiB": (lambda row: scaled(row, "peak_mem_gib", 1024), "memory", "MiB"),
    "all GPUs' memory": (lambda row: scaled(row, "peak_mem_gib", 32), "memory", "all GPUs"),
    "GB at the brim": (lambda row: {**row, "peak_mem_gib": "81.5"}, "unit", "GB written as GiB"),
    "no room for the states": (lambda row: {**row, "peak_mem_gib": "2.5"}, "memory", "sharded"),
    "another GPU count": (lambda row: {**row, "gpus": "64"}, "layout", "dp would be 16"),
    "ragged batch": (lambda row: {**row, "micro_batch": "3"}, "layout", "whole micro-batches"),
    "batch below a micro-batch": (lambda row: {**row, "micro_batch": "64"}, "layout", "one replica"),
    "heads over ranks": (lambda row: {**row, "heads": "30"}, "layout", "off"),
    "text": (lambda row: {**row, "step_time_s": "5.2 s"}, "cell", "write 5.2"),
    "a comma": (lambda row: {**row, "tokens_per_s_per_gpu": "12,345"}, "cell", "write 12345"),
    "negative": (lambda row: {**row, "step_time_s": "-1"}, "cell", ""),
    "half a GPU": (lambda row: {**row, "gpus": "31.5"}, "cell", "whole"),
    "infinite": (lambda row: {**row, "step_time_s": "inf"}, "cell", "finite"),
    "not a number": (lambda row: {**row, "step_time_s": "NaN"}, "cell", "blank"),
    "a misspelt column": (lambda row: {**row, "step_time_ms": "3"}, "column", "step_time_s"),
    "an unknown model": (lambda row: {**row, "model": "our-own", "layers": ""}, "unread", "prediction"),
    "an unknown GPU": (lambda row: {**row, "gpu": "H900"}, "unread", "prediction"),
}
SERVING_SLIPS = {
    "TTFT in seconds": (lambda row: scaled(row, "ttft_mean_ms", 1e-3), "roofline", "is in seconds"),
    "TPOT in seconds": (lambda row: scaled(row, "tpot_mean_ms", 1e-3), "unit", "TPOT is in seconds"),
    "TPOT in microseconds": (lambda row: scaled(row, "tpot_mean_ms", 1e3), "unit", "microseconds"),
    "TPOT of an answer": (lambda row: scaled(row, "tpot_mean_ms", 256), "unit", "whole answer"),
    "e2e in seconds": (lambda row: scaled(row, "e2e_p50_ms", 1e-3), "unit", "is in seconds"),
    "an end before the beginning": (
        lambda row: {**row, "ttft_p50_ms": str(2 * float(row["e2e_p50_ms"]))},
        "order",
        "part of the whole",
    ),
    "rate per GPU": (lambda row: scaled(row, "output_tok_s", 1 / 8), "unit", "per GPU"),
    "total tokens": (lambda row: scaled(row, "output_tok_s", 9), "unit", "input tokens"),
    "requests a minute": (lambda row: scaled(row, "requests_per_s", 60), "unit", "per minute"),
    "requests as tokens": (lambda row: scaled(row, "requests_per_s", 256), "unit", "counts tokens"),
    "power of all": (lambda row: scaled(row, "watts_per_gpu", 8), "unit", "all GPUs"),
    "too much power": (lambda row: {**row, "watts_per_gpu": "1200"}, "power", "server"),
    "swapped percentiles": (
        lambda row: {**row, "tpot_p50_ms": "80", "tpot_p99_ms": "20"},
        "order",
        "swapped",
    ),
    "an impossible mean": (lambda row: {**row, "ttft_p50_ms": "9e4", "ttft_p99_ms": "9e5"}, "order", ""),
    "more in flight than clients": (lambda row: {**row, "concurrency": "10"}, "conservation", ""),
    "clients per GPU": (lambda row: {**row, "concurrency": "4"}, "unit", "counted per GPU"),
    "served more than offered": (lambda row: {**row, "request_rate_rps": "0.5"}, "conservation", "offered"),
    "fewer GPUs": (lambda row: {**row, "gpus_total": "4"}, "layout", "another deployment"),
    "weights too large": (
        lambda row: {**row, "gpus_total": "1", "tp": "1", "gpu": "L40S"},
        "memory",
        "format",
    ),
    "text": (lambda row: {**row, "tpot_mean_ms": "~12ms"}, "cell", "write 12"),
    "zero": (lambda row: {**row, "ttft_mean_ms": "0"}, "cell", "blank"),
    "a misspelt column": (lambda row: {**row, "tpot_ms": "12"}, "column", "tpot"),
    "an unknown model": (lambda row: {**row, "model": "our-own"}, "unread", "prediction"),
}


@pytest.mark.parametrize(
    ("half", "slip"),
    [
        (half, slip)
        for half, slips in (("training", TRAINING_SLIPS), ("inference", SERVING_SLIPS))
        for slip in slips
    ],
)
def test_every_planted_slip_is_caught_by_its_rule_and_explained(half, slip):
    plant, rule, said = {**(TRAINING_SLIPS if half == "training" else SERVING_SLIPS)}[slip]
    findings = found(half, plant(RUN[half]()))
    caught = [each for each in findings if each.rule == rule]
    assert any(said in each.message + each.hint for each in caught), findings


@pytest.mark.parametrize(
    ("half", "changes"),
    [
        ("training", {"step_time_s": "0.01", "tokens_per_s_per_gpu": ""}),
        ("training", {"tokens_per_s_per_gpu": "9e6", "step_time_s": ""}),
        ("training", {"mfu": "1.2"}),
        ("training", {"model_tflops_per_gpu": "1500"}),
        ("training", {"gpus": "64"}),
        ("training", {"peak_mem_gib": "300"}),
        ("inference", {"tpot_mean_ms": "0.5", "tpot_p99_ms": ""}),
        ("inference", {"ttft_mean_ms": "0.9"}),
        ("inference", {"output_tok_s": "900000"}),
        ("inference", {"ttft_p50_ms": "9e5"}),
        ("inference", {"concurrency": "2"}),
        ("inference", {"gpus_total": "4"}),
    ],
)
def test_what_cannot_be_is_called_impossible(half, changes):
    findings = found(half, {**RUN[half](), **changes})
    assert "impossible" in {each.severity for each in findings}


def test_speculative_decoding_may_beat_the_weights():
    fast = {"tpot_mean_ms": "1.2", "tpot_p99_ms": "", "tok_s_per_user": "", "e2e_p50_ms": ""}
    row = {**served(concurrency=1), **fast, "output_tok_s": "", "output_tok_s_per_gpu": "", "total_tok_s": ""}
    row.update(requests_per_s="", joules_per_token="")
    severity = {
        stated: [
            each.severity
            for each in found("inference", {**row, "spec_decode": stated})
            if each.rule == "roofline"
        ]
        for stated in ("0", "", "1")
    }
    assert severity == {"0": ["impossible"], "": ["suspect"], "1": []}


@pytest.mark.parametrize("half", RUN)
def test_a_copy_and_a_contradiction_name_the_row_they_repeat(half):
    row = RUN[half]()
    column = "step_time_s" if half == "training" else "ttft_mean_ms"
    others = [dict(row, id="copy"), scaled(dict(row, id="later"), column, 1.3), scaled(row, column, 1.1)]
    findings = [f for f in found(half, row, *others) if f.rule in ("duplicate", "contradiction")]
    assert [(each.line, each.row_id, each.rule) for each in findings] == [
        (3, "copy", "duplicate"),
        (4, "later", "contradiction"),
    ]
    assert all("line 2" in each.message for each in findings)
    assert findings[1].columns == (column,)


@pytest.mark.parametrize("half", RUN)
def test_rows_that_ran_something_else_are_no_copies(half):
    row = RUN[half]()
    assert not [f for f in found(half, row, dict(row, framework="other")) if f.rule == "duplicate"]


@pytest.mark.parametrize("half", RUN)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_cell_makes_it_raise(half, data):
    row = dict(
        TRAINED if half == "training" else SERVED, step_time_s="1", tpot_mean_ms="9", ttft_mean_ms="90"
    )
    odd = st.sampled_from(["", "0", "-1", "nan", "inf", "1e300", "1e-300", "abc", "1,0", "½", "1e12", "7"])
    for column in data.draw(st.lists(st.sampled_from(sorted(row)), max_size=4, unique=True)):
        row[column] = data.draw(odd)
    for each in found(half, row):
        assert each.message
        assert each.hint


def test_findings_come_by_line_and_the_gravest_first():
    bad = {**trained(), "mfu": "57", "gpus": "64"}
    findings = found("training", trained(seq_len=2048), bad, {**trained(seq_len=8192), "step_time_ms": "1"})
    order = ["impossible", "suspect", "note"]
    assert [(f.line, order.index(f.severity)) for f in findings] == sorted(
        (f.line, order.index(f.severity)) for f in findings
    )
    assert {f.line for f in findings} == {1, 3}  # the column's finding stands at the header


@pytest.mark.parametrize("half", RUN)
def test_few_published_rows_are_called_impossible(half):
    path = SHARED / "truth" / f"{half}.csv"
    if not path.exists():
        pytest.skip(f"needs ../shared/truth/{half}.csv")
    rows = [row for row in read_rows(path) if row["tier"] in ("A", "B")]
    impossible = {each.line for each in found(half, *rows) if each.severity == "impossible"}
    by_source = Counter(rows[line - 2]["source"] for line in impossible)
    assert len(impossible) < 0.01 * len(rows), by_source


def test_rows_that_their_source_disowned_are_called_impossible():
    path = SHARED / "truth" / "inference.csv"
    if not path.exists():
        pytest.skip("needs ../shared/truth/inference.csv")
    rows = [row for row in read_rows(path) if row["source"] == "argonne" and "LINT !" in row["notes"]]
    caught = {each.line for each in found("inference", *rows) if each.severity == "impossible"}
    assert len(caught) > 0.9 * len(rows)
