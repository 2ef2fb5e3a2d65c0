"""Laws of the training fit: how many constants it may have, what is hidden counts nothing, who told what."""

from dataclasses import replace

import numpy as np
import pytest

from fits import training as fit_training
from fits.training_priors import Prior, read_priors, ridge_of
from fits.training_truth import ROWS_PER_SOURCE, thin
from twofold.catalog.catalog import load_catalog
from twofold.measure.predict_training import predict_training
from twofold.perf.constants import load_constants

MOST_PER_FRAMEWORK = 6  # constants of step time beyond those that all software shares

ROW = {
    "model": "llama3-8b",
    "gpu": "H100-80GB",
    "gpus": "64",
    "gpus_per_node": "8",
    "framework": "NeMo 25.02",
    "precision": "bf16",
    "tp": "4",
    "pp": "1",
    "cp": "1",
    "dp": "16",
    "zero_stage": "1",
    "seq_len": "8192",
    "micro_batch": "1",
    "global_batch_seqs": "128",
    "recompute": "none",
    "tier": "A",
}

RUN = ROW | {"model": "llama3-70b", "framework": "NeMo 25", "dp": "4", "pp": "4", "vpp": "5"}


def made_truth():  # type: ignore[no-untyped-def]
    """Two sources of four rows, measured at two seconds."""
    rows = [
        ROW | {"source": source, "global_batch_seqs": str(batch), "step_time_s": "2.0"}
        for source in ("one", "two")
        for batch in (64, 128, 256, 512)
    ]
    start = fit_training.constants_of(read_priors(), load_constants())
    return fit_training.read_truth(rows, "step_time_s", load_catalog(), start)


def test_no_framework_has_more_than_six_constants_of_its_own() -> None:
    counts: dict[str, int] = {}
    for prior in read_priors():
        software = dict(prior.pairs).get("software")
        if prior.fitted == "yes" and software:
            counts[software] = counts.get(software, 0) + 1
    assert max(counts.values()) <= MOST_PER_FRAMEWORK, counts


def test_every_prior_lies_inside_its_bounds() -> None:
    assert [p.name for p in read_priors() if not p.low <= p.value <= p.high] == []


def test_no_constant_makes_an_efficiency_above_one() -> None:
    slower = {"training_kernel_factor", "training_attention_factor", "training_wide_factor"}
    for prior in read_priors():
        if prior.name == "fabric_efficiency_fraction" or prior.name.endswith("_exposed_fraction"):
            assert prior.high <= 1, prior
        if prior.name in slower and prior.name != "training_attention_factor":
            assert prior.low >= 1, prior


def test_what_is_hidden_counts_nothing_and_sources_weigh_alike() -> None:
    truth = made_truth()
    weight = fit_training.weights(truth)
    assert weight[truth.source == "one"].sum() == pytest.approx(weight[truth.source == "two"].sum())
    assert fit_training.weights(truth, "source=one")[truth.source == "one"].sum() == 0
    fold = str(truth.fold[0])
    assert fit_training.weights(truth, fold)[truth.fold == fold].sum() == 0


def test_a_fit_without_a_source_does_not_depend_on_its_measurements() -> None:
    truth, priors = made_truth(), read_priors()
    doubled = np.where(truth.source == "one", truth.log_measured + np.log(2), truth.log_measured)
    both = (truth, replace(truth, log_measured=doubled))
    fits = [fit_training.fit_kind(priors, "yes", t, "source=one") for t in both]
    assert fits[0] == fits[1]
    seen = [fit_training.fit_kind(priors, "yes", t) for t in both]
    assert seen[0] != seen[1]


def test_a_row_is_told_by_what_moves_it_alone() -> None:
    told = fit_training.told_by(read_priors(), {"yes": made_truth()})
    assert told["training_kernel_factor", "family=hopper"].sources == ("one", "two")
    assert told["training_kernel_factor", "family=ampere"].rows == 0
    assert told["training_ep_exposed_fraction", ""].rows == 0  # dense rows
    assert told["training_handoff_s", ""].rows == 0  # no pipeline


def test_values_have_four_digits() -> None:
    fitted = fit_training.fit_kind(read_priors(), "yes", made_truth())
    assert all(prior.value == float(f"{prior.value:.4g}") for prior in fitted)


def test_a_constant_hangs_on_the_one_with_less_scope() -> None:
    def prior(scope: str, value: float) -> Prior:
        return Prior("x", scope, value, value / 4, value * 4, "ratio", "yes", "")

    ridge = ridge_of([prior("", 1.0), prior("software=a", 2.0), prior("family=h;software=a", 2.0)], [0, 1, 2])
    assert ridge.matrix[1, 0] == -ridge.matrix[1, 1] and ridge.matrix[2, 1] == -ridge.matrix[2, 2]
    moved = ridge.start + 0.3  # all together: only the root is away from where it wants to be
    assert np.abs(ridge.matrix @ moved - ridge.target)[1:] == pytest.approx(0.0, abs=1e-12)


def test_the_fit_recovers_constants_that_made_the_rows() -> None:
    """Rows made by the model itself with a slower host must lead the fit back to that host."""
    catalog, constants = load_catalog(), load_constants()
    priors = fit_training.read_priors()
    key = ("training_kernel_factor", "family=hopper")
    slower = next(row for row in constants.rows if (row.name, row.scope) == key)
    made = constants.with_rows([replace(slower, value=1.25, high=max(slower.high, 1.25))])
    assert len(made.rows) == len(constants.rows), "a constant of another name would change nothing"
    shapes = [("1", "4", "4", "4"), ("4", "16", "1", "1"), ("8", "8", "1", "1"), ("2", "8", "4", "1")]
    rows = []
    for batch in ("128", "256", "512"):
        for tp, dp, pp, vpp in shapes:
            rows.append(
                RUN
                | {
                    "tp": tp,
                    "dp": dp,
                    "pp": pp,
                    "vpp": vpp,
                    "global_batch_seqs": batch,
                    "source": "made",
                    "tier": "A",
                }
            )
    answers = predict_training(rows, catalog, made)
    measured = [
        row | {"step_time_s": answer["pred_step_time_s"]} for row, answer in zip(rows, answers, strict=True)
    ]
    start = [
        p
        if (p.name, p.scope) not in _values(constants)
        else fit_training.replace(p, value=_values(constants)[p.name, p.scope])
        for p in priors
    ]
    data = fit_training.read_truth(measured, "step_time_s", catalog, constants)
    fitted = fit_training.fit_kind(start, "yes", data)
    before, after = fit_training.errors(start, data), fit_training.errors(fitted, data)
    assert np.abs(before).mean() > 0.05 and np.abs(after).mean() < 0.02
    assert all(p.low <= p.value <= p.high for p in fitted if p.fitted == "yes")


def _values(constants: object) -> dict[tuple[str, str], float]:
    return {(row.name, row.scope): row.value for row in constants.rows}  # type: ignore[attr-defined]


def test_thinning_keeps_small_sources_whole() -> None:
    rows = [{"source": "large"}] * 1000 + [{"source": "small"}] * 7
    kept = thin(rows, ROWS_PER_SOURCE)
    assert len(kept) == ROWS_PER_SOURCE + 7
