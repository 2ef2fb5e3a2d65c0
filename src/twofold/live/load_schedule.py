"""When a load sends what: pure functions of a seed, so that the same load can be offered again."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from twofold.core import ValueRefusedError

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


class Shuffled(Generic[Item]):
    """An endless row of items: all of them in a random order, then all again in another. Mutable."""

    def __init__(self, items: Sequence[Item], seed: int) -> None:
        if not items:
            raise ValueRefusedError("a load needs at least one prompt")
        self._items, self._random = items, np.random.default_rng(seed)
        self._order: list[int] = []

    def next(self) -> Item:
        """The next item of the row."""
        if not self._order:
            self._order = [int(each) for each in self._random.permutation(len(self._items))]
        return self._items[self._order.pop()]
