"""What is counted while a serving world runs, in memory that does not grow with it.

Its course is told in a bounded number of buckets: when they run out, neighbours are joined.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twofold.contracts.goals import METRICS
from twofold.twin.histogram import Histogram, Stream
from twofold.twin.serving.fleet_state import Visit
from twofold.twin.serving.fleet_types import ClassModel, RequestRecord, TimelineRow

Numbers = NDArray[np.float64]
FIRST_WIDTH_S = 1.0  # a power of two, as all widths: then times over widths are exact
SUMMED = (
    "arrived", "arrived_s", "busy_s", "e2e_s", "ended", "ended_s", "failed", "finished", "kv", "left",
    "queued", "ready", "ready_s", "refused", "samples", "ttft_s", "turned_away", "waiting", "within",
)  # fmt: skip


class Bucket:
    """Sums over one span of time. Mutable. Times in sums count from the bucket's begin."""

    __slots__ = (*SUMMED, "done", "late", "latencies", "ttft_s_max")

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
        self.latencies: dict[tuple[int, str], Histogram] = {}  # by class and metric that is followed

    def join(self, other: "Bucket", width_s: float) -> None:
        """Take in the bucket that follows; both are as wide."""
        other.arrived_s += other.arrived * width_s
        other.ended_s += other.ended * width_s
        self.ttft_s_max = max(self.ttft_s_max, other.ttft_s_max)
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.done = [a + b for a, b in zip(self.done, other.done, strict=True)]
        self.late = [a + b for a, b in zip(self.late, other.late, strict=True)]
        for key, seen in other.latencies.items():
            self.latencies.setdefault(key, Histogram()).merge(seen)


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

    def add_latencies(self, key: tuple[int, str], ended_s: Numbers, values_s: Numbers) -> None:
        """One followed metric of a class, of answers that ended then; `reach` was told of the last one."""
        numbers = (ended_s / self.width_s).astype(np.int64)
        for number in np.unique(numbers).tolist():
            seen = self.buckets[number].latencies.setdefault(key, Histogram())
            seen.add(values_s[numbers == number])

    def open_s(self, until_s: float) -> float:
        """The integral of how many visits are open, over the whole run."""
        return sum(open_s for _, _, open_s in self._spans(until_s))

    def _spans(self, until_s: float) -> Iterator[tuple[Bucket, float, float]]:
        """Each bucket, how wide it is (the last one ends at `until_s`), and its open visits over time.

        Formula  n·w + Σ (w − arrival) − Σ (w − end), times from the bucket's begin, n open at it
        """
        open_count = 0
        for number, bucket in enumerate(self.buckets):
            width_s = min(self.width_s, until_s - number * self.width_s)
            if width_s <= 0.0 and not bucket.ended + bucket.arrived:
                return
            arrived_s = bucket.arrived * width_s - bucket.arrived_s
            ended_s = bucket.ended * width_s - bucket.ended_s
            yield bucket, width_s, open_count * width_s + arrived_s - ended_s
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


FINISHED = "finished"
OPEN = "open"  # of a run that was stopped
BLOCK_COUNT = 1024  # visits that are noted before they are counted together
ARRIVAL_WIDTH, ANSWER_WIDTH = 2, 6  # numbers that are noted of each


@dataclass(slots=True)
class ClassTally:
    """One class, of visits after the warm-up. Mutable."""

    model: ClassModel
    number: int
    ttft: Stream = field(default_factory=Stream)
    tpot: Stream = field(default_factory=Stream)
    e2e: Stream = field(default_factory=Stream)
    arrived: int = 0
    finished: int = 0
    within: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def followed(self) -> tuple[str, ...]:
        """The metrics whose percentiles are kept over time: those with a limit, else the first token's."""
        model = self.model
        limits = zip(METRICS, (model.ttft_s, model.tpot_s, model.e2e_s), strict=True)
        return tuple(metric for metric, limit_s in limits if limit_s is not None) or ("ttft",)

    def settle(self, rows: Numbers, warm_up_s: float, timeline: Timeline) -> int:
        """Count answers of this class, noted one a row. Returns how many measured are within all limits."""
        _, arrivals_s, begun_s, ended_s, outputs, inputs = rows.T
        ttft_s, e2e_s = begun_s - arrivals_s, ended_s - arrivals_s
        # 0 of an answer of one token, however long its end takes: a measured batch has no tokens.
        tpot_s = np.where(outputs > 1.0, ended_s - begun_s, 0.0) / np.maximum(outputs - 1.0, 1.0)
        model = self.model
        late = [
            np.zeros(len(figure), bool) if limit_s is None else figure > limit_s
            for figure, limit_s in ((ttft_s, model.ttft_s), (tpot_s, model.tpot_s), (e2e_s, model.e2e_s))
        ]
        within = ~(late[0] | late[1] | late[2])
        timeline.add_answers(self.number, ended_s, ttft_s, e2e_s, within, late)
        several = outputs > 1.0
        for metric, figures, told in (
            ("ttft", ttft_s, None),
            ("tpot", tpot_s, several),
            ("e2e", e2e_s, None),
        ):
            if metric in self.followed:
                ended, values = (ended_s, figures) if told is None else (ended_s[told], figures[told])
                timeline.add_latencies((self.number, metric), ended, values)
        measured = arrivals_s >= warm_up_s
        within_count = int(np.count_nonzero(within & measured))
        self.finished += int(np.count_nonzero(measured))
        self.within += within_count
        self.input_tokens += int(inputs[measured].sum())
        self.output_tokens += int(outputs[measured].sum())
        self.ttft.add(ttft_s[measured])
        self.tpot.add(tpot_s[measured & several])
        self.e2e.add(e2e_s[measured])
        return within_count


