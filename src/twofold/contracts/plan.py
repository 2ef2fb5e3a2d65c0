"""The plan as data, schema `twofold/plan/1`: what `plan --json` prints; `explain` and `diff` read it.

Nothing here computes. Every uncertain number is an `Estimate`; lengths of time are seconds, sizes bytes,
money USD. Arrays stay arrays with one run or service; a missing half is an empty array.
"""

import json
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from twofold.contracts.building import Building
from twofold.contracts.compliance import Compliance
from twofold.contracts.money import Money
from twofold.contracts.portfolio import Portfolio
from twofold.core import Estimate, InputError, Source

SCHEMA = "twofold/plan/1"


@dataclass(frozen=True, slots=True)
class PriceUsed:
    """The catalogue row a cost was made with; `usd_per_accelerator_h` spreads over the offers seen."""

    provider: str  # whose list
    instance: str  # the instance type that is rented
    region: str  # the catalogue region of the price
    term: str  # on_demand spot reserved_1y reserved_3y
    date: str  # day the price was seen
    usd_per_accelerator_h: Estimate  # USD/h of one accelerator


@dataclass(frozen=True, slots=True)
class Machine:
    """Equal nodes of one kind. `price` None: the plan counts accelerator-hours and says `no price`."""

    accelerator: str  # catalogue name
    node: str  # catalogue name of the server or instance type
    node_count: int  # nodes in all
    accelerators_per_node: int  # in one node
    accelerator_count: int  # in all
    fabric: str  # between nodes: infiniband roce efa ethernet …
    price: PriceUsed | None  # what one accelerator-hour costs; null: no price is known


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a total; the `share_fraction`s of a total's parts add up to 1."""

    name: str  # what this part is
    value: Estimate  # in the unit of its total
    share_fraction: float  # of the total


@dataclass(frozen=True, slots=True)
class Bound:
    """What a plan is bound by: `gain_fraction` of its time or cost goes when `resource` improves by 20 %."""

    resource: str  # compute, memory bandwidth, memory capacity, link, fabric, host …
    gain_fraction: float  # of time or cost, when it is 20 % better


@dataclass(frozen=True, slots=True)
class Loser:
    """Something else that was tried, and the constraint or the figure it lost by."""

    what: str  # the alternative
    why: str  # in words, with figures


@dataclass(frozen=True, slots=True)
class Count:
    """How many candidates fell to one reason."""

    reason: str  # memory, divisibility, slower …
    count: int  # candidates


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """One point of the front of time, cost and size."""

    what: str  # nodes × accelerators, and the layout
    accelerator_count: int  # size
    wall_s: float  # with headroom, s
    cost_usd: float | None  # with headroom, USD
    feasible: bool  # meets deadline and budget


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """How a step scales: efficiency is throughput per accelerator over that of the smallest size."""

    accelerator_count: int  # size
    step_s: Estimate  # s
    efficiency_fraction: Estimate  # of the smallest size's rate


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """One run's checkpoints, and the file system that they and the data ask for."""

    size_bytes: float | None  # of one checkpoint; null: not measured
    interval_s: Estimate  # between two, the cheapest
    write_s: float  # one write's pause, s
    write_bytes_per_s: float | None  # needed for it; null: size not known
    storage_bytes_per_s: float | None  # what the file system must sustain; null: not known
    storage_term: str | None  # checkpoint write, restart read, or data ingest: which one asks for it


@dataclass(frozen=True, slots=True)
class Run:
    """From the first to the last step: base × (1 + headroom) = `accelerator_h`."""

    steps: float  # optimiser steps
    flops: float | None  # model FLOPs of all steps; null: no model
    compute_s: Estimate  # steps × step time, s
    checkpoint_s: Estimate  # pauses for writes, s
    failure_s: Estimate  # lost work and restarts, s
    wall_s: Estimate  # the three above, s
    headroom: tuple[Part, ...]  # fractions of the base, by cause
    total_s: Estimate  # with headroom, s
    accelerator_h: Estimate  # with headroom
    interruptions: Estimate  # expected count
    goodput_fraction: Estimate  # compute over wall
    checkpoints: Checkpoints  # size, cadence and storage
    data_bytes_per_s: float | None  # of training data; null: not measured
    energy_j: Estimate  # with cooling (PUE), J
    carbon_gco2: Estimate | None  # g; null where the region is unknown


