"""What a rehearsal came to, as data, schema `twofold/simulation/1`: what `simulate --json` prints.

Nothing here computes. Lengths of time are seconds, energy joules, money USD. Arrays stay arrays with one
service; a missing half is an empty array.
"""

from dataclasses import dataclass, field

from twofold.contracts.results.courses import ClusterCourse, FleetCourse

SIMULATION_SCHEMA = "twofold/simulation/1"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a figure lies with 95 % confidence; null where the run is too short to say."""

    p50: tuple[float, float] | None  # low and high
    p90: tuple[float, float] | None  # low and high
    p95: tuple[float, float] | None  # low and high
    p99: tuple[float, float] | None  # low and high
    mean: tuple[float, float] | None  # low and high


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """One metric of a class over its finished requests."""

    p50: float  # s
    p90: float  # s
    p95: float  # s
    p99: float  # s
    mean: float  # s
    count: int  # finished requests that it is over
    interval: Bounds  # of each
    resolved: bool  # whether the interval of p95 is within 10 % of it
    asked: dict[str, float | None]  # quantiles of all that asked, s; null: so many were not answered


@dataclass(frozen=True, slots=True)
class SloKept:
    """One goal of a class, and what came of it."""

    metric: str  # ttft_p95 tpot_p95 e2e_p95 finish_within …
    limit_s: float  # s
    simulated_s: float | None  # over all that asked, unanswered ones last, s; null: it is one of them
    planned_s: float | None  # what the plan says, s; null: nothing
    met: bool | None  # within the limit; null: nothing arrived


@dataclass(frozen=True, slots=True)
class SuccessKept:
    """What became of a class's requests: refused, timed out, failed, left and still open ones have failed."""

    goal_fraction: float  # that are to get their whole answer: the scenario's, else the plan's
    simulated_fraction: float | None  # that did; null: nothing arrived
    failed_count: int  # that did not
    year_failed_fraction: float | None  # of a year's requests, by how often this happens; null: not stated
    year_allowed_fraction: float  # of a year's requests: what the plan's own goal leaves over
    met: bool | None  # both; null: too few requests to tell


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFigures:
    """One latency class, of requests that arrived after the warm-up."""

    name: str  # of the class
    service: str = ""  # whose it is
    pool: str = ""  # the replicas that serve it
    rate_per_s: float  # requests that arrived, /s
    arrived_count: int  # requests
    finished_count: int  # of them, with a whole answer
    ttft_s: LatencyFigures | None  # to the first token; null: nothing finished
    tpot_s: LatencyFigures | None  # per further token; null: no answer has two
    e2e_s: LatencyFigures | None  # to the whole answer; null: nothing finished
    slos: tuple[SloKept, ...] = ()  # each goal
    success: SuccessKept | None = None  # whole answers; null: not judged yet
    outcomes: dict[str, int]  # requests by how they ended
    goodput_per_s: float  # requests finished within every goal, /s
    goodput_fraction: float  # of those that arrived
    input_tokens: int  # of finished requests
    output_tokens: int  # of finished requests

    @property
    def missed(self) -> tuple[str, ...]:
        """The goals that were not kept, by name: the one verdict of rehearsals and of plans."""
        late = tuple(slo.metric for slo in self.slos if slo.met is False)
        return late if self.success is None or self.success.met is not False else (*late, "success")


@dataclass(frozen=True, slots=True)
class BrokeFirst:
    """The first limit that did not hold."""

    at_s: float  # since the run began
    signal: str  # what was over its limit
    value: float  # that it had
    limit: float  # that it should keep
    text: str  # on one line


