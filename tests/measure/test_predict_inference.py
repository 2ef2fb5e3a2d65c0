import csv
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.measure.predict_inference import predict_inference
from twofold.measure.truth import METRICS, read_rows
from twofold.perf.constants import load_constants

SHARED = Path(__file__).parents[3] / "shared"
ROW = {
    "model": "meta-llama/Llama-3.1-70B-Instruct",
    "gpu": "h200",
    "gpus_total": "4",
    "framework": "vllm",
    "framework_version": "0.15.1",
    "precision_weights": "fp8",
    "tp": "4",
    "pp": "1",
    "ep": "1",
    "dp": "1",
    "mode": "aggregated",
    "isl_mean": "1024",
    "osl_mean": "256",
    "isl_dist": "fixed",
    "concurrency": "32",
}


def predict(*rows):
    return predict_inference(list(rows), load_catalog(), load_constants())


@pytest.fixture(scope="module")
def answered():
    """Every open row with its prediction."""
    return predict(*truth())


def truth():
    path = SHARED / "truth" / "inference.csv"
    if not path.exists():
        pytest.skip("needs ../shared/truth/inference.csv")
    return read_rows(path)


def test_a_stated_row_gets_every_metric_with_a_range_around_it():
    (answer,) = predict(ROW)
    assert answer["pred_basis"] == "stated"
    assert answer["pred_assumptions"] == answer["pred_error"] == ""
    for metric in METRICS["inference"]:
        low, middle, high = (float(answer[f"pred_{metric}{end}"]) for end in ("_low", "", "_high"))
        assert 0 < low < middle < high
    assert answer["model"] == ROW["model"]


def test_tokens_per_second_and_answers_range_as_the_tokens_that_they_are_made_of():
    (answer,) = predict(ROW | {"osl_mean": "8192"})  # decoding is nearly all of an answer
    factor = {
        (metric, end): float(answer[f"pred_{metric}_{end}"]) / float(answer[f"pred_{metric}"])
        for metric in ("tpot_mean_ms", "e2e_p50_ms", "output_tok_s")
        for end in ("low", "high", "low_95", "high_95")
    }
    for low, high in (("low", "high"), ("low_95", "high_95")):
        assert factor["e2e_p50_ms", high] == pytest.approx(factor["tpot_mean_ms", high], rel=0.02)
        assert factor["output_tok_s", low] == pytest.approx(1 / factor["e2e_p50_ms", high], rel=1e-4)
        assert factor["output_tok_s", high] == pytest.approx(1 / factor["e2e_p50_ms", low], rel=1e-4)


def test_an_answer_of_one_token_ranges_as_its_first_token():
    (answer,) = predict(ROW | {"osl_mean": "1"})
    for end in ("high", "high_95"):
        first, whole = (
            float(answer[f"pred_{metric}_{end}"]) / float(answer[f"pred_{metric}"])
            for metric in ("ttft_mean_ms", "e2e_p50_ms")
        )
        assert whole == pytest.approx(first, rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tp": "", "pp": "", "ep": "", "dp": ""}, "layout"),
        ({"isl_mean": "", "isl_dist": "dataset lm-arena-chat"}, "data set"),
        ({"osl_mean": ""}, "output length"),
        ({"concurrency": ""}, "load"),
        ({"precision_weights": ""}, "weights format bf16"),
        ({"framework": ""}, "engine"),
        ({"gpus_total": ""}, "accelerator count"),
        ({"model": "mistralai/Mixtral-8x7B-v0.1", "ep": ""}, "expert parallelism"),
    ],
)
def test_what_a_row_leaves_open_is_assumed_and_named(changes, said):
    (answer,) = predict({**ROW, **changes})
    assert answer["pred_basis"] == "assumed"
    assert said in answer["pred_assumptions"]
    assert float(answer["pred_tpot_mean_ms"]) > 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model": "no-such-model"}, "E-name"),
        ({"gpu": "no-such-part"}, "E-name"),
        ({"model": ""}, "E-input"),
        ({"precision_weights": "fp3"}, "E-name"),
        ({"model": "deepseek-ai/DeepSeek-R1-0528", "gpus_total": "1", "tp": "1"}, "E-memory"),
    ],
)
def test_a_row_that_cannot_be_answered_says_why_and_the_rest_goes_on(changes, code):
    refused, answered = predict({**ROW, **changes}, ROW)
    assert refused["pred_error"].startswith(code)
    assert refused["pred_tpot_mean_ms"] == refused["pred_basis"] == ""
    assert answered["pred_error"] == ""


