"""The training half of a rehearsal: the plan's run and others' jobs on a cluster under the real brain."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import merge
from itertools import islice
from math import ceil

from twofold.catalog import Catalog
from twofold.contracts import ClusterChange, Scenario, TrainingFigures, TrainingPlan, read_jobs
from twofold.core import EmptyError, UnknownNameError
from twofold.perf import Constants, device, power_w
from twofold.plan.rehearse_pools import power_factor
from twofold.policy import ClusterBrain, ClusterSettings, FaultSettings, TeamQuota
from twofold.twin import (
    SHAPES,
    CheckpointModel,
    CheckpointStore,
    ClusterResult,
    ClusterWorld,
    FaultRates,
    JobArrival,
    JobTraffic,
    NodeGroup,
    ServingLoad,
    StepModel,
    Use,
    arrivals_of,
    generate_jobs,
    published_rates,
    simulate_cluster,
)

DAY_S = 86400.0
HORIZON_S = 7 * DAY_S  # where a scenario states none
ACCELERATORS_PER_NODE = 8
LOAD_FRACTION = 0.7  # of the cluster, that drawn jobs ask for in the mean where no rate is stated
SAMPLED_COUNT = 4000  # jobs by which their mean size is judged
LARGEST_FRACTION = 0.5  # of the cluster, that a drawn job asks for at most
LEAD_S = 900.0  # before it needs them, serving asks for its nodes
STORE_BYTES_PER_S_PER_NODE = 2e9  # where neither scenario nor plan says what the file system gives
OTHERS_FRACTION = 0.25  # of the plan's nodes, that the jobs of others have besides
# Where no plan says it: weights, gradients and moments of an accelerator that is a fifth full.
CHECKPOINT_BYTES_PER_ACCELERATOR = 16e9
PLAN_TEAM = "plan"


def rehearse_training(
    runs: Sequence[TrainingPlan], scenario: Scenario, seed: int, catalog: Catalog, constants: Constants
) -> TrainingFigures:
    """The plan's first run among other jobs on its cluster, or on the scenario's.

    Raises EmptyError where neither the plan nor the scenario has nodes to train on.
    """
    change = scenario.cluster
    assert change is not None
    run = runs[0] if runs else None
    if run is None and change.nodes is None:
        raise EmptyError(
            "the plan trains nothing, and the scenario names no nodes",
            hint="write `nodes: 16` under `cluster`, or rehearse a plan with a training run",
        )
    world = _world(run, change, scenario.horizon_s or HORIZON_S, seed, catalog, constants)
    result = simulate_cluster(world, _jobs(run, change, world, seed))
    return _figures(result, world)


def _world(
    run: TrainingPlan | None,
    change: ClusterChange,
    horizon_s: float,
    seed: int,
    catalog: Catalog,
    constants: Constants,
) -> ClusterWorld:
    planned = run.machine.accelerators_per_node if run else ACCELERATORS_PER_NODE
    per_node = change.accelerators_per_node or planned
    nodes = change.nodes or _node_count(run, change)
    faults = published_rates(catalog.reliability())
    if change.failures_per_node_per_s is not None:
        per_accelerator_h = change.failures_per_node_per_s * 3600.0 / per_node
        faults = faults.scaled(per_accelerator_h / faults.failures_per_accelerator_h)
    faults = _repaired(faults, change)
    store = change.storage_bytes_per_s or (run.run.checkpoints.storage_bytes_per_s if run else None)
    teams = [f"team-{number + 1}" for number in range(change.jobs.teams if change.jobs else 0)]
    quota = 1.0 / max(1, len(teams))
    settings = ClusterSettings(
        teams=tuple(TeamQuota(team, ceil(quota * nodes * per_node)) for team in teams),
        faults=FaultSettings(spare_count=change.spares),
    )
    part = device(catalog.accelerator(run.machine.accelerator if run else "H100-SXM"), constants)
    whole = power_factor(constants)
    return ClusterWorld(
        nodes=(NodeGroup("node-", nodes, per_node),),
        new_brain=partial(ClusterBrain, settings),
        horizon_s=horizon_s,
        faults=faults,
        step=StepModel(communication_fraction=_communication_fraction(run)),
        checkpoint=CheckpointModel(bytes_per_accelerator=_checkpoint_bytes(run)),
        store=CheckpointStore(bytes_per_s=store or STORE_BYTES_PER_S_PER_NODE * nodes),
        serving=_serving(change, horizon_s),
        quotas=dict.fromkeys(teams, quota) if len(teams) > 1 else None,
        idle_w=float(power_w(part, 0.0)) * whole,
        busy_w=float(power_w(part, 1.0)) * whole,
        seed=seed,
    )


def _node_count(run: TrainingPlan | None, change: ClusterChange) -> int:
    """The plan's nodes and the spares, and some for the jobs of others where there are such jobs."""
    own = run.machine.node_count if run else 1
    return own + change.spares + (ceil(own * OTHERS_FRACTION) if change.jobs else 0)


def _communication_fraction(run: TrainingPlan | None) -> float:
    exposed = run.communication_exposed_fraction if run else None
    return StepModel().communication_fraction if exposed is None else exposed


def _checkpoint_bytes(run: TrainingPlan | None) -> float:
    """Of one accelerator: the plan's checkpoint over those that write it."""
    size = run.run.checkpoints.size_bytes if run else None
    if run is None or size is None:
        return CHECKPOINT_BYTES_PER_ACCELERATOR
    return size / run.machine.accelerator_count


