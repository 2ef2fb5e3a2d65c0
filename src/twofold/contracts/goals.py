"""What requests are promised and judged by: one list for specs, searches, the twin, plans and screens."""

from collections.abc import Mapping
from types import MappingProxyType

# Latencies in seconds -> as screens call them.
METRICS: Mapping[str, str] = MappingProxyType({"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"})
QUANTILES = ("p50", "p95", "p99")


def stated_goal(goal: str) -> str:
    """A goal as the reasons of plans and the language of claims spell it.

    >>> stated_goal("ttft_p95"), stated_goal("throughput")
    ('ttft_s_p95', 'throughput')
    """
    metric, _, quantile = goal.partition("_")
    return f"{metric}_s_{quantile}" if metric in METRICS else goal


def metric_text(goal: str) -> str:
    """A goal as people say it; the one of batches has no percentile.

    >>> metric_text("ttft_p95"), metric_text("e2e_s_p95"), metric_text("finish_within")
    ('TTFT p95', 'E2E p95', 'done')
    """
    name, _, percentile = goal.replace("_s_", "_").partition("_p")
    return f"{METRICS.get(name, name)} p{percentile}" if percentile else "done"
