"""A run's course in a bounded number of buckets: when they run out, neighbours are joined."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from twofold.twin.serving.metrics_types import TimelineRow

FIRST_WIDTH_S = 1.0  # a power of two, as all widths: then times over widths are exact
SUMMED = (
    "arrived", "arrived_s", "busy_s", "e2e_s", "ended", "ended_s", "failed", "finished", "kv", "left",
    "queued", "ready", "ready_s", "refused", "samples", "ttft_s", "turned_away", "waiting", "within",
)  # fmt: skip


class Bucket:
    """Sums over one span of time. Mutable. Times in sums count from the bucket's begin."""

    __slots__ = (*SUMMED, "done", "late", "ttft_s_max")

    def __init__(self, class_count: int) -> None:
        self.arrived = self.ended = self.finished = 0
        self.arrived_s = self.ended_s = 0.0
        self.refused = 0  # askings; those that a client gave in after are turned away
        self.turned_away = self.failed = self.left = self.within = 0
        self.ttft_s = self.e2e_s = self.ttft_s_max = 0.0
        self.samples = 0  # scrapes, and their sums:
        self.queued = self.waiting = self.kv = self.busy_s = self.ready_s = self.ready = 0.0
        self.done = [0] * class_count  # finished answers by class,
        self.late = [0] * (3 * class_count)  # and those beyond each limit

    def join(self, other: "Bucket", width_s: float) -> None:
        """Take in the bucket that follows; both are as wide."""
        other.arrived_s += other.arrived * width_s
        other.ended_s += other.ended * width_s
        self.ttft_s_max = max(self.ttft_s_max, other.ttft_s_max)
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.done = [a + b for a, b in zip(self.done, other.done, strict=True)]
        self.late = [a + b for a, b in zip(self.late, other.late, strict=True)]

    def open_s(self, open_count: int, width_s: float) -> float:
        """The integral of how many visits are open, of which so many were at its begin.

        Formula  n·w + Σ (w − arrival) − Σ (w − end), times from the bucket's begin
        """
        arrived_s = self.arrived * width_s - self.arrived_s
        return open_count * width_s + arrived_s - (self.ended * width_s - self.ended_s)


