"""What a spec says about one training run."""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, WithJsonSchema, field_serializer, field_validator, model_validator

from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Part, need_one, refusal
from twofold.contracts.spec.parts import FixedCluster, ModelReference
from twofold.core import errors
from twofold.core.quantity import DAY_S, YEAR_S, Dimension, parse_quantity
from twofold.perf.software import DEFAULT_FRAMEWORK

Kind = Literal["pretrain", "finetune", "lora"]
Precision = Literal["bf16", "fp16", "fp8", "fp32"]
Optimizer = Literal["adam", "adam8bit", "adafactor", "muon", "sgd"]


class Headroom(Part):
    """Accelerator-hours on top of the run itself, by cause."""

    retries_fraction: fields.Headroom = Field(default=0.05, description="failed and repeated attempts")
    validation_fraction: fields.Headroom = Field(default=0.02, description="evaluation passes")
    experiments_fraction: fields.Headroom = Field(default=0.15, description="trials before the run")

    @property
    def total_fraction(self) -> float:
        return self.retries_fraction + self.validation_fraction + self.experiments_fraction

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the run by cause."""
        return {
            "retries": self.retries_fraction,
            "validation": self.validation_fraction,
            "experiments": self.experiments_fraction,
        }


class Checkpoint(Part):
    """How checkpoints are written."""

    write_within_s: fields.Seconds = Field(default=60.0, description="longest time for a write")
    stall_s: fields.Seconds | None = Field(
        default=None,
        description="of it training stops; by default a snapshot where `framework` writes asynchronously, "
        "else all of it",
    )

    @model_validator(mode="after")
    def _no_longer_than_a_write(self) -> "Checkpoint":
        if self.stall_s is not None and self.stall_s > self.write_within_s:
            raise refusal("`stall` is longer than `write_within`, of which it is a part")
        return self


class Window(Part):
    """The days that a run may use, both included."""

    start: fields.Day = Field(description="first day")
    end: fields.Day = Field(description="last day")

    @model_validator(mode="after")
    def _forward(self) -> "Window":
        if self.end < self.start:
            raise refusal(f"a window ends on `{self.end}` before it starts on `{self.start}`")
        return self

    @property
    def length_s(self) -> float:
        return ((self.end - self.start).days + 1) * DAY_S


class TrainingRun(Part):
    """One training run: what is trained on how many tokens, by when."""

    kind: Kind = Field(
        default="pretrain", description="what is trained: all weights from scratch, all, or adapters"
    )
    name: fields.Name = Field(
        default_factory=lambda data: str(data.get("kind", "pretrain")),
        description="its name in paths of the plan",
    )
    model: ModelReference = Field(description="what is trained")
    sequence_tokens: fields.Tokens = Field(default=8192.0, description="tokens of one sequence")
    global_batch_sequences: Annotated[
        int, WithJsonSchema({"type": "string", "description": "for example `512 seq` or `4 Mtok`"})
    ] = Field(default=512, description="sequences per step; tokens when they divide by the sequence")
    tokens: fields.ManyTokens | None = Field(
        default=None, description="tokens to train on; or `samples`, or `steps`"
    )
    samples: fields.Samples | None = Field(
        default=None, description="sequences, or samples of measured rows, to train on"
    )
    steps: fields.PositiveCount | None = Field(default=None, description="optimiser steps")
    precision: Precision = Field(default="bf16", description="format of the matrix multiplications")
    optimizer: Optimizer = Field(default="adam", description="decides the bytes of optimiser state")
    lora_rank: fields.PositiveCount = Field(default=16, description="rank of the adapters, kind lora only")
    framework: fields.FrameworkName = Field(
        default=DEFAULT_FRAMEWORK, description="training software; sets overlaps and host costs"
    )
    deadline_s: fields.Span | None = Field(default=None, description="longest time from start to end")
    window: Window | None = Field(
        default=None, description="calendar days that the run may use, instead of a deadline"
    )
    time_value_usd_per_d: Annotated[float, fields.Quantity(Dimension.MONEY_PER_DAY, "$/d")] | None = Field(
        default=None,
        alias="time_value",
        description="what ending a day earlier is worth: the choice of machines costs least with it",
    )
    start: fields.Day | None = Field(default=None, description="first day, where a deadline is given")
    repeats_every_s: fields.Every | None = Field(
        default=None, alias="repeats", description="for example `every 8 weeks`"
    )
    loss_target: fields.Loss | None = Field(
        default=None,
        description="cross-entropy to end at, nats per token, kind pretrain only: held against scaling laws",
    )
    priority: fields.Count = Field(default=0, description="higher goes first where runs compete")
    team: fields.Text | None = Field(default=None, description="who runs it")
    data: fields.Text | None = Field(
        default=None,
        description="text, JSON lines or Parquet that `up` and `jobs` train on, such as `data/*.jsonl` or an"
        " address; none: the sources of Python's standard library",
    )
    headroom: Headroom = Field(default=Headroom(), description="accelerator-hours on top of the run")
    checkpoint: Checkpoint = Field(default=Checkpoint(), description="how checkpoints are written")
    on: FixedCluster | None = Field(
        default=None, description="machines that are given, for example `64x8xH100-SXM`"
    )

    @field_validator("global_batch_sequences", mode="before")
    @classmethod
    def _batch(cls, value: Any, info: ValidationInfo) -> int:
        return batch_sequences(str(value), float(info.data.get("sequence_tokens") or 1.0))

    @field_serializer("global_batch_sequences")
    def _batch_text(self, value: int) -> str:
        return f"{value} seq"

    @field_validator("sequence_tokens", mode="after")
    @classmethod
    def _whole(cls, value: float) -> float:
        if value != int(value):
            what = f"a sequence of {value:g} tokens is not a whole number of tokens"
            raise refusal(what, f"write for example `{value:.0f} tok`", kind=errors.QuantityError)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "TrainingRun":
        amounts = {"tokens": self.tokens, "samples": self.samples, "steps": self.steps}
        need_one(f"training `{self.name}`", amounts)
        if self.deadline_s is not None and self.window is not None:
            raise refusal(f"training `{self.name}` has a `deadline` and a `window`", "write one of them")
        return self

    def idle_fields(self) -> dict[str, str]:
        if not self.model.measured:
            owners = {"lora_rank": "lora", "loss_target": "pretrain"}
            other = f"not `{self.kind}`"
            return {
                key: f"belongs to kind `{kind}`, {other}" for key, kind in owners.items() if kind != self.kind
            }
        measured = ["precision", "optimizer", "framework", "lora_rank", "loss_target"]
        # These two may be written: tokens are counted by the sequence, and rows may have several batches.
        counts = [] if self.tokens is not None else ["sequence_tokens"]
        measured += [
            each for each in (*counts, "global_batch_sequences") if each not in self.model_fields_set
        ]
        return dict.fromkeys(measured, "is what the measured rows were run with")

    @property
    def batch_tokens(self) -> float:
        """Tokens of one step."""
        return self.global_batch_sequences * self.sequence_tokens

    @property
    def token_count(self) -> float:
        """Tokens of the whole run, however the spec says it."""
        if self.tokens is not None:
            return self.tokens
        if self.samples is not None:
            return self.samples * self.sequence_tokens
        return (self.steps or 0) * self.batch_tokens

    @property
    def sample_count(self) -> float:
        """Sequences of the whole run, or what else a step of measured rows reads."""
        if self.samples is not None:
            return self.samples
        return self.token_count / self.sequence_tokens

    @property
    def step_count(self) -> int:
        """Steps of the whole run; a last partial batch is a step."""
        return int(-(-self.token_count // self.batch_tokens))

    @property
    def time_limit_s(self) -> float | None:
        """The deadline, or the length of the window."""
        return self.window.length_s if self.window else self.deadline_s

    @property
    def runs_per_year(self) -> float:
        """How often it is paid for in the first year."""
        return max(1.0, YEAR_S / self.repeats_every_s) if self.repeats_every_s else 1.0

    @property
    def first_day(self) -> date | None:
        return self.window.start if self.window else self.start


def near_batch(sequences: float) -> int:
    """A batch near to so many sequences that splits well over machines: a multiple of a large power of two.

    >>> near_batch(976.6), near_batch(100.2), near_batch(3.4)
    (960, 104, 3)
    """
    step = 1 << max(0, int(sequences).bit_length() - 4)
    return max(1, round(sequences / step) * step)


def batch_sequences(text: str, sequence_tokens: float) -> int:
    """Sequences per step from `512 seq`, or from tokens that divide by the sequence."""
    try:
        sequences = parse_quantity(text, Dimension.SEQUENCES)
    except errors.QuantityError as error:
        try:
            tokens = parse_quantity(text, Dimension.TOKENS)
        except errors.QuantityError:
            raise refusal(error.message, error.hint, kind=type(error)) from error
        sequences = tokens / sequence_tokens
        if sequences != int(sequences):
            near = near_batch(sequences)
            what = f"a batch of `{text}` does not divide by the sequence of {sequence_tokens:,.0f} tokens"
            hint = f"write `{near} seq`, which is {near * sequence_tokens:,.0f} tokens"
            raise refusal(what, hint, kind=errors.BatchError) from error
    if sequences != int(sequences) or sequences < 1:
        what = f"`{text}` is not a whole number of sequences"
        raise refusal(what, "write for example `512 seq`", kind=errors.QuantityError)
    return int(sequences)
