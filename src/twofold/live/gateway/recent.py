"""What a gateway saw of late: first tokens, ends, and when each replica was last heard. Bounded; no clock."""

import math
import time
from collections import deque
from typing import Any

WINDOW_S = 60.0
KEPT = 4096  # of each kind; beyond, the oldest are forgotten and the window is shorter


class Recent:
    """Mutable: two windows and one time per replica."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.arrived_at_s: float | None = None  # the newest request; monotonic, as all times here
        self.heard_s: dict[str, float] = {}
        self._first: deque[tuple[float, float]] = deque(maxlen=KEPT)  # when, and after how long
        self._ends: deque[tuple[float, bool]] = deque(maxlen=KEPT)  # when, and whether it was answered

    def heard(self, replica_id: str) -> None:
        """HOT: per piece of an answer: one clock and one assignment."""
        self.heard_s[replica_id] = time.monotonic()

    def first_token(self, now_s: float, ttft_s: float) -> None:
        """An answer began."""
        self._first.append((now_s, ttft_s))

    def ended(self, now_s: float, *, finished: bool) -> None:
        """A request ended: answered, or refused or given up."""
        self._ends.append((now_s, finished))

    def figures(self, now_s: float) -> dict[str, Any]:
        """Rates and the tail over the window, or over as much of it as is known; None: nothing was seen."""
        since_s = now_s - WINDOW_S
        first = sorted(ttft_s for at_s, ttft_s in self._first if at_s >= since_s)
        ends = [finished for at_s, finished in self._ends if at_s >= since_s]
        oldest_s = self._ends[0][0] if len(self._ends) == KEPT else self.began_s
        span_s = max(min(WINDOW_S, now_s - oldest_s), 1.0)
        arrived_at_s = self.arrived_at_s
        return {
            "window_s": span_s,
            "requests_per_s": sum(ends) / span_s,
            "refused_fraction": 1 - sum(ends) / len(ends) if ends else 0.0,
            "ttft_s_p95": first[math.ceil(0.95 * len(first)) - 1] if first else None,
            "arrived_at_s": arrived_at_s,
            "arrived_ago_s": None if arrived_at_s is None else now_s - arrived_at_s,
        }
