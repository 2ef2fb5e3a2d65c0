"""The training half of a rehearsal: the plan's run and others' jobs on a cluster under the real brain."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import merge
from itertools import islice
from math import ceil, inf

from twofold.catalog import Catalog, Observation
from twofold.contracts.results import TrainingFigures, TrainingPlan
from twofold.contracts.rows import read_jobs
from twofold.contracts.spec import ClusterChange, ClusterJobs, Scenario
from twofold.core import DAY_S, EmptyError, UnknownNameError, ValueRefusedError
from twofold.perf import Constants, device, power_w
from twofold.policy.cluster import CadenceSettings, ClusterSettings, FaultSettings, TeamQuota
from twofold.rehearse.faults import NODE_NAME, node_losses, repaired, slow_nodes
from twofold.rehearse.pools import power_factor
from twofold.rehearse.traffic import check_cluster_ends, check_cluster_span
from twofold.rehearse.training_figures import (
    ClusterRehearsal,
    OnJob,
    Watch,
    run_node_count,
    step_rehearsal,
    training_figures,
)
from twofold.twin import metadata_sweep
from twofold.twin.cluster import (
    SHAPES,
    CheckpointModel,
    CheckpointStore,
    ClusterMachine,
    ClusterWorld,
    JobArrival,
    JobTraffic,
    NodeGroup,
    RunEnd,
    ServingLoad,
    StepModel,
    arrivals_of,
    compare_pool,
    generate_jobs,
    published_rates,
    simulate_cluster,
)

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
    runs: Sequence[TrainingPlan],
    scenario: Scenario,
    seed: int,
    catalog: Catalog,
    constants: Constants,
    on_job: OnJob | None = None,
) -> TrainingFigures:
    """The plan's first run among other jobs on its cluster, or on the scenario's.

    `on_job` is told of every job at its end, and of what is left when the run is over. Raises EmptyError
    where there are no nodes to train on, or no job; ValueRefusedError where the plan's run, or a node that is
    to be slow or to fail, is more than the cluster has, and where the run would not end in hours.
    """
    change = scenario.cluster
    assert change is not None
    run = _own_run(runs, change)
    watch = Watch(_settings(run, change), PLAN_TEAM, on_job)
    horizon_s = scenario.horizon_s or HORIZON_S
    check_cluster_span(horizon_s)
    world = _world(run, scenario, horizon_s, seed, catalog, constants, watch.new_brain)
    check_cluster_ends(world, change)
    if change.against_split:
        _check_split(world)
        pool = compare_pool(world, lambda: _jobs(run, change, world, seed), on_job=watch.note)
        result = pool.shared
    else:
        pool, result = None, simulate_cluster(world, _jobs(run, change, world, seed), watch.note)
    step = step_rehearsal(run, change, seed) if run and _fits(run, change) else None
    (metadata,) = metadata_sweep(
        watch.largest_count,
        max(1, watch.largest_count) * world.checkpoint.bytes_per_accelerator,
        world.store.bytes_per_s,
        world.store.operations_per_s,
        (change.files_per_accelerator,),
    )
    present = run if run and _fits(run, change) else None
    return training_figures(ClusterRehearsal(result, watch, pool, step, metadata, present))


def left_out(runs: Sequence[TrainingPlan], change: ClusterChange) -> tuple[str, ...]:
    """What to know where the plan's run is not among the jobs: the cluster has no room for it."""
    run = runs[0] if runs else None
    return () if run is None or _fits(run, change) else (f"{_too_large(run, change)}: it is left out",)


def _own_run(runs: Sequence[TrainingPlan], change: ClusterChange) -> TrainingPlan | None:
    """The plan's first run. Raises where there is nothing to train on, or nothing that would run."""
    run = runs[0] if runs else None
    if run is None and change.nodes is None:
        raise EmptyError(
            "the plan trains nothing, and the scenario names no nodes",
            hint="write `nodes: 16` under `cluster`, or rehearse a plan with a training run",
        )
    if change.given or change.jobs or (run is not None and _fits(run, change)):
        return run
    if run is None:
        raise EmptyError(
            "the plan trains nothing, and the scenario submits no job",
            hint="write `given` or `jobs` under `cluster`, or rehearse a plan with a training run",
        )
    most = _room_count(run, change) // run.machine.accelerators_per_node
    smaller = f"`run_nodes: {most}`, or " if most else ""
    spares = " or fewer `spares`" if change.spares else ""
    hint = f"write {smaller}more `nodes`{spares} under `cluster`"
    raise ValueRefusedError(_too_large(run, change), hint=hint)


