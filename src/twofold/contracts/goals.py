"""What requests are promised and judged by: one list for specs, searches, the twin, plans and screens."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from types import MappingProxyType
from typing import Any, ClassVar

# Latencies in seconds -> as screens call them.
METRICS: Mapping[str, str] = MappingProxyType({"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"})
QUANTILES: Mapping[str, float] = MappingProxyType({"p50": 0.5, "p95": 0.95, "p99": 0.99})
STEADY_FRACTION, DISTURBED_FRACTION = 0.999, 0.99
DOUBT = 0.1  # that a verdict on few requests may be wrong with


@dataclass(frozen=True, slots=True)
class SuccessGoal:
    """The share of requests that are to get their whole answer. What is refused or timed out has failed.

    `simulate`, `plan --rehearse` and plans judge by this alone, whatever turned a request away.
    """

    TIMEOUT_S: ClassVar[float] = 60.0  # after which the gateway gives up on a first token …
    BULK_TIMEOUT_S: ClassVar[float] = 24 * 3600.0  # … nobody waits for that of work that has a day
    fraction: float = STEADY_FRACTION

    def disturbed(self, stated_fraction: float | None) -> "SuccessGoal":
        """What holds while something goes wrong: as stated, else 99 %, or the goal where that is lower."""
        return SuccessGoal(stated_fraction or min(self.fraction, DISTURBED_FRACTION))

    def within_s(self, p95_s: Any, p99_s: Any) -> Any:
        """Seconds within which this share gets what has these upper quantiles; p95 for less than 95 %.

        Formula  p99 + k · (p99 − p95), k = ln(0.01 / (1 − goal)) / ln 5, at least −1
        Why      Waits fall off from one quantile to the next as they do from p95 to p99: `predicted`.
        Shapes   arguments broadcast.
        """
        further = max(log(0.01 / (1.0 - self.fraction)) / log(5.0), -1.0)
        return p99_s + further * (p99_s - p95_s)

    @property
    def least_count(self) -> float:
        """Requests from which on no failure would be seen by luck in one run of ten: −ln 0.1 / (1 − goal)."""
        return -log(DOUBT) / (1.0 - self.fraction)

    def met(self, failed_count: int, asked_count: int) -> bool | None:
        """Whether it is kept, by the middle of what was seen; None: too few requests to tell.

        Formula  failed / asked ≤ 1 − goal; of fewer than `least_count` only what chance can hardly have
                 brought says no: P(Poisson(asked · (1 − goal)) ≥ failed) ≤ 10 %
        Why      one more failure among the same requests never makes it better (INV-36).

        >>> goal = SuccessGoal(0.999)
        >>> goal.met(3, 5000), goal.met(6, 5000), goal.met(0, 500), goal.met(4, 500)
        (True, False, None, False)
        """
        if asked_count >= self.least_count:
            return failed_count <= (1.0 - self.fraction) * asked_count * (1.0 + 1e-9)
        mean = asked_count * (1.0 - self.fraction)
        below, term = 0.0, exp(-mean)
        for number in range(failed_count):
            below += term
            term *= mean / (number + 1)
        return False if 1.0 - below <= DOUBT else None


def stated_goal(goal: str) -> str:
    """A goal as the reasons of plans and the language of claims spell it.

    >>> stated_goal("ttft_p95"), stated_goal("throughput")
    ('ttft_s_p95', 'throughput')
    """
    metric, _, quantile = goal.partition("_")
    return f"{metric}_s_{quantile}" if metric in METRICS else goal


def metric_text(goal: str) -> str:
    """A goal as people say it; the one of batches has no percentile.

    >>> [metric_text(goal) for goal in ("ttft_p95", "e2e_s_p95", "finish_within", "success")]
    ['TTFT p95', 'E2E p95', 'done', 'success']
    """
    if goal == "success":
        return goal
    name, _, percentile = goal.replace("_s_", "_").partition("_p")
    return f"{METRICS.get(name, name)} p{percentile}" if percentile else "done"
