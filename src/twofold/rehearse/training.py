"""The training half of a rehearsal: the plan's run and others' jobs on a cluster under the real brain."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil

from twofold.catalog.catalog import Catalog
from twofold.contracts.results import simulated
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.scenario import Scenario
from twofold.contracts.spec.scenario_fleet import ClusterChange
from twofold.core.display import format_seconds
from twofold.core.errors import EmptyError, ValueRefusedError
from twofold.core.quantity import DAY_S
from twofold.perf.constants import Constants
from twofold.policy.cluster import settings as cluster
from twofold.rehearse.traffic import SPAN_S_MAX
from twofold.rehearse.training_figures import OnJob, Watch, checkpoint_files, step_rehearsal, training_figures
from twofold.rehearse.training_world import PLAN_TEAM, Site, check_cluster_ends, cluster_world, jobs_of
from twofold.twin.cluster import cluster_types
from twofold.twin.cluster.cluster import simulate_cluster
from twofold.twin.cluster.jobs import JobArrival

HORIZON_S = 7 * DAY_S  # where a scenario states none
LOOK_S_MIN = 1.0  # between looks at a queue in which somebody waits


def rehearse_training(
    runs: Sequence[TrainingPlan],
    scenario: Scenario,
    seed: int,
    catalog: Catalog,
    constants: Constants,
    on_job: OnJob | None = None,
) -> simulated.TrainingFigures:
    """The plan's first run among other jobs on its cluster, or on the scenario's.

    `on_job` is told of every job at its end, and of what is left when the run is over. Raises EmptyError
    where there are no nodes to train on, or no job; ValueRefusedError where the plan's run, or a node that is
    to be slow or to fail, is more than the cluster has, and where the run would not end in hours.
    """
    change = scenario.cluster
    assert change is not None
    site = Site(runs[0] if runs else None, change)
    _check(site)
    watch = Watch(PLAN_TEAM, on_job)
    horizon_s = scenario.horizon_s or HORIZON_S
    if horizon_s > SPAN_S_MAX:
        raise ValueRefusedError(
            f"a cluster over {format_seconds(horizon_s)} would not end: a year is the most",
            hint="write a shorter `horizon`",
        )
    settings = brain_settings(change, site.shares, site.accelerator_count)
    world = cluster_world(site, scenario, horizon_s, seed, catalog, constants, settings)
    check_cluster_ends(world, change)
    split, jobs = None, partial(jobs_of, site, world)
    if change.against_split:
        split, (result, *_) = compare_pool(world, jobs, watch.note)
    else:
        result = simulate_cluster(world, jobs(), watch.note)
    step = step_rehearsal(site.run, change, seed) if site.run else None
    files = checkpoint_files(watch.largest_count, world.checkpoint, world.store)
    return training_figures(result, watch, site.run, step, files, split)


def brain_settings(
    change: ClusterChange, shares: Mapping[str, float], accelerator_count: int
) -> cluster.ClusterSettings:
    """What a brain is told of a cluster: by the twin, and by a queue of jobs on real slots."""
    cadence = cluster.CadenceSettings(fixed_interval_s=change.checkpoint_every_s)
    if change.checkpoint_apart_s is not None:
        longest_s = max(cadence.interval_s_max, change.checkpoint_apart_s)
        cadence = replace(cadence, interval_s_min=change.checkpoint_apart_s, interval_s_max=longest_s)
    preemption, queue = cluster.PreemptionSettings(), cluster.GangQueueSettings()
    if change.minimum_run_s is not None:  # who may make room so soon is looked for as often
        preemption = replace(preemption, minimum_run_s=change.minimum_run_s)
        queue = replace(queue, look_every_s=min(queue.look_every_s, max(change.minimum_run_s, LOOK_S_MIN)))
    return cluster.ClusterSettings(
        queue=queue,
        preemption=preemption,
        teams=tuple(
            cluster.TeamQuota(team, ceil(share * accelerator_count), weight_ratio=max(share, 1e-6))
            for team, share in shares.items()
        ),
        faults=cluster.FaultSettings(spare_count=change.spares),
        cadence=cadence,
    )


def left_out(runs: Sequence[TrainingPlan], change: ClusterChange) -> tuple[str, ...]:
    """What to know where the plan's run is not among the jobs: the cluster has no room for it."""
    site = Site(runs[0] if runs else None, change)
    return () if site.run is site.planned else (f"{_too_large(site)}: it is left out",)


