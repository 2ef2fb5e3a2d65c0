"""Alarms of promised latencies: how fast the share of late requests uses up what the promise leaves over."""

from collections.abc import Iterator

from twofold.contracts.results.serving import ClassPlan, SloOutcome
from twofold.rendering.burn_rates import Promise, rules_of
from twofold.rendering.given import Given
from twofold.rendering.kubernetes_pods import named
from twofold.rendering.kubernetes_traffic import selector
from twofold.rendering.records import ServedPool
from twofold.rendering.runtimes import Histogram, runtime_of
from twofold.rendering.yaml_text import Node, Object


def alarms(pool: ServedPool, given: Given) -> tuple[Object, ...]:
    """One rule for each promised percentile of latency; none where the engine counts none."""
    rules: list[Node] = []
    for each, slo, histogram in promised(pool):
        rules += rules_of(_promise(pool, each, slo, histogram))
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


def _promise(pool: ServedPool, each: ClassPlan, slo: SloOutcome, histogram: Histogram) -> Promise:
    together = "" if len(pool.classes) == 1 else ", by all classes of its replicas together"
    return Promise(
        slo,
        histogram,
        selector(pool),
        {"pool": pool.name, "class": each.name, "goal": slo.metric},
        f"serving.{pool.service.name}.classes.{each.name}.slos.{slo.metric}",
        f"{pool.service.name} {each.name}: {slo.metric} is missed{together}",
    )
