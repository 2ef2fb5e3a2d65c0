from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from twofold.catalog import load_catalog
from twofold.inference import engine, model_kind
from twofold.measure.fit_inference import (
    PRIORS,
    from_priors,
    measured_figures,
    prior_rows,
    read_problem,
    residuals,
    solve,
    with_logs,
)
from twofold.measure.truth import read_rows
from twofold.perf import load_constants

TRUTH = Path(__file__).parents[3] / "shared" / "truth" / "inference.csv"


def test_no_question_has_two_equally_narrow_answers():
    constants = from_priors(load_constants())
    catalog = load_catalog()
    families = {part.family for part in catalog.accelerators()}
    kinds = {model_kind(model) for model in catalog.models()}
    versions = (
        ("vllm", ("0.2", "0.6", "0.11", "0.15", "")),
        ("trtllm", ("0.8", "1.0", "1.2", "")),
        ("sglang", ("0.5", "")),
    )
    for name, releases in (*versions, ("other", ("1",))):
        for release in releases:
            for family in families:
                for kind in kinds:
                    for weights in ("bf16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int4", "int8"):
                        engine(constants, name, release, family=family, model=kind, weights_format=weights)


def test_every_prior_lies_in_its_range_and_names_a_unit():
    for row in prior_rows():
        assert row.low <= row.value <= row.high
        assert row.unit


def test_a_closed_benchmark_s_first_token_counts_as_a_mean():
    row = {
        "isl_dist": "uniform 0.8-1.0 of 1024",
        "mode": "aggregated",
        "ttft_p50_ms": "90",
        "tpot_p50_ms": "7",
    }
    assert measured_figures(row) == [("ttft_mean_ms", 90.0), ("tpot_mean_ms", 7.0)]
    assert measured_figures({"tpot_p50_ms": "7"}) == [("tpot_p50_ms", 7.0)]


def test_a_rate_that_was_asked_for_is_no_throughput_to_learn_from():
    assert measured_figures({"request_rate_rps": "3", "output_tok_s": "700"}) == []


def test_the_fit_recovers_constants_that_made_the_figures():
    if not TRUTH.exists():
        pytest.skip("needs ../shared/truth/inference.csv")
    constants = from_priors(load_constants())
    rows = [row for row in read_rows(TRUTH) if row["source"] == "blis" and row["tier"] in "AB"][::3]
    problem = read_problem(rows, load_catalog(), constants)
    problem = replace(problem, keys=(("serving_host_step_s", ""), ("serving_host_step_s", "engine=vllm")))
    prior = np.log([PRIORS[key][0] for key in problem.keys])
    moved = prior + np.array([0.0, 0.8])
    shift, _ = residuals(problem, with_logs(constants, problem.keys, moved))
    made = replace(problem.targets, log_measured=problem.targets.log_measured + shift)  # as if measured
    found = solve(replace(problem, targets=made), constants, 50.0 * made.weight)
    assert found[1] == pytest.approx(moved[1], abs=0.05)
    assert prior[0] < found[0] < found[1]  # the parent is pulled after its child
