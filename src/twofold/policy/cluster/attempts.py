"""Attempts of jobs: they begin and end, are written on time, shrink, grow, or leave to make room.

Who has what, what was ordered and which timers run follows from the functions here. A job that shall make
room writes a checkpoint first. If that fails or takes too long, the settings say whether it runs on and
another one makes room, or whether it loses its work since the last one.
"""

from twofold.policy.cluster import events
from twofold.policy.cluster.cadence import next_interval_s, smoothed_write_s
from twofold.policy.cluster.gang_queue import Job, JobState, MakingRoom
from twofold.policy.cluster.placement import place
from twofold.policy.cluster.room import Victim, expected_end_s
from twofold.policy.cluster.view import ClusterView, Due

GROWTH_WORTH_RATIO = 2.0  # of the time that growing saves to the restart that it costs


def start(view: ClusterView, job: Job, placement: events.Placement, now_s: float) -> events.StartJob:
    """A job that has nothing gets its gang. Who calls takes it out of the queue."""
    assert not job.placement, job
    _give(view, job, placement, now_s)
    return events.StartJob(job.job_id, placement, job.attempt)


def again(view: ClusterView, job: Job, now_s: float) -> events.StartJob:
    """A job whose attempt is over starts once more where it is."""
    view.expect_end(job, expected_end_s(job, job.size_count, now_s))
    _ordered(view, job, now_s)
    return events.StartJob(job.job_id, job.placement, job.attempt)


def move(view: ClusterView, job: Job, placement: events.Placement, now_s: float) -> events.ResizeJob:
    """A job that has a gang goes on with another one; pieces on the same node become one."""
    halt(view, job)
    merged: dict[str, int] = {}
    for node_id, count in placement:
        merged[node_id] = merged.get(node_id, 0) + count
    _give(view, job, tuple(merged.items()), now_s)
    return events.ResizeJob(job.job_id, job.placement, job.attempt)


def set_state(view: ClusterView, job: Job, state: JobState) -> None:
    """Change what a job is doing, and with it how much is at risk of failing."""
    if job.state is JobState.RUNNING:
        view.busy_count -= job.size_count
    job.state = state
    if state is JobState.RUNNING:
        view.busy_count += job.size_count


def halt(view: ClusterView, job: Job) -> None:
    """Its attempt is over: nothing is waited for. It keeps its accelerators until they are taken back."""
    for due in (Due.SAVE, Due.WAITED, Due.RESTART, Due.SILENT):
        view.timers.cancel(due, job.job_id)
    job.saving_since_s = None
    job.step_s_max, job.slow_node_id = 0.0, ""
    job.slow_counts.clear()
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


def _give(view: ClusterView, job: Job, placement: events.Placement, now_s: float) -> None:
    size_count = sum(count for _, count in placement)
    view.give(job, placement, expected_end_s(job, size_count, now_s), now_s)
    _ordered(view, job, now_s)


def _ordered(view: ClusterView, job: Job, now_s: float) -> None:
    set_state(view, job, JobState.STARTING)
    job.attempt += 1
    job.begun_s = job.since_s = now_s
    view.counts.started += 1
    if view.settings.watch.start_wait_s is not None:
        view.timers.set(Due.SILENT, job.job_id, now_s + view.settings.watch.start_wait_s)


def _without(view: ClusterView, job: Job, now_s: float) -> None:
    halt(view, job)
    if job.placement:
        view.give(job, (), now_s, now_s)


def save_later(view: ClusterView, job: Job, now_s: float) -> None:
    """The next checkpoint of the cadence, of a job that writes any."""
    if not job.submitted.saves:
        return
    rate = view.interruptions.failures_per_s
    interval_s = next_interval_s(rate, job.size_count, job.stall_s, view.settings.cadence)
    view.timers.set(Due.SAVE, job.job_id, now_s + interval_s)


def save(view: ClusterView, job: Job, now_s: float) -> list[events.ClusterEffect]:
    """Have a checkpoint written, and wait for it no longer than the settings allow."""
    if job.state is not JobState.RUNNING or job.saving_since_s is not None:
        return []
    job.saving_since_s = now_s
    view.timers.cancel(Due.SAVE, job.job_id)
    view.timers.set(Due.WAITED, job.job_id, now_s + wait_s(view, job))
    return [events.SaveCheckpoint(job.job_id)]


def wait_s(view: ClusterView, job: Job) -> float:
    """How long a checkpoint is waited for."""
    cadence = view.settings.cadence
    return max(cadence.wait_s, cadence.wait_ratio * job.write_s)


