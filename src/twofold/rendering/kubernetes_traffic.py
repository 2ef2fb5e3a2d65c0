"""What stands around the replicas of a pool: who must stay, who reaches them, scaling, the route, alarms."""

from twofold.contracts.results.serving import ClassPlan, SloOutcome
from twofold.rendering.burn_rates import Promise, rules_of
from twofold.rendering.given import Given
from twofold.rendering.kubernetes_pods import NAME, named
from twofold.rendering.kubernetes_serving import STABLE, answers, workload
from twofold.rendering.records import ServedPool
from twofold.rendering.runtimes import COUNTS, Histogram, runtime_of
from twofold.rendering.scaling import Scale, scale_of
from twofold.rendering.yaml_text import Node, Object, Said

GATEWAY = "inference-gateway"
PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"
PICKER_PORT = 9002
CALM_S = 300.0  # that fewer replicas must have been enough for
MAY_CALL = {"calls-inference": "true"}  # the label of namespaces with the gateway and Prometheus
DNS: Object = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
HTTPS: Object = {"ports": [{"protocol": "TCP", "port": 443}]}


def around(pool: ServedPool, given: Given) -> tuple[Object, ...]:
    """Every object of a pool beside its replicas and its alarms."""
    scale = scale_of(pool)
    scaled = (_scaled(pool, given, scale),) if scale and runtime_of(pool).histograms else ()
    kind = _service if pool.is_own else _pool
    pools = (
        kind(pool, given, pool.name, STABLE),
        kind(pool, given, f"{pool.name}-canary", {"release": "canary"}),
    )
    return _kept(pool, given), _reached(pool, given), *scaled, *pools, _route(pool, given)


def _kept(pool: ServedPool, given: Given) -> Object:
    """Nodes are drained no faster than the plan has spares."""
    least = pool.pool.replica_count - pool.pool.spare_count
    return {
        **named("PodDisruptionBudget", "policy/v1", pool.name, given),
        "spec": {
            "minAvailable": Said(least, f"{pool.at}.replica_count less spare_count"),
            "selector": {"matchLabels": answers(pool)},
        },
    }


def _reached(pool: ServedPool, given: Given) -> Object:
    """Requests from the gateway, series to Prometheus, weights from the hub; servers of a replica freely."""
    own: Object = {"podSelector": {"matchLabels": {NAME: pool.name}}}
    callers: Node = [{"namespaceSelector": {"matchLabels": MAY_CALL}}, {"podSelector": {}}]
    into: list[Node] = [{"from": callers, "ports": [{"protocol": "TCP", "port": "http"}]}]
    out: list[Node] = [DNS, HTTPS]
    if pool.nodes_per_replica > 1:
        into.append({"from": [own]})
        out.append({"to": [own]})
    return {
        **named("NetworkPolicy", "networking.k8s.io/v1", pool.name, given),
        "spec": {**own, "policyTypes": ["Ingress", "Egress"], "ingress": into, "egress": out},
    }


def _scaled(pool: ServedPool, given: Given, scale: Scale) -> Object:
    """Replicas by requests/s, spares added to what is asked for."""
    series = runtime_of(pool).histograms["ttft"].name
    spares = scale.spare_count * scale.per_replica_per_s
    query = f"sum(rate({series}_count{{{selector(pool)}}}[2m])) + {spares:.10g}"
    start = pool.service.cold_start_s
    calm = Said(
        round(max(CALM_S, start.high if start else 0.0)),
        f"serving.{pool.service.name}.cold_start_s, at least {CALM_S:.0f}",
    )
    asked: dict[str, Node] = {
        "serverAddress": PROMETHEUS,
        "query": Said(query, f"first tokens a second, and {pool.at}.spare_count × the threshold"),
        "threshold": Said(f"{scale.per_replica_per_s:.10g}", scale.because_rate),
    }
    return {
        **named("ScaledObject", "keda.sh/v1alpha1", pool.name, given),
        "spec": {
            "scaleTargetRef": workload(pool),
            "minReplicaCount": Said(scale.least_count, f"{scale.because_least}, with spares"),
            "maxReplicaCount": Said(scale.most_count, f"{pool.at}.replica_count"),
            "fallback": {
                "failureThreshold": 3,
                "replicas": Said(scale.most_count, f"{pool.at}.replica_count"),
            },
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "behavior": {"scaleDown": {"stabilizationWindowSeconds": calm}}
                }
            },
            "triggers": [{"type": "prometheus", "metadata": asked}],
        },
    }


