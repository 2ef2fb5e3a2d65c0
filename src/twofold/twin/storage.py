"""A store that running transfers share."""

from dataclasses import dataclass
from math import inf


@dataclass(slots=True)
class _Transfer:
    """One running transfer; changes as the store advances."""

    left: float
    rate_max_per_s: float
    rate_per_s: float = 0.0


class SharedStore:
    """A rate that all running transfers share evenly, each up to a limit of its own.

    Formula  rate_i = min(limit_i, level), where the level is the largest whose rates sum to the whole
    Why      Processor sharing with limits: what a limited transfer leaves, the others share.
    Units    whatever the rate is per second: bytes, or metadata operations.

    Between two changes all rates are constant, so the next end is known; `advance` moves to a time that is
    not after it, or ends what has ended by then.
    """

    def __init__(self, rate_per_s: float) -> None:
        assert rate_per_s > 0, rate_per_s
        self._rate_per_s = rate_per_s
        self._running: dict[str, _Transfer] = {}
        self._now_s = 0.0
        self._next_s = inf

    def start(self, key: str, amount: float, now_s: float, rate_max_per_s: float = inf) -> None:
        """Begin a transfer; `key` must not be running."""
        assert key not in self._running and amount >= 0 and rate_max_per_s > 0, (key, amount)
        self._move(now_s)
        self._running[key] = _Transfer(amount, rate_max_per_s)
        self._share()

    def cancel(self, key: str, now_s: float) -> None:
        """Drop a transfer if it is running; the others speed up."""
        if key in self._running:
            self._move(now_s)
            del self._running[key]
            self._share()

    def set_rate(self, rate_per_s: float, now_s: float) -> None:
        """The whole store's rate from now on, as in a brownout."""
        assert rate_per_s > 0, rate_per_s
        self._move(now_s)
        self._rate_per_s = rate_per_s
        self._share()

    def next_at_s(self) -> float:
        """When the first transfer ends if nothing else comes; infinity: none is running."""
        return self._next_s

    def advance(self, now_s: float) -> list[str]:
        """Move to `now_s`, at most `next_at_s`; the keys that end there, in the order they began."""
        if now_s < self._next_s:
            return []
        self._move(now_s)
        # What is left within a microsecond of its end has ended: the clock resolves no less.
        ended = [key for key, one in self._running.items() if one.left <= one.rate_per_s * 1e-6]
        for key in ended:
            del self._running[key]
        self._share()
        return ended

    def __len__(self) -> int:
        return len(self._running)

    def _move(self, now_s: float) -> None:
        elapsed_s = now_s - self._now_s
        self._now_s = now_s
        if elapsed_s > 0:
            for one in self._running.values():
                one.left = max(0.0, one.left - one.rate_per_s * elapsed_s)

    def _share(self) -> None:
        """Rates by filling up: who needs least is served first, the rest share what remains."""
        remaining, count = self._rate_per_s, len(self._running)
        next_s = inf
        for one in sorted(self._running.values(), key=lambda one: one.rate_max_per_s):
            one.rate_per_s = min(one.rate_max_per_s, remaining / count)
            remaining -= one.rate_per_s
            count -= 1
            next_s = min(next_s, self._now_s + (one.left / one.rate_per_s if one.left else 0.0))
        self._next_s = next_s
