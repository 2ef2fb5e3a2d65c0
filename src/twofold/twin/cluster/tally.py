"""Percentiles of what comes one by one: a histogram that is filled in blocks."""

import numpy as np

from twofold.twin import Histogram

BLOCK_COUNT = 1024


class Tally:
    """Values from 0. Mutable; memory does not grow with their number."""

    __slots__ = ("_block", "_seen", "_sum")

    def __init__(self) -> None:
        self._seen = Histogram()
        self._block: list[float] = []
        self._sum = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self._block.append(value)
        self._sum += value
        if len(self._block) >= BLOCK_COUNT:
            self._flush()

    def _flush(self) -> Histogram:
        if self._block:
            self._seen.add(np.array(self._block))
            self._block.clear()
        return self._seen

    @property
    def count(self) -> int:
        """How many there were."""
        return self._flush().count

    @property
    def mean(self) -> float:
        """Of all of them; 0 of nothing."""
        count = self.count
        return self._sum / count if count else 0.0

    @property
    def p95(self) -> float:
        """The smallest value that 95 % do not exceed."""
        return self._flush().quantile(0.95)
