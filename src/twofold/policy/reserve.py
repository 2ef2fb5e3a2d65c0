"""Places that are kept for tenants who had less than their share of late. Mutable, bounded.

Where first tokens must come soon, nobody can wait long, and a fair queue is mostly empty: a place goes to
whoever asks at the moment when it is free, which is mostly who asks most. So the last few places are kept
from tenants that had more than an equal share of the tokens; who had less finds one free.
"""

import math

WINDOW_S = 30.0  # tokens of this one and of the one before it count
OVER_RATIO = 1.1  # of an equal share: more than chance gives
LARGEST_FRACTION = 0.125  # of the places: fewer than eight cannot spare one


class Reserve:
    """Of one class."""

    def __init__(self, kept_fraction: float, tenant_count_max: int) -> None:
        self._kept_fraction, self._tenant_count_max = kept_fraction, tenant_count_max
        self._until_s = 0.0
        self._tokens: dict[str, int] = {}  # sent in this window, by tenant; 0: it only asked …
        self._earlier: dict[str, int] = {}  # … and in the one before
        self._sum_tokens = self._earlier_tokens = 0
        self._sharing_count = 0  # tenants of both windows

    def asked(self, tenant: str, now_s: float) -> None:
        """A request came: its tenant is one of those who share."""
        if now_s >= self._until_s:
            fresh = now_s - self._until_s < WINDOW_S
            self._earlier = self._tokens if fresh else {}
            self._earlier_tokens = self._sum_tokens if fresh else 0
            self._tokens, self._sum_tokens, self._until_s = {}, 0, now_s + WINDOW_S
            self._sharing_count = len(self._earlier)
        if tenant not in self._tokens and len(self._tokens) < self._tenant_count_max:
            self._tokens[tenant] = 0
            self._sharing_count += tenant not in self._earlier

    def sent(self, tenant: str, tokens: int) -> None:
        """A request of so many tokens got a place."""
        if tenant in self._tokens:
            self._tokens[tenant] += tokens
            self._sum_tokens += tokens

    def is_kept_from(self, tenant: str, free_count: int, place_count: int) -> bool:
        """Whether the places that are left are for others: few are, and it had more than its share."""
        return self._is_kept(free_count, place_count) and self._had_more(tenant)

    def is_for(self, tenant: str, free_count: int, place_count: int) -> bool:
        """Whether the places that are left are kept, and this tenant is one of those they are for."""
        return self._is_kept(free_count, place_count) and not self._had_more(tenant)

    def _is_kept(self, free_count: int, place_count: int) -> bool:
        kept_count = min(math.ceil(self._kept_fraction * place_count), int(LARGEST_FRACTION * place_count))
        return free_count <= kept_count and self._sharing_count >= 2

    def _had_more(self, tenant: str) -> bool:
        had_tokens = self._tokens.get(tenant, 0) + self._earlier.get(tenant, 0)
        return had_tokens * self._sharing_count > OVER_RATIO * (self._sum_tokens + self._earlier_tokens)
