"""The target `ray`: pools by Ray Serve's own application for LLMs, runs as Ray jobs; both on KubeRay too.

Sources  ray.serve.llm, `build_openai_app` and `LLMConfig`; RayService and RayJob of KubeRay.
"""

from collections.abc import Sequence

from twofold.contracts.results.parts import Machine
from twofold.core.errors import ValueRefusedError
from twofold.rendering.devices import plugin_name, ray_name
from twofold.rendering.engines import engine_arguments
from twofold.rendering.files import RenderedFile, head
from twofold.rendering.given import Given
from twofold.rendering.hosts import unknown_share
from twofold.rendering.kubernetes_pods import (
    devices,
    hub_variables,
    labels,
    mounts,
    named,
    placement,
    source_of,
    volumes,
)
from twofold.rendering.kubernetes_training import (
    CLAIMS,
    FILES,
    environment,
    restarts,
    settings_needed,
    training_image,
)
from twofold.rendering.kustomize import kustomization
from twofold.rendering.records import ServedPool, TrainedRun, label
from twofold.rendering.runtimes import engine_name
from twofold.rendering.scaling import scale_of
from twofold.rendering.scripts import run_files
from twofold.rendering.slices import counted_as_whole, is_mig
from twofold.rendering.yaml_text import Node, Object, Said, yaml_text

IMAGE = "rayproject/ray-llm"
HEAD_IMAGE = "rayproject/ray"
NEEDS = (
    "needs in the namespace: claims `weights`, `data`, `checkpoints`; secret `hub-token` with a key `token`.",
    "needs in the cluster: KubeRay. Without Kubernetes: serve deploy serve.yaml, and for a run",
    "  ray job submit --working-dir . -- python on_nodes.py NODES ACCELERATORS RUN.sh",
)
ON_NODES = '''"""Starts one script on every node of a run at once; the address of the first is told to all."""

import os
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

nodes, accelerators, script = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ray.init()
group = placement_group([{"CPU": 1, "GPU": accelerators}] * nodes, strategy="STRICT_SPREAD")
ray.get(group.ready())


def on(rank):
    own = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
    return {"num_cpus": 1, "num_gpus": accelerators, "max_retries": 0, "scheduling_strategy": own}


@ray.remote
def address():
    return ray.util.get_node_ip_address()


@ray.remote
def start(rank, first):
    environment = {**os.environ, "NODE_RANK": str(rank), "MASTER_ADDR": first}
    return subprocess.call(["bash", script], env=environment)


first = ray.get(address.options(**on(0)).remote())
codes = ray.get([start.options(**on(rank)).remote(rank, first) for rank in range(nodes)])
sys.exit(max(codes, key=abs))
'''


def ray(given: Given) -> tuple[RenderedFile, ...]:
    """A Serve config and a RayService of the pools, and a RayJob for each run.

    Raises ValueRefusedError where no pool is served by vLLM and nothing is trained.
    """
    served = [pool for pool in given.pools if engine_name(pool) == "vllm"]
    if not served and not given.runs:
        hint = "write `engine: vllm`, or render for the target `kubernetes`"
        raise ValueRefusedError("Ray Serve runs vLLM, the plan has other engines", hint=hint)
    serving = _serving(served, given) if served else ()
    beside = {run.name: run_files(run, given) for run in given.runs}
    manifests = [*serving[1:], *(_job(run, given) for run in given.runs)]
    start = (RenderedFile("on_nodes.py", ON_NODES),) if given.runs else ()
    paths = {name: ["on_nodes.py", *(each.path for each in files)] for name, files in beside.items()}
    images = [*([IMAGE] if served else []), *([HEAD_IMAGE] if given.runs else [])]
    images += [training_image(run, given) for run in given.runs]
    needs = [*NEEDS, *(line for run in given.runs for line in settings_needed(run, given))]
    last = kustomization(given, [each.path for each in manifests], paths, images, needs, _left_out(given))
    scripts = [each for files in beside.values() for each in files]
    return *serving[:1], *manifests, *start, *scripts, last


def _serving(pools: Sequence[ServedPool], given: Given) -> tuple[RenderedFile, ...]:
    lost = [line for pool in pools for line in _lost(pool, given)]
    lost += _left_out(given)
    config = yaml_text(
        [{"applications": [_application(pool, given, alone=len(pools) == 1) for pool in pools]}]
    )
    lines = head(f"{given.plan.name}: serve deploy serve.yaml", given.digest, lost)
    groups: Node = [
        _workers(
            label(service.name),
            service.machine,
            f"serving.{service.name}.machine",
            given,
            IMAGE,
            {"env": hub_variables()},
        )
        for service in {pool.service.name: pool.service for pool in pools}.values()
    ]
    cluster: Node = {"headGroupSpec": _head(IMAGE), "workerGroupSpecs": groups}
    service: Object = {
        **named("RayService", "ray.io/v1", label(given.plan.name), given),
        "spec": {"serveConfigV2": config, "rayClusterConfig": cluster},
    }
    said = head(f"{given.plan.name}: the same on KubeRay", given.digest, lost)
    whole = "".join(f"{line}\n" for line in lines) + config
    return RenderedFile("serve.yaml", whole), RenderedFile("rayservice.yaml", yaml_text([service], said))