@dataclass(frozen=True, slots=True)
class Layout:
    """How a run is split over its accelerators; tp × cp × pp × dp of them."""

    tp: int  # tensor parallel ranks
    cp: int  # context parallel ranks
    ep: int  # expert parallel ranks
    pp: int  # pipeline stages
    vpp: int  # model chunks per stage, interleaved
    dp: int  # data parallel ranks
    zero_stage: int  # what ZeRO shards: 0 none, 1 optimiser, 2 gradients, 3 weights
    micro_batch: int  # sequences per micro-batch
    recompute: str  # none selective full
    sequence_parallel: bool  # norms and dropout split over tp
    text: str  # on one line


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The same run with and without virtual machines."""

    name: str  # bare metal or virtual
    overhead_fraction: float  # of time, as the spec states it
    step_s: Estimate  # s
    cost_usd: Estimate | None  # USD; null: no price


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """One training run: where, how, how long, how sure, and why not otherwise."""

    name: str  # of the run, in paths
    model: str  # catalogue name or file
    parameters: int | None  # of the model; null: measured rows instead of a model
    kind: str  # pretrain finetune lora
    precision: str | None  # of the matrix multiplications
    framework: str | None  # training software
    machine: Machine  # what it runs on
    layout: Layout | None  # how it is split; null: as it was measured
    step_s: Estimate  # one optimiser step, s
    step_parts: tuple[Part, ...]  # compute, each exposed communication, bubble …
    communication_exposed_fraction: float | None  # of the step; null: not measured
    mfu_fraction: Estimate | None  # model FLOPs over peak; null: no model
    peak_ratio: Estimate | None  # predicted rate over the datasheet's peak; null: no model
    memory_bytes: Estimate | None  # of the fullest accelerator; null: not measured
    memory_parts: tuple[Part, ...]  # weights gradients optimiser …
    memory_by_format: tuple[Part, ...]  # bytes by number format
    memory_capacity_bytes: float  # of one accelerator
    run: Run  # the whole run
    release_after_s: float | None  # when rented machines go back, s
    deadline_s: float | None  # s
    cost_usd: Estimate | None  # with headroom; null: no price
    bounds: tuple[Bound, ...]  # strongest first
    tried: int  # layouts evaluated
    rejected: tuple[Count, ...]  # layouts by reason
    losers: tuple[Loser, ...]  # machines and sizes that lost
    front: tuple[FrontPoint, ...]  # time, cost and size that no other beats
    scaling: tuple[ScalingPoint, ...]  # from one accelerator upwards
    flip_fraction: float  # draws in which a runner-up wins
    warnings: tuple[str, ...]  # what to know before signing
    tokens: float | None = None  # of the whole run; null: counted in samples
    batch_tokens: float | None = None  # of one step; null: counted in samples
    samples: float | None = None  # sequences, or what else a step reads, of the whole run
    batch_samples: int | None = None  # of one step
    tenancy: tuple[Tenancy, ...] = ()  # bare metal and virtual


@dataclass(frozen=True, slots=True)
class RehearsedFigure:
    """One goal on the twin, at the peak and without spares."""

    metric: str  # ttft_p95 tpot_p95 e2e_p95 finish_within …
    value_s: float | None  # s; null: nothing finished
    low_s: float | None  # of its 95 % confidence interval, s; null: too few requests for one
    high_s: float | None  # of the same, s
    resolved: bool  # whether the interval is within 10 % of the value
    met: bool | None  # by the value, and at most 5 % were not answered; null: nothing arrived


@dataclass(frozen=True, slots=True)
class RehearsedClass:
    """One class of a rehearsed fleet."""

    name: str  # of the class
    finished_count: int  # requests after the warm-up
    figures: tuple[RehearsedFigure, ...]  # each goal


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One fleet on the twin."""

    name: str  # its replicas in words
    accelerator_count: int  # without spares
    chosen: bool  # whether the plan has this fleet
    holds: bool  # every goal of every class
    classes: tuple[RehearsedClass, ...]  # what each class got


@dataclass(frozen=True, slots=True)
class SloOutcome:
    """One goal of a class and what is predicted for it at peak: `met` is decided on `predicted.value`."""

    metric: str  # ttft_p95 tpot_p95 e2e_p95 finish_within …
    limit_s: float  # s
    predicted: Estimate | None  # s; null: the measured rows cannot say
    met: bool | None  # by the middle of the prediction; null: not known
    rehearsed: RehearsedFigure | None = None  # on the twin; null: not rehearsed


