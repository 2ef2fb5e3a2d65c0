"""What a rehearsed cluster came to: what is noted meanwhile, its figures, a step hop by hop, what it owed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import NamedTuple

from twofold.contracts.results import courses, simulated
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.scenario_fleet import ClusterChange
from twofold.core.display import format_seconds
from twofold.rehearse.collectives import Ring, jittered_step, step_parts
from twofold.rehearse.figure_table import STEP_PART_HEADINGS
from twofold.twin.cluster import cluster_types
from twofold.twin.cluster.courses import cluster_course, of_record

SHORTFALL_FRACTION_MAX = 0.05  # of what serving asked of the pool, that was not there in time
OTHERS_MOST = 12  # jobs that are not the plan's, whose course is shown
OnJob = Callable[[cluster_types.JobRecord], None]


class Watch:
    """All that is noted of a rehearsal's jobs. Mutable; memory grows with the plan's own runs alone."""

    def __init__(self, own_team: str, on_job: OnJob | None) -> None:
        self._own_team, self._on_job = own_team, on_job
        self.own: list[cluster_types.JobRecord] = []
        self.largest_count = 0
        self.preempted_lost_s_max: float | None = None
        self.worked_s = 0.0
        self.checkpoint_count = 0
        self._largest: list[tuple[float, int, cluster_types.JobRecord]] = []  # of others, a heap
        self._told_count = 0

    def note(self, record: cluster_types.JobRecord) -> None:
        """A job has ended, or the run has."""
        self.largest_count = max(self.largest_count, record.accelerator_count)
        if record.team == self._own_team:
            self.own.append(record)
        else:
            self._told_count += 1
            heappush(self._largest, (record.busy_s + record.lost_s, -self._told_count, record))
            if len(self._largest) > OTHERS_MOST:
                heappop(self._largest)
        if record.checkpoints_count:
            self.worked_s += (record.busy_s + record.lost_s) / record.accelerator_count
            self.checkpoint_count += record.checkpoints_count
        if record.preempted_count and not record.failures_count:
            lost_s = record.lost_s / record.accelerator_count / record.preempted_count
            self.preempted_lost_s_max = max(self.preempted_lost_s_max or 0.0, lost_s)
        if self._on_job:
            self._on_job(record)

    def others(self, now_s: float) -> list[courses.JobCourse]:
        """Those that worked most, the first that was started first."""
        records = [record for _, _, record in self._largest]
        records.sort(key=lambda each: (now_s if each.started_s is None else each.started_s, each.submit_s))
        return [of_record(record, now_s) for record in records]


RANKS_MAX = 256  # of the simulated ring; beyond, the slowest of so many stands for all
REPEATS_COUNT = 200  # steps whose tail is looked at; without jitter all are alike
ALARM_INFLATION_FRACTION = 0.05  # of the p99 step over the undisturbed one


def step_rehearsal(run: TrainingPlan, change: ClusterChange, seed: int) -> simulated.StepFigures | None:
    """What its step waits for and how its tail grows under jitter; None where it has no known step.

    Formula  a ring of equal links whose undisturbed all-reduce takes, at the planned number of nodes, the
             plan's exposed communication; the same links and payload at other numbers
    Why      What the plan hides behind computing stays hidden; what it does not is what jitter disturbs.
    Limits   Planned on one node: no communication between nodes at any size.
    """
    if run.step_s.value <= 0:
        return None
    planned, count = run.machine.node_count, change.run_nodes or run.machine.node_count
    exposed_s = run.step_s.value * (run.communication_exposed_fraction or 0.0)
    compute_s = run.step_s.value - exposed_s
    payload = exposed_s * planned / (2 * (planned - 1)) if planned > 1 else 0.0

    ranks = min(count, RANKS_MAX)
    ring = Ring(payload, ranks, link_bytes_per_s=1.0, hop_latency_s=0.0, compute_s=compute_s)
    reading_s = change.input_fraction * run.step_s.value * count / planned
    jitter, repeat_count = change.jitter_fraction, REPEATS_COUNT if change.jitter_fraction else 1
    parts = step_parts(ring, jitter, reading_s, seed, repeat_count)
    row = jittered_step(ring, jitter, seed, repeat_count)
    return simulated.StepFigures(
        accelerator_count=count * run.machine.accelerators_per_node,
        # Without what rounding leaves of a difference of equal times.
        parts_s={
            name: 0.0 if abs(value := getattr(parts, f"{name}_s")) < 1e-12 else float(value)
            for name in STEP_PART_HEADINGS
        },
        step_s_p50=row.step_s_p50 + parts.input_s,
        step_s_p99=row.step_s_p99 + parts.input_s,
        inflation_fraction=row.inflation_fraction,
    )


KEPT_FRACTION_MIN = 0.5  # of the time that jobs hold accelerators: below, most of it is for nothing


def missed_goals(
    result: simulated.TrainingFigures, own: Sequence[cluster_types.JobRecord], run: TrainingPlan | None
) -> tuple[str, ...]:
    """A run of the plan that ended badly, waits, or is late by its deadline; serving that lacked more of its
    accelerator-hours than a promise at p95 leaves over."""
    found = [_of_run(record, run, result.duration_s) for record in own if run and record.job_id == run.name]
    needed_h, shortfall_h = result.serving_needed_h, result.serving_shortfall_h
    if shortfall_h > SHORTFALL_FRACTION_MAX * needed_h:
        had, least = 100 * (1 - shortfall_h / needed_h), 100 * (1 - SHORTFALL_FRACTION_MAX)
        found.append(
            f"serving had {had:.3g} % of the accelerator-h that it needed, {least:.0f} % is the least"
        )
    return tuple(text for text in found if text)


def _of_run(record: cluster_types.JobRecord, run: TrainingPlan, now_s: float) -> str:
    """What is wrong with the plan's run, its deadline at the pace so far included; "": nothing."""
    name, count = record.job_id, record.accelerator_count
    done_s, deadline_s = record.completion_s, run.deadline_s
    done = record.busy_s / (run.run.compute_s.value * count)
    if done_s is not None and record.state != "completed":
        said = "gave up" if record.state == "gave-up" else f"was {record.state}"
        after = f", after {record.failures_count} failures" if record.failures_count else ""
        return f"{name} {said} at {format_seconds(done_s)}{after}"
    if record.started_s is None:
        return f"{name} never started: it waited {format_seconds(record.waited_s)} for {count} accelerators"
    if record.state == "queued":
        return f"{name} waits for {count} accelerators at the end, {100 * done:.3g} % of its work done"
    if done <= 0:  # in its first attempt it may be starting still
        kept_none = f"{name} has kept no work of {format_seconds(now_s)}, in {record.attempts} attempts"
        return kept_none if record.attempts > 1 else ""
    takes_s = now_s / done if done_s is None else done_s
    if deadline_s is None or takes_s <= deadline_s:
        return ""
    pace = f"takes {format_seconds(takes_s)} at its pace of {format_seconds(now_s)}"
    took = pace if done_s is None else f"was complete after {format_seconds(done_s)}"
    return f"{name} {took}, its deadline is {format_seconds(deadline_s)}"


