from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fits.inference import free_priors, from_priors, hidden_weights, prior_rows, solve
from fits.serving_problem import (
    ROWS_PER_SOURCE,
    STEP,
    Problem,
    log_errors,
    log_errors_with_slopes,
    measured_figures,
    read_problem,
    thin,
)
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Accelerator, Model
from twofold.inference.replica import engine
from twofold.measure.truth import read_rows
from twofold.perf.constants import load_constants
from twofold.perf.shape import model_kind

TRUTH = Path(__file__).parents[3] / "shared" / "truth" / "inference.csv"


@cache
def small_problem() -> Problem:
    if not TRUTH.exists():
        pytest.skip("needs ../shared/truth/inference.csv")
    constants = from_priors(load_constants())
    rows = [row for row in read_rows(TRUTH) if row["source"] == "blis" and row["tier"] in "AB"][::3]
    return read_problem(rows, load_catalog(), constants, [prior.key for prior in free_priors()])


def test_no_question_has_two_equally_narrow_answers():
    constants = from_priors(load_constants())
    catalog = load_catalog()
    families = {part.family for part in catalog.rows(Accelerator)}
    kinds = {model_kind(model) for model in catalog.rows(Model)}
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
        assert row.unit != "fraction" or row.high <= 1.0


def test_what_is_assumed_of_one_part_s_kernels_is_not_certain():  # INV-19
    name, scope = "serving_unshared_kv_fraction", "era=2024;family=cdna3"
    told = load_constants().estimate(name, era="2024", family="cdna3")
    (prior,) = (each for each in prior_rows() if (each.name, each.scope) == (name, scope))
    assert told.low < told.value
    assert (told.low, told.high) == (prior.low, prior.high)


def test_a_closed_benchmark_s_first_token_counts_as_a_mean():
    row = {
        "isl_dist": "uniform 0.8-1.0 of 1024",
        "mode": "aggregated",
        "ttft_p50_ms": "90",
        "tpot_p50_ms": "7",
    }
    assert measured_figures("inference", row) == [("ttft_mean_ms", 90.0), ("tpot_mean_ms", 7.0)]
    assert measured_figures("inference", {"tpot_p50_ms": "7"}) == [("tpot_p50_ms", 7.0)]


def test_a_rate_that_was_asked_for_is_no_throughput_to_learn_from():
    assert measured_figures("inference", {"request_rate_rps": "3", "output_tok_s": "700"}) == []


def test_a_moved_field_gives_the_same_slope_as_a_moved_constant():
    problem = small_problem()
    logs = np.log([prior.value for prior in free_priors()])
    error, slope = log_errors_with_slopes(problem, logs[None, :])
    for name in ("serving_host_step_s", "serving_launch_factor"):
        index = problem.keys.index((name, "engine=vllm" if (name, "engine=vllm") in problem.keys else ""))
        moved = logs.copy()
        moved[index] += STEP
        rise = (log_errors(problem, moved) - log_errors(problem, logs)) / STEP
        assert slope[0, :, index] == pytest.approx(rise, abs=1e-9)
        assert np.any(rise > 0)
    assert error[0] == pytest.approx(log_errors(problem, logs))


def test_the_fit_recovers_constants_that_made_the_figures():
    problem = small_problem()
    prior = np.log([each.value for each in free_priors()])
    index = problem.keys.index(("serving_host_layer_s", "engine=vllm"))
    moved = prior.copy()
    moved[index] += 0.8
    made = replace(problem.targets, log_measured=problem.targets.log_measured + log_errors(problem, moved))
    found = solve(replace(problem, targets=made), 1e4 * made.weight[None, :])[0]
    assert log_errors(replace(problem, targets=made), found) == pytest.approx(0.0, abs=0.02)


def test_a_row_without_weight_moves_no_constant():
    problem = small_problem()
    weight = problem.targets.weight.copy()
    weight[::2] = 0.0
    spoilt = problem.targets.log_measured.copy()
    spoilt[::2] += 1.0
    apart = replace(problem, targets=replace(problem.targets, log_measured=spoilt))
    assert solve(problem, weight[None, :]) == pytest.approx(solve(apart, weight[None, :]))


def test_no_factor_of_a_fit_lets_long_prefill_beat_its_kernels():
    bounded = {prior.name for prior in free_priors() if prior.least}
    assert "serving_prefill_factor" in bounded
    problem = small_problem()
    faster = replace(
        problem, targets=replace(problem.targets, log_measured=problem.targets.log_measured - 1.0)
    )
    logs = solve(faster, 10.0 * problem.targets.weight[None, :])[0]
    for log, prior in zip(logs, free_priors(), strict=True):
        assert np.exp(log) >= prior.least * (1 - 1e-9)


def test_everything_that_a_fit_hides_is_hidden_once():
    problem = small_problem()
    hiding = hidden_weights(problem)
    assert set(hiding) == {"source=blis", "fold=0", "fold=1", "fold=2", "fold=3"}
    folds = [hiding[name] == 0 for name in hiding if name.startswith("fold")]
    assert np.all(np.sum(folds, axis=0) == 1)


def test_a_thinned_source_keeps_its_ends():
    rows = [{"source": "a", "id": str(place)} for place in range(1000)]
    kept = [int(row["id"]) for row in thin(rows, ROWS_PER_SOURCE)]
    assert (kept[0], kept[-1]) == (0, 999)
    assert len(kept) == ROWS_PER_SOURCE


def test_an_engine_family_has_at_most_six_constants_of_its_own():
    own = Counter(
        dict(part.split("=") for part in prior.scope.split(";"))["engine"]
        for prior in free_priors()
        if "engine=" in prior.scope
    )
    assert own
    assert max(own.values()) <= 6, own
