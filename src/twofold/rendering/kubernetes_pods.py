"""What pods of both halves have in common: containers, devices, volumes and secrets by reference."""

from collections.abc import Sequence
from math import ceil

from twofold.contracts.results.parts import Machine
from twofold.rendering.commands import Command, Option
from twofold.rendering.devices import PRODUCT, image_vendor, plugin_name, product_label
from twofold.rendering.given import Given
from twofold.rendering.hosts import share_of
from twofold.rendering.records import ServedPool, label
from twofold.rendering.runtimes import engine_version, runtime_of
from twofold.rendering.slices import VGPU_LABEL, slice_of
from twofold.rendering.starting import start_limit
from twofold.rendering.yaml_text import Node, Object, Said

NAME = "app.kubernetes.io/name"
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
INSTANCE = "node.kubernetes.io/instance-type"
GROUP = "leaderworkerset.sigs.k8s.io/group-key"
PERIOD_S = 10  # between two probes
PRESTOP_S = 15  # until no gateway sends to a pod that ends
UNKNOWN_ANSWER_S = 120.0
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
VALLEYS = "in-valleys"  # the priority of what works when others ask least


def labels(name: str, given: Given) -> dict[str, Node]:
    """What objects of one pool or run are found by."""
    return {NAME: name, "app.kubernetes.io/part-of": label(given.plan.name)}


def named(kind: str, version: str, name: str, given: Given, **more: Node) -> dict[str, Node]:
    """The head of an object."""
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "labels": labels(name, given), **more},
    }


def devices(machine: Machine, count: int, at: str, given: Given) -> dict[str, Node]:
    """What a pod asks of its node: accelerators, and their share of the rest as far as it is known.

    Without requests a pod is the first to be ended where its node runs out of memory.
    """
    plugin, share = plugin_name(machine.accelerator, given.devices), share_of(machine, count, given)
    found: dict[str, Node] = {}
    if share is not None:
        found["requests"] = {
            "cpu": Said(share.cpu_count, share.because_cpu),
            "memory": Said(f"{share.memory_gib}Gi", share.because_memory),
        }
    if plugin:
        found["limits"] = {plugin: Said(count, at)}
    return {"resources": found} if found else {}


def placement(machine: Machine, at: str, given: Given) -> dict[str, Node]:
    """Which nodes a pod may stand on."""
    plugin = plugin_name(machine.accelerator, given.devices)
    found: dict[str, Node] = {}
    if chosen := node_labels(machine, at):
        found["nodeSelector"] = chosen
    part = slice_of(machine.accelerator, given)
    if part is not None and part.kind == "vgpu":
        # The node is a virtual machine, which the instance that it is cut out of does not name.
        found["nodeSelector"] = {VGPU_LABEL: Said("true", f"{at}.accelerator")}
    if plugin:
        whole = plugin if "/mig-" not in plugin else "nvidia.com/gpu"
        found["tolerations"] = [{"key": whole, "operator": "Exists", "effect": "NoSchedule"}]
    return found


def node_labels(machine: Machine, at: str) -> dict[str, Node]:
    """Of the instances that are rented, else of nodes with these devices; none where nothing is known."""
    if machine.price is not None:
        return {INSTANCE: Said(machine.price.instance, f"{at}.price.instance")}
    product = product_label(machine.accelerator)
    return {PRODUCT: Said(product, f"{at}.accelerator")} if product else {}


def unknown_nodes(machine: Machine, given: Given) -> list[str]:
    """A line of a file's head where a pod may stand on nodes with any devices of the same plugin."""
    plugin = plugin_name(machine.accelerator, given.devices)
    if not plugin or "/mig-" in plugin or node_labels(machine, ""):
        return []
    return [f"which nodes: no label is known of those with {machine.accelerator}; add a nodeSelector"]


def alone(machine: Machine, name: str, given: Given) -> dict[str, Node]:
    """Pods on processors have their node to themselves, as far as it is ours."""
    if plugin_name(machine.accelerator, given.devices):
        return {}
    chosen: Object = {"labelSelector": {"matchLabels": {NAME: name}}, "topologyKey": HOST}
    return {"podAntiAffinity": {REQUIRED: [chosen]}}


def volumes(*claims: str) -> list[Node]:
    """Claims that are there already, and the shared memory that processes of a pod talk through."""
    kept: list[Node] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return [*kept, {"name": "shm", "emptyDir": {"medium": "Memory"}}]


def mounts(*claims: str) -> list[Node]:
    """Where a container finds them."""
    kept: list[Node] = [{"name": each, "mountPath": f"/{each}"} for each in claims]
    return [*kept, {"name": "shm", "mountPath": "/dev/shm"}]


def hub_variables() -> list[Node]:
    """Where what comes from the hub is kept, and its token by reference."""
    secret: dict[str, Node] = {"name": "hub-token", "key": "token", "optional": True}
    token: Node = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": secret}}
    return [{"name": "HF_HOME", "value": "/weights"}, token]


