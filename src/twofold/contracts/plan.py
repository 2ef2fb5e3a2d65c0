"""The plan as data, schema `twofold/plan/1`: what `plan --json` prints; `explain` and `diff` read it.

Nothing here computes. Every uncertain number is an `Estimate`; lengths of time are seconds, sizes bytes,
money USD. Arrays stay arrays with one run or service; a missing half is an empty array.
"""

import json
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from twofold.core import Estimate, InputError

SCHEMA = "twofold/plan/1"


@dataclass(frozen=True, slots=True)
class PriceUsed:
    """The catalogue row a cost was made with; `usd_per_accelerator_h` spreads over the offers seen."""

    provider: str
    instance: str
    region: str
    term: str
    date: str
    usd_per_accelerator_h: Estimate


@dataclass(frozen=True, slots=True)
class Machine:
    """Equal nodes of one kind. `price` None: the plan counts accelerator-hours and says `no price`."""

    accelerator: str
    node: str
    node_count: int
    accelerators_per_node: int
    accelerator_count: int
    fabric: str
    price: PriceUsed | None


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a total; the `share_fraction`s of a total's parts add up to 1."""

    name: str
    value: Estimate
    share_fraction: float


@dataclass(frozen=True, slots=True)
class Bound:
    """What a plan is bound by: `gain_fraction` of its time or cost goes when `resource` improves by 20 %."""

    resource: str  # compute, memory bandwidth, memory capacity, link, fabric, host …
    gain_fraction: float


@dataclass(frozen=True, slots=True)
class Loser:
    """Something else that was tried, and the constraint or the figure it lost by."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Count:
    """How many candidates fell to one reason."""

    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """One point of the front of time, cost and size."""

    what: str
    accelerator_count: int
    wall_s: float
    cost_usd: float | None
    feasible: bool


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """How a step scales: efficiency is throughput per accelerator over that of the smallest size."""

    accelerator_count: int
    step_s: Estimate
    efficiency_fraction: Estimate


@dataclass(frozen=True, slots=True)
class Checkpoints:
    size_bytes: float
    interval_s: Estimate
    write_s: float
    write_bytes_per_s: float
    storage_bytes_per_s: float  # what the file system must sustain
    storage_term: str  # checkpoint write, restart read, or data ingest: which one asks for it


@dataclass(frozen=True, slots=True)
class Run:
    """From the first to the last step: base × (1 + headroom) = `accelerator_h`."""

    steps: float
    flops: float
    compute_s: Estimate
    checkpoint_s: Estimate
    failure_s: Estimate
    wall_s: Estimate
    headroom: tuple[Part, ...]  # fractions of the base, by cause
    total_s: Estimate
    accelerator_h: Estimate
    interruptions: Estimate
    goodput_fraction: Estimate
    checkpoints: Checkpoints
    data_bytes_per_s: float
    energy_j: Estimate
    carbon_gco2: Estimate | None


@dataclass(frozen=True, slots=True)
class Layout:
    tp: int
    cp: int
    ep: int
    pp: int
    vpp: int
    dp: int
    zero_stage: int
    micro_batch: int
    recompute: str
    sequence_parallel: bool
    text: str


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    name: str
    model: str
    parameters: int
    kind: str
    precision: str
    framework: str
    machine: Machine
    layout: Layout
    step_s: Estimate
    step_parts: tuple[Part, ...]
    communication_exposed_fraction: float
    mfu_fraction: Estimate
    peak_ratio: Estimate  # predicted rate over the datasheet's peak
    memory_bytes: Estimate
    memory_parts: tuple[Part, ...]
    memory_by_format: tuple[Part, ...]
    memory_capacity_bytes: float
    run: Run
    release_after_s: float | None
    deadline_s: float | None
    cost_usd: Estimate | None
    bounds: tuple[Bound, ...]
    tried: int
    rejected: tuple[Count, ...]
    losers: tuple[Loser, ...]
    front: tuple[FrontPoint, ...]
    scaling: tuple[ScalingPoint, ...]
    flip_fraction: float
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slo:
    """One goal of a class and what is predicted for it at peak: `met` is decided on `predicted.value`."""

    metric: str  # ttft_p95 tpot_p95 e2e_p95 finish_within …
    limit_s: float
    predicted: Estimate
    met: bool


@dataclass(frozen=True, slots=True)
class ClassPlan:
    """One latency class. Percentiles are at the peak rate on the replicas given to it."""

    name: str
    rate_per_s: float
    peak_per_s: float
    input_tokens: float
    output_tokens: float
    percentiles: dict[str, Estimate]  # ttft_p50 ttft_p95 ttft_p99 tpot_p50 … seconds
    slos: tuple[Slo, ...]
    replica_count: int
    rate_per_replica_per_s: Estimate
    holds_until_per_s: Estimate
    knee_per_s: float
    usd_per_1k_output_tokens: Estimate | None
    latency_budget: tuple[Part, ...]  # edge, gateway, queue, prefill, decode


@dataclass(frozen=True, slots=True)
class Replica:
    """One serving replica: its devices, layout and formats."""

    accelerator_count: int
    tp: int
    pp: int
    ep: int
    dp: int
    weights_format: str
    kv_format: str
    engine: str
    max_batch: int
    chunk_tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class ServicePlan:
    name: str
    model: str
    parameters: int
    quality_note: str
    machine: Machine
    replica: Replica
    classes: tuple[ClassPlan, ...]
    replica_count: int  # spares included
    spare_count: int
    spare_reason: str
    zones: int
    regions: tuple[str, ...]
    memory_bytes: Estimate  # per device
    memory_parts: tuple[Part, ...]
    memory_capacity_bytes: float
    kv_bytes_per_token: float
    kv_utilisation_fraction: float
    batch_limit: str  # bandwidth or capacity: which of the two limits the batch
    cold_start_s: Estimate
    warm_pool_count: int
    output_tokens_per_s_per_accelerator: Estimate
    output_tokens_per_j: Estimate
    peak_ratio: Estimate
    communication_exposed_fraction: float
    pooling_loss_fraction: float  # extra replicas against one merged pool
    cost_usd_per_year: Estimate | None
    energy_j_per_year: Estimate
    carbon_gco2_per_year: Estimate | None
    bounds: tuple[Bound, ...]
    tried: int
    rejected: tuple[Count, ...]
    losers: tuple[Loser, ...]
    flip_fraction: float
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CrossCell:
    """One half on one fleet: what it costs and how it fares there."""

    half: str  # training or serving
    name: str
    fleet: str  # training or serving
    text: str
    feasible: bool
    wall_s: Estimate | None
    cost_usd: Estimate | None  # a run, or a year of serving
    latency_s: Estimate | None  # TPOT p95 of the tightest class


@dataclass(frozen=True, slots=True)
class Factor:
    """One named unknown: its 80 % factor, and how far it alone moves a headline figure."""

    name: str
    low_factor: float
    high_factor: float
    step_swing_fraction: float | None
    tpot_swing_fraction: float | None


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a derivation: another path of this plan, or a leaf with its reference."""

    label: str
    text: str  # the value as shown
    path: str  # "" for a leaf
    source: str  # m f v a
    reference: str  # catalogue table and row, constant, or the spec's line; "" with a path


