"""A run on Kubernetes: a JobSet that a queue admits whole, and the queues with the quota of the plan."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import ceil, sqrt

from twofold.rendering.devices import plugin_name
from twofold.rendering.given import Given
from twofold.rendering.hosts import Share, share_of
from twofold.rendering.kubernetes_pods import (
    NAME,
    alone,
    devices,
    hub_variables,
    labels,
    mounts,
    named,
    node_labels,
    placement,
    source_of,
    volumes,
)
from twofold.rendering.kubernetes_traffic import DNS, HTTPS
from twofold.rendering.records import TrainedRun, label
from twofold.rendering.scripts import asked_by, run_files, used_by
from twofold.rendering.trainers import READ_FOLDERS
from twofold.rendering.yaml_text import Node, Object, Said

FILES = "/run/plan"  # in pods, what lies beside the manifests
MOST = 63  # characters of a name
LAST_Z = 3.09  # normal deviate that one in a thousand lies above
ROOM_S = 30.0  # to end in after a checkpoint
QUEUE = "kueue.x-k8s.io/queue-name"
IMAGES = {"AMD": "rocm/pytorch", "NVIDIA": "nvcr.io/nvidia/pytorch"}
OTHER_IMAGE = "pytorch/pytorch"
CLAIMS = ("checkpoints", "data", "weights")
PODS = "pods"  # what a queue counts where no plugin counts devices
CPU, MEMORY = "cpu", "memory"


def job_set(run: TrainedRun, given: Given) -> Object:
    """All nodes of a run: started together, restarted together, told to save before they end."""
    machine = run.run.machine
    nodes = Said(machine.node_count, f"{run.at}.machine.node_count")
    job: dict[str, Node] = {
        "parallelism": nodes,
        "completions": nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"metadata": {"labels": labels(run.name, given)}, "spec": _pod(run, given)},
    }
    head = named("JobSet", "jobset.x-k8s.io/v1alpha2", run.name, given)
    queue: Node = {**labels(run.name, given), QUEUE: label(given.plan.name)}
    return {
        **head,
        "metadata": {"name": run.name, "labels": queue},
        "spec": {
            "network": {"enableDNSHostnames": True},
            "failurePolicy": {"maxRestarts": restarts(run)},
            "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}],
        },
    }


def restarts(run: TrainedRun) -> Said:
    """Restarts that one run in a thousand exceeds: the next failure would end it.

    Formula  m + z·√m + (z² - 1) / 6, rounded up
    Why      failures come at random around the planned count m, at its upper end; the thousandth quantile of
             a Poisson count, with the first term of Cornish and Fisher for its skew
    """
    most = run.run.run.interruptions.high
    count = ceil(most + LAST_Z * sqrt(most) + (LAST_Z**2 - 1.0) / 6.0)
    said = "its upper end, and what 1 run in 1,000 exceeds; the next failure ends the run"
    return Said(count, f"{run.at}.run.interruptions: {said}")


def _pod(run: TrainedRun, given: Given) -> Object:
    machine = run.run.machine
    save_s = run.run.run.checkpoints.write_s
    container: dict[str, Node] = {
        "name": "trainer",
        "image": training_image(run, given),
        "command": ["bash", f"{FILES}/{run.name}.sh"],
        **environment(run, given, *_ranks(run)),
        **devices(machine, machine.accelerators_per_node, f"{run.at}.machine.accelerators_per_node", given),
        "volumeMounts": [{"name": "plan", "mountPath": FILES}, *mounts(*CLAIMS)],
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    apart = alone(machine, run.name, given)
    kept: Node = {"name": "plan", "configMap": {"name": f"{run.name}-files"}}
    return {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": Said(
            ceil(save_s + ROOM_S), f"{run.at}.run.checkpoints.write_s and {ROOM_S:.0f} s to end in"
        ),
        **placement(machine, f"{run.at}.machine", given),
        **({"affinity": apart} if apart else {}),
        "containers": [container],
        "volumes": [kept, *volumes(*CLAIMS)],
    }


def environment(run: TrainedRun, given: Given, *more: Node) -> Object:
    """What the script of a run reads: what the claims have, and a config map of what only its owner knows.

    A pod waits for the map where the script cannot do without.
    """
    known, settings = _variables(run, given)
    optional: dict[str, Node] = {} if settings else {"optional": True}
    values: list[Node] = [{"name": name, "value": value} for name, value in known.items()]
    return {
        "env": [*values, *hub_variables(), *more],
        "envFrom": [{"configMapRef": {"name": f"{run.name}-settings", **optional}}],
    }


def settings_needed(run: TrainedRun, given: Given) -> list[str]:
    """A line for each variable of that map."""
    kept = f"config map `{run.name}-settings`"
    return [f"needs in the {kept}: {name}, {what}" for name, what in _variables(run, given)[1].items()]


def _variables(run: TrainedRun, given: Given) -> tuple[dict[str, Node], dict[str, str]]:
    """Of what the script reads that which the claims have, and what it asks for beyond."""
    script, weights = run_files(run, given)[0], given.weights.variable(run.weights)
    in_folder = run.run.framework in READ_FOLDERS
    claimed: dict[str, Node] = {
        "FILES": FILES,
        "DATA": "/data",
        "CHECKPOINTS": f"/checkpoints/{run.name}",
        "RUNS": Said("/checkpoints", "each run has a folder in it"),
        "TOKENIZER": Said("/weights/tokenizer", "a folder that you fill"),
        weights: source_of(run.weights, given, in_folder=in_folder),
    }
    used, asked = used_by(script), asked_by(script)
    known = {name: value for name, value in claimed.items() if name in used}
    return known, {name: what for name, what in asked.items() if name not in known}


def _ranks(run: TrainedRun) -> list[Node]:
    """Which node this is, and which is the first."""
    path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return [
        {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": path}}},
        {"name": "MASTER_ADDR", "value": f"{run.name}-node-0-0.{run.name}"},
    ]


def training_image(run: TrainedRun, given: Given) -> str:
    """One with PyTorch for the devices; the training software is yours to add."""
    found = given.devices.get(run.run.machine.accelerator)
    return IMAGES.get(found.vendor, OTHER_IMAGE) if found else OTHER_IMAGE


def reached(run: TrainedRun, given: Given) -> Object:
    """Nodes of a run reach each other, names and the hub."""
    own: Object = {"podSelector": {"matchLabels": {NAME: run.name}}}
    out: list[Node] = [{"to": [own]}, DNS, HTTPS]
    return {
        **named("NetworkPolicy", "networking.k8s.io/v1", run.name, given),
        "spec": {**own, "policyTypes": ["Ingress", "Egress"], "ingress": [{"from": [own]}], "egress": out},
    }


def queues(given: Given) -> tuple[Object, ...]:
    """A queue of the namespace, and one of the cluster that holds what the runs of the plan take."""
    name = label(given.plan.name)
    by_kind = {kind: list(runs) for kind, runs in groupby(sorted(given.runs, key=_flavor), key=_flavor)}
    flavors = [_flavor_object(kind, runs[0], given) for kind, runs in by_kind.items()]
    held = _groups(by_kind, given)
    return (
        *flavors,
        {
            **named("ClusterQueue", "kueue.x-k8s.io/v1beta2", name, given),
            "spec": {"namespaceSelector": {}, "resourceGroups": held},
        },
        {**named("LocalQueue", "kueue.x-k8s.io/v1beta2", name, given), "spec": {"clusterQueue": name}},
    )


def _groups(by_kind: Mapping[str, Sequence[TrainedRun]], given: Given) -> list[Node]:
    """Quotas by resource. A queue admits only what it covers, and has each resource in one group alone.

    So where pods ask for processors and memory all kinds of nodes are one group, each with all resources.
    """
    counted = {kind: _counted(runs[0], given) for kind, runs in by_kind.items()}
    asked = [
        resource for resource in (CPU, MEMORY) if any(_share(runs[0], given) for runs in by_kind.values())
    ]
    own = dict.fromkeys(counted.values())
    together = [[*own, *asked]] if asked else [[resource] for resource in own]
    return [
        {
            "coveredResources": [*covered],
            "flavors": [
                {"name": kind, "resources": [_quota(runs, each, given) for each in covered]}
                for kind, runs in by_kind.items()
                if counted[kind] in covered
            ],
        }
        for covered in together
    ]


def _counted(run: TrainedRun, given: Given) -> str:
    return plugin_name(run.run.machine.accelerator, given.devices) or PODS


def _share(run: TrainedRun, given: Given) -> Share | None:
    machine = run.run.machine
    return share_of(machine, machine.accelerators_per_node, given)


def _quota(runs: Sequence[TrainedRun], resource: str, given: Given) -> Node:
    """What runs on one kind of nodes take in all; nothing of what they do not ask for."""
    if resource in (CPU, MEMORY):
        shares = [(run, share) for run in runs if (share := _share(run, given))]
        total = sum(
            run.run.machine.node_count * (share.cpu_count if resource == CPU else share.memory_gib)
            for run, share in shares
        )
        said = " + ".join(f"{run.at}.machine.node_count" for run, _ in shares) or "none of these"
        return {"name": resource, "nominalQuota": Said(f"{total}Gi" if resource == MEMORY else total, said)}
    field = "node_count" if resource == PODS else "accelerator_count"
    taken = [run for run in runs if resource in (PODS, _counted(run, given))]
    whole = sum(getattr(run.run.machine, field) for run in taken)
    said = " + ".join(f"{run.at}.machine.{field}" for run in taken) or "none of these"
    return {"name": resource, "nominalQuota": Said(whole, said)}


def _flavor(run: TrainedRun) -> str:
    price = run.run.machine.price
    names = [label(run.run.machine.accelerator), *([label(price.instance)] if price else [])]
    return "-".join(names)[:MOST].rstrip("-")


def _flavor_object(kind: str, run: TrainedRun, given: Given) -> Object:
    nodes = node_labels(run.run.machine, f"{run.at}.machine")
    spec: dict[str, Node] = {"nodeLabels": nodes} if nodes else {}
    return {**named("ResourceFlavor", "kueue.x-k8s.io/v1beta2", kind, given), "spec": spec}
