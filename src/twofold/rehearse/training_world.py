"""A rehearsal's cluster in the twin's terms: the scenario's, or the plan's, with all that is to run on it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from heapq import merge
from itertools import islice
from math import ceil, inf
from pathlib import Path

from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Observation
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.rows.jobs import read_jobs
from twofold.contracts.spec.scenario import Scenario
from twofold.contracts.spec.scenario_fleet import ClusterChange
from twofold.core.errors import UnknownNameError, ValueRefusedError
from twofold.core.quantity import DAY_S
from twofold.perf.constants import Constants
from twofold.perf.device import device
from twofold.policy.cluster import settings as cluster
from twofold.policy.cluster.brain import ClusterBrain
from twofold.rehearse.faults import NODE_NAME, node_losses, node_stalls, slow_nodes
from twofold.rehearse.pools import power_factor
from twofold.twin.cluster import cluster_types
from twofold.twin.cluster.faults import published_rates
from twofold.twin.cluster.jobs import SHAPES, JobArrival, JobEnd, JobTraffic, generate_jobs

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


@dataclass(frozen=True, slots=True)
class Site:
    """A scenario's cluster; what the scenario does not say follows from the plan's first run."""

    planned: TrainingPlan | None
    change: ClusterChange

    @property
    def run_node_count(self) -> int:
        """Nodes of the plan's run here."""
        return self.change.run_nodes or (self.planned.machine.node_count if self.planned else 1)

    @property
    def run_count(self) -> int:
        """Accelerators of the plan's run here."""
        return self.run_node_count * self.planned.machine.accelerators_per_node if self.planned else 0

    @property
    def node_count(self) -> int:
        """The run's nodes and the spares, and some for the jobs of others where there are such jobs."""
        own = self.run_node_count if self.planned else 1
        others = ceil(own * OTHERS_FRACTION) if self.change.jobs else 0
        return self.change.nodes or own + self.change.spares + others

    @property
    def per_node_count(self) -> int:
        """Accelerators of a node."""
        planned = self.planned.machine.accelerators_per_node if self.planned else ACCELERATORS_PER_NODE
        return self.change.accelerators_per_node or planned

    @property
    def accelerator_count(self) -> int:
        """Of all nodes."""
        return self.node_count * self.per_node_count

    @property
    def room_count(self) -> int:
        """Accelerators of the cluster without its spares."""
        return self.accelerator_count - self.change.spares * self.per_node_count

    @property
    def run(self) -> TrainingPlan | None:
        """The plan's, where there is room for it."""
        return self.planned if self.run_count <= self.room_count else None

    @property
    def shares(self) -> dict[str, float]:
        """Of the cluster, by team: as the scenario promises, else alike for those whose jobs are drawn."""
        if self.change.quotas:
            return {quota.team: quota.share_fraction for quota in self.change.quotas}
        count = self.change.jobs.teams if self.change.jobs else 0
        return {f"team-{number + 1}": 1.0 / count for number in range(count)}