@dataclass(frozen=True, slots=True)
class Derivation:
    path: str
    formula: str
    inputs: tuple[Input, ...]


@dataclass(frozen=True, slots=True)
class Digests:
    spec: str
    catalog: str
    constants: str
    calibration: str  # "" without one


@dataclass(frozen=True, slots=True)
class Plan:
    """Both halves of one spec, with everything that a screen shows and where it comes from."""

    schema: str
    name: str
    twofold: str
    digests: Digests
    rehearsed: bool
    training: tuple[TrainingPlan, ...]
    serving: tuple[ServicePlan, ...]
    cross: tuple[CrossCell, ...]
    first_year_usd: Estimate | None
    budget_usd: float | None
    factors: tuple[Factor, ...]
    calibration: str
    derivations: tuple[Derivation, ...]
    defaults: tuple[tuple[str, str], ...]  # path, value
    warnings: tuple[str, ...]


def plan_to_dict(value: Any) -> Any:
    """Any of the above as plain data, field order kept, numbers unrounded."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plan_to_dict(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plan_to_dict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plan_to_dict(item) for item in value]
    return value


def plan_to_json(plan: Plan) -> str:
    """The plan as JSON text: the same plan gives the same bytes."""
    return json.dumps(plan_to_dict(plan), indent=1, allow_nan=False) + "\n"


def read_plan(path: Path) -> dict[str, Any]:
    """A plan's JSON as a mapping. Raises InputError when it is not one of this schema."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is not JSON", hint="write one with `twofold plan SPEC --json`") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise InputError(
            f"'{path}' is not a plan of schema {SCHEMA}", hint="write one with `twofold plan SPEC --json`"
        )
    return data


def estimate_from(data: dict[str, Any]) -> Estimate:
    """The `Estimate` that `plan_to_dict` wrote."""
    return Estimate(data["value"], data["low"], data["high"], data["unit"], data["source"])