@dataclass(frozen=True, slots=True)
class AfterFault:
    """What the gate did about the first thing that went wrong, from when it did."""

    at_s: float  # since the run began
    first_effects_s: dict[str, float]  # until the gate first answered so, by name
    missent_count: int  # requests sent to replicas that could not hear them
    missent_s: float | None  # until the last of them; null: none
    recovered_s: float | None  # until what is answered in time is back at 90 %; null: not to the end
    affected_fraction: float | None  # of requests until a release was decided, what it got; null: no release
    stage_fraction: float | None = None  # of requests, that its last stage was to get; null: no release
    release_p95_s: dict[str, float] = field(default_factory=dict)  # by class and metric, until it was decided


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """One tenant's requests that arrived after the warm-up."""

    name: str  # of the tenant; empty: those who were not named
    arrived_count: int  # requests
    finished_count: int  # of them, with a whole answer
    ttft_p95_s: float | None  # to the first token; null: nothing finished
    e2e_p95_s: float | None  # to the whole answer; null: nothing finished
    served_tokens: int  # input and output of what finished
    fair_fraction: float | None  # of its fair share of all served tokens; null: nothing finished


@dataclass(frozen=True, slots=True)
class TierFigures:
    """One CPU tier before the replicas, of requests that passed it after the warm-up."""

    name: str  # of the tier
    replica_count: int  # of it
    cores: int  # of one replica
    in_flight_limit: int  # requests that one has at once
    passed_count: int  # requests
    refused_count: int  # requests, in the warm-up too
    wait_s_mean: float  # for a place, s
    work_s_mean: float  # at a server, s
    p50_s: float  # both, s
    p95_s: float  # the same, s
    p99_s: float  # the same, s
    goal_s: float | None  # of p95, s; null: none
    met: bool | None  # null: no goal, or nothing passed
    busy_fraction: float  # of all its cores' time, until the last request had passed it
    waiting_mean: float  # requests, at the scrapes
    is_bottleneck: bool  # whether it held requests up more than any other tier and than the replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFigures:
    """One pool of a service over the whole run."""

    service: str = ""  # whose pool
    pool: str = ""  # named by the first of its classes
    accelerator: str = ""  # catalogue name
    replica_count: int  # when the run began
    replica_count_max: int  # at any time
    duration_s: float  # simulated
    measured_s: float  # of it, after the warm-up
    arrived_count: int  # requests, those of the warm-up too
    finished_count: int  # requests
    outcomes: dict[str, int]  # requests by how they ended; they add up to those that arrived
    retry_count: int  # further requests of the same clients
    goodput_per_s: float  # requests within every goal, /s
    input_tokens: int  # of finished requests
    output_tokens: int  # of finished requests
    utilisation_fraction: float  # of ready time in which a replica computed
    kv_utilisation_fraction: float  # of the cache, in the mean
    prefix_hit_fraction: float  # of input tokens found in the cache
    computed_s: float  # by all replicas together
    saved_s: float  # of computing, that found tokens spared
    kv_waste_fraction: float  # of the cache that requests held, what no token filled
    token_gap_p99_s: float | None  # between the tokens of an answer, 99 of 100 gaps; null: none was seen
    token_gap_max_s: float | None  # the longest of these gaps
    preempted_count: int  # requests that lost their cache and began again
    started_count: int  # replicas started meanwhile
    start_s_mean: float  # from the decision to ready
    accelerator_h: float  # accelerator-hours
    cost_usd: float | None  # of the run; null: no price
    usd_per_1k_output_tokens: float | None  # USD; null: no price, or no token
    usd_per_request: float | None  # USD of a finished request; null: no price, or none finished
    energy_j: float  # J
    output_tokens_per_j: float | None  # tokens/J; null: no token
    power_w_max: float = 0.0  # of its machines together, over 30 s
    power_ramp_w_per_s: float = 0.0  # the steepest change of it within 30 s, up or down
    event_count: int  # that the gate handled
    decision_count: int  # effects that it answered with, probes aside
    effects: dict[str, int]  # by name
    after_fault: AfterFault | None = None  # null: nothing went wrong
    little_error_fraction: float  # how far Little's law is off: our own check
    waits_for: str | None  # why the run was stopped before all requests had ended; null: it was not
    broke_first: BrokeFirst | None  # null: every limit held
    power_ramp_limit_w_per_s: float | None = None  # that the site may show the grid; null: not known
    replica_text: str = ""  # how a replica is other than planned; empty: it is not
    queued_mean: float  # requests that the gate held, at the scrapes
    waiting_mean: float  # requests in engines whose answer had not begun, at the scrapes
    load_fraction: float | None = None  # requests that came over what its replicas hold; null: not known
    given_again_tokens: int = 0  # of kept answers that exact repeats got, which no replica wrote
    overflowed_count: int | None = None  # attempts that went to a hosted API; null: there is none
    overflow_usd: float | None = None  # of the run's cost, to it
    smaller_count: int | None = None  # attempts that a smaller model was to answer; null: there is none
    spare_count: int = 0  # of its replicas when the run began, those that the plan's peak does not need
    tiers: tuple[TierFigures, ...] = ()  # CPU servers before its replicas
    has_tokens: bool = True  # false of measured rows, whose batches have neither tokens nor their cache