def cluster_world(
    site: Site,
    scenario: Scenario,
    horizon_s: float,
    seed: int,
    catalog: Catalog,
    constants: Constants,
    settings: cluster.ClusterSettings,
) -> cluster_types.ClusterWorld:
    """The world that the brain decides in, and that its driver changes."""
    run, change, nodes = site.planned, site.change, site.node_count
    faults = published_rates(catalog.rows(Observation))
    if change.failures_per_node_per_s is not None:
        per_accelerator_h = change.failures_per_node_per_s * 3600.0 / site.per_node_count
        faults = faults.scaled(per_accelerator_h / faults.failures_per_accelerator_h)
    if "repair_s" in change.model_fields_set:  # of causes that are repaired
        causes = (replace(each, repair_s=each.repair_s and change.repair_s) for each in faults.causes)
        faults = replace(faults, causes=tuple(causes))
    store = change.storage_bytes_per_s or (run.run.checkpoints.storage_bytes_per_s if run else None)
    part = device(catalog.accelerator(run.machine.accelerator if run else "H100-SXM"), constants)
    whole = power_factor(constants)
    usual, exposed = cluster_types.StepModel(), run.communication_exposed_fraction if run else None
    size = run.run.checkpoints.size_bytes if run else None
    each_bytes = CHECKPOINT_BYTES_PER_ACCELERATOR
    if run is not None and size is not None:  # over those that write it
        each_bytes = size / run.machine.accelerator_count
    serving = None
    if change.serving:  # what it needs day after day, and what its autoscaler asks for a little earlier
        days = [number * DAY_S for number in range(ceil(horizon_s / DAY_S))]
        needed = tuple((day_s + each.at_s, each.accelerators) for day_s in days for each in change.serving)
        asked = {max(0.0, at_s - LEAD_S): count for at_s, count in needed}  # several may fall on the first
        serving = cluster_types.ServingLoad(needed, tuple(sorted(asked.items())))
    slow, stalls = slow_nodes(change, nodes), node_stalls(scenario.faults, nodes, horizon_s)
    # Reports decide something where a node works longer than others, or all falls silent; else they only
    # cost events. Live nobody knows that beforehand, and every job reports.
    speaks = bool(stalls) or any(each.device_factor > 1 for each in slow)
    return cluster_types.ClusterWorld(
        nodes=(cluster_types.NodeGroup(NODE_NAME, nodes, site.per_node_count),),
        new_brain=partial(ClusterBrain, settings),
        horizon_s=horizon_s,
        # Where all jobs are known the run ends with them; drawn jobs and serving go on.
        ends=cluster_types.RunEnd.HORIZON if change.jobs or change.serving else cluster_types.RunEnd.LAST_JOB,
        faults=faults,
        slow_nodes=slow,
        losses=node_losses(scenario.faults, nodes, faults.detection_s, horizon_s),
        stalls=stalls,
        report_s=cluster.REPORT_S if speaks else None,
        step=cluster_types.StepModel(
            step_s=run.step_s.value if run else usual.step_s,
            communication_fraction=usual.communication_fraction if exposed is None else exposed,
            jitter_fraction=change.jitter_fraction,
            training_interference_fraction=change.training_interference_fraction,
            serving_interference_fraction=change.serving_interference_fraction,
        ),
        checkpoint=cluster_types.CheckpointModel(
            each_bytes, files_per_accelerator=change.files_per_accelerator
        ),
        store=cluster_types.CheckpointStore(
            bytes_per_s=store or STORE_BYTES_PER_S_PER_NODE * nodes,
            operations_per_s=change.metadata_per_s or inf,
        ),
        serving=serving,
        followed_team=PLAN_TEAM,
        quotas=site.shares if len(site.shares) > 1 else None,
        idle_w=float(part.power_w(0.0)) * whole,
        busy_w=float(part.power_w(1.0)) * whole,
        seed=seed,
    )


def check_cluster_ends(world: cluster_types.ClusterWorld, change: ClusterChange) -> None:
    """Raises ValueRefusedError for a cluster that is too large, or where too much happens.

    Formula  failures = rate of an accelerator × accelerators × horizon; drawn jobs and checkpoints of a job =
             horizon × rate, or over the interval
    """
    horizon_s = world.horizon_s
    nodes = sum(group.count for group in world.nodes)
    accelerators = sum(group.count * group.accelerator_count for group in world.nodes)
    failures = world.faults.failures_per_accelerator_h * accelerators * horizon_s / 3600.0
    given = sum(job.copies for job in change.given)
    drawn = horizon_s * ((change.jobs.rate_per_s if change.jobs else None) or 0.0)
    writes = horizon_s / change.checkpoint_every_s if change.checkpoint_every_s else 0.0
    for count, most, what, key in (
        (nodes, 100_000, "nodes", "fewer `nodes`"),
        (failures, 10_000_000, "failures of nodes", "fewer `failures`, or a shorter `horizon`"),
        # One by one: far more than a brain lets wait.
        (given, 100_000, "jobs under `given`", "fewer `copies`, or `jobs` with a `rate`"),
        (drawn, 10_000_000, "drawn jobs", "a lower `rate` under `jobs`, or a shorter `horizon`"),
        (writes, 10_000_000, "checkpoints", "a longer `checkpoint_every`, or a shorter `horizon`"),
    ):
        if count > most:
            raise ValueRefusedError(
                f"{count:.3g} {what} are more than the {most:,} that a rehearsal takes", hint=f"write {key}"
            )


