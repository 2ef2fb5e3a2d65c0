"""Training: layouts, memory and step time of candidates, the search over them, the run around a step."""

from twofold.training.job import TrainingJob, Workload, stack_workloads, workload
from twofold.training.layouts import Layouts, Limits, Recompute, enumerate_layouts, layouts_of
from twofold.training.measured import (
    MEASURED_REACH,
    Basis,
    Bounded,
    MeasuredSteps,
    figure_at,
    measured_steps,
    step_at,
)
from twofold.training.memory import Memory, memory, workload_memory
from twofold.training.parameters import model_flops_per_token, trained_parameters
from twofold.training.range_scope import range_scope
from twofold.training.run import (
    CapacityRun,
    Reliability,
    RunPlan,
    RunWork,
    StoragePlan,
    capacity_run,
    checkpoint_bytes,
    checkpoint_interval_s,
    run_of_steps,
    run_plan,
    run_work,
)
from twofold.training.scaling import (
    ScalingRow,
    diminishing_count,
    straggler_loss_fraction,
    strong_scaling,
    virtualised,
    weak_scaling,
)
from twofold.training.search import (
    Candidate,
    NearestMiss,
    Priced,
    SearchResult,
    candidate,
    price_layouts,
    search,
)
from twofold.training.sizes import Machine, SizeRow, search_sizes
from twofold.training.stack import Stack, load_stack, software_family
from twofold.training.stack_factors import scale_stack
from twofold.training.step import StepTime, model_flops_utilisation, step_time, workload_step_time

__all__ = [
    "MEASURED_REACH",
    "Basis",
    "Bounded",
    "Candidate",
    "CapacityRun",
    "Layouts",
    "Limits",
    "Machine",
    "MeasuredSteps",
    "Memory",
    "NearestMiss",
    "Priced",
    "Recompute",
    "Reliability",
    "RunPlan",
    "RunWork",
    "ScalingRow",
    "SearchResult",
    "SizeRow",
    "Stack",
    "StepTime",
    "StoragePlan",
    "TrainingJob",
    "Workload",
    "candidate",
    "capacity_run",
    "checkpoint_bytes",
    "checkpoint_interval_s",
    "diminishing_count",
    "enumerate_layouts",
    "figure_at",
    "layouts_of",
    "load_stack",
    "measured_steps",
    "memory",
    "model_flops_per_token",
    "model_flops_utilisation",
    "price_layouts",
    "range_scope",
    "run_of_steps",
    "run_plan",
    "run_work",
    "scale_stack",
    "search",
    "search_sizes",
    "software_family",
    "stack_workloads",
    "step_at",
    "step_time",
    "straggler_loss_fraction",
    "strong_scaling",
    "trained_parameters",
    "virtualised",
    "weak_scaling",
    "workload",
    "workload_memory",
    "workload_step_time",
]