HELD_UP_FRACTION = 0.01  # of a cluster's hours that wait for one node: beyond, it is told
METADATA_ALARM_FRACTION = 0.1  # of a checkpoint's time; more than this throttles the cluster


class CheckpointFiles(NamedTuple):
    """What one checkpoint takes, and what of that is to open its files."""

    files_count: float
    metadata_s: float
    data_s: float


def checkpoint_files(
    accelerator_count: int, checkpoint: cluster_types.CheckpointModel, store: cluster_types.CheckpointStore
) -> CheckpointFiles:
    """How a checkpoint's time grows with the number of files it is cut into (R-023).

    Formula  files = accelerators · files each; metadata = files / operations per second
    Why      Every file is created, and later looked up, by one operation of a service that all share; the
             bytes stay the same however they are cut.
    Limits   One file per node or rank: seconds; one per tensor and rank: it outlasts the data.
    """
    files_count = max(1.0, checkpoint.files_per_accelerator * accelerator_count)
    size_bytes = max(1, accelerator_count) * checkpoint.bytes_per_accelerator
    return CheckpointFiles(files_count, files_count / store.operations_per_s, size_bytes / store.bytes_per_s)


def training_figures(
    result: cluster_types.ClusterResult,
    watch: Watch,
    run: TrainingPlan | None,
    step: simulated.StepFigures | None,
    files: CheckpointFiles,
    split: simulated.SplitFigures | None,
) -> simulated.TrainingFigures:
    """The schema's figures. `run`: the plan's, where it is among the jobs; `files`: of the largest job."""
    return replace(
        result.figures,
        runs=tuple(map(_run, watch.own)),
        step=step,
        checkpoint_files_count=files.files_count,
        checkpoint_metadata_s=files.metadata_s,
        checkpoint_data_s=files.data_s,
        checkpoint_interval_s_mean=(
            watch.worked_s / watch.checkpoint_count if watch.checkpoint_count else None
        ),
        preempted_lost_s_max=watch.preempted_lost_s_max,
        split=split,
        alarms=tuple(_alarms(result, step, files)),
        missed=missed_goals(result.figures, watch.own, run),
        course=cluster_course(result.timeline, (*result.followed, *watch.others(result.figures.duration_s))),
    )