def weights_of(model: str, given: Given) -> list[Node]:
    """Where a model's weights are: a hub's repository kept on the volume, or a folder of it."""
    return [{"name": given.weights.variable(model), "value": source_of(model, given)}, *hub_variables()]


def source_of(model: str, given: Given, *, in_folder: bool = False) -> Said:
    """The repository, or a folder on the volume; `in_folder`: for software that reads no repository."""
    known = "" if in_folder else given.weights.repositories.get(model, "")
    if known:
        return Said(known, given.weights.because(model))
    filled = f" with {model}" if "/" in model else ""
    return Said(f"/weights/{label(*model.split('/'))}", f"a folder that you fill{filled}")


def container_words(options: Sequence[Option]) -> list[Node]:
    """Options as a container's arguments; a shell's variable becomes one that Kubernetes fills in."""
    found: list[Node] = []
    for option in options:
        *first, last = [container_word(word) for word in option.words]
        found += [*first, Said(last, option.because)]
    return found


def container_word(word: str) -> str:
    """One word; what Kubernetes would fill in and nobody meant is escaped."""
    if word.startswith('"$') and word.endswith('"'):
        return f"$({word[2:-1]})"
    return word.replace("$(", "$$(") if not word.startswith("$(LWS_") else word


def serving_pod(
    pool: ServedPool, given: Given, command: Command, beside: Sequence[Option], more: Object
) -> dict[str, Node]:
    """A server of a replica; `more` is what its container has beside."""
    machine, at = pool.service.machine, f"serving.{pool.service.name}"
    count = ceil(pool.pool.replica.accelerator_count / pool.nodes_per_replica)
    known = [each.percentiles["e2e_p99"].high for each in pool.classes if "e2e_p99" in each.percentiles]
    answer_s = max(known, default=UNKNOWN_ANSWER_S)
    image = engine_image(pool, given)
    claims = () if pool.is_own else ("weights",)
    container: dict[str, Node] = {
        "name": "engine",
        "image": Said(image, "yours: `newName` in kustomization.yaml") if pool.is_own else image,
        **_started(pool, given, command, beside),
        **devices(machine, count, f"{pool.at}.replica.accelerator_count", given),
        "volumeMounts": mounts(*claims),
        "securityContext": {"allowPrivilegeEscalation": False},
        **more,
    }
    ends = Said(PRESTOP_S + ceil(answer_s), f"{at}.classes: the longest e2e_p99, and the gateway's delay")
    return {
        "automountServiceAccountToken": False,
        **({"priorityClassName": VALLEYS} if in_valleys(pool) else {}),
        "terminationGracePeriodSeconds": ends,
        **placement(machine, f"{at}.machine", given),
        "containers": [container],
        "volumes": volumes(*claims),
    }


def _started(pool: ServedPool, given: Given, command: Command, beside: Sequence[Option]) -> dict[str, Node]:
    """How a container's program is called and what it is told; an image of the user's own starts its own."""
    if pool.is_own:
        return {"env": _variables(command)}
    return {
        "command": [container_word(word) for word in command.program],
        "args": container_words([*command.options, *beside]),
        "env": [*weights_of(pool.weights, given), *_variables(command)],
    }


def _variables(command: Command) -> list[Node]:
    return [{"name": each.flag, "value": Said(each.value, each.because)} for each in command.variables]


def in_valleys(pool: ServedPool) -> bool:
    """Whether it works only when others ask least, on their machines."""
    return set(pool.pool.classes) <= set(pool.service.in_valleys)


def engine_image(pool: ServedPool, given: Given) -> str:
    """With the version that the plan has; where it has none, kustomize adds the tag.

    An image of the user's own is called as its pool is, until kustomize gives it its name.
    """
    if pool.is_own:
        return pool.name
    vendor = image_vendor(pool.service.machine.accelerator, given.devices)
    image, version = runtime_of(pool).image(vendor), engine_version(pool)
    return f"{image}:v{version}" if version else image


def answering(pool: ServedPool, given: Given) -> Object:
    """What the container that answers has: a port, probes, time for the gateway to turn away."""
    (limit_s, because), path = start_limit(pool, given), runtime_of(pool).health_path
    tries = Said(ceil(limit_s / PERIOD_S) + 1, f"{limit_s} s by tens: {because}")
    asked: Object = {"httpGet": {"path": path, "port": "http"}, "periodSeconds": PERIOD_S}
    return {
        "ports": [{"name": "http", "containerPort": Said(pool.port, "one for each pool")}],
        "startupProbe": {**asked, "failureThreshold": tries},
        "readinessProbe": {**asked, "failureThreshold": 2},
        "livenessProbe": {**asked, "timeoutSeconds": 5, "failureThreshold": 6},
        "lifecycle": {"preStop": {"sleep": {"seconds": PRESTOP_S}}},
    }
