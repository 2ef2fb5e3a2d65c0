"""What a scenario says about a training cluster: its nodes, its jobs, and what serving takes of it."""

from typing import Annotated

from pydantic import Field, model_validator

from twofold.contracts import fields
from twofold.contracts.fields import Listed, Part, refusal
from twofold.contracts.scenario_parts import Bandwidth, Moment
from twofold.core import ValueRefusedError


class Jobs(Part):
    """Which jobs are submitted: those of a trace, or drawn at a rate like published ones."""

    trace: fields.FilePath | None = Field(default=None, description="a csv or csv.gz of jobs")
    rate_per_s: fields.Rate | None = Field(default=None, alias="rate", description="jobs drawn, in the mean")
    like: Annotated[str, fields.Name] = Field(
        default="seren", description="the published cluster that they are like: seren kalos philly helios pai"
    )
    teams: fields.PositiveCount = Field(default=4, description="that they are spread over, where drawn")

    @model_validator(mode="after")
    def _one_of(self) -> "Jobs":
        if self.trace is not None and self.rate_per_s is not None:
            raise refusal(ValueRefusedError, "jobs come from a `trace` or at a `rate`", "write one of them")
        return self


class Demand(Part):
    """Accelerators that serving needs from a time of the day on."""

    at_s: Moment = Field(alias="at", description="since the day began")
    accelerators: fields.Count = Field(description="that it needs from then on")


class ClusterChange(Part):
    """A training cluster, where it is not as planned."""

    nodes: fields.PositiveCount | None = Field(
        default=None, description="else those of the plan's run, and a quarter more for the jobs of others"
    )
    spares: fields.Count = Field(default=0, description="nodes of them that are kept free for failures")
    accelerators_per_node: fields.PositiveCount | None = Field(default=None, description="else as planned")
    failures_per_node_per_s: fields.Rate | None = Field(
        default=None, alias="failures", description="of one node; else the fitted rate"
    )
    repair_s: fields.Seconds = Field(
        default=2 * 3600.0, alias="repair", description="until a failed node is back, in the mean"
    )
    storage_bytes_per_s: Bandwidth | None = Field(
        default=None, alias="storage", description="what all checkpoints share; else what the plan asks for"
    )
    jobs: Jobs | None = Field(default=None, description="besides the plan's own runs")
    serving: Annotated[tuple[Demand, ...], Listed] = Field(
        default=(), description="what serving takes of the pool, through a day"
    )

    @model_validator(mode="after")
    def _agree(self) -> "ClusterChange":
        if self.nodes is not None and self.spares >= self.nodes:
            raise refusal(
                ValueRefusedError,
                f"{self.spares} spares of {self.nodes} nodes leave none to train on",
                "write fewer spares, or more nodes",
            )
        moments = [demand.at_s for demand in self.serving]
        if moments != sorted(set(moments)) or (moments and moments[-1] >= 86400.0):
            raise refusal(ValueRefusedError, "the times of `serving` rise within one day")
        return self
