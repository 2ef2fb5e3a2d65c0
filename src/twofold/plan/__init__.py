"""One spec becomes one plan: both halves, with ranges, derivations and reasons."""

from twofold.plan.build import PlanOptions, Rehearse, build_plan
from twofold.plan.calibrated import (
    calibration_notes,
    calibration_rows,
    is_calibrated,
    run_scope,
    service_scope,
)
from twofold.plan.compare import Comparison, Crossed, compare_halves
from twofold.plan.context import model_of, token_model
from twofold.plan.diff import Change, diff
from twofold.plan.explain import explain
from twofold.plan.given import Given, Variation, given
from twofold.plan.ladders import Ladders, compare_along
from twofold.plan.measured_letters import is_measured, marked_measured
from twofold.plan.money_detail import with_money_detail
from twofold.plan.paths import unit_of
from twofold.plan.quick_run import QuickRun
from twofold.plan.quick_serve import ServingQuestion, read_rate_bytes_per_s
from twofold.plan.quick_single import (
    CollectiveEstimate,
    ComputeEstimate,
    RooflineEstimate,
    estimate_collective,
    estimate_compute,
    estimate_roofline,
)
from twofold.plan.quick_train import TrainingQuestion
from twofold.plan.reasons import METRICS, metric_text, reason_text
from twofold.plan.rehearse_beliefs import belief_factors
from twofold.plan.rehearse_flat import compared, flat_figures
from twofold.plan.rehearse_gate import live_gate_settings, policies_on
from twofold.plan.rehearse_measured import measured_note, measured_services
from twofold.plan.rehearse_pools import RehearsalTables
from twofold.plan.rehearse_run import Asked, PoolTask, pool_tasks
from twofold.plan.rehearse_staged import Staged, rehearsed, staged_training
from twofold.plan.rehearse_sweep import swept
from twofold.plan.rehearse_workers import WorkEngine, Workers
from twofold.plan.rungs import Ladder, Rung
from twofold.plan.serve_answer import ServingEstimate, ServingTables, estimate_serving
from twofold.plan.serving_choice import NEWEST_RELEASES
from twofold.plan.serving_plan import SHARED_POOL
from twofold.plan.train_answer import TrainingEstimate, estimate_training

__all__ = [
    "METRICS",
    "NEWEST_RELEASES",
    "SHARED_POOL",
    "Asked",
    "Change",
    "CollectiveEstimate",
    "Comparison",
    "ComputeEstimate",
    "Crossed",
    "Given",
    "Ladder",
    "Ladders",
    "PlanOptions",
    "PoolTask",
    "QuickRun",
    "RehearsalTables",
    "Rehearse",
    "RooflineEstimate",
    "Rung",
    "ServingEstimate",
    "ServingQuestion",
    "ServingTables",
    "Staged",
    "TrainingEstimate",
    "TrainingQuestion",
    "Variation",
    "WorkEngine",
    "Workers",
    "belief_factors",
    "build_plan",
    "calibration_notes",
    "calibration_rows",
    "compare_along",
    "compare_halves",
    "compared",
    "diff",
    "estimate_collective",
    "estimate_compute",
    "estimate_roofline",
    "estimate_serving",
    "estimate_training",
    "explain",
    "flat_figures",
    "given",
    "is_calibrated",
    "is_measured",
    "live_gate_settings",
    "marked_measured",
    "measured_note",
    "measured_services",
    "metric_text",
    "model_of",
    "policies_on",
    "pool_tasks",
    "read_rate_bytes_per_s",
    "reason_text",
    "rehearsed",
    "run_scope",
    "service_scope",
    "staged_training",
    "swept",
    "token_model",
    "unit_of",
    "with_money_detail",
]
