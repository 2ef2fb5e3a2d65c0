"""What the live loop measures and shows, schema `twofold/loop/1`: what `up --json` prints.

Nothing here computes; records alone say what ended otherwise than it was to. The trainer and the load
generator fill them, the doctor reads them, and the page lays them beside the plan. Seconds, bytes, tokens; a
number that nobody measured is None.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from twofold.core.data import from_data, to_data
from twofold.core.errors import FileError
from twofold.core.estimate import Estimate

LOOP_SCHEMA = "twofold/loop/1"


@dataclass(frozen=True, slots=True)
class StepParts:
    """Where one training step's wall time goes on the slowest rank.

    Means over the middle half of the steps, scaled so that they sum to the median step without its
    checkpoints; what these blocked stands beside, averaged over all steps.
    """

    data_s: float  # waiting for the next batch
    forward_s: float  # compute and the loss, collectives apart
    backward_s: float  # compute, collectives apart
    communication_s: float  # what the step waits for in collectives
    optimiser_s: float
    checkpoint_s: float  # blocked by a save, averaged over all steps
    other_s: float  # the rest of the step


@dataclass(frozen=True, slots=True)
class Recovery:
    """One worker was killed: what it cost, and whether the repeated steps had the very same losses."""

    killed_rank: int
    killed_after_step: int
    resumed_from_step: int
    repeated_steps: int
    equal_losses: bool  # bit for bit, of every repeated step
    kill_to_step_s: float  # from the kill to the first step done after it


@dataclass(frozen=True, slots=True)
class DataRead:
    """The text that a run has read, and what staging it beside the training took."""

    digest: str  # of the files' bytes, in their order
    files: int
    size_bytes: int
    tokens: int
    documents: int
    staged_bytes: int  # while the run trained; what was staged before is not in here
    fetch_s: float  # until these bytes had come
    tokenise_s: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a run did, or what befell it, in seconds of work since its first launch.

    `starting` until the first step begins, `training` to the last step; `checkpoint` as long as it is
    written, `not saved`; `killed` by us or `died`, to the first step done after it; `stopped` on being told
    to, `launched again` at the beginning of another launch.
    """

    what: str
    from_s: float
    until_s: float
    step: int | None = None  # the last that was done, or that is saved; null: none yet
    text: str = ""  # whom it befell, or why


@dataclass(frozen=True, slots=True)
class RunCourse:
    """A run over time; what lay between two launches is left out."""

    stretches: tuple[Stretch, ...]
    checkpoint_every: int = 1  # checkpoints that each of these stands for
    left_out_count: int = 0  # other stretches beyond what is kept


@dataclass(frozen=True, slots=True)
class TrainingMeasured:
    """One run as it happened. Quantiles are over the steps after warm-up, outside the recovery."""

    rank_count: int
    parameter_count: int
    steps: int  # in all, repeated ones not counted twice
    tokens_per_step: int
    step_s_p10: float
    step_s_p50: float
    step_s_p90: float
    parts: StepParts
    first_loss: float
    last_loss: float
    peak_memory_bytes: int  # of the rank that used most
    checkpoint_bytes: int
    checkpoint_count: int  # complete ones written
    checkpoint_write_s: float  # median, from save to complete, beside the training
    recovery: Recovery | None
    wall_s: float  # from launch to the published artefact
    data_fraction: float | None = (
        None  # of all time after warm-up, waiting for data, on the rank that waits most
    )
    off_core_fraction: float | None = None  # of compute, waiting for a core that something else had; likewise
    data: DataRead | None = None
    course: RunCourse | None = None  # over time; null: in records from before there was one


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A latency over the finished requests of one load."""

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One load and what came of it. Closed: `concurrency` clients; open: Poisson at `rate_per_s`."""

    name: str  # closed-4, open-2.0
    concurrency: int | None
    rate_per_s: float | None  # offered; None for a closed loop
    input_tokens: float  # mean of the prompts
    output_tokens: float  # mean of the answers received
    sent: int
    finished: int
    refused: int  # by the gateway, 429 or 503
    failed: int
    requests_per_s: float  # finished
    output_tokens_per_s: float
    ttft: Quantiles | None  # None when nothing finished
    tpot: Quantiles | None
    e2e: Quantiles | None
    peak_held_tokens: float  # most prompt and answer tokens in flight at once, over all replicas


@dataclass(frozen=True, slots=True)
class TierMeasured:
    """One CPU tier before the replicas under the open load, waiting and work of each request together."""

    name: str
    count: int  # requests that passed it
    p50_s: float
    p95_s: float
    is_bottleneck: bool  # whether it held requests up more than other tiers and the replicas


