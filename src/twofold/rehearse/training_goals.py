"""What a rehearsed cluster owed the plan's run and serving and did not give, and what became of all jobs."""

from collections.abc import Sequence

from twofold.contracts.results import TrainingFigures, TrainingPlan
from twofold.core import format_seconds
from twofold.rehearse.figures import UNANSWERED_FRACTION_MAX
from twofold.twin.cluster import JobRecord

KEPT_FRACTION_MIN = 0.5  # of the time that jobs hold accelerators: below, most of it is for nothing


def missed_goals(
    result: TrainingFigures, own: Sequence[JobRecord], run: TrainingPlan | None
) -> tuple[str, ...]:
    """A run of the plan that ended badly, waits, or is late by its deadline; serving without its share."""
    found = [_of_run(record, run, result.duration_s) for record in own if run and record.job_id == run.name]
    return (*(text for text in found if text), *_of_serving(result))


def _of_run(record: JobRecord, run: TrainingPlan, now_s: float) -> str:
    """What is wrong with the plan's run; "": nothing."""
    name, count = record.job_id, record.accelerator_count
    done = record.busy_s / (run.run.compute_s.value * count)
    if record.completion_s is not None and record.state != "completed":
        said = "gave up" if record.state == "gave-up" else f"was {record.state}"
        after = f", after {record.failures_count} failures" if record.failures_count else ""
        return f"{name} {said} at {format_seconds(record.completion_s)}{after}"
    if record.started_s is None:
        return f"{name} never started: it waited {format_seconds(record.waited_s)} for {count} accelerators"
    if record.state == "queued":
        return f"{name} waits for {count} accelerators at the end, {100 * done:.3g} % of its work done"
    if done <= 0:  # in its first attempt it may be starting still
        kept_none = f"{name} has kept no work of {format_seconds(now_s)}, in {record.attempts} attempts"
        return kept_none if record.attempts > 1 else ""
    return _of_deadline(record, run.deadline_s, done, now_s)


def _of_deadline(record: JobRecord, deadline_s: float | None, done: float, now_s: float) -> str:
    """That it came too late, or will at its pace so far; "": neither, or there is no deadline."""
    if deadline_s is None:
        return ""
    due = f"its deadline is {format_seconds(deadline_s)}"
    if record.completion_s is not None:
        took = f"{record.job_id} was complete after {format_seconds(record.completion_s)}"
        return f"{took}, {due}" if record.completion_s > deadline_s else ""
    takes_s = now_s / done
    takes = f"{record.job_id} takes {format_seconds(takes_s)} at its pace of {format_seconds(now_s)}"
    return f"{takes}, {due}" if takes_s > deadline_s else ""


def _of_serving(result: TrainingFigures) -> tuple[str, ...]:
    """That serving lacked more of its accelerator-hours than a promise at p95 leaves over."""
    needed_h, shortfall_h = result.serving_needed_h, result.serving_shortfall_h
    if shortfall_h <= UNANSWERED_FRACTION_MAX * needed_h:
        return ()
    had, least = 100 * (1 - shortfall_h / needed_h), 100 * (1 - UNANSWERED_FRACTION_MAX)
    return (f"serving had {had:.3g} % of the accelerator-h that it needed, {least:.0f} % is the least",)


def job_alarms(result: TrainingFigures) -> list[str]:
    """One line each: jobs that were turned away or gave up, none that ran, work that was not kept."""
    found, total = [], sum(result.outcomes.values())
    refused_count, gave_up_count = result.outcomes.get("refused", 0), result.outcomes.get("gave-up", 0)
    if refused_count:
        found.append(
            f"{refused_count:,} of {total:,} jobs were refused: too large for it, or its queue was full"
        )
    if gave_up_count:
        found.append(f"{gave_up_count:,} of {total:,} jobs gave up, failing again and again")
    ran = bool(result.queue_s_p95)
    if total > refused_count and not ran:
        found.append(f"none of {total:,} jobs started")
    if ran and result.goodput_fraction < KEPT_FRACTION_MIN:
        kept, least = max(0.0, round(100 * result.goodput_fraction, 3)), 100 * KEPT_FRACTION_MIN
        held = "of the time that jobs held accelerators"
        found.append(f"goodput: {kept:g} % {held} is work kept, {least:.0f} % at least")
    return found