class Metrics:
    """Mutable: told of every visit's begin and end, and of every scrape. `settle` before it is read."""

    def __init__(
        self,
        classes: Sequence[ClassModel],
        warm_up_s: float,
        timeline_count: int,
        record: Callable[[RequestRecord], None] | None = None,
    ) -> None:
        self.classes = [ClassTally(model, number) for number, model in enumerate(classes)]
        self.timeline = Timeline(len(classes), timeline_count)
        self.outcomes: dict[str, int] = {}
        self.arrived = self.finished = self.within = self.input_tokens = self.output_tokens = 0
        self.retries = 0
        self.visit_s = 0.0  # of all visits that ended
        self.arrivals_s = 0.0  # the sum of when visits began
        self.ended_arrivals_s = 0.0  # of those that ended
        self.notes: list[tuple[float, str]] = []  # what befell the world; as many as there are faults
        self.kv_sum = 0.0
        self.kv_samples = 0
        self._warm_up_s = warm_up_s
        self._record = record
        self._open: dict[int, Visit] = {}  # by number, where they are recorded: those that have not ended
        self._arrivals: list[float] = []  # class and time of those not settled yet
        self._answers: list[float] = []  # class, arrival, first token, end, output and input tokens

    # HOT: once per request, as `finished_at`; to count all at once instead of later was 4 times slower
    def arrived_at(self, visit: Visit) -> None:
        """A client wants something."""
        self.arrived += 1
        if self._record is not None:
            self._open[visit.number] = visit
        self._arrivals += (visit.class_number, visit.arrival_s)
        if len(self._arrivals) >= ARRIVAL_WIDTH * BLOCK_COUNT:
            self._settle_arrivals()

    def finished_at(self, visit: Visit, output_tokens: int, now_s: float) -> None:
        """A client has its whole answer."""
        begun_s = visit.begun_s
        if begun_s is None:
            begun_s = now_s
        self.finished += 1
        tokens = visit.arrival.input_tokens
        self._answers += (visit.class_number, visit.arrival_s, begun_s, now_s, output_tokens, tokens)
        if self._record is not None:
            self._say(visit, FINISHED, output_tokens, now_s)
        if len(self._answers) >= ANSWER_WIDTH * BLOCK_COUNT:
            self._settle_answers()

    def ended_at(self, visit: Visit, outcome: str, now_s: float) -> None:
        """A visit ended without its whole answer."""
        bucket = self.timeline.ended_at(now_s)
        if outcome == "left":
            bucket.left += 1
        elif outcome.startswith("refused"):
            bucket.turned_away += 1
        else:
            bucket.failed += 1
        self.visit_s += now_s - visit.arrival_s
        self.ended_arrivals_s += visit.arrival_s
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if visit.arrival_s >= self._warm_up_s:
            outcomes = self.classes[visit.class_number].outcomes
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if self._record is not None:
            self._say(visit, outcome, 0, now_s)

    def settle(self, now_s: float) -> None:
        """Count what was only noted, and tell what is still open; the run has come to `now_s`."""
        self._settle_arrivals()
        self._settle_answers()
        self.timeline.reach(now_s)
        for visit in list(self._open.values()):
            self._say(visit, OPEN, 0, now_s)

    def _settle_arrivals(self) -> None:
        rows = np.array(self._arrivals, float).reshape(-1, ARRIVAL_WIDTH)
        if not len(rows):
            return
        self._arrivals.clear()
        numbers, times_s = rows.T
        self.arrivals_s += float(times_s.sum())
        self.timeline.add_arrived(times_s)
        measured = times_s >= self._warm_up_s
        for tally in self.classes:
            tally.arrived += int(np.count_nonzero(measured & (numbers == tally.number)))

    def _settle_answers(self) -> None:
        rows = np.array(self._answers, float).reshape(-1, ANSWER_WIDTH)
        if not len(rows):
            return
        self._answers.clear()
        numbers, arrivals_s, _, ended_s, outputs, inputs = rows.T
        self.visit_s += float((ended_s - arrivals_s).sum())
        self.ended_arrivals_s += float(arrivals_s.sum())
        self.input_tokens += int(inputs.sum())
        self.output_tokens += int(outputs.sum())
        self.timeline.reach(float(ended_s.max()))
        for tally in self.classes:
            own = numbers == tally.number
            if own.any():
                self.within += tally.settle(rows[own], self._warm_up_s, self.timeline)

    def scraped_at(
        self, now_s: float, ready: int, waits: tuple[int, int], kv_used: float, busy_s: float, ready_s: float
    ) -> None:
        """All replicas were looked at: sums over those that are ready, and since the time before.

        `waits`: requests that wait in engines, and that the gate holds.
        """
        bucket = self.timeline.at(now_s)
        bucket.samples += 1
        bucket.ready += ready
        bucket.waiting += waits[0]
        bucket.queued += waits[1]
        bucket.busy_s += busy_s
        bucket.ready_s += ready_s
        if ready:
            bucket.kv += kv_used / ready
            self.kv_sum += kv_used
            self.kv_samples += ready

    def _say(self, visit: Visit, outcome: str, output_tokens: int, now_s: float) -> None:
        assert self._record is not None
        del self._open[visit.number]
        arrival, begun_s = visit.arrival, visit.begun_s
        self._record(
            RequestRecord(
                arrival_s=visit.arrival_s,
                class_name=self.classes[visit.class_number].model.name,
                tenant=arrival.tenant,
                session_id=arrival.session_id,
                input_tokens=arrival.input_tokens,
                output_tokens=output_tokens,
                outcome=outcome,
                attempts=visit.tries,
                replica_id=visit.replica_id,
                ttft_s=None if begun_s is None else begun_s - visit.arrival_s,
                e2e_s=now_s - visit.arrival_s,
            )
        )