def _application(pool: ServedPool, given: Given, *, alone: bool) -> Object:
    """One application for each pool: two of the same model would not have two names in one."""
    command, model = given.engine_command(pool), pool.pool.model
    device = ray_name(pool.service.machine.accelerator)
    config: dict[str, Node] = {
        "model_loading_config": {
            "model_id": Said(model, f"{pool.at}.model"),
            "model_source": source_of(pool.weights, given),
        },
        **(
            {"accelerator_type": Said(device, f"serving.{pool.service.name}.machine.accelerator")}
            if device
            else {}
        ),
        "deployment_config": _replicas(pool),
        "engine_kwargs": engine_arguments(command),
    }
    return {
        "name": pool.name,
        "import_path": "ray.serve.llm:build_openai_app",
        "route_prefix": "/" if alone else f"/{pool.name}",
        "args": {"llm_configs": [config]},
    }


def _replicas(pool: ServedPool) -> Object:
    """As many as the plan has, or by the requests that one answers at a time."""
    count, scale = Said(pool.pool.replica_count, f"{pool.at}.replica_count"), scale_of(pool)
    most = Said(pool.pool.replica.max_batch, f"{pool.at}.replica.max_batch")
    if scale is None:
        return {"num_replicas": count, "max_ongoing_requests": most}
    held_s = max(
        (each.percentiles["e2e_p50"].value for each in pool.classes if "e2e_p50" in each.percentiles),
        default=1.0,
    )
    ongoing = min(pool.pool.replica.max_batch, max(1, round(scale.per_replica_per_s * held_s)))
    said = f"{scale.because_rate}, times e2e_p50 of {held_s:.3g} s"
    scaled: Node = {
        "min_replicas": Said(scale.least_count, f"{scale.because_least}, with spares"),
        "max_replicas": count,
        "target_ongoing_requests": Said(ongoing, said),
    }
    return {"autoscaling_config": scaled, "max_ongoing_requests": most}


def _lost(pool: ServedPool, given: Given) -> list[str]:
    lost = [f"{pool.name}: {line}" for line in given.engine_command(pool).lost]
    lost += [f"{pool.name}: {line}" for line in counted_as_whole(pool.service.machine.accelerator, given)]
    lost += [f"{pool.name}: {line}" for line in unknown_share(pool.service.machine, given)]
    if not ray_name(pool.service.machine.accelerator):
        lost.append(
            f"{pool.name}: Ray has no name for {pool.service.machine.accelerator}; nodes are not told apart"
        )
    if pool.pool.spare_count and scale_of(pool) is not None:
        lost.append(
            f"{pool.name}: its {pool.pool.spare_count} spares stand only at the least and at the most"
        )
    if pool.service.zones > 1:
        lost.append(
            f"{pool.name}: {pool.service.zones} zones: Ray spreads replicas over nodes, not over zones"
        )
    return lost


def _left_out(given: Given) -> list[str]:
    others = [pool.name for pool in given.pools if engine_name(pool) != "vllm"]
    return [f"{name}: Ray Serve's application for LLMs runs vLLM" for name in others]


def _job(run: TrainedRun, given: Given) -> RenderedFile:
    """A cluster for the run, and what starts its script on every node."""
    machine, at = run.run.machine, f"{run.at}.machine"
    own: Object = {"name": "plan", "configMap": {"name": f"{run.name}-files"}}
    accelerators = machine.accelerators_per_node if plugin_name(machine.accelerator, given.devices) else 0
    start = f"python {FILES}/on_nodes.py {machine.node_count} {accelerators} {FILES}/{run.name}.sh"
    image, variables = training_image(run, given), environment(run, given)
    job: Object = {
        **named("RayJob", "ray.io/v1", run.name, given),
        "spec": {
            "entrypoint": start,
            "backoffLimit": restarts(run),
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": {
                "headGroupSpec": _head(HEAD_IMAGE, own),
                "workerGroupSpecs": [_workers("node", machine, at, given, image, variables, own)],
            },
        },
    }
    lost = [
        f"an image with {run.software} and Ray: its tag below `images` in kustomization.yaml",
        "a checkpoint before the job is ended: Ray waits for none, the last one is what is left",
        *counted_as_whole(machine.accelerator, given),
        *unknown_share(machine, given),
    ]
    what = f"{run.run.name}: {machine.node_count} × {machine.accelerators_per_node} {machine.accelerator}"
    return RenderedFile(f"{run.name}-job.yaml", yaml_text([job], head(what, given.digest, lost)))


def _head(image: str, *own: Object) -> Object:
    container: dict[str, Node] = {"name": "ray-head", "image": image}
    pod: dict[str, Node] = {"containers": [container]}
    if own:
        container["volumeMounts"] = [{"name": "plan", "mountPath": FILES}]
        pod["volumes"] = [*own]
    return {"rayStartParams": {"num-cpus": "0"}, "template": {"spec": pod}}


def _workers(
    name: str, machine: Machine, at: str, given: Given, image: str, variables: Object, *own: Object
) -> Object:
    """The nodes of a run or service, one pod each."""
    count = Said(machine.node_count, f"{at}.node_count")
    claims = CLAIMS if own else ("weights",)
    container: dict[str, Node] = {
        "name": "ray-worker",
        "image": image,
        **variables,
        **devices(machine, machine.accelerators_per_node, f"{at}.accelerators_per_node", given),
        "volumeMounts": [*({"name": "plan", "mountPath": FILES} for _ in own), *mounts(*claims)],
    }
    pod: Node = {
        **placement(machine, at, given),
        "containers": [container],
        "volumes": [*own, *volumes(*claims)],
    }
    template: Node = {"metadata": {"labels": labels(name, given)}, "spec": pod}
    sizes: dict[str, Node] = {"replicas": count, "minReplicas": count, "maxReplicas": count}
    # What Kubernetes calls a slice Ray does not count as a GPU unless it is told.
    counted: dict[str, Node] = {"num-gpus": str(machine.accelerators_per_node)}
    start = counted if is_mig(machine.accelerator, given) else {}
    return {"groupName": name, **sizes, "rayStartParams": start, "template": template}
