"""What watches a gateway: its promises as alarms, its series on a dashboard, and who reads both.

Prometheus reads `prometheus.yaml`, which names the alarms beside it; Grafana imports the dashboard.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from twofold.contracts.results.serving import ServicePlan
from twofold.live import metrics_text
from twofold.live.gateway.counters import SERIES, buckets_s
from twofold.policy.gate.settings import ClassSettings
from twofold.rendering.burn_rates import Promise, budget_fraction, rules_of
from twofold.rendering.runtimes import Histogram
from twofold.rendering.yaml_text import Node, Object, yaml_text

ALERTS, DASHBOARD, PROMETHEUS = "alerts.yaml", "dashboard.json", "prometheus.yaml"
OWN_HOSTS = ("127.0.0.1", "::1", "localhost")
SCRAPE_EVERY = "15s"
MEMORY_TAKEN = "1 - twofold_memory_available_bytes / twofold_memory_limit_bytes"
MOST_TAKEN, MOST_FRAGMENTED, MOST_CACHED = 0.9, 0.5, 0.95
LATE_RATIO = 2.0  # of a checkpoint's planned time
WIDTH, HEIGHT, COLUMNS = 12, 8, 2  # of a panel in Grafana's grid of 24 columns


def watch_files(
    service: ServicePlan,
    classes: tuple[ClassSettings, ...],
    host: str,
    port: int,
    checkpoint_s: float | None = None,
    certificate: str = "",
) -> dict[str, str]:
    """Files by name for a gateway that serves a planned service, whose gate has these classes.

    `checkpoint_s` is planned of a checkpoint of the run beside it; None: nothing is trained. `certificate` is
    the file of the gateway's, where it speaks TLS.
    """
    rules = [*_rules(service, classes), *_memory_rules(service.name, checkpoint_s)]
    return {
        ALERTS: yaml_text([{"groups": [{"name": service.name, "rules": rules}]}]),
        DASHBOARD: json.dumps(dashboard(service, checkpoint_s), indent=1) + "\n",
        PROMETHEUS: yaml_text([_prometheus(service, host, port, certificate)]),
    }


def promises(service: ServicePlan, classes: tuple[ClassSettings, ...]) -> Iterator[Promise]:
    """Every goal of latency that the gateway counts. A class that the gate does not know has no series."""
    known = {each.name for each in classes}
    for each in service.classes:
        for slo in each.slos:
            kind, is_share, _ = slo.metric.partition("_p")
            if each.name not in known or not is_share or kind not in SERIES:
                continue
            labels = {"service": service.name, "class": each.name, "goal": slo.metric}
            yield Promise(
                slo,
                Histogram(SERIES[kind][0], buckets_s(kind, classes)),
                f"class={json.dumps(each.name)}",
                labels,
                f"serving.{service.name}.classes.{each.name}.slos.{slo.metric}",
                f"{service.name} {each.name}: {slo.metric} is missed",
            )


def _memory_rules(whose: str, checkpoint_s: float | None) -> Iterator[Node]:
    """Of runs and services alike: what memory is left, how much of it is in pieces, how long a save takes."""
    told = [
        ("MemoryShort", f"{MEMORY_TAKEN} > {MOST_TAKEN}", "page", "a machine has hardly any memory left"),
        (
            "MemoryFragmented",
            f"twofold_memory_fragmented_fraction > {MOST_FRAGMENTED}",
            "ticket",
            "much of what a process holds is in no use",
        ),
        (
            "CacheFull",
            f"twofold_replica_kv_used_fraction > {MOST_CACHED}",
            "ticket",
            "a replica's cache is full: it begins to preempt",
        ),
    ]
    if checkpoint_s is not None:
        late = f"twofold_checkpoint_seconds > {metrics_text.number_text(LATE_RATIO * checkpoint_s)}"
        told.append(("CheckpointSlow", late, "ticket", "a checkpoint took twice what was planned"))
    yield from (_rule(whose, *each) for each in told)


def _rules(service: ServicePlan, classes: tuple[ClassSettings, ...]) -> Iterator[Node]:
    for promise in promises(service, classes):
        yield from rules_of(promise)
    told = (
        ("NoReplicaReady", "twofold_replicas_ready == 0", "page", "no replica is sent requests"),
        (
            "ReplicaDistrusted",
            "twofold_replica_circuit_closed == 0",
            "ticket",
            "a replica's circuit stays open",
        ),
        ("LogLinesLost", "increase(twofold_log_lines_lost_total[5m]) > 0", "ticket", "a log's disk is full"),
    )
    yield from (_rule(service.name, *each) for each in told)


def _rule(whose: str, name: str, expression: str, calls: str, said: str) -> Node:
    return {
        "alert": name,
        "expr": expression,
        "for": "1m",
        "labels": {"service": whose, "severity": calls},
        "annotations": {"summary": f"{whose}: {said}"},
    }


def _prometheus(service: ServicePlan, host: str, port: int, certificate: str) -> Object:
    trusted: Object = {"ca_file": certificate}
    if host in OWN_HOSTS:  # no certificate is of that name, and nobody stands between
        trusted = {"insecure_skip_verify": True}
    speaks: Object = {"scheme": "https", "tls_config": trusted} if certificate else {}
    target = f"{f'[{host}]' if ':' in host else host}:{port}"
    return {
        "global": {"scrape_interval": SCRAPE_EVERY, "evaluation_interval": SCRAPE_EVERY},
        "rule_files": [ALERTS],
        "scrape_configs": [
            {"job_name": service.name, **speaks, "static_configs": [{"targets": [target]}]},
        ],
    }


def dashboard(service: ServicePlan, checkpoint_s: float | None = None) -> Mapping[str, Any]:
    """Grafana's model of a dashboard: what is asked, how it is answered, and by whom."""
    pictures = (*_pictures(service), *_memory_pictures(checkpoint_s))
    panels = [
        _panel(number, title, unit, queries, limits)
        for number, (title, unit, queries, limits) in enumerate(pictures)
    ]
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"}
    return {
        "title": f"Twofold: {service.name}",
        "tags": ["twofold"],
        "schemaVersion": 39,
        "refresh": SCRAPE_EVERY,
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


Picture = tuple[str, str, dict[str, str], tuple[float, ...]]  # title, unit, queries by legend, goals


def _pictures(service: ServicePlan) -> Iterator[Picture]:
    rate = "sum by (%s) (rate(%s[$__rate_interval]))"
    ended = rate % ("outcome, code", "twofold_requests_total")
    yield "Requests that ended", "reqps", {"{{outcome}} {{code}}": ended}, ()
    waits = {"in flight": "twofold_requests_in_flight", "queued": "twofold_requests_queued"}
    yield "Requests now", "short", waits, ()
    for kind, (series, meaning, _) in SERIES.items():
        goals = {slo.metric: slo.limit_s for each in service.classes for slo in each.slos}
        own = {metric: limit_s for metric, limit_s in goals.items() if metric.startswith(f"{kind}_p")}
        buckets = rate % ("le, class", f"{series}_bucket")
        shares = sorted({0.5, *(1.0 - budget_fraction(metric) for metric in own)} | {0.95})
        queries = {
            f"{{{{class}}}} p{share * 100:.4g}": f"histogram_quantile({share:.6g}, {buckets})"
            for share in shares
        }
        yield meaning, "s", queries, tuple(sorted(own.values()))
    of_zone = rate % ("le, zone", "twofold_client_zone_ttft_seconds_bucket")
    yield (
        "First token, by where clients are",
        "s",
        {"{{zone}} p95": f"histogram_quantile(0.95, {of_zone})"},
        (),
    )
    failed = "twofold_client_zone_requests_total{outcome!='finished'}"
    yield (
        "Not answered, by where clients are",
        "reqps",
        {"{{zone}} {{outcome}}": rate % ("zone, outcome", failed)},
        (),
    )
    for way in ("input", "output"):
        yield (
            f"Tokens of {way}",
            "short",
            {"{{class}}": rate % ("class", f"twofold_{way}_tokens_total")},
            (),
        )
    ready = {"ready": "twofold_replicas_ready", "known": "twofold_replicas"}
    yield "Replicas", "short", ready, ()
    yield "Requests by replica", "short", {"{{replica}}": "twofold_replica_requests_in_flight"}, ()
    more = {
        "hedges": "rate(twofold_hedges_total[$__rate_interval])",
        "retries": "rate(twofold_retries_total[$__rate_interval])",
        "degrade level": "twofold_degrade_level",
        "share of {{version}}": "twofold_release_share",
    }
    yield "Attempts, overload and releases", "short", more, ()


def _memory_pictures(checkpoint_s: float | None) -> Iterator[Picture]:
    """With the thresholds of the alarms."""
    yield "Memory taken, share", "percentunit", {"{{instance}}": MEMORY_TAKEN}, (MOST_TAKEN,)
    fragmented = {"{{process}}": "twofold_memory_fragmented_fraction"}
    yield "Memory held in no use, share", "percentunit", fragmented, (MOST_FRAGMENTED,)
    cached = {"{{replica}}": "twofold_replica_kv_used_fraction"}
    yield "KV cache used, share", "percentunit", cached, (MOST_CACHED,)
    late = () if checkpoint_s is None else (LATE_RATIO * checkpoint_s,)
    yield "Last checkpoint", "s", {"seconds": "twofold_checkpoint_seconds"}, late


def _panel(
    number: int, title: str, unit: str, queries: Mapping[str, str], goals: tuple[float, ...]
) -> Mapping[str, Any]:
    steps = [{"color": "green", "value": None}, *({"color": "red", "value": goal} for goal in goals)]
    custom = {"thresholdsStyle": {"mode": "line" if goals else "off"}}
    thresholds = {"mode": "absolute", "steps": steps}
    source = {"type": "prometheus", "uid": "$source"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "gridPos": {
            "x": number % COLUMNS * WIDTH,
            "y": number // COLUMNS * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {
            "defaults": {"unit": unit, "custom": custom, "thresholds": thresholds},
            "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend, "datasource": source}
            for place, (legend, query) in enumerate(queries.items())
        ],
    }