def _too_large(run: TrainingPlan, change: ClusterChange) -> str:
    room, kept = _room_count(run, change), " beside its spares" if change.spares else ""
    return (
        f"the plan's run of {_run_count(run, change):,} accelerators does not fit the {room:,} that the "
        f"cluster has{kept}"
    )


def _settings(run: TrainingPlan | None, change: ClusterChange) -> ClusterSettings:
    """What the brain is told: quotas of teams, spares, and how often checkpoints are written."""
    total = _accelerator_count(run, change)
    teams = tuple(
        TeamQuota(team, ceil(share * total), weight_ratio=max(share, 1e-6))
        for team, share in _shares(change).items()
    )
    return ClusterSettings(
        teams=teams,
        faults=FaultSettings(spare_count=change.spares),
        cadence=CadenceSettings(fixed_interval_s=change.checkpoint_every_s),
    )


def _shares(change: ClusterChange) -> dict[str, float]:
    """Of the cluster, by team: as the scenario promises, else alike for those whose jobs are drawn."""
    if change.quotas:
        return {quota.team: quota.share_fraction for quota in change.quotas}
    count = change.jobs.teams if change.jobs else 0
    return {f"team-{number + 1}": 1.0 / count for number in range(count)}


def _per_node_count(run: TrainingPlan | None, change: ClusterChange) -> int:
    planned = run.machine.accelerators_per_node if run else ACCELERATORS_PER_NODE
    return change.accelerators_per_node or planned


def _accelerator_count(run: TrainingPlan | None, change: ClusterChange) -> int:
    return (change.nodes or _node_count(run, change)) * _per_node_count(run, change)


def _world(
    run: TrainingPlan | None,
    scenario: Scenario,
    horizon_s: float,
    seed: int,
    catalog: Catalog,
    constants: Constants,
    new_brain: Callable[[], ClusterMachine],
) -> ClusterWorld:
    change = scenario.cluster
    assert change is not None
    per_node = _per_node_count(run, change)
    nodes = change.nodes or _node_count(run, change)
    faults = published_rates(catalog.rows(Observation))
    if change.failures_per_node_per_s is not None:
        per_accelerator_h = change.failures_per_node_per_s * 3600.0 / per_node
        faults = faults.scaled(per_accelerator_h / faults.failures_per_accelerator_h)
    faults = repaired(faults, change)
    store = change.storage_bytes_per_s or (run.run.checkpoints.storage_bytes_per_s if run else None)
    shares = _shares(change)
    part = device(catalog.accelerator(run.machine.accelerator if run else "H100-SXM"), constants)
    whole = power_factor(constants)
    return ClusterWorld(
        nodes=(NodeGroup(NODE_NAME, nodes, per_node),),
        new_brain=new_brain,
        horizon_s=horizon_s,
        # Where all jobs are known the run ends with them; drawn jobs and serving go on.
        ends=RunEnd.HORIZON if change.jobs or change.serving else RunEnd.LAST_JOB,
        faults=faults,
        slow_nodes=slow_nodes(change, nodes),
        losses=node_losses(scenario.faults, nodes, faults.detection_s, horizon_s),
        step=StepModel(
            communication_fraction=_communication_fraction(run),
            jitter_fraction=change.jitter_fraction,
            training_interference_fraction=change.training_interference_fraction,
            serving_interference_fraction=change.serving_interference_fraction,
        ),
        checkpoint=CheckpointModel(
            bytes_per_accelerator=_checkpoint_bytes(run), files_per_accelerator=change.files_per_accelerator
        ),
        store=CheckpointStore(
            bytes_per_s=store or STORE_BYTES_PER_S_PER_NODE * nodes,
            operations_per_s=change.metadata_per_s or inf,
        ),
        serving=_serving(change, horizon_s),
        quotas=shares if len(shares) > 1 else None,
        idle_w=float(power_w(part, 0.0)) * whole,
        busy_w=float(power_w(part, 1.0)) * whole,
        seed=seed,
    )


