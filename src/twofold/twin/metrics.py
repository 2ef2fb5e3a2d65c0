"""What is counted while a serving world runs, in memory that does not grow with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from twofold.twin.fleet_state import Visit
from twofold.twin.histogram import Stream
from twofold.twin.metrics_timeline import Timeline
from twofold.twin.types import ClassModel, RequestRecord

FINISHED = "finished"


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
    ttft_s_max: float = inf
    tpot_s_max: float = inf
    e2e_s_max: float = inf

    def __post_init__(self) -> None:
        given = (self.model.ttft_s, self.model.tpot_s, self.model.e2e_s)
        self.ttft_s_max, self.tpot_s_max, self.e2e_s_max = (inf if s is None else s for s in given)


class Metrics:
    """Mutable: told of every visit's begin and end, and of every scrape."""

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
        self.open_count, self.open_from_s = 0, 0.0  # visits that have not, and the sum of when they began
        self.notes: list[tuple[float, str]] = []  # what befell the world; as many as there are faults
        self.kv_sum = 0.0
        self.kv_samples = 0
        self._warm_up_s = warm_up_s
        self._record = record

    def arrived_at(self, visit: Visit) -> None:
        """A client wants something."""
        self.arrived += 1
        self.open_count += 1
        self.open_from_s += visit.arrival_s
        self.timeline.opened(visit.arrival_s, 1).arrived += 1
        if visit.arrival_s >= self._warm_up_s:
            self.classes[visit.class_number].arrived += 1

    # HOT: once per request
    def finished_at(self, visit: Visit, output_tokens: int, now_s: float) -> None:
        """A client has its whole answer."""
        tally = self.classes[visit.class_number]
        arrival_s, begun_s = visit.arrival_s, visit.begun_s
        if begun_s is None:
            begun_s = now_s
        ttft_s, e2e_s = begun_s - arrival_s, now_s - arrival_s
        tpot_s = (now_s - begun_s) / (output_tokens - 1) if output_tokens > 1 else 0.0
        bucket = self.timeline.opened(now_s, -1)
        bucket.finished += 1
        bucket.ttft_s += ttft_s
        bucket.e2e_s += e2e_s
        if ttft_s > bucket.ttft_s_max:
            bucket.ttft_s_max = ttft_s
        number, within = visit.class_number, 1
        bucket.done[number] += 1
        if ttft_s > tally.ttft_s_max:
            bucket.late[3 * number] += 1
            within = 0
        if tpot_s > tally.tpot_s_max:
            bucket.late[3 * number + 1] += 1
            within = 0
        if e2e_s > tally.e2e_s_max:
            bucket.late[3 * number + 2] += 1
            within = 0
        bucket.within += within
        input_tokens = visit.arrival.input_tokens
        self.finished += 1
        self.visit_s += e2e_s
        self.open_count -= 1
        self.open_from_s -= arrival_s
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        if arrival_s >= self._warm_up_s:
            self.within += within
            tally.finished += 1
            tally.within += within
            tally.input_tokens += input_tokens
            tally.output_tokens += output_tokens
            tally.ttft.add(ttft_s)
            tally.e2e.add(e2e_s)
            if output_tokens > 1:
                tally.tpot.add(tpot_s)
        if self._record is not None:
            self._say(visit, FINISHED, output_tokens, now_s)

    def ended_at(self, visit: Visit, outcome: str, now_s: float) -> None:
        """A visit ended without its whole answer."""
        bucket = self.timeline.opened(now_s, -1)
        if outcome == "left":
            bucket.left += 1
        elif not outcome.startswith("refused"):
            bucket.failed += 1
        self.visit_s += now_s - visit.arrival_s
        self.open_count -= 1
        self.open_from_s -= visit.arrival_s
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if visit.arrival_s >= self._warm_up_s:
            outcomes = self.classes[visit.class_number].outcomes
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if self._record is not None:
            self._say(visit, outcome, 0, now_s)

    def refused_at(self, now_s: float) -> None:
        """A request was refused; its client may ask again."""
        self.timeline.at(now_s).refused += 1

    def scraped_at(
        self, now_s: float, ready: int, waiting: float, kv_used: float, busy_s: float, ready_s: float
    ) -> None:
        """All replicas were looked at: sums over those that are ready, and since the time before."""
        bucket = self.timeline.at(now_s)
        bucket.samples += 1
        bucket.ready += ready
        bucket.waiting += waiting
        bucket.busy_s += busy_s
        bucket.ready_s += ready_s
        if ready:
            bucket.kv += kv_used / ready
            self.kv_sum += kv_used
            self.kv_samples += ready

    def _say(self, visit: Visit, outcome: str, output_tokens: int, now_s: float) -> None:
        assert self._record is not None
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