def _run(record: cluster_types.JobRecord) -> simulated.RunFigures:
    started_s, ended_s = record.started_s, record.ended_s
    return simulated.RunFigures(
        name=record.job_id,
        state=record.state,
        waited_s=record.waited_s,
        train_s=None if started_s is None or ended_s is None else ended_s - started_s,
        completion_s=record.completion_s,
        tokens_per_s=record.tokens_per_s,
        samples_per_s=record.samples_per_s,
    )


def _alarms(
    result: cluster_types.ClusterResult, step: simulated.StepFigures | None, files: CheckpointFiles
) -> list[str]:
    """One line each: jobs that were turned away, gave up or never ran, work that was not kept, a node that
    holds the others up, a long tail of steps, a throttled checkpoint."""
    figures, found = result.figures, list[str]()
    total, refused_count = sum(figures.outcomes.values()), figures.outcomes.get("refused", 0)
    gave_up_count, ran = figures.outcomes.get("gave-up", 0), bool(figures.queue_s_p95)
    if refused_count:
        found.append(
            f"{refused_count:,} of {total:,} jobs were refused: too large for it, or its queue was full"
        )
    if gave_up_count:
        found.append(f"{gave_up_count:,} of {total:,} jobs gave up, failing again and again")
    if total > refused_count and not ran:
        found.append(f"none of {total:,} jobs started")
    if ran and figures.goodput_fraction < KEPT_FRACTION_MIN:
        kept, least = max(0.0, round(100 * figures.goodput_fraction, 3)), 100 * KEPT_FRACTION_MIN
        held = "of the time that jobs held accelerators"
        found.append(f"goodput: {kept:g} % {held} is work kept, {least:.0f} % at least")
    for node_id, waited_h in list(figures.pace_setters.items())[:1]:
        if waited_h > HELD_UP_FRACTION * result.capacity_h:
            found.append(
                f"{node_id} sets the pace: others wait {waited_h:,.0f} accelerator-h for its links or devices"
            )
    if step and step.inflation_fraction > ALARM_INFLATION_FRACTION:
        p99, over = format_seconds(step.step_s_p99), 100 * step.inflation_fraction
        most = f"{100 * ALARM_INFLATION_FRACTION:.0f} % at most"
        found.append(f"jitter: the p99 step of {p99} is {over:.0f} % over the undisturbed one, {most}")
    whole_s = files.metadata_s + files.data_s
    if (part := files.metadata_s / whole_s) > METADATA_ALARM_FRACTION:
        found.append(
            f"many small files: {files.files_count:,.0f} of them take {100 * part:.0f} % "
            f"of a checkpoint's {format_seconds(whole_s)}"
        )
    return found
