"""A job's attempts begin and end here: who has what, what was ordered, and which timers run."""

from twofold.policy.cluster.backfill import expected_end_s
from twofold.policy.cluster.events import Placement, ResizeJob, StartJob
from twofold.policy.cluster.job import Job, JobState
from twofold.policy.cluster.timers import Due
from twofold.policy.cluster.view import ClusterView


def start(view: ClusterView, job: Job, placement: Placement, now_s: float) -> StartJob:
    """A job that has nothing gets its gang. Who calls takes it out of the queue."""
    size_count = sum(count for _, count in placement)
    view.give(job, placement, expected_end_s(job, size_count, now_s), now_s)
    _ordered(view, job, now_s)
    return StartJob(job.job_id, placement, job.attempt)


def again(view: ClusterView, job: Job, now_s: float) -> StartJob:
    """A job whose attempt is over starts once more where it is."""
    view.expect_end(job, expected_end_s(job, job.size_count, now_s))
    _ordered(view, job, now_s)
    return StartJob(job.job_id, job.placement, job.attempt)


def move(view: ClusterView, job: Job, placement: Placement, now_s: float) -> ResizeJob:
    """A job that has a gang goes on with another one; pieces on the same node become one."""
    halt(view, job)
    merged: dict[str, int] = {}
    for node_id, count in placement:
        merged[node_id] = merged.get(node_id, 0) + count
    placement = tuple(merged.items())
    view.exchange(job, placement, expected_end_s(job, sum(merged.values()), now_s), now_s)
    _ordered(view, job, now_s)
    return ResizeJob(job.job_id, job.placement, job.attempt)


def set_state(view: ClusterView, job: Job, state: JobState) -> None:
    """Change what a job is doing, and with it how much is at risk of failing."""
    if job.state is JobState.RUNNING:
        view.busy_count -= job.size_count
    job.state = state
    if state is JobState.RUNNING:
        view.busy_count += job.size_count


def halt(view: ClusterView, job: Job) -> None:
    """Its attempt is over: nothing is waited for. It keeps its accelerators until they are taken back."""
    for due in (Due.SAVE, Due.WAITED, Due.RESTART):
        view.timers.cancel(due, job.job_id)
    job.saving_since_s = None
    job.making_room = None
    view.leaving.pop(job.job_id, None)
    if job.placement:
        set_state(view, job, JobState.HELD)


def to_queue(view: ClusterView, job: Job, now_s: float) -> None:
    """It waits for its turn again, where it stood by its submission."""
    _without(view, job, now_s)
    job.state = JobState.QUEUED
    view.queue.push(job)
    view.room_changed = True


def pause(view: ClusterView, job: Job, until_s: float, now_s: float) -> None:
    """It has nothing, and is queued again when its pause is over."""
    _without(view, job, now_s)
    job.state = JobState.PAUSED
    view.timers.set(Due.RESTART, job.job_id, until_s)


def end(view: ClusterView, job: Job, now_s: float) -> None:
    """It is over, however it ended, and is forgotten."""
    if job.state is JobState.QUEUED:
        view.queue.remove(job)
        # Others may have waited behind it, or for its reservation.
        view.room_changed = True
    _without(view, job, now_s)
    del view.jobs[job.job_id]
    view.over.add(job.job_id)


def _ordered(view: ClusterView, job: Job, now_s: float) -> None:
    set_state(view, job, JobState.STARTING)
    job.attempt += 1
    job.begun_s = job.since_s = now_s
    view.counts.started += 1


def _without(view: ClusterView, job: Job, now_s: float) -> None:
    halt(view, job)
    if job.placement:
        view.take_back(job, now_s)
