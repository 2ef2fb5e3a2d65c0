"""Jobs that wait for all their accelerators at once, and in which order they are looked at.

One line per team and priority, first come first served; a job that comes back keeps its place. Between lines:
priority first, aged so that nothing starves; then teams that are within their quota; then the team that has
used least; then the older job.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from twofold.policy.cluster.job import Job

Standing = tuple[bool, float]  # of a job: beyond its team's quota, share of its team


class GangQueue:
    """Mutable. `len` is how many wait."""

    def __init__(self, limit_count: int, aging_s: float) -> None:
        self._limit_count = limit_count
        self._aging_s = aging_s
        self._lines: dict[tuple[str, int], list[tuple[int, Job]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether a new job is refused; one that comes back never is."""
        return self._count >= self._limit_count

    def push(self, job: Job) -> None:
        """Into its line, by when it was submitted."""
        insort(self._lines.setdefault((job.submitted.team, job.submitted.priority), []), (job.sequence, job))
        self._count += 1

    def remove(self, job: Job) -> None:
        """Out of its line."""
        key = (job.submitted.team, job.submitted.priority)
        line = self._lines[key]
        index = bisect_left(line, (job.sequence,))  # a shorter tuple is less
        assert line[index][1] is job, job
        del line[index]
        self._count -= 1
        if not line:
            del self._lines[key]

    def ordered(
        self, now_s: float, standing: Callable[[Job], Standing], may_start: Callable[[Job], bool]
    ) -> Iterator[Job]:
        """All jobs in order; a line whose next job may not start is left alone from there on.

        A line's next job is looked at when the one before it was taken from here. Nothing may be pushed or
        removed meanwhile.
        """
        # HOT: per look at the queue; only the first of each line is judged before it is needed.
        heap = [self._entry(line, 0, now_s, standing) for line in self._lines.values()]
        heapify(heap)
        while heap:
            *_, index, line = heappop(heap)
            job = line[index][1]
            if may_start(job):
                yield job
                if index + 1 < len(line):
                    heappush(heap, self._entry(line, index + 1, now_s, standing))

    def before(self, one: Job, other: Job, now_s: float, standing: Callable[[Job], Standing]) -> bool:
        """Whether one job is looked at before the other."""
        return self._key(one, now_s, standing) < self._key(other, now_s, standing)

    def _key(
        self, job: Job, now_s: float, standing: Callable[[Job], Standing]
    ) -> tuple[int, bool, float, int]:
        beyond, share = standing(job)
        return (-aged_priority(job, now_s, self._aging_s), beyond, share, job.sequence)

    def _entry(
        self, line: list[tuple[int, Job]], index: int, now_s: float, standing: Callable[[Job], Standing]
    ) -> tuple[int, bool, float, int, int, list[tuple[int, Job]]]:
        return (*self._key(line[index][1], now_s, standing), index, line)


def aged_priority(job: Job, now_s: float, aging_s: float) -> int:
    """Formula  priority + ⌊waited / aging⌋, where waited counts from submission.

    Why      A job overtakes whatever came this much later per step of priority that it is behind, so the
             number of jobs that can pass it is bounded.
    """
    return job.submitted.priority + int((now_s - job.submitted_s) // aging_s)
