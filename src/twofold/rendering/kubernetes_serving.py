"""Replicas of a pool on Kubernetes: a Deployment, or a LeaderWorkerSet where one takes several servers."""

from collections.abc import Sequence

from twofold.core.errors import ValueRefusedError
from twofold.rendering.commands import Option
from twofold.rendering.given import Given
from twofold.rendering.kubernetes_pods import (
    GROUP,
    NAME,
    REQUIRED,
    ZONE,
    alone,
    answering,
    labels,
    named,
    serving_pod,
)
from twofold.rendering.records import ServedPool
from twofold.rendering.runtimes import engine_name, over_servers, runtime_of
from twofold.rendering.yaml_text import Node, Object, Said

STABLE: dict[str, Node] = {"release": "stable"}
LEADER: dict[str, Node] = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}


def replicas(pool: ServedPool, given: Given) -> Object:
    """What keeps the replicas of a pool standing."""
    count = Said(pool.pool.replica_count, f"{pool.at}.replica_count")
    spare = Said(max(1, pool.pool.spare_count), f"{pool.at}.spare_count: a roll-out takes no others")
    if pool.nodes_per_replica == 1:
        pod = _pod(pool, given, (), answering(pool, given))
        return {
            **named("Deployment", "apps/v1", pool.name, given),
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": {NAME: pool.name, **STABLE}},
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": 0, "maxUnavailable": spare},
                },
                "template": _template(pool, given, {**pod, **_spread(pool)}),
            },
        }
    joined, others = _beside(pool)
    leader, worker = _pod(pool, given, joined, answering(pool, given)), _pod(pool, given, others, {})
    return {
        **named("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", pool.name, given),
        "spec": {
            "replicas": count,
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": spare},
            },
            "leaderWorkerTemplate": {
                "size": Said(pool.nodes_per_replica, f"{pool.at}.replica.accelerator_count over servers"),
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": _template(pool, given, {**leader, **_spread(pool)}),
                "workerTemplate": _template(pool, given, worker),
            },
        },
    }


def workload(pool: ServedPool) -> Object:
    """What scalers name the replicas of a pool by."""
    if pool.nodes_per_replica == 1:
        return {"apiVersion": "apps/v1", "kind": "Deployment", "name": pool.name}
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": pool.name}


def answers(pool: ServedPool) -> dict[str, Node]:
    """Labels of the pods that answer requests."""
    return {NAME: pool.name, **(LEADER if pool.nodes_per_replica > 1 else {})}


def _beside(pool: ServedPool) -> tuple[tuple[Option, ...], tuple[Option, ...]]:
    """Options of the leader and of the others."""
    joined = over_servers(pool, "$(LWS_WORKER_INDEX)", "$(LWS_LEADER_ADDRESS)")
    if joined is None:
        what = f"`{engine_name(pool)}` has no options for a replica over {pool.nodes_per_replica} servers"
        raise ValueRefusedError(what, hint="serve it with `engine: vllm` or `sglang`, or on larger servers")
    quiet = (Option("--headless", "", "the first server answers"),) if engine_name(pool) == "vllm" else ()
    return joined, (*joined, *quiet)


def _pod(pool: ServedPool, given: Given, beside: Sequence[Option], more: Object) -> Object:
    switches = runtime_of(pool).switches
    pod = serving_pod(pool, given, given.engine_command(pool), [*switches, *beside], more)
    affinity = alone(pool.service.machine, pool.name, given)
    if pool.nodes_per_replica > 1 and pool.service.zones > 1:  # the servers of a replica follow the first
        near: dict[str, Node] = {"labelSelector": {"matchLabels": {NAME: pool.name}}}
        near |= {"matchLabelKeys": [GROUP], "topologyKey": ZONE}
        affinity["podAffinity"] = {REQUIRED: [near]}
    return {**pod, **({"affinity": affinity} if affinity else {})}


def _spread(pool: ServedPool) -> Object:
    """Replicas evenly over the zones that the plan counts on."""
    if pool.service.zones == 1:
        return {}
    least = Said(pool.service.zones, f"serving.{pool.service.name}.zones")
    even: dict[str, Node] = {"maxSkew": 1, "minDomains": least, "topologyKey": ZONE}
    even |= {"whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": answers(pool)}}
    return {"topologySpreadConstraints": [even]}


def _template(pool: ServedPool, given: Given, pod: Object) -> Object:
    return {"metadata": {"labels": {**labels(pool.name, given), **STABLE}}, "spec": pod}
