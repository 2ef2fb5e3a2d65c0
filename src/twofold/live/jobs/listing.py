"""What became of every job of a queue, by its log alone: who asks needs no driver that answers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from twofold.core.errors import TwofoldError
from twofold.live.jobs.job_log import LOG, JobEntry, QueueRun, read_job_log, replayed
from twofold.live.jobs.orders import JobOrder, jobs_folder, order_files, read_order
from twofold.live.jobs.progress import last_step
from twofold.live.jobs.queue_clock import by_now
from twofold.policy.cluster import events
from twofold.policy.cluster.brain import ClusterBrain

OVER = ("finished", "failed", "cancelled", "refused")
JOB_EVENTS = (events.JobSubmitted, events.JobCancelled, *events.JobReport.__args__)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job, now. `since_s` is Unix time: when its state became this one."""

    job_id: str
    team: str
    priority: int
    kind: str
    state: str  # submitted, queued, starting, running, leaving, paused, held, or one of OVER
    ranks: int  # slots that it asks for
    slots: tuple[str, ...]  # that it has
    step: int | None
    restarts: int  # attempts after the first
    preempted: int  # of them, that began after it had made room for another job
    since_s: float
    why: str = ""  # of its latest stop, or its refusal

    @property
    def is_over(self) -> bool:
        """Whether nothing becomes of it any more."""
        return self.state in OVER


def jobs_of(state: Path) -> list[JobStatus]:
    """Every job that was ever submitted, oldest first. Raises ShapeError for a log that is none."""
    told: dict[str, JobStatus] = {}
    folder = jobs_folder(state)
    runs = read_job_log(folder / LOG)
    for run in runs:
        told |= _fold(replace(run, began_s=by_now(folder, run.began_s)), folder / LOG)
    found = []
    for job_id, path in order_files(state):
        try:
            order = read_order(state, job_id)
        except TwofoldError:
            continue
        status = told.get(job_id) or _new(order, path.stat().st_mtime)
        found.append(replace(status, kind=order.kind, step=last_step(Path(order.folder))))
    return found


def _new(order: JobOrder, since_s: float) -> JobStatus:
    return JobStatus(
        order.job_id,
        order.team,
        order.priority,
        order.kind,
        "submitted",
        order.slot_count,
        (),
        None,
        0,
        0,
        since_s,
    )


def _fold(run: QueueRun, path: Path) -> dict[str, JobStatus]:
    """The jobs of one run of the log."""
    found: dict[str, JobStatus] = {}

    def tell(entry: JobEntry, brain: ClusterBrain) -> None:
        for job_id in dict.fromkeys(_concerned(entry)):
            if job_id in found or isinstance(entry.event, events.JobSubmitted):
                found[job_id] = _after(found.get(job_id), job_id, entry, brain, run.began_s + entry.now_s)

    replayed(run, path, tell, other_version=True)  # what an older one decided is told as it was
    return found


def _concerned(entry: JobEntry) -> Iterator[str]:
    if isinstance(entry.event, JOB_EVENTS):
        yield entry.event.job_id
    yield from (effect.job_id for effect in entry.effects if isinstance(effect, events.JobOrder))


def _after(
    before: JobStatus | None, job_id: str, entry: JobEntry, brain: ClusterBrain, at_s: float
) -> JobStatus:
    """What is known of a job after an entry that concerns it."""
    if before is None:
        asked = entry.event
        assert isinstance(asked, events.JobSubmitted), entry
        count = asked.accelerator_count
        before = JobStatus(job_id, asked.team, asked.priority, "", "queued", count, (), None, 0, 0, at_s)
    stops = [each for each in entry.effects if isinstance(each, events.StopJob) and each.job_id == job_id]
    refusals = [
        each for each in entry.effects if isinstance(each, events.RefuseJob) and each.job_id == job_id
    ]
    why = (stops or refusals)[-1].reason.value if stops or refusals else before.why
    job = brain.view.jobs.get(job_id)
    if job is None:
        state = _outcome(before.state, entry.event, refusals)
        since_s = at_s if state != before.state else before.since_s
        return replace(before, state=state, slots=(), since_s=since_s, why="" if state == "finished" else why)
    state = "leaving" if job.making_room is not None else job.state.value
    made_room = any(each.reason in MADE_ROOM for each in stops)
    return replace(
        before,
        state=state,
        slots=tuple(slot for slot, _ in job.placement),
        restarts=max(job.attempt - 1, 0),
        preempted=before.preempted + made_room,
        since_s=at_s if state != before.state else before.since_s,
        why=why,
    )


MADE_ROOM = (events.StopReason.PREEMPTED, events.StopReason.RECLAIMED)


def _outcome(before: str, event: events.ClusterEvent, refusals: list[events.RefuseJob]) -> str:
    if before in OVER:
        return before
    if refusals:
        return "refused"
    match event:
        case events.JobFinished():
            return "finished"
        case events.JobCancelled():
            return "cancelled"
    return "failed"
