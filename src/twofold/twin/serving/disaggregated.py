"""Prefill and decode on separate workers: prompts are computed here, their cache moves there, answers follow.

It answers like one engine, so that a world need not know.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineSpent, EngineWork, Finished, FirstToken, Output

HANDOFF_S = 0.01  # routing, registration and the first block of a cache transfer, as in `inference`


class DisaggregatedEngine:
    """Prefill workers, a link, decode workers. Mutable; the same calls as `Engine`.

    A prompt goes to the prefill worker with the fewest requests, its cache to the decode worker with the
    fewest; what one decode worker receives passes one after another. Clients see the first token when the
    cache has moved and has room there. The engines show outputs at once: `first_token_s` delays them here.
    """

    def __init__(
        self,
        prefill: Sequence[Engine],
        decode: Sequence[Engine],
        transfer_token_s: float,
        handoff_s: float = HANDOFF_S,
        first_token_s: float = 0.0,
    ) -> None:
        assert prefill and decode, "a pair has both"
        self._prefill, self._decode = list(prefill), list(decode)
        self._transfer_token_s, self._handoff_s = transfer_token_s, handoff_s
        self._first_token_s = first_token_s  # tokenising, HTTP, streaming
        self._works: dict[int, EngineWork] = {}
        self._prefill_of: dict[int, int] = {}  # worker by key, while it is there
        self._decode_of: dict[int, int] = {}
        self._prefill_loads, self._decode_loads = [0] * len(prefill), [0] * len(decode)
        self._link_free_s = [0.0] * len(decode)
        self._moving: list[tuple[float, int]] = []  # by arrival
        self._out: list[tuple[float, int, Output]] = []
        self._out_count = 0

    @property
    def busy_s(self) -> float:
        """Seconds that workers were busy, as if the whole were one engine."""
        engines = self._prefill + self._decode
        return sum(each.busy_s for each in engines) / len(engines)

    def spent(self) -> EngineSpent:
        """Of all workers."""
        found = EngineSpent()
        for each in self._prefill + self._decode:
            found.add(each.spent())
        found.busy_s = self.busy_s
        return found

    def remember(self, prompts: Sequence[tuple[int, ...]], block_tokens: int) -> None:
        """Workers that prefill hold prompts, by their hashes of blocks, as if asked before the run."""
        for each in self._prefill:
            each.remember(prompts, block_tokens)

    def submit(self, work: EngineWork, now_s: float) -> None:
        """A request came. One that can never fit finishes at once, with no tokens."""
        self._reach(now_s)
        worker = self._prefill_loads.index(min(self._prefill_loads))
        self._works[work.key] = work
        self._prefill_of[work.key] = worker
        self._prefill_loads[worker] += 1
        self._prefill[worker].submit(work._replace(output_tokens=1, answered_blocks=()), now_s)

    def cancel(self, key: int, now_s: float) -> None:
        """Drop a request, wherever it is; a transfer under way runs to its end."""
        self._reach(now_s)
        if key in self._prefill_of:
            self._prefill[self._prefill_of[key]].cancel(key, now_s)
        if key in self._decode_of:
            self._decode[self._decode_of[key]].cancel(key, now_s)
        self._forget(key)

    def advance(self, now_s: float) -> list[Output]:
        """First tokens and finishes until `now_s` that were not told before, in order of time."""
        self._reach(now_s)
        found = []
        while self._out and self._out[0][0] <= now_s:
            found.append(heappop(self._out)[2])
        return found

    def next_at_s(self) -> float | None:
        """When to call `advance` if nothing else comes; None: there is nothing to do."""
        times = [at_s for each in self._prefill + self._decode if (at_s := each.next_at_s()) is not None]
        times += [each[0][0] for each in (self._moving, self._out) if each]
        return min(times, default=None)

    def set_speed(self, factor: float, now_s: float) -> None:
        """All workers at `factor` times their tables' speed from now on; the link keeps its own."""
        self._reach(now_s)
        for each in self._prefill + self._decode:
            each.set_speed(factor, now_s)

    def report(self) -> tuple[int, int, float]:
        """Running and waiting requests, those under way among the waiting; the fullest worker's cache."""
        reports = [each.report() for each in self._prefill + self._decode]
        waiting = sum(each[1] for each in reports) + len(self._moving)
        return sum(each[0] for each in reports), waiting, max(each[2] for each in reports)

    def _reach(self, now_s: float) -> None:
        """Live through prefills, transfers and decode steps until `now_s`, in order of time."""
        while True:
            due: list[tuple[float, int, int]] = [(self._moving[0][0], 0, 0)] if self._moving else []
            for stage, engines in ((1, self._prefill), (2, self._decode)):
                for worker, each in enumerate(engines):
                    if (at_s := each.next_at_s()) is not None:
                        due.append((at_s, stage, worker))
            if not due or min(due)[0] > now_s:
                return
            at_s, stage, worker = min(due)
            if stage == 0:
                self._arrive(*heappop(self._moving))
            elif stage == 1:
                for output in self._prefill[worker].advance(at_s):
                    if isinstance(output, Finished):
                        self._leave_prefill(output)
            else:
                for output in self._decode[worker].advance(at_s):
                    self._show(output, output.at_s + self._first_token_s)
                    if isinstance(output, Finished):
                        self._forget(output.key)

    def _leave_prefill(self, done: Finished) -> None:
        """A prompt is computed: its cache goes to the decode worker that has the fewest."""
        key, work = done.key, self._works[done.key]
        self._prefill_loads[self._prefill_of.pop(key)] -= 1
        if not done.output_tokens:
            self._show(Finished(key, done.at_s, 0), done.at_s)
            self._forget(key)
            return
        worker = self._decode_loads.index(min(self._decode_loads))
        self._decode_of[key] = worker
        self._decode_loads[worker] += 1
        begin_s = max(done.at_s, self._link_free_s[worker])
        self._link_free_s[worker] = begin_s + work.input_tokens * self._transfer_token_s
        heappush(self._moving, (self._link_free_s[worker] + self._handoff_s, key))

    def _arrive(self, at_s: float, key: int) -> None:
        """A cache has moved: the rest is decoded there."""
        work = self._works.get(key)
        if work is None:  # cancelled under way
            return
        if work.output_tokens > 1:
            self._decode[self._decode_of[key]].submit_prefilled(work, at_s)
            return
        shown_s = at_s + self._first_token_s
        self._show(FirstToken(key, shown_s), shown_s)
        self._show(Finished(key, shown_s, 1), shown_s)
        self._forget(key)

    def _show(self, output: Output, at_s: float) -> None:
        self._out_count += 1
        heappush(self._out, (at_s, self._out_count, output._replace(at_s=at_s)))

    def _forget(self, key: int) -> None:
        self._works.pop(key, None)
        for of, loads in ((self._prefill_of, self._prefill_loads), (self._decode_of, self._decode_loads)):
            worker = of.pop(key, None)
            if worker is not None:
                loads[worker] -= 1