class Timeline:
    """Buckets from 0 on. Mutable. What is told may come late: a time finds its own bucket."""

    def __init__(self, class_count: int, most_count: int) -> None:
        self._class_count, self._most_count = class_count, most_count
        self.width_s = FIRST_WIDTH_S
        self.buckets = [Bucket(class_count)]

    def reach(self, now_s: float) -> None:
        """Have buckets up to this time; their width may double."""
        while now_s >= self.width_s * len(self.buckets):
            if len(self.buckets) == 2 * self._most_count:
                for first, second in zip(self.buckets[::2], self.buckets[1::2], strict=True):
                    first.join(second, self.width_s)
                self.buckets = self.buckets[::2]
                self.width_s *= 2.0
            self.buckets.append(Bucket(self._class_count))

    def at(self, now_s: float) -> Bucket:
        """The bucket of this time."""
        self.reach(now_s)
        return self.buckets[int(now_s / self.width_s)]

    def ended_at(self, now_s: float) -> Bucket:
        """A visit ended now, however."""
        bucket = self.at(now_s)
        bucket.ended += 1
        bucket.ended_s += now_s - int(now_s / self.width_s) * self.width_s
        return bucket

    def add_arrived(self, times_s: NDArray[np.float64]) -> None:
        """Visits began."""
        self.reach(float(times_s.max()))
        numbers = (times_s / self.width_s).astype(np.int64)
        first = int(numbers.min())
        offsets = times_s - numbers * self.width_s
        for number, (count, offset_s) in enumerate(sums(numbers - first, offsets), first):
            bucket = self.buckets[number]
            bucket.arrived += int(count)
            bucket.arrived_s += offset_s

    def add_answers(
        self,
        class_number: int,
        ended_s: NDArray[np.float64],
        ttft_s: NDArray[np.float64],
        e2e_s: NDArray[np.float64],
        within: NDArray[np.bool_],
        late: Sequence[NDArray[np.bool_]],
    ) -> None:
        """Visits of a class ended with their whole answers; `reach` was told of the last one."""
        numbers = (ended_s / self.width_s).astype(np.int64)
        first = int(numbers.min())
        places, offsets = numbers - first, ended_s - numbers * self.width_s
        columns = sums(places, offsets, ttft_s, e2e_s, within, *late)
        highest = np.zeros(int(places.max()) + 1)
        np.maximum.at(highest, places, ttft_s)
        for number, (count, offset_s, first_s, whole_s, kept, *over) in enumerate(columns, first):
            bucket = self.buckets[number]
            bucket.ended += int(count)
            bucket.finished += int(count)
            bucket.done[class_number] += int(count)
            bucket.ended_s += offset_s
            bucket.ttft_s += first_s
            bucket.e2e_s += whole_s
            bucket.within += int(kept)
            bucket.ttft_s_max = max(bucket.ttft_s_max, float(highest[number - first]))
            for index, beyond in enumerate(over):
                bucket.late[3 * class_number + index] += int(beyond)

    def open_s(self, until_s: float) -> float:
        """The integral of how many visits are open, over the whole run."""
        return sum(open_s for _, _, open_s in self._spans(until_s))

    def _spans(self, until_s: float) -> Iterator[tuple[Bucket, float, float]]:
        """Each bucket, how wide it is (the last one ends at `until_s`), and its open visits over time."""
        open_count = 0
        for number, bucket in enumerate(self.buckets):
            width_s = min(self.width_s, until_s - number * self.width_s)
            if width_s <= 0.0 and not bucket.ended + bucket.arrived:
                return
            yield bucket, width_s, bucket.open_s(open_count, width_s)
            open_count += bucket.arrived - bucket.ended

    def rows(self, until_s: float) -> tuple[TimelineRow, ...]:
        """All buckets, the last one cut at the end; what no scrape fell into keeps the last one's figures."""
        rows: list[TimelineRow] = []
        scraped = (0.0, 0.0, 0.0, 0, 0.0)
        for number, (bucket, width_s, open_s) in enumerate(self._spans(until_s)):
            from_s = number * self.width_s
            end_s = from_s + width_s
            if bucket.samples:
                count = bucket.samples
                busy = bucket.busy_s / bucket.ready_s if bucket.ready_s else 0.0
                ready_count = round(bucket.ready / count)
                waiting, queued = bucket.waiting / count, bucket.queued / count
                scraped = (waiting, bucket.kv / count, busy, ready_count, queued)
            finished = max(bucket.finished, 1)
            rows.append(
                TimelineRow(
                    from_s=from_s,
                    until_s=end_s,
                    arrived_count=bucket.arrived,
                    finished_count=bucket.finished,
                    refused_count=bucket.refused,
                    failed_count=bucket.failed,
                    left_count=bucket.left,
                    within_slo_count=bucket.within,
                    ttft_s_mean=bucket.ttft_s / finished,
                    e2e_s_mean=bucket.e2e_s / finished,
                    ttft_s_max=bucket.ttft_s_max,
                    in_flight_mean=open_s / width_s if width_s > 0.0 else 0.0,
                    waiting_mean=scraped[0],
                    kv_used_fraction=scraped[1],
                    busy_fraction=scraped[2],
                    ready_replica_count=scraped[3],
                    queued_mean=scraped[4],
                )
            )
        return tuple(rows)


def sums(
    places: NDArray[np.int64], *weights: NDArray[np.float64] | NDArray[np.bool_]
) -> Iterator[tuple[float, ...]]:
    """For every place from 0 on: how many there are, and the sum of each weight."""
    columns = [np.bincount(places), *(np.bincount(places, weight) for weight in weights)]
    return zip(*(column.tolist() for column in columns), strict=True)