def _repaired(faults: FaultRates, change: ClusterChange) -> FaultRates:
    """Repairs that take as long as the scenario says, where it says so."""
    if "repair_s" not in change.model_fields_set:
        return faults
    causes = tuple(
        replace(cause, repair_s=change.repair_s if cause.repair_s else 0.0) for cause in faults.causes
    )
    return replace(faults, causes=causes)


def _serving(change: ClusterChange, horizon_s: float) -> ServingLoad | None:
    """What serving needs, day after day, and what its autoscaler asks for a little earlier."""
    if not change.serving:
        return None
    days = ceil(horizon_s / DAY_S)
    needed = tuple(
        (day * DAY_S + demand.at_s, demand.accelerators) for day in range(days) for demand in change.serving
    )
    asked = tuple((max(0.0, at_s - LEAD_S), count) for at_s, count in needed)
    first = dict(asked)  # several may fall on the first second
    return ServingLoad(needed, tuple(sorted(first.items())))


def _jobs(
    run: TrainingPlan | None, change: ClusterChange, world: ClusterWorld, seed: int
) -> Iterator[JobArrival]:
    """The plan's run at the first second, and the scenario's jobs, in order of time."""
    own = [_plan_job(run)] if run is not None and _fits(run, world) else []
    others: Iterator[JobArrival] = iter(())
    jobs = change.jobs
    if jobs is not None and jobs.trace is not None:
        others = arrivals_of(read_jobs(jobs.trace))
    elif jobs is not None:
        others = generate_jobs(_drawn_jobs(jobs.like, jobs.rate_per_s, jobs.teams, world, seed, run))
    return merge(own, others, key=lambda job: job.submit_s)


def _fits(run: TrainingPlan, world: ClusterWorld) -> bool:
    return run.machine.accelerator_count <= sum(
        group.count * group.accelerator_count for group in world.nodes
    )


def _plan_job(run: TrainingPlan) -> JobArrival:
    return JobArrival(
        submit_s=0.0,
        duration_s=run.run.compute_s.value,
        accelerator_count=run.machine.accelerator_count,
        team=PLAN_TEAM,
        job_id=run.name,
        priority=1,
        tokens=run.tokens or 0.0,
        samples=run.samples or 0.0,
    )


def _drawn_jobs(
    like: str, rate_per_s: float | None, teams: int, world: ClusterWorld, seed: int, run: TrainingPlan | None
) -> JobTraffic:
    """Jobs like a published cluster's, at the stated rate or at one that loads what the plan's run leaves."""
    if like not in SHAPES:
        raise UnknownNameError(f"`{like}` is no published cluster", hint=f"one of: {', '.join(SHAPES)}")
    shape = SHAPES[like]
    total = sum(group.count * group.accelerator_count for group in world.nodes)
    free = total - (run.machine.accelerator_count if run is not None and _fits(run, world) else 0)
    free = free if free > 0 else total
    traffic = JobTraffic(
        shape,
        until_s=world.horizon_s,
        sizes_max=max(1, int(free * LARGEST_FRACTION)),
        teams=tuple((f"team-{number + 1}", 1.0 / teams) for number in range(teams)),
        seed=seed,
    )
    published_per_s = shape.jobs_count / shape.days / DAY_S
    if rate_per_s is None:
        sampled = list(islice(generate_jobs(replace(traffic, until_s=1e12)), SAMPLED_COUNT))
        mean_s = sum(job.duration_s * job.accelerator_count for job in sampled) / len(sampled)
        rate_per_s = LOAD_FRACTION * free / max(mean_s, 1.0)
    return replace(traffic, rate_factor=rate_per_s / published_per_s)


def _figures(result: ClusterResult, world: ClusterWorld) -> TrainingFigures:
    deviations = [
        abs(team.deviation_fraction) for team in result.teams if team.deviation_fraction is not None
    ]
    serving = result.serving
    return TrainingFigures(
        duration_s=result.duration_s,
        node_count=sum(group.count for group in world.nodes),
        accelerator_count=result.accelerator_count,
        submitted_count=sum(result.jobs.values()),
        outcomes=dict(result.jobs),
        accelerator_h={use.value: result.accelerator_h.get(use, 0.0) for use in Use},
        goodput_fraction=result.goodput_fraction,
        utilisation_fraction=result.utilisation_fraction,
        queue_s_mean={waits.name: waits.mean_s for waits in result.waits_by_size if waits.count},
        queue_s_p95={waits.name: waits.p95_s for waits in result.waits_by_size if waits.count},
        share_deviation_fraction=max(deviations) if deviations else None,
        fragmentation_fraction=result.fragmentation_fraction_mean,
        failure_count=result.failure_count,
        restart_count=result.restart_count,
        preempted_count=result.preempted_count,
        checkpoint_count=result.checkpoint_count,
        checkpoint_s_mean=result.checkpoint_s_mean,
        recovery_s_mean=result.recovery_s_mean,
        serving_needed_h=serving.needed_h if serving else 0.0,
        serving_shortfall_h=serving.shortfall_h if serving else 0.0,
        energy_j=result.energy_j,
        event_count=result.event_count,
        decision_count=result.decision_count,
        effects=dict(result.effects),
        waits_for=result.waiting_for or None,
    )
