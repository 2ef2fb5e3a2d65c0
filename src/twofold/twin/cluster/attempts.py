"""What happens to a job in truth: it starts, works, writes, hangs, is stopped, ends."""

from functools import partial
from math import inf

from twofold.policy.cluster import events
from twofold.twin.cluster.job import Job, Phase
from twofold.twin.cluster.jobs import JobEnd
from twofold.twin.cluster.state import ClusterState

LAST_STOPS = {  # others are queued again
    events.StopReason.GAVE_UP: "gave-up",
    events.StopReason.CANCELLED: "cancelled",
}
DONE_TOLERANCE_FRACTION = 1e-9  # of a job's work, that rounding may leave undone
FAULT_STOPS = {events.StopReason.FAILED, events.StopReason.GAVE_UP, events.StopReason.HUNG}


def begin(state: ClusterState, job: Job, placement: events.Placement, attempt: int) -> None:
    """An attempt from the last checkpoint; what it had before, it gives back first."""
    now_s = state.now_s
    if job.placement:
        halt(state, job)
        give_back(state, job)
    state.figures.queued(job, -1, now_s)
    if job.started_s is None:
        job.started_s = now_s
        state.figures.first_started(job, now_s)
    else:
        state.figures.restart_count += 1
    job.attempt = attempt or job.attempt + 1
    for node_id, count in placement:
        if state.nodes[node_id].free_count < count:
            vacate(state, node_id)
    job.hold(placement, state.nodes, now_s)
    job.pace_is_old = True
    state.figures.held(job, 1, now_s)
    if any(state.nodes[node_id].down for node_id, _ in placement):
        hang(state, job)  # a node that failed, and nobody knows yet
    else:
        job.due = state.later(state.world.checkpoint.restart_s, partial(launched, state, job))


def give_back(state: ClusterState, job: Job) -> None:
    """It has no accelerators from now on, and waits."""
    state.figures.held(job, -1, state.now_s)
    job.release(Phase.WAITING, state.nodes, state.now_s)
    state.figures.queued(job, 1, state.now_s)


def vacate(state: ClusterState, node_id: str) -> None:
    """Jobs whose attempt is over by a failure that was told give back what another one is to have.

    Nothing of them runs any more; whether they keep their place is the brain's to say, by giving it away.
    """
    for job_id in list(state.nodes[node_id].job_counts):
        job = state.jobs[job_id]
        if job.phase is Phase.PAUSED:
            give_back(state, job)


def launched(state: ClusterState, job: Job) -> None:
    """Its processes are there; now its checkpoint is read, if it has one."""
    job.due = None
    if job.saved_s > 0:
        job.enter(Phase.READING, state.nodes, state.now_s)
        state.transfer(job)
    else:
        go_on(state, job)


def go_on(state: ClusterState, job: Job) -> None:
    """The attempt's work begins."""
    work(state, job)
    if job.failed_at_s is not None:
        state.figures.recoveries.add(state.now_s - job.failed_at_s)
        job.failed_at_s = None
    state.inbox.append(events.JobStarted(job.job_id, job.attempt))
    if state.world.report_s is not None:
        report(state, job, job.attempt)


def report(state: ClusterState, job: Job, attempt: int) -> None:
    """An attempt tells of its steps, now and from time to time, as live; not while it hangs."""
    if job.attempt != attempt or job.phase not in (Phase.RUNNING, Phase.STANDING):
        return
    if job.phase is Phase.RUNNING:
        step_s = state.world.step.step_s * job.step_factor
        own_s = state.pace.own_s(job.placement)
        state.inbox.append(events.JobProgressed(job.job_id, step_s, own_s, attempt))
    assert state.world.report_s is not None
    state.later(state.world.report_s, partial(report, state, job, attempt))


def work(state: ClusterState, job: Job) -> None:
    """Run from now on at the pace of the place, until it is done or something comes."""
    job.enter(Phase.RUNNING, state.nodes, state.now_s)
    if job.pace_is_old:
        job.rate, job.step_factor, job.pace_setter = state.pace.of(job.placement)
        job.pace_is_old = False
    _expect_end(state, job)


def repace(state: ClusterState, job: Job) -> None:
    """Something about its nodes changed."""
    job.pace_is_old = True
    if job.phase is Phase.RUNNING:
        state.figures.paced(job, state.now_s)
        _drop_due(state, job)
        work(state, job)


