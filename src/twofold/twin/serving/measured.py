"""A replica whose times were measured: what waits is one batch, which takes as long as its rows say."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from math import inf

from twofold.inference.measured import MeasuredService
from twofold.twin.serving.engine_types import EngineSpent, EngineWork, Finished, FirstToken, Output


class BatchServer:
    """Batches one after another, each of all that waited, up to the largest that was measured. Mutable.

    Times of a batch between two measured sizes lie on the line between them; a smaller one than was measured
    takes as long as the smallest. Without a measured first output an answer comes whole, at its batch's end.
    A request's own length changes nothing: rows say what a batch takes. The same calls as `Engine`.
    """

    def __init__(self, service: MeasuredService) -> None:
        self._service = service
        self._largest = int(service.batch_sizes[-1])
        self._waiting: deque[EngineWork] = deque()
        self._batch: list[EngineWork] = []  # that runs; cancelled ones are out of it
        self._begun_s = 0.0
        self._first_s = self._end_s = inf  # of the batch that runs
        self._shown = False  # its first outputs are told
        self._slowness = 1.0
        self._out: deque[Output] = deque()
        self.busy_s = 0.0
        self.prefill_tokens = self.decode_tokens = 0

    def submit(self, work: EngineWork, now_s: float) -> None:
        """A request came; alone it begins at once."""
        self._reach(now_s)
        self._waiting.append(work)
        self._begin(now_s)

    def cancel(self, key: int, now_s: float) -> None:
        """Drop a request; a batch that runs takes as long as before."""
        self._reach(now_s)
        self._waiting = deque(work for work in self._waiting if work.key != key)
        self._batch = [work for work in self._batch if work.key != key]

    def advance(self, now_s: float) -> list[Output]:
        """First outputs and ends until `now_s` that were not told before, in order of time."""
        self._reach(now_s)
        found = list(self._out)
        self._out.clear()
        return found

    def next_at_s(self) -> float | None:
        """When to call `advance` if nothing else comes; None: there is nothing to do."""
        if self._out:
            return self._out[0].at_s
        at_s = self._next_s()
        return None if at_s == inf else at_s

    def set_speed(self, factor: float, now_s: float) -> None:
        """At `factor` times the measured speed from now on; what a running batch has left stretches too."""
        self._reach(now_s)
        slowness = 1.0 / factor
        ratio = slowness / self._slowness
        self._slowness = slowness
        if self._end_s < inf:
            self._first_s = now_s + (self._first_s - now_s) * ratio if not self._shown else self._first_s
            self._end_s = now_s + (self._end_s - now_s) * ratio

    def report(self) -> tuple[int, int, float]:
        """Running and waiting requests; it has no cache that could be full."""
        return len(self._batch), len(self._waiting), 0.0

    def remember(self, prompts: Sequence[tuple[int, ...]], block_tokens: int) -> None:
        """Rows were measured with what their cache held."""

    def spent(self) -> EngineSpent:
        """It has no cache, and nobody measured gaps between tokens."""
        return EngineSpent(self.busy_s, self.prefill_tokens, self.decode_tokens)

    def _next_s(self) -> float:
        return self._end_s if self._shown else min(self._first_s, self._end_s)

    def _reach(self, now_s: float) -> None:
        while (at_s := self._next_s()) <= now_s:
            if not self._shown:
                self._shown = True
                self._out.extend(FirstToken(work.key, at_s) for work in self._batch)
            else:
                self._finish(at_s)
                self._begin(at_s)
        if self._end_s < inf:
            self._count_busy(now_s)

    def _count_busy(self, now_s: float) -> None:
        """Busy up to a moment, so that a server that is switched off has been busy no longer."""
        self.busy_s += max(0.0, now_s - self._begun_s)
        self._begun_s = max(self._begun_s, now_s)

    def _finish(self, at_s: float) -> None:
        self._count_busy(at_s)
        for work in self._batch:
            self._out.append(Finished(work.key, at_s, work.output_tokens))
            self.decode_tokens += max(0, work.output_tokens - 1)
        self._batch, self._first_s, self._end_s = [], inf, inf

    def _begin(self, at_s: float) -> None:
        """Take all that waits, as far as it fits, where nothing runs."""
        if self._end_s < inf or not self._waiting:
            return
        count = min(len(self._waiting), self._largest)
        self._batch = [self._waiting.popleft() for _ in range(count)]
        self.prefill_tokens += sum(work.input_tokens for work in self._batch)
        service = self._service
        whole_s = self._slowness * self._at(service.service_s, count)
        first_s = self._slowness * self._at(service.ttft_s, count) if service.ttft_s else whole_s
        self._begun_s, self._shown = at_s, False
        self._first_s, self._end_s = at_s + min(first_s, whole_s), at_s + whole_s

    def _at(self, column: tuple[float, ...], count: int) -> float:
        """A column's value at a batch size, on the line between its neighbours."""
        sizes = self._service.batch_sizes
        upper = bisect_left(sizes, count)
        if upper == 0 or upper == len(sizes):
            return column[min(upper, len(sizes) - 1)]
        share = (count - sizes[upper - 1]) / (sizes[upper] - sizes[upper - 1])
        return column[upper - 1] + share * (column[upper] - column[upper - 1])