def _pool(pool: ServedPool, given: Given, name: str, release: dict[str, Node]) -> Object:
    """Pods that the gateway chooses among by their queues and caches; the picker is deployed beside."""
    return {
        **named("InferencePool", "inference.networking.k8s.io/v1", name, given),
        "spec": {
            "selector": {"matchLabels": {**answers(pool), **release}},
            "targetPorts": [{"number": Said(pool.port, "one for each pool")}],
            "endpointPickerRef": {"name": f"{pool.name}-picker", "port": {"number": PICKER_PORT}},
        },
    }


def _service(pool: ServedPool, given: Given, name: str, release: dict[str, Node]) -> Object:
    """The same where no picker knows the server's queues: pods in turn."""
    port: Node = {"name": "http", "port": Said(pool.port, "one for each pool"), "targetPort": "http"}
    return {
        **named("Service", "v1", name, given),
        "spec": {"selector": {**answers(pool), **release}, "ports": [port]},
    }


def _route(pool: ServedPool, given: Given) -> Object:
    """All to the stable release; classes are told apart by a header where pools are several."""
    stable = _backend(pool, pool.name, Said(100, "in per cent: with a canary 99, 90, 50, then 0"))
    said = "1, 10, 50, 100: a copy of the replicas with `release: canary`"
    said += "; the quota has room for one beside the plan's, then move them over"
    canary = _backend(pool, f"{pool.name}-canary", Said(0, said))
    rule: dict[str, Node] = {"backendRefs": [stable, canary]}
    if len(given.pools) > 1:
        rule = {"matches": [{"headers": [each]} for each in _headers(pool)], **rule}
    return {
        **named("HTTPRoute", "gateway.networking.k8s.io/v1", pool.name, given),
        "spec": {"parentRefs": [{"name": GATEWAY}], "rules": [rule]},
    }


def _headers(pool: ServedPool) -> list[Node]:
    return [
        {
            "name": "x-class",
            "value": Said(f"{pool.service.name}.{name}", f"serving.{pool.service.name}.classes.{name}.name"),
        }
        for name in pool.pool.classes
    ]


def _backend(pool: ServedPool, name: str, weight: Said) -> Object:
    if pool.is_own:
        return {
            "kind": "Service",
            "name": name,
            "port": Said(pool.port, "one for each pool"),
            "weight": weight,
        }
    return {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": name, "weight": weight}


def selector(pool: ServedPool) -> str:
    """Series of a pool in Prometheus, by the label that its PodMonitor adds."""
    return f'app_kubernetes_io_name="{pool.name}"'


def monitor(pool: ServedPool, given: Given) -> Object:
    """What Prometheus reads the engine's series from."""
    read: dict[str, Node] = {
        "port": "http",
        "path": Said(runtime_of(pool).metrics_path, COUNTS),
        "interval": "15s",
    }
    return {
        **named("PodMonitor", "monitoring.coreos.com/v1", pool.name, given),
        "spec": {
            "selector": {"matchLabels": answers(pool)},
            "podTargetLabels": [NAME],
            "podMetricsEndpoints": [read],
        },
    }


def alarms(pool: ServedPool, given: Given) -> tuple[Object, ...]:
    """A rule for each promised percentile of latency that the engine counts; nothing where it counts none."""
    histograms, rules = runtime_of(pool).histograms, list[Node]()
    for each in pool.classes:
        for slo in each.slos:
            if (kind := slo.metric.partition("_")[0]) in histograms:
                rules += rules_of(_promise(pool, each, slo, histograms[kind]))
    if not rules:
        return ()
    spec: dict[str, Node] = {"groups": [{"name": pool.name, "rules": rules}]}
    return ({**named("PrometheusRule", "monitoring.coreos.com/v1", pool.name, given), "spec": spec},)


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
