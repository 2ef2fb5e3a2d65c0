"""How often gate and clients may ask again, and when the gate hedges. Mutable, bounded."""

import math
from collections import OrderedDict

from twofold.policy.gate.pace import Quantile
from twofold.policy.gate.settings import HedgeSettings, RetryBudgetSettings

KNOWN_COUNT = 20  # attempts that must have begun before it is known what is late
STEP_LOG = 0.05  # by which the wait before a hedge grows or shrinks per attempt
TENANT_COUNT_MAX = 10_000  # whose repeats are counted apart
BURST_COUNT = 10  # hedges that are kept from calmer times


class RetryBudget:
    """A bucket that new requests fill and repeats empty: a fleet that fails everything is not asked twice.

    Law  of n new ones in t seconds at most burst + n · attempts_fraction + t · least_per_s attempts follow.
    Why  a fleet whose answers come too late is kept there by those who ask again: work that is thrown away
         leaves no room for new requests.
    """

    def __init__(self, settings: RetryBudgetSettings) -> None:
        self.settings = settings
        self._burst_count = self.left_count = float(settings.burst_count)
        self.at_s = 0.0

    def arrived(self) -> None:
        """A new request; repeats are none."""
        self.left_count = min(self.left_count + self.settings.attempts_fraction, self._burst_count)

    def take(self, now_s: float) -> bool:
        """Whether one more attempt may be made; then it is counted."""
        by_time = max(now_s - self.at_s, 0.0) * self.settings.least_per_s
        self.left_count, self.at_s = min(self.left_count + by_time, self._burst_count), now_s
        if self.left_count < 1.0:
            return False
        self.left_count -= 1.0
        return True

    def until_one_s(self) -> float:
        """Seconds until a repeat may be made even if no new request comes."""
        lacking_count = max(1.0 - self.left_count, 0.0)
        return lacking_count / self.settings.least_per_s if self.settings.least_per_s else math.inf


class ClientBudget:
    """The same for what clients say they repeat, apart from what the gate repeats and hedges itself.

    Law  of n new ones in t seconds at most burst + n · attempts_fraction + t · least_per_s repeats follow, of
         all tenants together.
    Why  clients who ask again take nobody the gate's second attempt, and no tenant takes another's repeats:
         what its new requests earn is its own, and only burst and least rate are for whoever comes first.
    """

    def __init__(self, settings: RetryBudgetSettings) -> None:
        self._settings = settings
        self.common = RetryBudget(settings)
        self._earned: OrderedDict[str, float] = OrderedDict()  # by tenant, the longest unseen first

    def arrived(self, tenant: str) -> None:
        """A new request; repeats are none."""
        earned, settings = self._earned, self._settings
        count = earned.get(tenant, 0.0) + settings.attempts_fraction
        earned[tenant] = count if count < settings.burst_count else float(settings.burst_count)
        earned.move_to_end(tenant)
        if len(earned) > TENANT_COUNT_MAX:
            earned.popitem(last=False)

    def take(self, tenant: str, now_s: float) -> bool:
        """Whether this tenant may repeat; then it is counted."""
        count = self._earned.get(tenant, 0.0)
        if count >= 1.0:
            self._earned[tenant] = count - 1.0
            return True
        return self.common.take(now_s)


class Hedger:
    """Which first attempts are late, by what others took. Holds one number per attempt that has not begun."""

    def __init__(self, settings: HedgeSettings) -> None:
        self._settings = settings
        # First attempts without a first token, the oldest first. A plain dict finds its first key ever more
        # slowly as others go.
        self._sent_s: OrderedDict[int, float] = OrderedDict()
        least_log = math.log(settings.wait_s_min)
        self._late_log = Quantile(settings.after_fraction, least_log, STEP_LOG, least_log)
        self._wait_s = settings.wait_s_min  # as `_late_log` has it
        self._known_count = 0
        self._left_count = 0.0

    def arrived(self) -> None:
        """A new request, which earns a part of a hedge."""
        self._left_count = min(self._left_count + self._settings.attempts_fraction, float(BURST_COUNT))

    def sent(self, request_id: int, now_s: float) -> None:
        """Its first attempt was sent."""
        self._sent_s[request_id] = now_s

    def began(self, request_id: int, now_s: float) -> None:
        """The first attempt's first token came."""
        sent_s = self._sent_s.pop(request_id, None)
        if sent_s is None:
            return
        took_log = math.log(max(now_s - sent_s, 1e-9))
        if self._known_count < KNOWN_COUNT:
            self._known_count += 1
            self._late_log.value = max(self._late_log.value, took_log)
        else:
            self._late_log.add(took_log)
        self._wait_s = math.exp(self._late_log.value)

    def ended(self, request_id: int) -> None:
        """It failed, or its client left: how long it would have taken nobody knows."""
        self._sent_s.pop(request_id, None)

    def next_due_s(self) -> float | None:
        """When the oldest attempt is late; None: none waits, too little is known, or no hedge is left."""
        if not self._sent_s or self._left_count < 1.0 or self._known_count < KNOWN_COUNT:
            return None
        return next(iter(self._sent_s.values())) + self._wait_s

    def take_due(self, now_s: float) -> int | None:
        """A request that is to be hedged now; it is counted, and not named again."""
        due_s = self.next_due_s()
        if due_s is None or due_s > now_s:
            return None
        request_id = next(iter(self._sent_s))
        del self._sent_s[request_id]
        self._late_log.add(math.inf)
        self._wait_s = math.exp(self._late_log.value)
        self._left_count -= 1.0
        return request_id