@dataclass(frozen=True, slots=True)
class ClassPlan:
    """One latency class. Percentiles are at the peak rate on the replicas given to it."""

    name: str  # of the class, in paths
    rate_per_s: float  # mean requests/s
    peak_per_s: float  # requests/s that it is sized for
    input_tokens: float | None  # mean of a request; null: not stated
    output_tokens: float | None  # mean of a request; null: not stated
    percentiles: dict[str, Estimate]  # ttft_p50 ttft_p95 ttft_p99 tpot_p50 … seconds
    slos: tuple[SloOutcome, ...]  # each goal with what is predicted
    replica_count: int  # that serve this class, no spares; classes of one pool share them
    rate_per_replica_per_s: Estimate  # that still meets the goals
    holds_until_per_s: Estimate  # peak that its replicas still serve within the goals
    knee_per_s: float | None  # rate from which latency grows faster than throughput; null: not known
    usd_per_1k_output_tokens: Estimate | None  # USD; null: no price
    latency_budget: tuple[Part, ...]  # edge, gateway, queue, prefill, decode
    replica_text: str = ""  # the layout of the replicas that serve this class
    input_spread_ratio: float = 0.0  # deviation of input tokens over their mean
    output_spread_ratio: float = 0.0  # deviation of output tokens over their mean
    shared_prefix_fraction: float = 0.0  # of the input, found in the prefix cache
    profile: str = "flat"  # shape of the week: flat consumer business
    trace: str | None = None  # the file that its traffic was read from; null: none
    trace_scale_ratio: float = 1.0  # factor on the trace's rate


@dataclass(frozen=True, slots=True)
class Replica:
    """One serving replica: its devices, layout and formats."""

    accelerator_count: int  # of one replica
    tp: int | None  # tensor parallel ranks
    pp: int | None  # pipeline stages
    ep: int | None  # expert parallel ranks
    dp: int | None  # copies of attention
    weights_format: str | None  # number format
    kv_format: str | None  # number format of the cache
    engine: str | None  # serving software
    max_batch: int  # sequences decoding at once
    chunk_tokens: int | None  # prefill tokens per step
    text: str  # on one line


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal replicas that serve some classes: what a rehearsal builds them from."""

    name: str  # the first of its classes
    classes: tuple[str, ...]  # that it serves
    model: str  # what it serves, a variant maybe
    replica: Replica  # one of them
    replica_count: int  # spares included
    spare_count: int  # of them
    rate_per_replica_per_s: float  # requests/s that still meet every goal
    virtual_overhead_fraction: float  # of time, on virtual machines


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """One service: its replicas, what each class gets from them, what it costs, and why not otherwise."""

    name: str  # of the service, in paths
    model: str  # what is served, a variant maybe
    parameters: int | None  # of the model; null: measured rows instead of a model
    quality_note: str  # what a variant loses
    machine: Machine  # all replicas, spares included
    replica: Replica  # one replica
    classes: tuple[ClassPlan, ...]  # one entry per latency class
    replica_count: int  # spares included
    spare_count: int  # of them
    spare_reason: str  # what the spares survive
    zones: int  # spread over
    regions: tuple[str, ...]  # where
    memory_bytes: Estimate | None  # per device; null: not measured
    memory_parts: tuple[Part, ...]  # weights, buffers, KV cache …
    memory_capacity_bytes: float  # of one accelerator
    kv_bytes_per_token: float | None  # of the whole replica
    kv_utilisation_fraction: float | None  # of the cache at peak
    batch_limit: str | None  # bandwidth or capacity: which of the two limits the batch; null: as measured
    cold_start_s: Estimate | None  # from nothing to the first answer; null: not measured
    warm_pool_count: int | None  # replicas to keep warm for the peak; null: not known
    output_tokens_per_s_per_accelerator: Estimate | None  # at peak; null: not measured
    output_tokens_per_j: Estimate | None  # at peak; null: not measured
    peak_ratio: Estimate | None  # rate over the datasheet's roofline; null: no model
    communication_exposed_fraction: float | None  # of a decode step; null: not measured
    pooling_loss_fraction: float | None  # accelerators of a pool per class over one for all, less 1
    cost_usd_per_year: Estimate | None  # spares included; null: no price
    energy_j_per_year: Estimate  # J
    carbon_gco2_per_year: Estimate | None  # g
    bounds: tuple[Bound, ...]  # strongest first
    tried: int  # candidates evaluated
    rejected: tuple[Count, ...]  # candidates by reason
    losers: tuple[Loser, ...]  # the best of each other machine
    flip_fraction: float  # draws in which a runner-up wins
    warnings: tuple[str, ...]  # what to know before signing
    cold_start_parts: tuple[Part, ...] = ()  # loading the weights, and warming up
    network_bytes_per_token: float | None = None  # what an accelerator sends for one token through all layers
    all_to_all_bytes_per_token: float | None = None  # of it, between expert ranks
    rehearsals: tuple[Rehearsal, ...] = ()  # fleets tried on the twin, the chosen one first
    pools: tuple[Pool, ...] = ()  # all replicas, by layout; none: measured rows instead of a model


@dataclass(frozen=True, slots=True)
class CrossCell:
    """One half on one fleet: what it costs and how it fares there."""

    half: str  # training or serving
    name: str  # of the run or service
    fleet: str  # training or serving
    text: str  # on one line
    feasible: bool  # meets its deadline or goals there
    wall_s: Estimate | None  # of the run, s
    cost_usd: Estimate | None  # a run, or a year of serving
    latency_s: Estimate | None  # TPOT p95 of the tightest class


@dataclass(frozen=True, slots=True)
class Factor:
    """One named unknown: its 80 % factor, and how far it alone moves a headline figure."""

    name: str  # compute memory_bandwidth link …
    low_factor: float  # 10th percentile
    high_factor: float  # 90th percentile
    step_swing_fraction: float | None  # of the first run's step
    tpot_swing_fraction: float | None  # of the first service's TPOT


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a derivation: another path of this plan, or a leaf with its reference."""

    label: str  # what it is
    text: str  # the value as shown
    path: str  # "" for a leaf
    source: str  # m f v a
    reference: str  # catalogue table and row, constant, or the spec's line; "" with a path


