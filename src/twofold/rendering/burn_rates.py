"""How fast late requests use up what a promise leaves over: rules for Prometheus, whoever counts requests.

Source  The Site Reliability Workbook, chapter 5, multiwindow, multi-burn-rate alerts.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twofold.contracts.results.serving import SloOutcome
from twofold.live import metrics_text
from twofold.rendering.runtimes import Histogram
from twofold.rendering.yaml_text import Object, Said

# Long and short window, times the even pace at which 30 days use up the budget, and whom it calls.
BURNS = (("1h", "5m", 14.4, "page"), ("6h", "30m", 6.0, "page"), ("3d", "6h", 1.0, "ticket"))
WINDOWS = ("5m", "30m", "1h", "6h", "3d")
LATE = "slo:late_fraction:rate"


@dataclass(frozen=True, slots=True)
class Promise:
    """One goal of latency, and where it is counted."""

    slo: SloOutcome
    histogram: Histogram
    selector: str  # of its series, between braces
    labels: Mapping[str, str]  # of the recorded share and of the alarm
    at: str  # the goal's place in the plan
    summary: str  # what an alarm says


def rules_of(promise: Promise) -> Iterator[Object]:
    """The share of late requests in each window, and the alarms about it."""
    yield from _recorded(promise)
    yield from _alarms(promise)


def budget_fraction(metric: str) -> float:
    """Of requests that may be late: what the percentile of a goal leaves over.

    >>> round(budget_fraction("ttft_p95"), 4)
    0.05
    """
    return 1.0 - float(metric.partition("_p")[2]) / 100.0


def within(limit_s: float, buckets_s: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
    """Buckets and their weights whose counts together are the requests within a limit.

    Formula  linear between the two buckets that a limit lies between, as `histogram_quantile` reads them
    Limits   beyond the last bucket all requests count as within it

    >>> within(0.04, (0.025, 0.05))
    ((0.025, 0.4), (0.05, 0.6))
    """
    index = bisect_left(buckets_s, limit_s)
    if index == len(buckets_s):
        return ((float("inf"), 1.0),)
    high = buckets_s[index]
    if high == limit_s:
        return ((high, 1.0),)
    low = buckets_s[index - 1] if index else 0.0
    share = round((limit_s - low) / (high - low), 6)
    return ((low, round(1.0 - share, 6)), (high, share)) if index else ((high, share),)


def _recorded(promise: Promise) -> Iterator[Object]:
    """The share of late requests in each window."""
    histogram, chosen = promise.histogram, promise.selector
    for window in WINDOWS:
        counted = [
            (
                weight,
                f'rate({histogram.name}_bucket{{{chosen},le="{metrics_text.bound_text(bucket)}"}}[{window}])',
            )
            for bucket, weight in within(promise.slo.limit_s, histogram.buckets_s)
        ]
        parts = [f"sum({rate})" if weight == 1.0 else f"{weight:g} * sum({rate})" for weight, rate in counted]
        count = f"sum(rate({histogram.name}_count{{{chosen}}}[{window}]))"
        said = Said(f"1 - ({' + '.join(parts)}) / {count}", f"{promise.at}.limit_s")
        yield {"record": f"{LATE}{window}", "expr": said, "labels": promise.labels}


def _alarms(promise: Promise) -> Iterator[Object]:
    """One for each pair of windows whose limit is a share that requests can reach."""
    budget = budget_fraction(promise.slo.metric)
    own = ",".join(f"{key}={quoted(value)}" for key, value in promise.labels.items())
    for long, short, burn, calls in BURNS:
        if burn * budget >= 1.0:
            continue
        limit = f"{burn * budget:.6g}"
        expression = f"{LATE}{long}{{{own}}} > {limit} and {LATE}{short}{{{own}}} > {limit}"
        because = f"{promise.at}.metric: {burn:g} × the {budget * 100:.3g} % that may be late"
        yield {
            "alert": "LatencyBudgetBurns",
            "expr": Said(expression, because),
            "labels": {**promise.labels, "severity": calls, "over": long},
            "annotations": {"summary": promise.summary},
        }


def quoted(text: str) -> str:
    """Text as a string of Prometheus' language."""
    return f'"{metrics_text.escaped(text)}"'
