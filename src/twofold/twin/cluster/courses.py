"""The course of a job while a cluster runs: where it stood when, and when it failed and saved. Bounded."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from twofold.contracts.results import courses
from twofold.twin.cluster.cluster_types import ClusterRow, JobRecord
from twofold.twin.cluster.job import Phase

SPANS_MOST = 400  # of one job, and of its failures
CHECKPOINTS_MOST = 200  # of one job; beyond, every second one is kept, and so on
STATES: Mapping[Phase, str] = MappingProxyType(
    {
        Phase.WAITING: "queued",
        Phase.LAUNCHING: "starting",
        Phase.READING: "starting",
        Phase.RUNNING: "running",
        Phase.STANDING: "running",
        Phase.HUNG: "failed",
        Phase.PAUSED: "failed",
        Phase.ENDED: "",
    }
)


class Followed:
    """One job that is followed. Mutable."""

    def __init__(self, now_s: float) -> None:
        self._state, self._since_s = "queued", now_s
        self._spans: list[courses.JobSpan] = []
        self._failures_s: list[float] = []
        self._checkpoints_s: list[float] = []
        self._every = 1
        self._written_count = self._left_out_count = 0

    def enters(self, phase: Phase, now_s: float) -> None:
        """From now on it stands there; phases that look alike are one stretch."""
        state = STATES[phase]
        if state == self._state:
            return
        if state == "failed":
            if len(self._failures_s) < SPANS_MOST:
                self._failures_s.append(now_s)
            else:
                self._left_out_count += 1
        if self._state and now_s > self._since_s:
            if len(self._spans) < SPANS_MOST:
                self._spans.append(courses.JobSpan(self._state, self._since_s, now_s))
            else:
                self._left_out_count += 1
        self._state, self._since_s = state, now_s

    def saved(self, now_s: float) -> None:
        """A checkpoint is whole."""
        if self._written_count % self._every == 0:
            if len(self._checkpoints_s) == CHECKPOINTS_MOST:
                self._checkpoints_s = self._checkpoints_s[::2]
                self._every *= 2
            self._checkpoints_s.append(now_s)
        self._written_count += 1

    def course(self, record: JobRecord, now_s: float) -> courses.JobCourse:
        """All of it until now."""
        self.enters(Phase.ENDED, now_s)
        told = record.job_id, record.team, record.accelerator_count, record.state, True
        seen = tuple(self._spans), tuple(self._failures_s), tuple(self._checkpoints_s)
        return courses.JobCourse(*told, *seen, self._every, self._left_out_count)


def of_record(record: JobRecord, now_s: float) -> courses.JobCourse:
    """A job of which only its end was told: it waited, then ran."""
    started_s, ended_s = record.started_s, now_s if record.ended_s is None else record.ended_s
    spans = [courses.JobSpan("queued", record.submit_s, ended_s if started_s is None else started_s)]
    if started_s is not None:
        spans.append(courses.JobSpan("running", started_s, ended_s))
    kept = tuple(each for each in spans if each.from_s < each.until_s)
    told = record.job_id, record.team, record.accelerator_count, record.state, False
    return courses.JobCourse(*told, kept, (), (), 1, 0)


def cluster_course(rows: Sequence[ClusterRow], jobs: Sequence[courses.JobCourse]) -> courses.ClusterCourse:
    """The cluster over its timeline, and the jobs that are shown."""
    return courses.ClusterCourse(
        until_s=tuple(row.until_s for row in rows),
        training_count=tuple(_digits(row.training_count) for row in rows),
        serving_count=tuple(_digits(row.serving_count) for row in rows),
        idle_count=tuple(_digits(row.idle_count) for row in rows),
        away_count=tuple(_digits(row.away_count) for row in rows),
        needed_count=tuple(row.needed_count for row in rows),
        queued_count=tuple(row.queued_count for row in rows),
        jobs=tuple(jobs),
    )


def _digits(value: float) -> float:
    return float(f"{value:.5g}") + 0.0