@dataclass(frozen=True, slots=True)
class BeliefRun:
    """The same run with the machines' beliefs put off."""

    belief_factor: float  # times the world's own times; 1: perfect
    goodput_fraction: float  # of all that arrived
    ttft_p95_s: dict[str, float | None]  # by class, s
    tpot_p95_s: dict[str, float | None]  # by class, s
    e2e_p95_s: dict[str, float | None]  # by class, s
    slos_met: bool  # every goal of every class that had requests; false where none had


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One of the plan's own runs on the cluster."""

    name: str  # of the run
    state: str  # completed, running, queued …
    waited_s: float  # until it first started
    train_s: float | None  # from its first start to its end; null: it has not ended
    completion_s: float | None  # from its submission to its end; null: it has not ended
    tokens_per_s: float | None  # tokens trained on over that time; null: counted in samples, or not started
    samples_per_s: float | None  # sequences, or what else a step reads


@dataclass(frozen=True, slots=True)
class TeamFigures:
    """One team on the cluster."""

    name: str  # of the team
    accelerator_h: float  # accelerator-hours that its jobs held
    quota_fraction: float | None  # of what all teams with a quota are promised; null: none
    share_fraction: float | None  # that it had while all of them waited; null: they never all did
    queue_s_p95: float  # until the first start, s


@dataclass(frozen=True, slots=True)
class StepFigures:
    """A step of the plan's run at the size that it has here, hop by hop around its ring."""

    accelerator_count: int  # of the run
    parts_s: dict[str, float]  # compute, communication, input that is waited for, sync with the slowest
    step_s_p50: float  # s
    step_s_p99: float  # s
    inflation_fraction: float  # of the p99 step over the undisturbed one


