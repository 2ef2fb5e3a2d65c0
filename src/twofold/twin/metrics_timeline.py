"""A run's course in a bounded number of buckets: when they run out, neighbours are joined."""

from twofold.twin.types import TimelineRow

FIRST_WIDTH_S = 1.0
METRICS = ("ttft", "tpot", "e2e")


class Bucket:
    """Sums over one span of time. Mutable."""

    __slots__ = (
        "arrived", "busy_s", "done", "e2e_s", "failed", "finished", "kv", "late", "left", "open_s",
        "ready", "ready_s", "refused", "samples", "ttft_s", "ttft_s_max", "waiting", "within",
    )  # fmt: skip

    def __init__(self, class_count: int) -> None:
        self.arrived = self.finished = self.refused = self.failed = self.left = self.within = 0
        self.ttft_s = self.e2e_s = self.ttft_s_max = self.open_s = 0.0
        self.samples = 0  # scrapes, and their sums:
        self.waiting = self.kv = self.busy_s = self.ready_s = self.ready = 0.0
        self.done = [0] * class_count  # finished answers by class,
        self.late = [0] * (3 * class_count)  # and those beyond each limit

    def join(self, other: "Bucket") -> None:
        """Take in the bucket that follows."""
        self.ttft_s_max = max(self.ttft_s_max, other.ttft_s_max)
        for name in self.__slots__:
            if name not in ("done", "late", "ttft_s_max"):
                setattr(self, name, getattr(self, name) + getattr(other, name))
        self.done = [a + b for a, b in zip(self.done, other.done, strict=True)]
        self.late = [a + b for a, b in zip(self.late, other.late, strict=True)]


class Timeline:
    """Buckets from 0 on, and the visits that are open. Mutable."""

    def __init__(self, class_count: int, most_count: int) -> None:
        self._class_count, self._most_count = class_count, most_count
        self.width_s = FIRST_WIDTH_S
        self.buckets = [Bucket(class_count)]
        self._now = self.buckets[0]
        self._until_s = FIRST_WIDTH_S
        self._open_count = 0
        self._changed_s = 0.0
        self.open_s = 0.0  # of all visits so far: the integral of how many are open

    def at(self, now_s: float) -> Bucket:
        """The bucket of this time, which never falls."""
        if now_s >= self._until_s:
            self._roll(now_s)
        return self._now

    def opened(self, now_s: float, change: int) -> Bucket:
        """One visit more or less from now on."""
        bucket = self._now if now_s < self._until_s else self.at(now_s)
        open_s = self._open_count * (now_s - self._changed_s)
        bucket.open_s += open_s
        self.open_s += open_s
        self._changed_s = now_s
        self._open_count += change
        return bucket

    def _roll(self, now_s: float) -> None:
        while now_s >= self._until_s:
            if self._open_count:
                open_s = self._open_count * (self._until_s - self._changed_s)
                self._now.open_s += open_s
                self.open_s += open_s
            self._changed_s = self._until_s
            if len(self.buckets) == 2 * self._most_count:
                self._halve()
            self._now = Bucket(self._class_count)
            self.buckets.append(self._now)
            self._until_s = self.width_s * len(self.buckets)

    def _halve(self) -> None:
        for first, second in zip(self.buckets[::2], self.buckets[1::2], strict=True):
            first.join(second)
        self.buckets = self.buckets[::2]
        self.width_s *= 2.0

    def rows(self, until_s: float) -> tuple[TimelineRow, ...]:
        """All buckets, the last one cut at the end; what no scrape fell into keeps the last one's figures."""
        rows: list[TimelineRow] = []
        scraped = (0.0, 0.0, 0.0, 0)
        for number, bucket in enumerate(self.buckets):
            from_s = number * self.width_s
            end_s = min(from_s + self.width_s, until_s)
            if end_s <= from_s and rows:
                break
            if bucket.samples:
                count = bucket.samples
                busy = bucket.busy_s / bucket.ready_s if bucket.ready_s else 0.0
                scraped = (bucket.waiting / count, bucket.kv / count, busy, round(bucket.ready / count))
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
                    in_flight_mean=bucket.open_s / (end_s - from_s) if end_s > from_s else 0.0,
                    waiting_mean=scraped[0],
                    kv_used_fraction=scraped[1],
                    busy_fraction=scraped[2],
                    ready_replica_count=scraped[3],
                )
            )
        return tuple(rows)
