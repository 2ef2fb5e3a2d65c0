"""A service as planned: its replicas, pools, classes and promises, and how they did on the twin."""

from dataclasses import dataclass

from twofold.contracts.goals import metric_text
from twofold.contracts.results.parts import Bound, Count, Loser, Machine, Part, Roofline
from twofold.core.display import format_apart
from twofold.core.estimate import Estimate


@dataclass(frozen=True, slots=True)
class RehearsedFigure:
    """One goal on the twin, at the peak and without spares."""

    metric: str  # ttft_p95 tpot_p95 e2e_p95 finish_within …
    value_s: float | None  # s; null: nothing finished
    low_s: float | None  # of its 95 % confidence interval, s; null: too few requests for one
    high_s: float | None  # of the same, s
    resolved: bool  # whether the interval is within 10 % of the value
    met: bool | None  # by the value over all that asked, unanswered ones last; null: nothing arrived


@dataclass(frozen=True, slots=True)
class RehearsedClass:
    """One class of a rehearsed fleet."""

    name: str  # of the class
    finished_count: int  # requests after the warm-up
    figures: tuple[RehearsedFigure, ...]  # each goal
    success_fraction: float | None = None  # of the requests, with a whole answer; null: nothing arrived
    success_met: bool | None = None  # by its share; null: too few requests to tell


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One fleet on the twin."""

    name: str  # its replicas in words
    accelerator_count: int  # without spares
    chosen: bool  # whether the plan has this fleet
    holds: bool  # every goal of every class
    classes: tuple[RehearsedClass, ...]  # what each class got


@dataclass(frozen=True, slots=True)
class MissedGoal:
    """A goal that so many replicas miss on the twin."""

    class_name: str  # whose it is
    metric: str  # ttft_p95 tpot_p95 e2e_p95 finish_within success …
    value: float | None  # s, of success the fraction with a whole answer; null: too few are answered
    limit: float  # of the same

    @property
    def text(self) -> str:
        """`TPOT p95 (41 of 40 ms)`: the goal, what it is and what it was to be."""
        scale, unit = (100.0, "%") if self.metric == "success" else (1.0, "s")
        value, limit = format_apart((self.value or 0.0) * scale, self.limit * scale, unit)
        digits, _, label = value.rpartition(" ")
        value = digits if limit.endswith(f" {label}") else value
        return f"{metric_text(self.metric)} ({'never' if self.value is None else value} of {limit})"


@dataclass(frozen=True, slots=True)
class ReplicaNeed:
    """How few replicas of a pool hold on the twin at the peak, beside what the closed form asks for.

    Where the closed form's miss, the plan takes the fewest that hold; where they hold it keeps them.
    """

    pool: str  # its first class
    accelerator: str  # that it was tried on; another than the plan's: that one could not hold
    provider: str | None  # whose it was before it was rehearsed; null: your own, or not priced
    closed_form_count: int  # that the search asks for, without spares
    full_load_count: int  # of these, what the goals alone take: a part of the load is kept free
    holding_count: int | None  # the fewest that were seen to hold; null: none was
    missing_count: int | None  # the most below that were seen to miss; null: none was
    planned_missed: tuple[MissedGoal, ...]  # what `closed_form_count` misses; none: it holds
    missed: tuple[MissedGoal, ...]  # what `missing_count` misses
    predicted_s: float | None  # the figure of the first of them at `holding_count` by the closed form, s
    simulated_s: float | None  # the same on the twin, s
    usd_per_year: float | None  # of `holding_count` beyond `closed_form_count`; null: not priced

    @property
    def agrees(self) -> bool:
        """Whether both are within one replica."""
        return self.holding_count is not None and abs(self.closed_form_count - self.holding_count) <= 1


@dataclass(frozen=True, slots=True)
class SloOutcome:
    """One goal of a class and what is predicted for it at peak: `met` is decided on `predicted.value`."""

    metric: str  # ttft_p95 tpot_p95 e2e_p95 finish_within …
    limit_s: float  # s
    predicted: Estimate | None  # s; null: the measured rows cannot say
    met: bool | None  # by the middle of the prediction; null: not known
    rehearsed: RehearsedFigure | None = None  # on the twin; null: not rehearsed
    holds_probability: float | None = None  # that it is met, by the draws of the range; null: not known


@dataclass(frozen=True, slots=True)
class SuccessOutcome:
    """The share of a class's requests that is to get whole answers: what is refused or late has failed."""

    goal_fraction: float = 0.999  # over steady traffic
    predicted_fraction: float | None = None  # whose first token no time-out cuts off; null: rows cannot say
    met: bool | None = None  # by what is predicted; null: not known
    rehearsed_fraction: float | None = None  # on the twin; null: not rehearsed
    rehearsed_met: bool | None = None  # on the twin; null: not rehearsed, or too few requests to tell


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
    latency_budget: tuple[Part, ...]  # edge, gateway, tiers, queue, prefill, decode
    replica_text: str = ""  # the layout of the replicas that serve this class
    input_spread_ratio: float = 0.0  # deviation of input tokens over their mean
    output_spread_ratio: float = 0.0  # deviation of output tokens over their mean
    shared_prefix_fraction: float = 0.0  # of the input, found in the prefix cache
    profile: str = "flat"  # shape of the week: flat consumer business
    trace: str | None = None  # the file that its traffic was read from; null: none
    trace_scale_ratio: float = 1.0  # factor on the trace's rate
    success: SuccessOutcome = SuccessOutcome()  # requests that are to get whole answers
    outlasts_zone: bool = True  # whether its goals are to hold while a zone is lost
    spare_count: int | None = None  # beside `replica_count`, for this class alone; null: its pool has them

    @property
    def is_waited_for(self) -> bool:
        """Whether a request is promised something, not only a day's end."""
        return any(slo.metric != "finish_within" for slo in self.slos)


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
    repository: str = ""  # of its weights, as the spec names it; "": the spec names a model alone


