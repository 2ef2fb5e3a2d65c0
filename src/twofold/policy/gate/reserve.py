"""Places that are kept for tenants who had less than their share of late. Mutable, bounded.

Where first tokens must come soon, nobody can wait long, and a fair queue is mostly empty: a place goes to
whoever asks at the moment when it is free, which is mostly who asks most. So the last few places are kept
from tenants that had more than their share of the tokens; who had less finds one free.
"""

import math
from collections import Counter
from collections.abc import Iterable

WINDOW_S = 30.0  # tokens of this one and of the one before it count
LEVEL_S = 1.0  # how long a level counts
OVER_RATIO = 1.03  # of the share: no place is worth the last of its tokens
LARGEST_FRACTION = 0.125  # of the places: fewer than eight cannot spare one


class Reserve:
    """Of one class."""

    def __init__(self, kept_fraction: float, tenant_count_max: int) -> None:
        self._kept_fraction, self._tenant_count_max = kept_fraction, tenant_count_max
        self._until_s = self._level_until_s = self._now_s = 0.0
        self._asked: Counter[str] = Counter()  # tokens of this window, by tenant …
        self._sent: Counter[str] = Counter()
        self._earlier_asked: Counter[str] = Counter()  # … and of the one before
        self._earlier_sent: Counter[str] = Counter()
        self._sent_tokens = 0  # of both
        self._level_fraction = math.inf  # of them: the most that one tenant may have

    def asked(self, tenant: str, tokens: int, now_s: float) -> None:
        """A request of so many tokens came: its tenant is one of those who share."""
        self._now_s = now_s
        if now_s >= self._until_s:
            fresh = now_s - self._until_s < WINDOW_S
            self._earlier_asked, self._earlier_sent = (
                (self._asked, self._sent) if fresh else (Counter(), Counter())
            )
            self._asked, self._sent = Counter(), Counter()
            self._sent_tokens = self._earlier_sent.total()
            self._until_s, self._level_until_s = now_s + WINDOW_S, now_s
        if tenant in self._asked or len(self._asked) < self._tenant_count_max:
            self._asked[tenant] += tokens

    def sent(self, tenant: str, tokens: int) -> None:
        """A request of so many tokens got a place."""
        if tenant in self._asked or tenant in self._earlier_asked:  # it may have waited over the turn
            self._sent[tenant] += tokens
            self._sent_tokens += tokens

    def is_kept_from(self, tenant: str, free_count: int, place_count: int) -> bool:
        """Whether the places that are left are for others: few are, and it had more than its share."""
        return self._is_kept(free_count, place_count) and self._had_more(tenant)

    def is_for(self, tenant: str, free_count: int, place_count: int) -> bool:
        """Whether the places that are left are kept, and this tenant is one of those they are for."""
        return self._is_kept(free_count, place_count) and not self._had_more(tenant)

    def _is_kept(self, free_count: int, place_count: int) -> bool:
        kept_count = min(math.ceil(self._kept_fraction * place_count), int(LARGEST_FRACTION * place_count))
        return free_count <= kept_count

    def _had_more(self, tenant: str) -> bool:
        if self._now_s >= self._level_until_s:
            asked = self._asked + self._earlier_asked
            level_tokens = fair_level(asked.values(), self._sent_tokens)
            self._level_fraction = level_tokens / self._sent_tokens if self._sent_tokens else math.inf
            self._level_until_s = self._now_s + LEVEL_S
        had_tokens = self._sent[tenant] + self._earlier_sent[tenant]
        return had_tokens > OVER_RATIO * self._level_fraction * self._sent_tokens


def fair_level(asked: Iterable[float], total: float) -> float:
    """The most that one may have, where who asks for less has all of it and the others share the rest alike.

    Formula  level with sum over i of min(asked_i, level) = total; infinite where all that is asked is had
    Source   max-min fairness: Bertsekas & Gallager 1992, "Data Networks", section 6.5.2

    >>> fair_level([1.0, 2.0, 10.0, 20.0], 13.0), fair_level([1.0, 2.0], 3.0)
    (5.0, inf)
    """
    rising = sorted(asked)
    for number, each in enumerate(rising):
        sharing_count = len(rising) - number
        if each * sharing_count > total:
            return total / sharing_count
        total -= each
    return math.inf
