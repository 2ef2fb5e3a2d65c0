"""A load: when it sends what, what is written down of each request, and the figures. No socket, no clock."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import numpy as np

from twofold.contracts.results import loop
from twofold.core.errors import ValueRefusedError

ARRIVAL_LIMIT_COUNT = 100_000
Item = TypeVar("Item")


def poisson_arrivals_s(rate_per_s: float, duration_s: float, seed: int) -> list[float]:
    """Arrival times of a Poisson stream, seconds from its start, ascending, all below `duration_s`.

    Gaps are independent and exponential with mean 1/rate. Raises ValueRefusedError when the rate or the
    duration is not positive, or when more arrivals are asked for than one process can offer.

    >>> poisson_arrivals_s(2.0, 10.0, seed=1) == poisson_arrivals_s(2.0, 10.0, seed=1)
    True
    """
    if not (rate_per_s > 0 and duration_s > 0):
        raise ValueRefusedError("an open load needs a rate and a duration above zero")
    if rate_per_s * duration_s > ARRIVAL_LIMIT_COUNT:
        raise ValueRefusedError(
            f"{rate_per_s * duration_s:.3g} arrivals are more than one load generator offers",
            hint=f"ask for at most {ARRIVAL_LIMIT_COUNT}: a lower rate, or a shorter load",
        )
    random = np.random.default_rng(seed)
    times: list[float] = []
    now_s = 0.0
    while True:
        now_s += float(random.exponential(1.0 / rate_per_s))
        if now_s >= duration_s:
            return times
        times.append(now_s)


def burst_arrivals_s(rate_per_s: float, burst_count: int, duration_s: float, seed: int) -> list[float]:
    """As `poisson_arrivals_s`, with `burst_count` requests at each arrival, at the same mean rate."""
    if burst_count < 1:
        raise ValueRefusedError(f"a burst of {burst_count} requests is none")
    starts_s = poisson_arrivals_s(rate_per_s / burst_count, duration_s, seed)
    if len(starts_s) * burst_count > ARRIVAL_LIMIT_COUNT:
        raise ValueRefusedError("so many bursts are more than one load generator offers")
    return [start_s for start_s in starts_s for _ in range(burst_count)]


def shuffled(items: Sequence[Item], seed: int) -> Iterator[Item]:
    """An endless row of items, of which there are some: all in a random order, then all again in another."""
    random = np.random.default_rng(seed)
    while True:
        for each in reversed(random.permutation(len(items))):
            yield items[int(each)]


class Outcome(Enum):
    FINISHED = "finished"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(slots=True)
class Answer:
    """One request and what came of it, on one monotonic clock. Mutable while the answer comes."""

    due_s: float  # when it was to be sent: scheduled in an open loop, at once in a closed one
    input_tokens: int
    outcome: Outcome = Outcome.FAILED
    first_s: float = 0.0  # first generated text
    last_s: float = 0.0  # last generated text
    ended_s: float = 0.0
    output_tokens: int = 0
    events: int = 0  # with generated text
    inside_events: int = 0  # of these, before the load's end
    retry_after_s: float = 0.0
    lag_s: float = 0.0  # between due and sent: how late this process was
    reason: str = ""  # why it was refused or failed: the status, or what broke


@dataclass(slots=True)
class Load:
    """One load as it runs. Mutable. Its rates are taken from begin to end: while the load was whole."""

    answers: list[Answer] = field(default_factory=list)
    begun_s: float = 0.0
    ends_s: float | None = None  # None: when the first client has nothing left to ask
    held_tokens: int = 0
    peak_held_tokens: int = 0
    cpu_s: float = 0.0  # of this process, in `wall_s` seconds that the load took with its warm-up
    wall_s: float = 0.0

    def begin(self, now_s: float, ends_s: float | None) -> None:
        """Warm-up is over: forget it."""
        self.answers.clear()
        self.begun_s, self.ends_s = now_s, ends_s
        self.held_tokens = self.peak_held_tokens = 0

    def end(self, now_s: float) -> None:
        """A client has nothing left to ask: from now on the load is thinner than it was to be."""
        if self.ends_s is None:
            self.ends_s = now_s

    def hold(self, tokens: int) -> None:
        """So many tokens more are in flight, of prompts and answers; or fewer."""
        self.held_tokens += tokens
        self.peak_held_tokens = max(self.peak_held_tokens, self.held_tokens)

    def is_inside(self, now_s: float) -> bool:
        """Whether the load is still whole."""
        return self.ends_s is None or now_s <= self.ends_s


def load_point(
    name: str, load: Load, *, concurrency: int | None = None, rate_per_s: float | None = None
) -> loop.LoadPoint:
    """The figures of a finished load.

    Rates    over the time that the load was whole: an answer that ended later counts by the part of its time
             (requests) or of its text (tokens) that lies inside. A short load thus has no jump at its edges.
    TTFT     first generated text − due; E2E  end − due
    TPOT     (last text − first text) / (tokens − 1), of answers of two tokens or more
    """
    finished = [answer for answer in load.answers if answer.outcome is Outcome.FINISHED]
    outcomes = [answer.outcome for answer in load.answers]
    ends_s = load.ends_s if load.ends_s is not None else load.begun_s
    whole_s = max(ends_s - load.begun_s, 1e-9)
    # Of a request's time, the part that lies before the load's end.
    inside_requests = sum(
        1.0 if each.ended_s <= ends_s else max(0.0, ends_s - each.due_s) / (each.ended_s - each.due_s)
        for each in finished
    )
    inside_tokens = sum(answer.output_tokens * answer.inside_events / answer.events for answer in finished)
    return loop.LoadPoint(
        name=name,
        concurrency=concurrency,
        rate_per_s=rate_per_s,
        input_tokens=_mean([answer.input_tokens for answer in finished]),
        output_tokens=_mean([answer.output_tokens for answer in finished]),
        sent=len(load.answers),
        finished=len(finished),
        refused=outcomes.count(Outcome.REFUSED),
        failed=outcomes.count(Outcome.FAILED),
        requests_per_s=inside_requests / whole_s,
        output_tokens_per_s=inside_tokens / whole_s,
        ttft=quantiles([answer.first_s - answer.due_s for answer in finished]),
        tpot=quantiles(token_times_s(load)),
        e2e=quantiles([answer.ended_s - answer.due_s for answer in finished]),
        peak_held_tokens=float(load.peak_held_tokens),
    )


def token_times_s(load: Load) -> list[float]:
    """TPOT of each finished answer of two tokens or more."""
    return [
        (each.last_s - each.first_s) / (each.output_tokens - 1)
        for each in load.answers
        if each.outcome is Outcome.FINISHED and each.output_tokens > 1
    ]


def quantiles(latencies_s: Sequence[float]) -> loop.Quantiles | None:
    """Mean and quantiles of latencies; None of none."""
    if not latencies_s:
        return None
    p50, p95, p99 = (float(each) for each in np.quantile(latencies_s, (0.5, 0.95, 0.99)))
    return loop.Quantiles(_mean(latencies_s), p50, p95, p99)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
