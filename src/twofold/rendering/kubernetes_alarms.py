"""Alarms of promised latencies: how fast the share of late requests uses up what the promise leaves over."""

from bisect import bisect_left
from collections.abc import Iterator

from twofold.contracts.results.serving import ClassPlan, SloOutcome
from twofold.rendering.given import Given
from twofold.rendering.kubernetes_pods import named
from twofold.rendering.kubernetes_traffic import selector
from twofold.rendering.records import ServedPool
from twofold.rendering.runtimes import Histogram, runtime_of
from twofold.rendering.yaml_text import Node, Object, Said

# Long and short window, times the even pace at which 30 days use up the budget, and whom it calls.
# Source: The Site Reliability Workbook, chapter 5, multiwindow, multi-burn-rate alerts.
BURNS = (("1h", "5m", 14.4, "page"), ("6h", "30m", 6.0, "page"), ("3d", "6h", 1.0, "ticket"))
WINDOWS = ("5m", "30m", "1h", "6h", "3d")
LATE = "slo:late_fraction:rate"


def alarms(pool: ServedPool, given: Given) -> tuple[Object, ...]:
    """One rule for each promised percentile of latency; none where the engine counts none."""
    rules: list[Node] = []
    for each, slo, histogram in promised(pool):
        rules += [*_recorded(pool, each, slo, histogram), *_alarms(pool, each, slo)]
    if not rules:
        return ()
    spec: dict[str, Node] = {"groups": [{"name": pool.name, "rules": rules}]}
    return ({**named("PrometheusRule", "monitoring.coreos.com/v1", pool.name, given), "spec": spec},)


def promised(pool: ServedPool) -> Iterator[tuple[ClassPlan, SloOutcome, Histogram]]:
    """Goals of latency that the engine counts."""
    histograms = runtime_of(pool).histograms
    for each in pool.classes:
        for slo in each.slos:
            if (kind := slo.metric.partition("_")[0]) in histograms:
                yield each, slo, histograms[kind]


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


def _recorded(pool: ServedPool, each: ClassPlan, slo: SloOutcome, histogram: Histogram) -> Iterator[Object]:
    """The share of late requests in each window."""
    at = f"serving.{pool.service.name}.classes.{each.name}.slos.{slo.metric}.limit_s"
    for window in WINDOWS:
        counted = [
            (weight, f'rate({histogram.name}_bucket{{{selector(pool)},le="{_le(bucket)}"}}[{window}])')
            for bucket, weight in within(slo.limit_s, histogram.buckets_s)
        ]
        parts = [f"sum({rate})" if weight == 1.0 else f"{weight:g} * sum({rate})" for weight, rate in counted]
        count = f"sum(rate({histogram.name}_count{{{selector(pool)}}}[{window}]))"
        expression = f"1 - ({' + '.join(parts)}) / {count}"
        yield {"record": f"{LATE}{window}", "expr": Said(expression, at), "labels": _labels(pool, each, slo)}


def _alarms(pool: ServedPool, each: ClassPlan, slo: SloOutcome) -> Iterator[Object]:
    """One for each pair of windows whose limit is a share that requests can reach."""
    budget = budget_fraction(slo.metric)
    at = f"serving.{pool.service.name}.classes.{each.name}.slos.{slo.metric}.metric"
    own = ",".join(f"{key}={_quoted(value)}" for key, value in _labels(pool, each, slo).items())
    for long, short, burn, calls in BURNS:
        if burn * budget >= 1.0:
            continue
        limit = f"{burn * budget:.6g}"
        expression = f"{LATE}{long}{{{own}}} > {limit} and {LATE}{short}{{{own}}} > {limit}"
        together = "" if len(pool.classes) == 1 else ", by all classes of its replicas together"
        yield {
            "alert": "LatencyBudgetBurns",
            "expr": Said(expression, f"{at}: {burn:g} × the {budget * 100:.3g} % that may be late"),
            "labels": {**_labels(pool, each, slo), "severity": calls},
            "annotations": {"summary": f"{pool.service.name} {each.name}: {slo.metric} is missed{together}"},
        }


def _labels(pool: ServedPool, each: ClassPlan, slo: SloOutcome) -> dict[str, str]:
    return {"pool": pool.name, "class": each.name, "goal": slo.metric}


def _quoted(text: str) -> str:
    """Text as a string of Prometheus' language."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'


def _le(bucket: float) -> str:
    return "+Inf" if bucket == float("inf") else str(bucket)
