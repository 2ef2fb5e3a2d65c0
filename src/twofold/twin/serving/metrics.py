"""What is counted while a serving world runs, in memory that does not grow with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from twofold.twin import Stream
from twofold.twin.serving.fleet_state import Visit
from twofold.twin.serving.metrics_timeline import Timeline
from twofold.twin.serving.metrics_types import RequestRecord
from twofold.twin.serving.types import ClassModel

FINISHED = "finished"
OPEN = "open"  # of a run that was stopped
BLOCK_COUNT = 1024  # visits that are noted before they are counted together
ARRIVAL_WIDTH, ANSWER_WIDTH = 2, 6  # numbers that are noted of each
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answers:
    """Whole answers in the order of their ends, one array per figure."""

    arrivals_s: Numbers
    ended_s: Numbers
    ttft_s: Numbers
    tpot_s: Numbers  # 0 of an answer of one token
    e2e_s: Numbers
    input_tokens: Numbers
    output_tokens: Numbers

    def where(self, mask: NDArray[np.bool_]) -> "Answers":
        """Some of them."""
        return Answers(*(getattr(self, each.name)[mask] for each in fields(self)))


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

    def settle(self, answers: Answers, warm_up_s: float, timeline: Timeline) -> int:
        """Count answers of this class. Returns how many of those measured are within all limits."""
        model = self.model
        limits = (model.ttft_s, model.tpot_s, model.e2e_s)
        figures = (answers.ttft_s, answers.tpot_s, answers.e2e_s)
        late = [
            np.zeros(len(figure), bool) if limit_s is None else figure > limit_s
            for figure, limit_s in zip(figures, limits, strict=True)
        ]
        within = ~(late[0] | late[1] | late[2])
        timeline.add_answers(self.number, answers.ended_s, answers.ttft_s, answers.e2e_s, within, late)
        measured = answers.arrivals_s >= warm_up_s
        if not measured.all():
            answers, within = answers.where(measured), within[measured]
        within_count = int(np.count_nonzero(within))
        self.finished += len(within)
        self.within += within_count
        self.input_tokens += int(answers.input_tokens.sum())
        self.output_tokens += int(answers.output_tokens.sum())
        self.ttft.add(answers.ttft_s)
        self.tpot.add(answers.tpot_s[answers.output_tokens > 1.0])
        self.e2e.add(answers.e2e_s)
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
        numbers, arrivals_s, begun_s, ended_s, outputs, inputs = rows.T
        answers = Answers(
            arrivals_s=arrivals_s,
            ended_s=ended_s,
            ttft_s=begun_s - arrivals_s,
            tpot_s=(ended_s - begun_s) / np.maximum(outputs - 1.0, 1.0),
            e2e_s=ended_s - arrivals_s,
            input_tokens=inputs,
            output_tokens=outputs,
        )
        self.visit_s += float(answers.e2e_s.sum())
        self.ended_arrivals_s += float(arrivals_s.sum())
        self.input_tokens += int(inputs.sum())
        self.output_tokens += int(outputs.sum())
        self.timeline.reach(float(ended_s.max()))
        for tally in self.classes:
            own = numbers == tally.number
            if own.all():
                self.within += tally.settle(answers, self._warm_up_s, self.timeline)
            elif own.any():
                self.within += tally.settle(answers.where(own), self._warm_up_s, self.timeline)

    def refused_at(self, now_s: float) -> None:
        """A request was refused; its client may ask again."""
        self.timeline.at(now_s).refused += 1

    def scraped_at(
        self,
        now_s: float,
        ready: int,
        waiting: float,
        kv_used: float,
        busy_s: float,
        ready_s: float,
        queued: int,
    ) -> None:
        """All replicas were looked at: sums over those that are ready, and since the time before.

        `queued` requests are held by the gate.
        """
        bucket = self.timeline.at(now_s)
        bucket.samples += 1
        bucket.ready += ready
        bucket.waiting += waiting
        bucket.queued += queued
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
