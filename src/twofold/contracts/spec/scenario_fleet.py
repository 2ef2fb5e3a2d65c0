"""What a scenario says about a cluster that trains, and about the engines of a fleet that serves."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Listed, Part, first_twice, refusal
from twofold.contracts.spec.scenario_parts import Bandwidth, Moment, Slowdown
from twofold.core.quantity import DAY_S

CHUNK_TOKENS_MIN = 16  # a block of the cache


class ClusterJobs(Part):
    """Which jobs are submitted: those of a trace, or drawn at a rate like published ones."""

    trace: fields.FilePath | None = Field(default=None, description="a csv or csv.gz of jobs")
    rate_per_s: fields.Rate | None = Field(default=None, description="jobs drawn, in the mean")
    like: Annotated[str, fields.Name] = Field(
        default="seren", description="the published cluster that they are like: seren kalos philly helios pai"
    )
    teams: fields.PositiveCount = Field(default=4, description="that they are spread over, where drawn")

    @model_validator(mode="after")
    def _one_of(self) -> "ClusterJobs":
        if self.trace is not None and self.rate_per_s is not None:
            raise refusal("jobs come from a `trace` or at a `rate`", "write one of them")
        return self


class Demand(Part):
    """Accelerators that serving needs from a time of the day on."""

    at_s: Moment = Field(description="since the day began")
    accelerators: fields.Count = Field(description="that it needs from then on")


class SlowPart(Part):
    """One node whose links or devices are slow for a while."""

    node: fields.Count = Field(description="its number, from 0")
    link_ratio: Slowdown = Field(default=1.0, description="times as long; 2x: half the speed")
    device_ratio: Slowdown = Field(default=1.0, description="times as long")
    at_s: Moment = Field(default=0.0, description="when it begins")
    for_s: fields.Seconds | None = Field(default=None, description="else to the end")


class GivenJob(Part):
    """One job of others, or many alike."""

    at_s: Moment = Field(default=0.0, description="when it is submitted")
    accelerators: fields.PositiveCount = Field(description="that it needs, all of them at once")
    for_s: fields.Seconds = Field(description="its work on them")
    team: Annotated[str, fields.Name] = Field(default="others", description="whose it is")
    copies: fields.PositiveCount = Field(default=1, description="as many alike")
    priority: fields.Count = Field(default=0, description="the plan's own run has 1")


class Quota(Part):
    """What a team is promised of the cluster."""

    team: Annotated[str, fields.Name] = Field(description="its name")
    share_fraction: fields.Fraction = Field(description="of all accelerators")


class ClusterChange(Part):
    """A training cluster, where it is not as planned."""

    run_nodes: fields.PositiveCount | None = Field(
        default=None,
        description="that the plan's run is spread over, its work per node kept; else as planned",
    )
    nodes: fields.PositiveCount | None = Field(
        default=None, description="else those of the plan's run, and a quarter more for the jobs of others"
    )
    spares: fields.Count = Field(default=0, description="nodes of them that are kept free for failures")
    accelerators_per_node: fields.PositiveCount | None = Field(default=None, description="else as planned")
    failures_per_node_per_s: fields.Rate | None = Field(
        default=None, alias="failures", description="of one node; else the fitted rate"
    )
    repair_s: fields.Seconds = Field(
        default=2 * 3600.0, description="until a failed node is back, in the mean"
    )
    storage_bytes_per_s: Bandwidth | None = Field(
        default=None, description="what all checkpoints share; else what the plan asks for"
    )
    checkpoint_every_s: fields.Seconds | None = Field(
        default=None, description="else as failures and writes suggest"
    )
    checkpoint_apart_s: fields.Seconds | None = Field(
        default=None, description="the least between two of a job; else 1 min"
    )
    minimum_run_s: fields.Seconds | None = Field(
        default=None, description="before a job makes room for another; else 10 min"
    )
    files_per_accelerator: fields.Multiplier = Field(
        default=1.0, alias="files", description="that a checkpoint has, of one accelerator"
    )
    metadata_per_s: fields.Rate | None = Field(
        default=None, description="files that storage creates; else as fast as need be"
    )
    jitter_fraction: fields.Fraction = Field(
        default=0.0, description="of step times, their spread over their mean"
    )
    input_fraction: fields.Headroom = Field(
        default=0.0, description="of a planned step, that its input takes to read; nodes share it"
    )
    slow: Annotated[tuple[SlowPart, ...], Listed] = Field(default=(), description="nodes that are slow")
    training_interference_fraction: fields.Headroom = Field(
        default=0.0, description="longer communication beside serving"
    )
    serving_interference_fraction: fields.Headroom = Field(
        default=0.0, description="longer service times beside training"
    )
    against_split: fields.Flag = Field(
        default=False, description="also rehearse the same nodes as two fleets, one for each half"
    )
    quotas: Annotated[tuple[Quota, ...], Listed] = Field(
        default=(), description="of teams; else drawn teams share alike"
    )
    given: Annotated[tuple[GivenJob, ...], Listed] = Field(default=(), description="jobs, one by one")
    jobs: ClusterJobs | None = Field(default=None, description="besides the plan's own runs")
    serving: Annotated[tuple[Demand, ...], Listed] = Field(
        default=(), description="what serving takes of the pool, through a day"
    )

    @model_validator(mode="after")
    def _agree(self) -> "ClusterChange":
        if self.nodes is not None and self.spares >= self.nodes:
            raise refusal(
                f"{self.spares} spares of {self.nodes} nodes leave none to train on",
                "write fewer spares, or more nodes",
            )
        moments = [demand.at_s for demand in self.serving]
        if moments != sorted(set(moments)) or (moments and moments[-1] >= DAY_S):
            raise refusal("the times of `serving` rise within one day")
        if self.against_split and not any(demand.accelerators for demand in self.serving):
            raise refusal("nothing serves, so there is one fleet alone", "write `serving`")
        twice = first_twice([quota.team for quota in self.quotas])
        if twice is not None:
            raise refusal(f"the team `{twice}` is promised twice", "write one `share` of it")
        shares = sum(quota.share_fraction for quota in self.quotas)
        if shares > 1 + 1e-9:
            raise refusal(f"teams are promised {100 * shares:g} % of the cluster together")
        return self


class EngineChange(Part):
    """The engine's scheduler and cache. What is not named is as the plan has it."""

    batching: Literal["continuous", "static"] = Field(
        default="continuous", description="sequences come and go step by step, or a batch runs to its end"
    )
    wait_s: fields.Seconds = Field(default=1.0, description="static: how long a batch waits to be full")
    max_batch: fields.PositiveCount | None = Field(default=None, description="sequences that run at once")
    chunk_tokens: fields.Tokens | None = Field(default=None, description="tokens that one step may compute")
    prefill: Literal["mixed", "exclusive", "separate"] = Field(
        default="mixed",
        description="prompts beside decoding sequences, alone and first, or on workers of their own, each "
        "with the accelerators of a planned replica: a replica is then one group of such workers",
    )
    prefill_workers: fields.PositiveCount = Field(default=1, description="separate: of one group")
    decode_workers: fields.PositiveCount = Field(default=1, description="separate: of one group")
    prefix_cache: Literal["on", "off"] = Field(
        default="on", description="whether prompts' blocks are kept for the next request that shares them"
    )
    reserve: Literal["prompt", "answer", "context"] = Field(
        default="prompt",
        description="cache that a sequence takes at once: paged by need, its longest answer, or one piece of "
        "the longest context",
    )

    def idle_fields(self) -> dict[str, str]:
        idle = {} if self.batching == "static" else {"wait_s": "belongs to `batching: static`"}
        if self.prefill != "separate":
            idle |= dict.fromkeys(("prefill_workers", "decode_workers"), "belongs to `prefill: separate`")
        return idle

    @property
    def worker_count(self) -> int:
        """Planned replicas that one of the scenario's is made of."""
        return self.prefill_workers + self.decode_workers if self.prefill == "separate" else 1

    @model_validator(mode="after")
    def _agree(self) -> "EngineChange":
        if self.chunk_tokens is not None and self.chunk_tokens < CHUNK_TOKENS_MIN:
            what = f"a step of {self.chunk_tokens:g} tokens computes less than one block of the cache"
            raise refusal(what, f"write `chunk: {CHUNK_TOKENS_MIN} tok` or more")
        if self.batching == "static" and self.prefill == "separate":
            raise refusal(
                "a static batch runs to its end where it began: `prefill: separate` contradicts it",
                "write `batching: continuous`, or another `prefill`",
            )
        return self