@dataclass(frozen=True, slots=True)
class Derivation:
    """How one number follows from others: of the plan, or of a derivation of it."""

    path: str  # what is derived
    formula: str  # how, with figures
    inputs: tuple[Input, ...]  # from what


@dataclass(frozen=True, slots=True)
class Digests:
    """What a plan was made from, as SHA-256; equal digests make an equal plan."""

    spec: str  # of the spec
    catalog: str  # of all tables
    constants: str  # of the fitted constants
    calibration: str  # "" without one


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do, or to know before it is done."""

    kind: str  # rent use then release cost risk next
    text: str  # in words, with figures; of `next` a command, SPEC the user's file
    when: str  # day or week; "" where it has none
    usd: float | None  # of the first year, with tax: rent and support, requests, or own energy; `cost`: all


@dataclass(frozen=True, slots=True)
class Plan:
    """Both halves of one spec, with everything that a screen shows and where it comes from."""

    schema: str  # `twofold/plan/1`
    name: str  # of the spec
    twofold: str  # version
    digests: Digests  # what made it
    rehearsed: bool  # on the twin
    training: tuple[TrainingPlan, ...]  # runs
    serving: tuple[ServicePlan, ...]  # services
    cross: tuple[CrossCell, ...]  # each half on each fleet
    first_year_usd: Estimate | None  # the bill's total: runs and a year of services, held for their peak
    budget_usd: float | None  # the spec's
    factors: tuple[Factor, ...]  # what is not known
    calibration: str  # which measurements of yours were used
    derivations: tuple[Derivation, ...]  # where numbers come from
    defaults: tuple[tuple[str, str], ...]  # path, value
    warnings: tuple[str, ...]  # of the whole plan
    portfolio: Portfolio | None = None  # what to hold, rent and release; null: nothing to choose from
    money: Money | None = None  # the bill, what tokens cost, owning; null: nothing has a price
    building: Building | None = None  # what the machines stand in; null: the plan has none
    compliance: Compliance | None = None  # what rules change; null: the spec names none
    actions: tuple[Action, ...] = ()  # what to do, in order


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
    return Estimate(data["value"], data["low"], data["high"], data["unit"], Source(data["source"]))
