"""How much tenants and classes may ask for, and which places are kept from whom. Mutable, bounded.

Tenants and classes have one bucket each. A request takes its input and output limit from its buckets.
Whatever it does not write of the output limit goes back at its end, but for an answer that broke off or was
left midway: how much it wrote nobody knows. Who left the queue gets all tokens back, who is refused the
request besides.

A bucket fills at its rate up to `burst_s` of it. A request larger than that may go when the bucket is full,
and leaves a debt. So over any t seconds no more than (t + burst_s) of the rate goes out, one request aside.

Where first tokens must come soon, nobody can wait long, and a fair queue is mostly empty: a place goes to
whoever asks at the moment when it is free, which is mostly who asks most. So the last few places are kept
from tenants that had more than their share of the tokens; who had less finds one free.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from twofold.policy.gate.settings import LimitSettings, Rate


@dataclass(slots=True)
class Bucket:
    """What is left of one rate. Mutable. What is not limited is infinite, and fills by nothing."""

    requests_per_s: float
    tokens_per_s: float
    full_requests_count: float
    full_tokens: float
    at_s: float
    requests_count: float
    tokens: float

    def fill(self, now_s: float) -> None:
        """As long as nothing is taken it fills, never beyond the burst: a leap of the clock fills it once."""
        waited_s = now_s - self.at_s
        if waited_s > 0.0:
            self.at_s = now_s
            # HOT: per request; a comparison takes a third of the time of `min`: bench/policy.py
            requests_count = self.requests_count + waited_s * self.requests_per_s
            full_count = self.full_requests_count
            self.requests_count = requests_count if requests_count < full_count else full_count
            tokens = self.tokens + waited_s * self.tokens_per_s
            self.tokens = tokens if tokens < self.full_tokens else self.full_tokens

    def until_enough_s(self, tokens: float) -> float:
        """Seconds until one request of so many tokens may go; 0: now."""
        wait_s = 0.0
        if self.requests_count < 1.0:
            wait_s = (1.0 - self.requests_count) / self.requests_per_s
        if self.tokens < tokens:
            lacking = min(tokens, self.full_tokens) - self.tokens
            # What rounding leaves after a wait of just as long as was said is not worth another.
            if lacking > 1e-9 * self.full_tokens:
                wait_s = max(wait_s, lacking / self.tokens_per_s)
        return wait_s

    def full_at_s(self) -> float:
        """When nothing that was taken shows any more: such a bucket may be forgotten."""
        wait_s = 0.0
        if self.requests_per_s:
            wait_s = (self.full_requests_count - self.requests_count) / self.requests_per_s
        if self.tokens_per_s:
            wait_s = max(wait_s, (self.full_tokens - self.tokens) / self.tokens_per_s)
        return self.at_s + wait_s


class Limiter:
    """The buckets of all tenants and classes."""

    def __init__(self, settings: LimitSettings) -> None:
        self._settings = settings
        # Of tenants with a rate of their own: nobody takes their place.
        self._named = {name: _full_bucket(rate, 0.0) for name, rate in settings.tenants}
        self._tenants: OrderedDict[str, Bucket] = OrderedDict()  # of the others, the longest unseen first
        self._classes = {name: _full_bucket(rate, 0.0) for name, rate in settings.classes}
        self._others: Bucket | None = None  # of tenants beyond those that can be told apart

    def take_or_wait_s(self, tenant: str, class_name: str, tokens: int, now_s: float) -> float:
        """0, and it is taken; or how long to wait until it may be taken, and nothing is."""
        buckets = (self._tenant(tenant, now_s), self._classes.get(class_name))
        wait_s = 0.0
        for bucket in buckets:
            if bucket is not None:
                bucket.fill(now_s)
                wait_s = max(wait_s, bucket.until_enough_s(tokens))
        if wait_s <= 0.0:
            for bucket in buckets:
                if bucket is not None:
                    bucket.requests_count -= 1.0
                    bucket.tokens -= tokens
        return wait_s

    def give_back(self, tenant: str, class_name: str, tokens: int, request_count: int = 0) -> None:
        """Tokens that were taken and not written, and the request if it was refused after all."""
        # A tenant that is forgotten by now was full anyway.
        by_tenant = self._named.get(tenant) or self._tenants.get(tenant, self._others)
        for bucket in (by_tenant, self._classes.get(class_name)):
            if bucket is not None:
                requests_count = bucket.requests_count + request_count
                bucket.requests_count = min(bucket.full_requests_count, requests_count)
                bucket.tokens = min(bucket.full_tokens, bucket.tokens + tokens)

    def _tenant(self, tenant: str, now_s: float) -> Bucket | None:
        bucket = self._named.get(tenant)
        if bucket is not None:
            return bucket
        bucket = self._tenants.pop(tenant, None)
        if bucket is None:
            rate = self._settings.tenant
            if rate is None:
                return None
            if len(self._tenants) >= self._settings.tenant_count_max:
                longest_unseen = next(iter(self._tenants))
                if self._tenants[longest_unseen].full_at_s() > now_s:
                    # Names made up by the thousand gain nothing: they share one.
                    self._others = self._others or _full_bucket(rate, now_s)
                    return self._others
                del self._tenants[longest_unseen]
            bucket = _full_bucket(rate, now_s)
        self._tenants[tenant] = bucket
        return bucket


def _full_bucket(rate: Rate, now_s: float) -> Bucket:
    """A bucket of requests holds one at least: else none would ever go."""
    requests_per_s, tokens_per_s = rate.requests_per_s or 0.0, rate.tokens_per_s or 0.0
    full_count = max(1.0, requests_per_s * rate.burst_s) if requests_per_s else inf
    full_tokens = tokens_per_s * rate.burst_s if tokens_per_s else inf
    return Bucket(requests_per_s, tokens_per_s, full_count, full_tokens, now_s, full_count, full_tokens)


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
            self._earlier_asked = self._asked if fresh else Counter()
            self._earlier_sent = self._sent if fresh else Counter()
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