@dataclass(frozen=True, slots=True)
class Workers:
    """Equal workers that compute prompts, or that answer, for some classes."""

    name: str  # the first of its classes and its role
    role: str  # prefill or decode
    classes: tuple[str, ...]  # that they work for
    model: str  # what they serve, a variant maybe
    replica: Replica  # one of them
    replica_count: int  # spares included
    spare_count: int  # of them


@dataclass(frozen=True, slots=True)
class TierPlan:
    """CPU servers that every request passes before a replica: how many, and what they add at the peak."""

    name: str  # as the spec calls it
    cores: int  # of one replica
    replica_count: int  # of them
    in_flight_limit: int  # requests that one has at once
    queue_limit_count: int  # that wait for a place; more are refused
    peak_per_s: float  # requests/s of all classes
    work_s: float  # of one core that a request takes, mean
    work_s_p95: float  # the same, 95th percentile
    mean_s: float  # waiting and work at the peak
    p50_s: float  # the same, median
    p95_s: float  # the same, 95th percentile
    p99_s: float  # the same, 99th
    goal_s: float  # of `p95_s`
    holds_until_per_s: float  # requests/s of all classes that keep the goal
    utilisation_fraction: float  # of its cores, or of its places where these are fewer, at the peak
    is_sized: bool  # whether the plan chose how many; otherwise the spec did
    is_bottleneck: bool = False  # whether it stops more load before any other tier and any replica does
    accelerator: str | None = None  # the processor that prices its cores
    usd_per_core_h: float | None = None  # USD; null: no price is known
    price_from: str = ""  # whose price, of what and when
    cost_usd_per_year: float | None = None  # of all its cores, USD

    @property
    def place_count(self) -> int:
        """Requests that all its replicas work on at full speed."""
        return self.replica_count * min(self.cores, self.in_flight_limit)


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to serve that the spec leaves open, priced on the planned machines. The plan does not take it."""

    name: str  # disaggregation drafts prefix_cache
    saved_fraction: Estimate  # of the service's accelerators; negative: it needs more
    saved_usd_per_year: Estimate | None  # USD; null: no price
    accelerator_count: int  # with it, spares included
    needs: tuple[str, ...]  # what must hold for that
    workers: tuple[Workers, ...] = ()  # of disaggregation: both kinds, by classes


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """What a class gets at one load."""

    rate_per_s: float  # requests/s of the class on all its replicas
    latency: Estimate  # of the goal's metric, s


@dataclass(frozen=True, slots=True)
class LatencyCurve:
    """One goal over the load of its class, on the replicas of the plan, until they saturate."""

    class_name: str  # whose goal it is
    metric: str  # ttft_p95 tpot_p95 e2e_p95 …
    limit_s: float  # of the goal, s
    points: tuple[LoadPoint, ...]  # by rate; classes that share a pool grow together


@dataclass(frozen=True, slots=True)
class WeighedFleet:
    """A fleet that keeps every goal: what it costs as leased, and how near it comes to the tightest goal."""

    what: str  # its machines, as the search calls them
    accelerator_count: int  # at most at once, spares included
    usd_per_year: float  # as leased, USD
    class_name: str  # whose goal takes most of its limit on the planned fleet
    metric: str  # of that goal
    limit_s: float  # of that goal, s
    latency_s: float  # at the peak, by the middle, s
    chosen: bool  # whether the plan has it


@dataclass(frozen=True, slots=True, kw_only=True)
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
    memory_bytes: Estimate | None = None  # per device; null: not measured
    memory_parts: tuple[Part, ...] = ()  # weights, buffers, KV cache …
    memory_capacity_bytes: float  # of one accelerator
    kv_bytes_per_token: float | None = None  # of the whole replica
    kv_utilisation_fraction: float | None = None  # of the cache at peak
    batch_limit: str | None  # bandwidth or capacity: which of the two limits the batch; null: as measured
    cold_start_s: Estimate | None = None  # from nothing to the first answer; null: not measured
    warm_pool_count: int | None = None  # replicas to keep warm for the peak; null: not known
    output_tokens_per_s_per_accelerator: Estimate | None = None  # at peak; null: not measured
    output_tokens_per_j: Estimate | None = None  # at peak; null: not measured
    peak_ratio: Estimate | None = None  # rate over the datasheet's roofline; null: no model
    communication_exposed_fraction: float | None = None  # of a decode step; null: not measured
    pooling_loss_fraction: float | None = None  # accelerators of a pool per class over one for all, less 1
    cost_usd_per_year: Estimate | None  # spares included; null: no price
    energy_j_per_year: Estimate  # J
    carbon_gco2_per_year: Estimate | None  # g
    bounds: tuple[Bound, ...] = ()  # strongest first
    tried: int  # candidates evaluated
    rejected: tuple[Count, ...] = ()  # candidates by reason
    losers: tuple[Loser, ...]  # the best of each other machine
    flip_fraction: float = 0.0  # draws in which a runner-up wins
    warnings: tuple[str, ...]  # what to know before signing
    cold_start_parts: tuple[Part, ...] = ()  # loading the weights, and warming up
    network_bytes_per_token: float | None = None  # what an accelerator sends for one token through all layers
    all_to_all_bytes_per_token: float | None = None  # of it, between expert ranks
    rehearsals: tuple[Rehearsal, ...] = ()  # fleets tried on the twin, the chosen one first
    replica_needs: tuple[ReplicaNeed, ...] = ()  # pools with limits on latencies: the fewest on the twin
    choices: tuple[Choice, ...] = ()  # what nobody decided on, the largest saving first; none: measured rows
    pools: tuple[Pool, ...] = ()  # all replicas, by layout; none: measured rows instead of a model
    latency_curves: tuple[LatencyCurve, ...] = ()  # goals over the load; none: batch or measured rows
    weighed: tuple[WeighedFleet, ...] = ()  # fleets that keep every goal, the planned one first; none: owned
    roofline: Roofline | None = None  # of its steps; null: measured rows instead of a model
    tiers: tuple[TierPlan, ...] = ()  # CPU servers before the replicas, in the order of requests

    @property
    def in_valleys(self) -> tuple[str, ...]:
        """Classes whose work of a day finds machines in the hours in which the others ask least."""
        together = sum(pool.replica_count * pool.replica.accelerator_count for pool in self.pools)
        servers = -(-together // self.machine.accelerators_per_node)
        return tuple(
            each.name for each in self.classes if not each.is_waited_for and self.machine.node_count < servers
        )