def _check_split(world: ClusterWorld) -> None:
    """Raises ValueRefusedError where serving's own fleet would leave no node to train on."""
    assert world.serving is not None  # the scenario was read
    (group,) = world.nodes
    peak_count = max(count for _, count in world.serving.asked)
    if ceil(peak_count / group.accelerator_count) >= group.count:
        raise ValueRefusedError(
            f"serving's peak of {peak_count} accelerators leaves a fleet of its own nothing to train on",
            hint="write more `nodes`, or leave `against_split` out",
        )


def _node_count(run: TrainingPlan | None, change: ClusterChange) -> int:
    """The plan's nodes and the spares, and some for the jobs of others where there are such jobs."""
    own = run_node_count(run, change) if run else 1
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
    own = [_plan_job(run, change)] if run is not None and _fits(run, change) else []
    given = sorted(
        (
            JobArrival(job.at_s, job.for_s, job.accelerators, job.team, priority=job.priority)
            for job in change.given
            for _ in range(job.copies)
        ),
        key=lambda job: job.submit_s,
    )
    others: Iterator[JobArrival] = iter(())
    jobs = change.jobs
    if jobs is not None and jobs.trace is not None:
        others = arrivals_of(read_jobs(jobs.trace))
    elif jobs is not None:
        others = generate_jobs(_drawn_jobs(jobs, change, world, seed, run))
    return merge(own, given, others, key=lambda job: job.submit_s)


def _run_count(run: TrainingPlan, change: ClusterChange) -> int:
    """Accelerators of the plan's run here."""
    return run_node_count(run, change) * run.machine.accelerators_per_node


def _room_count(run: TrainingPlan, change: ClusterChange) -> int:
    """Accelerators of the cluster without its spares."""
    return _accelerator_count(run, change) - change.spares * _per_node_count(run, change)


def _fits(run: TrainingPlan, change: ClusterChange) -> bool:
    return _run_count(run, change) <= _room_count(run, change)


def _plan_job(run: TrainingPlan, change: ClusterChange) -> JobArrival:
    """It keeps its steps and its work per node: on more nodes it reads more in the same time."""
    count = _run_count(run, change)
    scale = count / run.machine.accelerator_count
    return JobArrival(
        submit_s=0.0,
        duration_s=run.run.compute_s.value,
        accelerator_count=count,
        team=PLAN_TEAM,
        job_id=run.name,
        priority=1,
        tokens=(run.tokens or 0.0) * scale,
        samples=(run.samples or 0.0) * scale,
    )


def _drawn_jobs(
    jobs: ClusterJobs, change: ClusterChange, world: ClusterWorld, seed: int, run: TrainingPlan | None
) -> JobTraffic:
    """Jobs like a published cluster's, at the stated rate or at one that loads what the plan's run leaves."""
    like, rate_per_s = jobs.like, jobs.rate_per_s
    if like not in SHAPES:
        raise UnknownNameError(f"`{like}` is no published cluster", hint=f"one of: {', '.join(SHAPES)}")
    shape = SHAPES[like]
    total = sum(group.count * group.accelerator_count for group in world.nodes)
    free = total - (_run_count(run, change) if run is not None and _fits(run, change) else 0)
    free = free if free > 0 else total
    traffic = JobTraffic(
        shape,
        until_s=world.horizon_s,
        sizes_max=max(1, int(free * LARGEST_FRACTION)),
        teams=tuple((team, max(share, 1e-6)) for team, share in _shares(change).items()),
        seed=seed,
    )
    published_per_s = shape.jobs_count / shape.days / DAY_S
    if rate_per_s is None:
        sampled = list(islice(generate_jobs(replace(traffic, until_s=1e12)), SAMPLED_COUNT))
        mean_s = sum(job.duration_s * job.accelerator_count for job in sampled) / len(sampled)
        rate_per_s = LOAD_FRACTION * free / max(mean_s, 1.0)
    return replace(traffic, rate_factor=rate_per_s / published_per_s)
