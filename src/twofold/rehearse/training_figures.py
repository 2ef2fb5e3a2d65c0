"""What a rehearsed cluster came to, as the figures of the schema, and what of it is beyond a limit."""

from dataclasses import dataclass

from twofold.contracts.results import (
    RunFigures,
    SplitFigures,
    StepFigures,
    TeamFigures,
    TrainingFigures,
    TrainingPlan,
)
from twofold.core import format_seconds
from twofold.policy.cluster import Placement
from twofold.rehearse.training_goals import job_alarms, missed_goals
from twofold.rehearse.watch import Watch
from twofold.twin import MetadataRow
from twofold.twin.cluster import (
    ClusterResult,
    ClusterWorld,
    JitterRow,
    JobRecord,
    PoolComparison,
    TeamShare,
    Use,
)

HELD_UP_FRACTION = 0.01  # of a cluster's hours that wait for one node: beyond, it is told


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """All that one rehearsal left behind."""

    world: ClusterWorld
    result: ClusterResult
    watch: Watch
    pool: PoolComparison | None  # where two fleets were rehearsed too
    step: tuple[StepFigures, JitterRow] | None
    metadata: MetadataRow  # of the largest job's checkpoint
    run: TrainingPlan | None  # the plan's, where it is among the jobs


def training_figures(done: Rehearsed) -> TrainingFigures:
    """The schema's figures."""
    result, watch, serving = done.result, done.watch, done.result.serving
    deviations = [
        abs(team.deviation_fraction) for team in result.teams if team.deviation_fraction is not None
    ]
    rows = result.timeline
    return TrainingFigures(
        duration_s=result.duration_s,
        node_count=sum(group.count for group in done.world.nodes),
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
        largest_free_count_mean=sum(row.largest_free_count for row in rows) / max(1, len(rows)),
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
        runs=tuple(_run(record) for record in watch.own),
        teams=tuple(_team(team) for team in result.teams),
        slowdown_factor=result.slowdown_factor,
        serving_slowdown_factor=serving.slowdown_factor if serving else 1.0,
        pace_setters=dict(result.pace_setters),
        step=done.step[0] if done.step else None,
        checkpoint_files_count=done.metadata.files_count,
        checkpoint_metadata_s=done.metadata.metadata_s,
        checkpoint_data_s=done.metadata.data_s,
        checkpoint_interval_s_mean=(
            watch.worked_s / watch.checkpoint_count if watch.checkpoint_count else None
        ),
        preempted_lost_s_max=watch.preempted_lost_s_max,
        partial_gang_count=watch.partial_count,
        deadlock_count=_deadlock_count(result),
        placement={job_id: _placement_text(placement) for job_id, placement in result.placement},
        split=_split(done.pool) if done.pool else None,
        alarms=(*job_alarms(result), *_alarms(done)),
        missed=missed_goals(result, watch.own, done.run),
        failures_by_cause=dict(result.failures_by_cause),
    )


def _run(record: JobRecord) -> RunFigures:
    ended = record.ended_s is not None and record.started_s is not None
    return RunFigures(
        name=record.job_id,
        state=record.state,
        waited_s=record.waited_s,
        train_s=(record.ended_s or 0.0) - (record.started_s or 0.0) if ended else None,
        completion_s=record.completion_s,
        tokens_per_s=record.tokens_per_s,
        samples_per_s=record.samples_per_s,
    )


def _team(team: TeamShare) -> TeamFigures:
    return TeamFigures(
        name=team.team,
        accelerator_h=team.accelerator_h,
        quota_fraction=team.quota_fraction,
        share_fraction=team.share,
        queue_s_p95=team.waits.p95_s,
    )


def _deadlock_count(result: ClusterResult) -> int:
    """Looks at the end of a bucket of time: jobs wait, none runs, and nobody else has the nodes."""
    return sum(
        row.queued_count > 0 and row.running_count == 0 and not (row.away_count or row.serving_count)
        for row in result.timeline
    )


def _placement_text(placement: Placement) -> str:
    return " ".join(f"{node_id}:{count}" for node_id, count in placement)


def _split(pool: PoolComparison) -> SplitFigures:
    return SplitFigures(
        shared_utilisation_fraction=pool.shared_utilisation_fraction,
        split_utilisation_fraction=pool.split_utilisation_fraction,
        shared_shortfall_s=pool.shared_shortfall_s,
        split_shortfall_s=pool.split_shortfall_s,
        training_gain_fraction=pool.training_gain_fraction,
        training_slowdown_factor=pool.training_slowdown_factor,
        serving_slowdown_factor=pool.serving_slowdown_factor,
    )


def _alarms(done: Rehearsed) -> list[str]:
    """One line each: a node that holds the others up, a long tail of steps, a throttled checkpoint."""
    found, result = [], done.result
    for node_id, waited_h in result.pace_setters[:1]:
        if waited_h > HELD_UP_FRACTION * result.capacity_h:
            found.append(
                f"{node_id} sets the pace: others wait {waited_h:,.0f} accelerator-h for its links or devices"
            )
    if done.step and done.step[1].alarm:
        p99, over = format_seconds(done.step[0].step_s_p99), 100 * done.step[0].inflation_fraction
        found.append(f"jitter: the p99 step of {p99} is {over:.0f} % over the undisturbed one, 5 % at most")
    row = done.metadata
    if row.throttles:
        whole = format_seconds(row.metadata_s + row.data_s)
        found.append(
            f"many small files: {row.files_count:,.0f} of them take {100 * row.metadata_fraction:.0f} % of a "
            f"checkpoint's {whole}"
        )
    return found
