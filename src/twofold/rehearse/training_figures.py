"""What a rehearsed cluster came to, as the figures of the schema, and what of it is beyond a limit."""

from dataclasses import dataclass, replace

from twofold.contracts.results import RunFigures, StepFigures, TrainingFigures, TrainingPlan
from twofold.core import format_seconds
from twofold.rehearse.training_goals import job_alarms, missed_goals
from twofold.rehearse.watch import Watch
from twofold.twin import MetadataRow
from twofold.twin.cluster import ALARM_INFLATION_FRACTION, ClusterResult, JobRecord, PoolComparison

HELD_UP_FRACTION = 0.01  # of a cluster's hours that wait for one node: beyond, it is told


@dataclass(frozen=True, slots=True)
class ClusterRehearsal:
    """All that one rehearsal left behind."""

    result: ClusterResult
    watch: Watch
    pool: PoolComparison | None  # where two fleets were rehearsed too
    step: StepFigures | None
    metadata: MetadataRow  # of the largest job's checkpoint
    run: TrainingPlan | None  # the plan's, where it is among the jobs


def training_figures(done: ClusterRehearsal) -> TrainingFigures:
    """The schema's figures."""
    watch, result = done.watch, done.result
    return replace(
        result.figures,
        runs=tuple(_run(record) for record in watch.own),
        step=done.step,
        checkpoint_files_count=done.metadata.files_count,
        checkpoint_metadata_s=done.metadata.metadata_s,
        checkpoint_data_s=done.metadata.data_s,
        checkpoint_interval_s_mean=(
            watch.worked_s / watch.checkpoint_count if watch.checkpoint_count else None
        ),
        preempted_lost_s_max=watch.preempted_lost_s_max,
        partial_gang_count=watch.partial_count,
        split=done.pool.figures if done.pool else None,
        alarms=(*job_alarms(result.figures), *_alarms(done)),
        missed=missed_goals(result.figures, watch.own, done.run),
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


def _alarms(done: ClusterRehearsal) -> list[str]:
    """One line each: a node that holds the others up, a long tail of steps, a throttled checkpoint."""
    found, result = [], done.result
    for node_id, waited_h in list(result.figures.pace_setters.items())[:1]:
        if waited_h > HELD_UP_FRACTION * result.capacity_h:
            found.append(
                f"{node_id} sets the pace: others wait {waited_h:,.0f} accelerator-h for its links or devices"
            )
    if done.step and done.step.inflation_fraction > ALARM_INFLATION_FRACTION:
        p99, over = format_seconds(done.step.step_s_p99), 100 * done.step.inflation_fraction
        found.append(f"jitter: the p99 step of {p99} is {over:.0f} % over the undisturbed one, 5 % at most")
    row = done.metadata
    if row.throttles:
        whole = format_seconds(row.metadata_s + row.data_s)
        found.append(
            f"many small files: {row.files_count:,.0f} of them take {100 * row.metadata_fraction:.0f} % of a "
            f"checkpoint's {whole}"
        )
    return found