def test_measured_columns_notes_and_sources_change_nothing():
    rows = random.Random(3).sample(truth(), 300)
    secret = {"ttft_p50_ms", "tpot_p50_ms", "output_tok_s", "watts_per_gpu", "tok_s_per_user"}
    secret |= {
        "id",
        "source",
        "source_ref",
        "tier",
        "notes",
        "split",
        "ttft_mean_ms",
        "tpot_mean_ms",
        "e2e_p50_ms",
    }
    blanked = [{key: "" if key in secret else value for key, value in row.items()} for row in rows]
    shuffled = [dict(row, **{key: rows[-1 - n][key] for key in secret}) for n, row in enumerate(rows)]
    wanted = [{k: v for k, v in row.items() if k.startswith("pred_")} for row in predict(*rows)]
    for others in (blanked, shuffled):
        assert [{k: v for k, v in row.items() if k.startswith("pred_")} for row in predict(*others)] == wanted


def test_order_and_company_of_rows_change_nothing():
    rows = truth()[::60]
    together, reversed_ = predict(*rows), predict(*rows[::-1])
    for row, other in zip(together, reversed_[::-1], strict=True):
        for metric in METRICS["inference"]:
            if row[f"pred_{metric}"]:
                assert float(row[f"pred_{metric}"]) == pytest.approx(float(other[f"pred_{metric}"]), rel=1e-5)


def test_every_open_row_is_answered_or_refused_and_nearly_all_stated_ones_are_answered(answered):
    assert len(answered) == len(truth())
    stated = []
    for answer in answered:
        assert answer["pred_error"] or float(answer["pred_tpot_mean_ms"]) > 0
        full = all(answer[key] for key in ("model", "gpu", "tp", "isl_mean", "osl_mean"))
        if full and (answer["concurrency"] or answer["request_rate_rps"] or answer["max_batch"]):
            stated.append(not answer["pred_error"])
    assert sum(stated) / len(stated) >= 0.99


def test_errors_on_open_rows_stay_where_they_were_fitted(answered):
    rows = [row for row in answered if row["tier"] in "AB" and row["source"] == "inferencex"]
    errors = [
        abs(float(answer["pred_tpot_mean_ms"]) / float(answer["tpot_p50_ms"]) - 1)
        for answer in rows
        if answer["tpot_p50_ms"] and answer["pred_tpot_mean_ms"]
    ]
    assert sorted(errors)[len(errors) // 2] < 0.16


def test_the_scoring_tools_accept_the_columns(tmp_path):
    blind, score = SHARED / "tools" / "blind.py", SHARED / "tools" / "score.py"
    if not blind.exists():
        pytest.skip("needs ../shared/tools")
    rows = truth()[::40]
    source, hidden, out, joined = (tmp_path / name for name in ("t.csv", "b.csv", "p.csv", "j.csv"))
    write(source, rows)
    run(blind, source, hidden)
    write(out, predict(*read_rows(hidden)))
    run(blind, "--join", source, out, joined)
    assert "pred_tpot_p50_ms" in run(score, "inference", joined)


def write(path, rows):
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)


def run(*command):
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    return done.stdout


def test_a_rate_that_was_valid_kept_its_slowest_answers_to_the_limit():
    told = {"mode": "online", "isl_dist": "mlperf dataset llama3.1-8b", "osl_mean": "129", "concurrency": ""}
    (answer,) = predict(ROW | told | {"request_rate_rps": "20"})  # more than our steps sustain
    at_limit_ms = 129 * 100 + 3.0 * float(answer["pred_ttft_mean_ms"])  # its rules ask for 0.1 s a token
    assert float(answer["pred_e2e_p50_ms"]) < float(answer["pred_e2e_p99_ms"]) < at_limit_ms