def _check(site: Site) -> None:
    """Raises where there is nothing to train on, or nothing that would run."""
    run, change = site.planned, site.change
    if run is None and change.nodes is None:
        raise EmptyError(
            "the plan trains nothing, and the scenario names no nodes",
            hint="write `nodes: 16` under `cluster`, or rehearse a plan with a training run",
        )
    if change.given or change.jobs or site.run:
        return
    if run is None:
        raise EmptyError(
            "the plan trains nothing, and the scenario submits no job",
            hint="write `given` or `jobs` under `cluster`, or rehearse a plan with a training run",
        )
    most = site.room_count // run.machine.accelerators_per_node
    smaller = f"`run_nodes: {most}`, or " if most else ""
    spares = " or fewer `spares`" if change.spares else ""
    hint = f"write {smaller}more `nodes`{spares} under `cluster`"
    raise ValueRefusedError(_too_large(site), hint=hint)


def _too_large(site: Site) -> str:
    kept = " beside its spares" if site.change.spares else ""
    return (
        f"the plan's run of {site.run_count:,} accelerators does not fit the {site.room_count:,} that the "
        f"cluster has{kept}"
    )


def compare_pool(
    world: cluster_types.ClusterWorld, jobs: Callable[[], Iterable[JobArrival]], on_job: OnJob | None = None
) -> tuple[simulated.SplitFigures, list[cluster_types.ClusterResult]]:
    """One pool against two fleets of its size, training's and serving's (R-091): figures, then its runs.

    Serving is coarse here: steps say how many accelerators it needs to hold its SLO, and what is missing of
    them stands for time outside it: by how much, the fleet's own world says. It gets whole nodes for the
    highest demand that is asked for, margin and all. `jobs` gives the same jobs each time; `on_job` is told
    of the shared pool's. Raises ValueRefusedError where serving takes all nodes.
    """
    assert world.serving is not None, "a pool without serving has nothing to share"
    peak_count = left_count = max(count for _, count in world.serving.asked)
    for_training, for_serving = list[cluster_types.NodeGroup](), list[cluster_types.NodeGroup]()
    for group in reversed(world.nodes):  # from the last groups' ends
        count = min(group.count, ceil(max(0, left_count) / group.accelerator_count))
        left_count -= count * group.accelerator_count
        for_training.insert(0, replace(group, count=group.count - count))
        for_serving.insert(0, replace(group, count=count, first=group.first + group.count - count))
    if not any(group.count for group in for_training):
        raise ValueRefusedError(
            f"serving's peak of {peak_count} accelerators leaves a fleet of its own nothing to train on",
            hint="write more `nodes`, or leave `against_split` out",
        )
    shared = simulate_cluster(world, jobs(), on_job)
    training = simulate_cluster(replace(world, nodes=tuple(for_training), serving=None), jobs())
    serving = simulate_cluster(replace(world, nodes=tuple(for_serving)), ())
    assert shared.serving is not None and serving.serving is not None
    kept = [one.figures for one in (shared, training)]
    figures = simulated.SplitFigures(
        shared_utilisation_fraction=_worked_h(shared) / shared.capacity_h,
        split_utilisation_fraction=(_worked_h(training) + _worked_h(serving)) / shared.capacity_h,
        shared_shortfall_s=shared.serving.shortfall_s,
        split_shortfall_s=serving.serving.shortfall_s,
        training_gain_fraction=kept[0].accelerator_h["busy"] / kept[1].accelerator_h["busy"] - 1,
        training_slowdown_factor=kept[0].slowdown_factor / kept[1].slowdown_factor,
        serving_slowdown_factor=shared.serving.slowdown_factor / serving.serving.slowdown_factor,
    )
    return figures, [shared, training, serving]


def _worked_h(result: cluster_types.ClusterResult) -> float:
    """Accelerator-hours that served what was needed, or did work that is kept."""
    served_h = result.serving.needed_h - result.serving.shortfall_h if result.serving else 0.0
    return served_h + result.figures.accelerator_h["busy"]