def make_room(
    view: ClusterView, victim: Victim, reason: events.StopReason, now_s: float
) -> list[events.ClusterEffect]:
    """Stop or shrink a job as soon as its work is safe."""
    job, given_up = victim
    job.making_room = MakingRoom(reason, given_up)
    view.leaving[job.job_id] = job
    if given_up is None:
        view.expect_end(job, now_s + job.write_s)
    return save(view, job, now_s)


def written(
    view: ClusterView, job: Job, told: events.CheckpointWritten, now_s: float
) -> list[events.ClusterEffect]:
    """The work up to the write is safe; now is the time to make room, or to grow at no loss."""
    saved_at_s = now_s - told.write_s if job.saving_since_s is None else job.saving_since_s
    job.done_s += max(saved_at_s - job.since_s, 0.0) * job.speed_ratio
    job.write_s = smoothed_write_s(job.write_s, told.write_s)
    if told.stall_s is None:
        job.since_s, job.stall_s = now_s, smoothed_write_s(job.stall_s, told.write_s)
    else:  # it worked on beside the rest of the write: that work is in the next one
        job.since_s = min(max(job.since_s, saved_at_s + told.stall_s), now_s)
        job.stall_s = smoothed_write_s(job.stall_s, told.stall_s)
    job.failed_count = job.refused_count = 0
    job.saving_since_s = None
    view.timers.cancel(Due.WAITED, job.job_id)
    view.counts.checkpoints += 1
    if job.making_room is not None:
        return room_made(view, job, job.making_room, now_s)
    grown = _grown(view, job, now_s)
    if grown is not None:
        view.counts.grown += 1
        return [grown]
    save_later(view, job, now_s)
    return []


def lost(view: ClusterView, job: Job, now_s: float) -> list[events.ClusterEffect]:
    """A checkpoint failed or did not come: the job goes on, and another one is to make room."""
    job.saving_since_s = None
    view.timers.cancel(Due.WAITED, job.job_id)
    view.counts.checkpoints_lost += 1
    if job.making_room is not None:
        job.making_room = None
        del view.leaving[job.job_id]
        job.spared_until_s = now_s + wait_s(view, job)
        view.expect_end(job, max(expected_end_s(job, job.size_count, now_s) - job.submitted.restart_s, now_s))
        # Others are asked instead.
        view.room_changed = view.serving_changed = True
    again_s = max(job.write_s, view.settings.cadence.interval_s_min)
    view.timers.set(Due.SAVE, job.job_id, now_s + again_s)
    return []


def room_made(view: ClusterView, job: Job, making: MakingRoom, now_s: float) -> list[events.ClusterEffect]:
    """The job leaves what it was asked to leave."""
    kept = kept_pieces(view, job, making.given_up)
    if making.given_up is not None and sum(count for _, count in kept) >= job.submitted.minimum_count:
        view.counts.shrunk += 1
        return [move(view, job, kept, now_s)]
    to_queue(view, job, now_s)
    view.counts.preempted += 1
    return [events.StopJob(job.job_id, making.reason)]


def kept_pieces(view: ClusterView, job: Job, given_up: frozenset[str] | None) -> events.Placement:
    """The pieces that a job could go on with: not given up, and on nodes that may be used."""
    gone = given_up or frozenset()
    return tuple(piece for piece in job.placement if piece[0] not in gone and view.nodes[piece[0]].usable)


def _grown(view: ClusterView, job: Job, now_s: float) -> events.ResizeJob | None:
    """An elastic job that was shrunk takes what nobody waits for, if that pays for the restart.

    Formula  rest · (1 − size / new size) ≥ 2 · restart
    Why      Right after a checkpoint growing loses no work, only the restart.
    """
    missing_count = job.submitted.accelerator_count - job.size_count
    left_count = view.teams.of(job.submitted.team, now_s).left_count(job.submitted.preemptible)
    if left_count is not None:
        missing_count = min(missing_count, left_count)
    if missing_count <= 0 or now_s - job.begun_s < view.settings.queue.grow_after_s:
        return None
    if len(kept_pieces(view, job, None)) < len(job.placement):
        return None
    rest_s = max(job.submitted.expected_s - job.done_s, 0.0) / job.speed_ratio
    free = view.free
    for count in dict.fromkeys((missing_count, min(missing_count, free.whole_count))):
        saved_s = rest_s * (1.0 - job.size_count / (job.size_count + count))
        more = place(free, count, view.largest_count) if count else None
        if more is not None and saved_s >= GROWTH_WORTH_RATIO * job.submitted.restart_s:
            return move(view, job, (*job.placement, *more), now_s)
    return None
