"""What a gateway saw of late: first tokens, ends, and when each replica was last heard. Bounded; no clock."""

import math
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from twofold.live.gateway.telemetry import FAILED, FINISHED, REFUSED
from twofold.policy.gate import tiers as gate_tiers
from twofold.policy.gate.events import TierPassed

WINDOW_S = 60.0
KEPT = 4096  # of each kind; beyond, the oldest are forgotten and the window is shorter


class Recent:
    """Mutable: two windows and one time per replica."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.arrived_at_s: float | None = None  # the newest request; monotonic, as all times here
        self.heard_s: dict[str, float] = {}
        self._first: deque[tuple[float, float]] = deque(maxlen=KEPT)  # when, and after how long
        self._ends: deque[tuple[float, str]] = deque(maxlen=KEPT)  # when, and how
        self._passed: deque[tuple[float, TierPassed]] = deque(maxlen=KEPT)  # when, what passed a CPU tier

    def heard(self, replica_id: str) -> None:
        """HOT: per piece of an answer: one clock and one assignment."""
        self.heard_s[replica_id] = time.monotonic()

    def first_token(self, now_s: float, ttft_s: float) -> None:
        """An answer began."""
        self._first.append((now_s, ttft_s))

    def ended(self, now_s: float, outcome: str) -> None:
        """It ended: finished, refused by the gate, or failed. What its client got wrong is not told."""
        self._ends.append((now_s, outcome))

    def passed(self, now_s: float, told: TierPassed) -> None:
        """A request is through a CPU tier."""
        self._passed.append((now_s, told))

    def tiers(self, now_s: float, tiers: Iterable[gate_tiers.Tier], held_count: int) -> dict[str, Any]:
        """Each CPU tier over the window, and which of them holds requests up; None: none does."""
        spans = {tier.settings.name: (tier, self._span(now_s, tier)) for tier in tiers}
        worst = gate_tiers.bottleneck((span for _, span in spans.values()), held_count)
        return {
            "tiers": {
                name: {
                    "places": tier.settings.place_count,
                    "at_work": tier.working_count,
                    "waiting": len(tier.waiting),
                    "passed": span.passed_count,
                    "refused_ever": tier.refused_count,
                    "failed_ever": tier.failed_count,
                    "wait_s_mean": span.wait_s_mean,
                    "s_p95": span.took_s_p95 if span.passed_count or tier.waiting else None,
                    "slo_s": span.slo_s,
                }
                for name, (tier, span) in spans.items()
            },
            "bottleneck": None if worst is None else worst.name,
        }

    def _span(self, now_s: float, tier: gate_tiers.Tier) -> gate_tiers.TierSpan:
        """Who still waits counts with what it has waited: else a tier that lets nobody through is idle."""
        name, since_s = tier.settings.name, now_s - WINDOW_S
        passed = [told for at_s, told in self._passed if at_s >= since_s and told.tier == name]
        ages = [now_s - each.entered_s for each in tier.waiting.values()]
        waits, took = [each.wait_s for each in passed] + ages, sorted([each.took_s for each in passed] + ages)
        work = [each.took_s - each.wait_s for each in passed]
        return gate_tiers.TierSpan(
            name=name,
            passed_count=len(passed),
            wait_s_mean=sum(waits) / max(len(waits), 1),
            work_s_mean=sum(work) / max(len(work), 1),
            took_s_p95=took[math.ceil(0.95 * len(took)) - 1] if took else 0.0,
            waiting_count=len(ages),
            slo_s=tier.settings.p95_slo_s,
        )

    def figures(self, now_s: float) -> dict[str, Any]:
        """Rates and the tail over the window, or over as much of it as is known; None: nothing was seen."""
        since_s = now_s - WINDOW_S
        first = sorted(ttft_s for at_s, ttft_s in self._first if at_s >= since_s)
        ends = [outcome for at_s, outcome in self._ends if at_s >= since_s]
        oldest_s = self._ends[0][0] if len(self._ends) == KEPT else self.began_s
        span_s = max(min(WINDOW_S, now_s - oldest_s), 1.0)
        arrived_at_s = self.arrived_at_s
        return {
            "window_s": span_s,
            "requests_per_s": ends.count(FINISHED) / span_s,
            "refused_fraction": ends.count(REFUSED) / max(len(ends), 1),
            "failed_fraction": ends.count(FAILED) / max(len(ends), 1),
            "ttft_s_p95": first[math.ceil(0.95 * len(first)) - 1] if first else None,
            "arrived_at_s": arrived_at_s,
            "arrived_ago_s": None if arrived_at_s is None else now_s - arrived_at_s,
        }
