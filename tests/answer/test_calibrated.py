"""A calibration changes what matches it: medians, draws, ranges and letters, and nothing else."""

from dataclasses import replace
from datetime import date
from math import exp, log
from pathlib import Path

import numpy as np
import pytest

from twofold.answer.calibrated import calibration_notes, calibration_rows, factors_in, run_scope
from twofold.answer.stacks import cluster_on, stack_on
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.rows.calibrations import (
    CalibratedFactor,
    CalibratedFigure,
    CalibratedStack,
    Calibration,
)
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.spec import Spec
from twofold.core.data import to_data
from twofold.core.estimate import Source
from twofold.perf.constants import Constants, load_constants
from twofold.planner.build import build_plan
from twofold.planner.explained import explain
from twofold.training.job import TrainingJob

FILE = Path(".twofold", "calibration.json")
SPEC = """
name: t
training:
  kind: pretrain
  model: llama-3.1-8b
  tokens: 50 Gtok
  sequence: 8192 tok
  global_batch: 512 seq
  framework: torchtitan
  on: 4 x 8 x H100-SXM5-80GB
"""


def stack_of(**changes: object) -> CalibratedStack:
    stack = CalibratedStack(
        half="training",
        accelerator="H100-SXM5-80GB",
        software="fsdp",
        era="",
        version="torchtitan 0.2",
        kinds=("dense",),
        rows=10,
        factors=(
            CalibratedFactor("compute", 0.8, 0.75, 0.85, 0.8, 1.2),
            CalibratedFactor("host", 0.9, 0.7, 1.1, 0.7, 1.3),
        ),
        log_covariance=((0.0024, 0.0002), (0.0002, 0.03)),
        figures=(CalibratedFigure("step_time_s", 10, 0.2, 0.03, 0.04, 0.3, 0.06),),
    )
    return replace(stack, **changes)  # type: ignore[arg-type]


def calibrated(*stacks: CalibratedStack) -> Constants:
    found = Calibration("rows.csv", date(2026, 11, 1), 1, "", stacks, ())
    return load_constants().with_rows(calibration_rows(found, FILE))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def spec(catalog: Catalog) -> Spec:
    from twofold.app.sources import names_of

    return parse_spec(SPEC, "spec", names_of(catalog))


@pytest.fixture(scope="module")
def plain(spec: Spec, catalog: Catalog) -> Plan:
    return build_plan(spec, catalog, load_constants(), spec_digest="").plan


@pytest.fixture(scope="module")
def matching(spec: Spec, catalog: Catalog) -> Plan:
    return build_plan(spec, catalog, calibrated(stack_of()), spec_digest="").plan


def test_a_matching_calibration_scales_the_step_and_narrows_its_range(plain: Plan, matching: Plan) -> None:
    (before,), (after,) = plain.training, matching.training
    assert 1.1 < after.step_s.value / before.step_s.value < 1.26
    widths = [log(run.step_s.high / run.step_s.low) for run in (before, after)]
    assert widths[1] < widths[0]
    assert after.step_s.source == Source.MEASURED
    assert before.step_s.source == Source.FITTED


def test_shares_of_the_peak_stay_shares_of_the_datasheets_peak(plain: Plan, matching: Plan) -> None:
    (before,), (after,) = plain.training, matching.training
    ratio = before.step_s.value / after.step_s.value
    assert after.mfu_fraction.value == pytest.approx(before.mfu_fraction.value * ratio, rel=1e-6)


def test_notes_and_derivations_name_the_file_its_day_and_its_rows(matching: Plan) -> None:
    assert any("2026-11-01, 10 rows of rows.csv" in note for note in matching.warnings)
    told = "\n".join(explain(to_data(matching), f"training.{matching.training[0].name}.step_s"))
    assert ".twofold/calibration.json of 2026-11-01, 10 rows of rows.csv" in told


@pytest.mark.parametrize(
    "changes",
    [{"accelerator": "H200-SXM5-141GB"}, {"software": "megatron"}, {"half": "inference", "software": "vllm"}],
)
def test_anothers_calibration_changes_no_figure_and_says_so(
    changes: dict[str, object], plain: Plan, spec: Spec, catalog: Catalog
) -> None:
    plan = build_plan(spec, catalog, calibrated(stack_of(**changes)), spec_digest="").plan
    assert plan.training[0].step_s == plain.training[0].step_s
    assert plan.training[0].cost_usd == plain.training[0].cost_usd
    assert [note for note in plan.warnings if "is not used" in note]


def test_a_kind_of_model_that_no_row_measured_keeps_the_uncalibrated_range(
    plain: Plan, spec: Spec, catalog: Catalog
) -> None:
    plan = build_plan(spec, catalog, calibrated(stack_of(kinds=("moe",))), spec_digest="").plan
    (before,), (after,) = plain.training, plan.training
    assert after.step_s.value > 1.1 * before.step_s.value
    widths = [log(run.step_s.high / run.step_s.low) for run in (before, after)]
    assert widths[1] == pytest.approx(widths[0], rel=0.15)


def test_an_era_holds_for_its_own_releases_and_no_era_for_all() -> None:
    served = stack_of(half="inference", software="vllm", figures=())
    with_era, without = calibrated(replace(served, era="0.12+")), calibrated(served)
    name = "H100-SXM5-80GB"
    new = {"half": "inference", "accelerator": name, "software": "vllm", "era": "0.12+"}
    old = {**new, "era": "0.4+"}
    assert factors_in(with_era, new)
    assert not factors_in(with_era, old)
    assert factors_in(without, old)
    both = calibrated(served, replace(served, era="0.12+", rows=3))
    assert factors_in(both, new)["compute"].rows == 3


def test_without_a_calibration_there_is_nothing_to_note(catalog: Catalog) -> None:
    job = TrainingJob(catalog.model("llama-3.1-8b"), "pretrain", 4096, 64, "bf16", "torchtitan")
    scopes = {"run": run_scope("H100-SXM5-80GB", job)}
    assert calibration_notes(load_constants(), scopes) == ()
    assert factors_in(load_constants(), scopes["run"]) == {}


def test_the_range_of_a_metric_is_the_wider_of_its_figures() -> None:
    figures = tuple(
        CalibratedFigure(name, 5, 0.1, 0.1, 0.1, 0.3, width)
        for name, width in (("tpot_mean_ms", 0.1), ("tpot_p50_ms", 0.2))
    )
    rows = calibrated(stack_of(half="inference", software="vllm", figures=figures)).by_name
    (spread,) = [row for _, row in rows["calibration_spread_ratio"]]
    assert spread.high == pytest.approx(exp(0.2))
    assert np.isclose(spread.low * spread.high, 1.0)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_machines_and_software_are_calibrated_together_in_every_precision(
    catalog: Catalog, precision: str
) -> None:
    part, plain, own = catalog.accelerator("H100-SXM5-80GB"), load_constants(), calibrated(stack_of())
    bare = cluster_on(part, 8, 50e9, "infiniband", plain, 8)
    machines, stack = stack_on(bare, "torchtitan", precision, own)
    usual, software = stack_on(bare, "torchtitan", precision, plain)
    assert usual is bare
    assert stack.host_step_s == pytest.approx(software.host_step_s / 0.9)
    reached = (each.device.attention_efficiency_fraction for each in (machines, bare))
    assert next(reached) == pytest.approx(next(reached) * 0.8)