@dataclass(frozen=True, slots=True)
class ScaleOut:
    """One replica more while the others served the planned load: cold, let go, and once more, warm."""

    replica_count: int  # before it
    rate_per_s: float  # that they were sent
    cold_start_s: float  # from the start of its process to its first answer
    warm_start_s: float | None  # None: it did not come a second time
    memory_before_bytes: int  # of all replicas' processes
    memory_after_bytes: int
    asked_after_s: float  # from the load's begin until the cold one was wanted …
    serving_after_s: float  # … and until it was sent requests
    requests_meanwhile: int  # that came in between, and finished
    ttft_s_p95: float | None  # of these
    ttft_s_p95_before: float | None  # of those that came before
    slow_ratio: float  # time per output token while the warm one started, over that before


@dataclass(frozen=True, slots=True)
class ServingMeasured:
    """The replicas, the gateway and all loads."""

    engine: str  # transformers 5.23.0
    replica_count: int
    kv_capacity_tokens: float  # of all replicas
    cold_start_s: float | None  # from a replica's launch to its first answer, the slowest; None: ran before
    artefact: str  # sha256-…
    loads: tuple[LoadPoint, ...]
    tiers: tuple[TierMeasured, ...] = ()
    scale_out: ScaleOut | None = None  # None: not measured
    gate_digest: str = ""  # of the gate that the loads came through; "": of an older page


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule of the doctor on one run: what it saw, and whether that is a problem."""

    rule: str  # input-bound, communication-bound, tail-grows, kv-pressure
    verdict: str  # ok, warn
    saw: str  # the figures it judged by
    advice: str  # what to do about it; empty when ok


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the page: what the plan and the twin said beside what was measured, in one unit."""

    half: str  # training, serving
    name: str  # step, checkpoint, TTFT p50 at 4 clients …
    unit: str  # s, B, tok/s …
    planned: Estimate | None  # None: the plan has no such number
    measured: float | None  # None: it did not happen
    inside: bool | None  # whether the measured lies in the planned range; None without both, or a range
    twin: Estimate | None = None  # what a rehearsal of the load shows; None: it is not rehearsed


@dataclass(frozen=True, slots=True)
class ReleaseTried:
    """One release that was offered while the service ran, and how it ended."""

    version: str  # NAME:3 of the registry
    kind: str  # what it is beside what served, in words
    outcome: str  # promoted, rolled back, refused, or open: the gate still tries it
    why: str
    decided_s: float | None  # from the offer to the gate's decision; None: it made none
    requests: int  # that the service was sent meanwhile …
    to_release: int  # … and of these the release
    stage_fraction: float  # of the requests, that it was to be sent at most in the end
    wanted: str = ""  # the outcome that it was made to have; "": none in particular, or an older page

    @property
    def missed(self) -> str:
        """How it ended otherwise than it was made to; "": it did not."""
        if self.wanted in ("", self.outcome):
            return ""
        return f"{self.version}, {self.kind}: {self.outcome}, and was to be {self.wanted}"


@dataclass(frozen=True, slots=True)
class LoopPage:
    """The page that the loop ends with."""

    name: str  # of the spec
    machine: str  # what it ran on, in words
    spec_digest: str
    plan_digest: str
    device_digest: str  # of the measured device row
    rows: tuple[Row, ...]
    training: tuple[TrainingMeasured, ...]
    serving: tuple[ServingMeasured, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    gate_digest: str = ""  # of the gate that served; equal to the rehearsal's; "": of an older page
    differs: tuple[str, ...] = ()  # what is other than in a rehearsal, by necessity
    releases: tuple[ReleaseTried, ...] = ()  # that were tried while it served

    @property
    def missed(self) -> list[str]:
        """What ended otherwise than a loop is to: steps repeated after a kill, releases that were tried."""
        losses = [
            f"losses of repeated steps are other ones after rank {run.recovery.killed_rank} was killed"
            for run in self.training
            if run.recovery is not None and not run.recovery.equal_losses
        ]
        return losses + [each.missed for each in self.releases if each.missed]


def read_training_measured(path: Path) -> TrainingMeasured:
    """A finished run's record, as the trainer wrote it. Raises FileError when it is no such record."""
    try:
        return from_data(TrainingMeasured, json.loads(path.read_text("utf-8")), finite=False)
    except (OSError, ValueError) as error:
        raise FileError(
            f"`{path}` is not the record of a training run: {error}", hint="delete it and train again"
        ) from error


def write_training_measured(record: TrainingMeasured) -> str:
    """The JSON text that `read_training_measured` reads."""
    return json.dumps(to_data(record), indent=1) + "\n"