def jobs_of(site: Site, world: cluster_types.ClusterWorld) -> Iterator[JobArrival]:
    """The plan's run at the first second, and the scenario's jobs, in order of time."""
    change, run, own = site.change, site.run, list[JobArrival]()
    if run is not None:
        # It keeps its steps and its work per node: on more nodes it reads more in the same time.
        scale = site.run_count / run.machine.accelerator_count
        own.append(
            JobArrival(
                submit_s=0.0,
                duration_s=run.run.compute_s.value,
                accelerator_count=site.run_count,
                team=PLAN_TEAM,
                job_id=run.name,
                priority=1,
                tokens=(run.tokens or 0.0) * scale,
                samples=(run.samples or 0.0) * scale,
            )
        )
    given = sorted(
        (
            JobArrival(job.at_s, job.for_s, job.accelerators, job.team, priority=job.priority)
            for job in change.given
            for _ in range(job.copies)
        ),
        key=lambda job: job.submit_s,
    )
    others: Iterator[JobArrival] = iter(())
    if change.jobs is not None:
        trace = change.jobs.trace
        others = traced_jobs(trace) if trace else generate_jobs(_drawn_jobs(site, world))
    return merge(own, given, others, key=lambda job: job.submit_s)


def traced_jobs(path: Path) -> Iterator[JobArrival]:
    """Jobs of a trace, in its order.

    Jobs that never ran or asked for no accelerator are left out; a part of an accelerator counts as a whole.
    A state that is not known counts as completed.
    """
    ends = {"failed": JobEnd.FAILED, "cancelled": JobEnd.CANCELLED}
    for row in read_jobs(path):
        if row.state != "pending":
            count, state = max(1, ceil(row.accelerator_count)), ends.get(row.state, JobEnd.COMPLETED)
            yield JobArrival(row.submit_s, row.duration_s, count, row.team, state)


def _drawn_jobs(site: Site, world: cluster_types.ClusterWorld) -> JobTraffic:
    """Jobs like a published cluster's, at the stated rate or at one that loads what the plan's run leaves."""
    assert site.change.jobs is not None
    like, rate_per_s = site.change.jobs.like, site.change.jobs.rate_per_s
    if like not in SHAPES:
        raise UnknownNameError(f"`{like}` is no published cluster", hint=f"one of: {', '.join(SHAPES)}")
    shape = SHAPES[like]
    total = site.accelerator_count
    free = total - (site.run_count if site.run else 0) or total
    traffic = JobTraffic(
        shape,
        until_s=world.horizon_s,
        sizes_max=max(1, int(free * LARGEST_FRACTION)),
        teams=tuple((team, max(share, 1e-6)) for team, share in site.shares.items()),
        seed=world.seed,
    )
    published_per_s = shape.jobs_count / shape.days / DAY_S
    if rate_per_s is None:
        sampled = list(islice(generate_jobs(replace(traffic, until_s=1e12)), SAMPLED_COUNT))
        mean_s = sum(job.duration_s * job.accelerator_count for job in sampled) / len(sampled)
        rate_per_s = LOAD_FRACTION * free / max(mean_s, 1.0)
    return replace(traffic, rate_factor=rate_per_s / published_per_s)
