"""A hosted API in the twin: it answers at the times that it states, however many ask."""

from collections.abc import Sequence
from heapq import heappop, heappush

from twofold.twin.serving.engine_types import EngineSpent, EngineWork, Finished, FirstToken, Output


class HostedApi:
    """The same calls as `Engine`. Mutable: what is due. Nobody sees its machines, so that it spends none."""

    def __init__(self, first_token_s: float, output_token_s: float) -> None:
        self._first_token_s, self._output_token_s = first_token_s, output_token_s
        self._due: list[tuple[float, int, Output]] = []
        self._open: set[int] = set()
        self._given = 0
        self.busy_s = 0.0

    def submit(self, work: EngineWork, now_s: float) -> None:
        """A request came."""
        first_s = now_s + self._first_token_s
        last_s = first_s + max(work.output_tokens - 1, 0) * self._output_token_s
        self._open.add(work.key)
        for output in (FirstToken(work.key, first_s), Finished(work.key, last_s, work.output_tokens)):
            self._given += 1
            heappush(self._due, (output.at_s, self._given, output))

    def cancel(self, key: int, now_s: float) -> None:  # noqa: ARG002 (all engines look alike)
        """Its client left."""
        self._open.discard(key)

    def advance(self, now_s: float) -> list[Output]:
        """First tokens and ends until then, in order of time."""
        found: list[Output] = []
        while self._due and self._due[0][0] <= now_s:
            output = heappop(self._due)[2]
            if output.key in self._open:
                found.append(output)
                if isinstance(output, Finished):
                    self._open.remove(output.key)
        return found

    def next_at_s(self) -> float | None:
        """When the next of them is due."""
        while self._due and self._due[0][2].key not in self._open:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def set_speed(self, factor: float, now_s: float) -> None:
        """What slows our machines does not slow it."""

    def report(self) -> tuple[int, int, float]:
        """What it has, which it tells nobody."""
        return len(self._open), 0, 0.0

    def remember(self, prompts: Sequence[tuple[int, ...]], block_tokens: int) -> None:
        """Whether it keeps prompts is not stated."""

    def spent(self) -> EngineSpent:
        """None of our machines' time."""
        return EngineSpent()