@dataclass(frozen=True, slots=True)
class SplitFigures:
    """The same nodes as one pool and as two fleets, serving's as large as its peak."""

    shared_utilisation_fraction: float  # of accelerator-hours, those needed or whose work is kept
    split_utilisation_fraction: float  # the same of two fleets
    shared_shortfall_s: float  # in which serving lacked any accelerator
    split_shortfall_s: float  # the same of two fleets
    training_gain_fraction: float  # accelerator-hours of work kept, one pool over two fleets, less one
    training_slowdown_factor: float  # of steps beside serving over steps alone
    serving_slowdown_factor: float  # of service times beside training over those alone


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFigures:
    """The training half: jobs on a cluster, and what serving takes of it."""

    duration_s: float  # simulated
    node_count: int  # of the cluster
    accelerator_count: int  # of the cluster
    submitted_count: int  # jobs
    outcomes: dict[str, int]  # jobs by how they ended, or what they did at the end
    accelerator_h: dict[str, float]  # accelerator-hours by use; they add up to the cluster's
    goodput_fraction: float  # of the time that jobs held accelerators, work that was kept
    utilisation_fraction: float  # of the cluster's accelerator-hours, those that trained or served
    queue_s_mean: dict[str, float]  # until the first start, by size of the job, s
    queue_s_p95: dict[str, float]  # the same, s
    share_deviation_fraction: float | None  # of the team furthest from its fair share; null: one team
    fragmentation_fraction: float  # of free accelerators, those on nodes that others use too
    largest_free_count_mean: float  # accelerators of whole free nodes that stand together
    failure_count: int  # that hit a running job
    restart_count: int  # attempts after the first
    preempted_count: int  # jobs stopped for others
    checkpoint_count: int  # written
    checkpoint_s_mean: float  # of a write
    recovery_s_mean: float  # from a failure until the job goes on
    serving_needed_h: float  # accelerator-hours that serving asked of the pool
    serving_shortfall_h: float  # of them, not there in time
    energy_j: float  # J
    event_count: int  # that the brain handled
    decision_count: int  # effects that it answered with
    effects: dict[str, int]  # by name
    waits_for: str | None  # what the run still waited for at its end; null: nothing
    runs: tuple[RunFigures, ...] = ()  # the plan's own
    teams: tuple[TeamFigures, ...]  # by name
    slowdown_factor: float  # of training steps, over sound accelerators side by side
    serving_slowdown_factor: float  # of service times beside training
    pace_setters: dict[str, float]  # accelerator-hours that others waited for a node, most first
    step: StepFigures | None = None  # null: no run with a step
    checkpoint_files_count: float = 0.0  # of the largest job
    checkpoint_metadata_s: float = 0.0  # of its checkpoint, to create them, s
    checkpoint_data_s: float = 0.0  # of its checkpoint, to write the bytes, s
    checkpoint_interval_s_mean: float | None  # of running jobs, between two checkpoints; null: none written
    preempted_lost_s_max: float | None  # of work undone by a preemption, s; null: none came without a failure
    partial_gang_count: int = 0  # jobs that were given some of their accelerators, not all
    deadlock_count: int  # looks at a sound cluster where jobs waited and none ran
    placement: dict[str, str]  # what runs where at the end: node:accelerators of each job
    split: SplitFigures | None = None  # null: not asked for
    alarms: tuple[str, ...] = ()  # what is beyond a limit, the worst first
    missed: tuple[str, ...] = ()  # what the plan's runs or serving were owed and did not get, the worst first
    failures_by_cause: dict[str, int]  # of nodes, and of jobs where these stay
    course: ClusterCourse | None = None  # over time; null: in files from before there was one


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure under two scenarios with the same seeds, B minus A."""

    figure: str  # such as chat.ttft_p95_s
    a: float  # mean over the seeds
    b: float  # mean over the seeds
    difference: float  # mean of the paired differences
    low: float  # of its 95 % confidence interval
    high: float  # of its 95 % confidence interval


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two scenarios beside each other."""

    a: str  # scenario
    b: str  # scenario
    seeds: tuple[int, ...]  # each run under both
    differences: tuple[Difference, ...]  # figure by figure


@dataclass(frozen=True, slots=True)
class Simulation:
    """One rehearsal of a plan, with everything that a screen shows."""

    schema: str  # `twofold/simulation/1`
    name: str  # of the plan
    twofold: str  # version
    plan_digest: str  # SHA-256 of the plan that was rehearsed
    scenario: str  # its name
    about: str  # the scenario in a line
    seed: int  # of every draw
    horizon_s: float  # until when requests arrive, or a cluster is looked at
    warm_up_s: float  # from the start, left out of figures
    traffic: dict[str, str]  # by class: where its requests come from
    policies: tuple[str, ...]  # that were on
    classes: tuple[ClassFigures, ...]  # of all services, with perfect beliefs
    fleets: tuple[FleetFigures, ...]  # every pool of every service, with perfect beliefs
    beliefs: tuple[BeliefRun, ...]  # perfect, and put off both ways
    training: TrainingFigures | None  # null: no cluster was rehearsed
    slos_met: bool  # every goal of every class that had requests, and of a cluster; false where none had
    broke_first: str | None  # what broke first, in a line; null: nothing
    event_count: int  # that the machines handled
    decision_count: int  # effects that they answered with, probes aside
    notes: tuple[str, ...] = ()  # what to know of the figures
    comparison: Comparison | None = None  # with `--compare`
    tenants: tuple[TenantFigures, ...] = ()  # where the scenario names some
    gate_digests: dict[str, str] = field(default_factory=dict)  # SHA-256 of what each gate is told, by pool
    courses: tuple[FleetCourse, ...] = ()  # every pool over time, with perfect beliefs