def save(state: ClusterState, job: Job) -> None:
    """Begin to write what is done now; the job stands still for its snapshot or for the whole write."""
    if job.phase is Phase.HUNG:
        return  # nothing answers any more; the failure will be told
    if job.phase is not Phase.RUNNING or job.writing:
        state.inbox.append(events.CheckpointFailed(job.job_id, job.attempt))
        return
    state.figures.paced(job, state.now_s)
    _drop_due(state, job)
    job.enter(Phase.STANDING, state.nodes, state.now_s)
    job.snap_work_s, job.snap_slow_s = job.done_s, job.slow_s
    job.writing, job.write_from_s = True, state.now_s
    snapshot_s = state.world.checkpoint.snapshot_s
    if snapshot_s is not None:  # then the copy is taken, and work goes on while it is written
        job.due = state.later(snapshot_s, partial(work, state, job))
    state.transfer(job)


def transferred(state: ClusterState, job: Job) -> None:
    """A checkpoint has been read, or written."""
    if job.phase is Phase.READING:
        go_on(state, job)
        return
    checkpoint = state.world.checkpoint
    took_s = state.now_s - job.write_from_s
    job.writing = False
    if checkpoint.failed_fraction and state.write_luck.random() < checkpoint.failed_fraction:
        state.figures.checkpoint_failed_count += 1
        state.inbox.append(events.CheckpointFailed(job.job_id, job.attempt))
    else:
        job.saved_s = job.snap_work_s
        job.slow_s -= job.snap_slow_s
        job.snap_slow_s = 0.0
        job.checkpoints_count += 1
        state.figures.saved(job, took_s, state.now_s)
        told = events.CheckpointWritten(job.job_id, took_s, job.attempt, checkpoint.snapshot_s)
        state.inbox.append(told)
    if checkpoint.snapshot_s is None:
        work(state, job)


def hang(state: ClusterState, job: Job) -> bool:
    """Something failed: its work since the last checkpoint is gone. False: it did not work any more."""
    if job.phase in (Phase.HUNG, Phase.PAUSED):
        return False
    held = job.held_count
    lost_s = halt(state, job)
    job.enter(Phase.HUNG, state.nodes, state.now_s)
    job.failures_count += 1
    state.figures.losses.add(lost_s / held)
    if job.failed_at_s is None:
        job.failed_at_s = state.now_s
    return True


def halt(state: ClusterState, job: Job) -> float:
    """Stop whatever it does and fall back to the last checkpoint; the accelerator-seconds lost."""
    state.figures.paced(job, state.now_s)
    job.sync(state.nodes, state.now_s)
    _drop_due(state, job)
    if job.writing or job.phase is Phase.READING:
        state.no_transfer(job)
    return job.lose(state.nodes)


def stop(state: ClusterState, job: Job, reason: events.StopReason) -> None:
    """As the brain orders: it is queued again, or it is over."""
    held = job.held_count
    if job.placement:
        halt(state, job)
        give_back(state, job)
    if reason in LAST_STOPS:
        end(state, job, LAST_STOPS[reason])
    elif reason not in FAULT_STOPS and held:
        job.preempted_count += 1
        state.figures.preempted_count += 1


def finish(state: ClusterState, job: Job) -> None:
    """Its work is done, or it ends of itself."""
    state.figures.paced(job, state.now_s)
    job.sync(state.nodes, state.now_s)
    job.due = None
    if job.done_s < job.work_s * (1 - DONE_TOLERANCE_FRACTION):  # rounding left a little
        _expect_end(state, job)
        return
    if job.writing:
        state.no_transfer(job)
    give_back(state, job)
    ended = job.arrival.state
    completed = ended is JobEnd.COMPLETED
    state.inbox.append(
        events.JobFinished(job.job_id, job.attempt) if completed else events.JobCancelled(job.job_id)
    )
    end(state, job, ended.value)


def end(state: ClusterState, job: Job, outcome: str) -> None:
    """It is gone for good; it holds nothing any more."""
    state.figures.queued(job, -1, state.now_s)
    job.phase = Phase.ENDED
    del state.jobs[job.job_id]
    state.figures.ended(job, outcome, state.now_s)


def _expect_end(state: ClusterState, job: Job) -> None:
    ends_s = state.now_s + (job.work_s - job.done_s) / job.rate if job.rate > 0 else inf
    job.due = state.at(ends_s, partial(finish, state, job))


def _drop_due(state: ClusterState, job: Job) -> None:
    if job.due is not None:
        state.heap.cancel(job.due)
        job.due = None
