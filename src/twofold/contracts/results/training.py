"""A run as planned: its step, layout, memory, time, cost, and what was tried."""

from dataclasses import dataclass, field
from datetime import date

from twofold.contracts.results.parts import (
    Bound,
    Count,
    FrontPoint,
    Loser,
    Machine,
    Part,
    Roofline,
    ScalingPoint,
)
from twofold.core.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """One run's checkpoints, and the file system that they and the data ask for."""

    size_bytes: float | None  # of one checkpoint; null: not measured
    interval_s: Estimate  # between two, the cheapest
    write_s: float  # until one is whole, s
    write_bytes_per_s: float | None  # needed for it; null: size not known
    storage_bytes_per_s: float | None  # what the file system must sustain; null: not known
    storage_term: str | None  # checkpoint write, restart read, or data ingest: which one asks for it
    pause_s: float | None = None  # that training stops for one, s; null: as long as it is written


@dataclass(frozen=True, slots=True)
class RunTotals:
    """What every run has, planned or estimated."""

    steps: float  # optimiser steps
    flops: float | None  # model FLOPs of all steps; null: no model
    compute_s: Estimate  # steps × step time, s
    checkpoint_s: Estimate  # pauses for checkpoints, s
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
    deadline_holds_probability: float | None = field(  # that it is met, by the draws; null: no deadline
        default=None, kw_only=True
    )
    done_s: Estimate | None = field(  # from when it may begin until it is over, s; null: `total_s`
        default=None, kw_only=True
    )

    @property
    def ends_s(self) -> Estimate:
        """When it is over: on machines that it shares later than its own hours take."""
        return self.done_s or self.total_s


@dataclass(frozen=True, slots=True)
class Run(RunTotals):
    """From the first to the last step: base × (1 + headroom) = `accelerator_h`."""

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
    recompute: str  # none light selective mlp full
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
class Delivery:
    """What the accelerator-hours of a run buy: a loss, and the day on which the model is there."""

    loss: Estimate | None  # to end at, by scaling laws, nats/token; null: no pretraining, or measured rows
    loss_target_nats: float | None  # per token, that the spec asks for
    loss_target_met: bool | None  # by the middle; null: no target
    target_tokens: Estimate | None  # at which it would end at the target; null: none do, or no target
    ends_on: date | None  # the last day in the middle; null: the spec names no first day
    ends_by: date | None  # the same at the end of the range


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
    time_value_usd_per_d: float | None = None  # what ending a day earlier is worth; null: not stated
    calendar: str = ""  # on machines that it shares: what it waits for or yields to
    roofline: Roofline | None = None  # of its step; null: measured rows instead of a model
    delivery: Delivery | None = None  # the loss and the day that its hours buy; null: written before
    repository: str = ""  # of its weights, as the spec names it; "": the spec names a model alone
