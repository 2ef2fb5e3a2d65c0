"""The target `kubernetes`: a folder for `kubectl apply -k`, a file for each pool and run, and the shared."""

from collections import Counter

from twofold.core.errors import ValueRefusedError
from twofold.rendering.devices import plugin_name
from twofold.rendering.files import RenderedFile, head
from twofold.rendering.given import Given
from twofold.rendering.hosts import unknown_share
from twofold.rendering.kubernetes_pods import VALLEYS, engine_image, in_valleys, named, unknown_nodes
from twofold.rendering.kubernetes_serving import replicas
from twofold.rendering.kubernetes_traffic import alarms, around, monitor
from twofold.rendering.kubernetes_training import job_set, queues, reached, settings_needed, training_image
from twofold.rendering.kustomize import kustomization
from twofold.rendering.own import PROBED
from twofold.rendering.records import ServedPool, TrainedRun, apart, label
from twofold.rendering.runtimes import engine_name, runtime_of
from twofold.rendering.scaling import scale_of
from twofold.rendering.scripts import run_files
from twofold.rendering.slices import counted_as_whole, slice_of
from twofold.rendering.yaml_text import Node, Object, Said, yaml_text

LONGEST = 45  # characters of what numbers the pods of a group: they and a random end fit a label of DNS
CANARIES = 1  # replicas that a release is tried on, for each pool
QUOTA = "accelerators of all replicas and nodes of the plan, and of one canary of each pool"
NEEDS = (
    "needs in the namespace: claims `weights`, `data`, `checkpoints`; secret `hub-token` with a key `token`;",
    "  a Gateway `inference-gateway`, an endpoint picker POOL-picker for each pool; the label",
    "  `calls-inference: true` on the namespaces of the gateway and of Prometheus.",
    "needs in the cluster: JobSet, Kueue, LeaderWorkerSet, Gateway API and its inference extension, KEDA and",
    "  the Prometheus operator, as far as objects of theirs are below.",
)


def kubernetes(given: Given) -> tuple[RenderedFile, ...]:
    """Every file, `kustomization.yaml` last. Raises ValueRefusedError for what no cluster runs."""
    names = [pool.name for pool in given.pools]
    apart([*names, *(f"{name}-canary" for name in names), "kustomization"])
    groups = [pool.name for pool in given.pools if pool.nodes_per_replica > 1]
    _short([*(run.name for run in given.runs), *groups])
    beside = {run.name: run_files(run, given) for run in given.runs}
    manifests = [
        *(_served(pool, given) for pool in given.pools),
        *(_trained(run, given) for run in given.runs),
        *(_file(name, what, objects, given) for name, what, objects in _shared(given) if objects),
    ]
    images = [*(training_image(run, given) for run in given.runs)]
    images += [engine_image(pool, given) for pool in given.pools]
    paths = {name: [each.path for each in files] for name, files in beside.items()}
    needs = [
        *NEEDS,
        *_images_needed(given),
        *(line for run in given.runs for line in settings_needed(run, given)),
    ]
    last = kustomization(given, [each.path for each in manifests], paths, images, needs)
    return *manifests, *(each for files in beside.values() for each in files), last


def _short(names: list[str]) -> None:
    """Raises ValueRefusedError for a name that pods of a group have no room behind."""
    for name in names:
        if len(name) > LONGEST:
            what = f"`{name}` is too long for a group of pods, {len(name)} characters of {LONGEST}"
            raise ValueRefusedError(what, hint="shorten the `name` of the spec, the run or the service")


def _images_needed(given: Given) -> list[str]:
    """A line for each image that only its owner knows."""
    what = "a `newName`: the image of your server, which listens on PORT"
    return [f"needs below `images`, for `{pool.name}`, {what}" for pool in given.pools if pool.is_own]


def _served(pool: ServedPool, given: Given) -> RenderedFile:
    watched = (monitor(pool, given),) if runtime_of(pool).histograms else ()
    found = replicas(pool, given), *around(pool, given), *watched, *alarms(pool, given)
    return _file(pool.name, pool.title, found, given, _lost(pool, given))


def _lost(pool: ServedPool, given: Given) -> list[str]:
    """What the plan has of a pool and these objects have not."""
    lost = [PROBED] if pool.is_own else [*given.engine_command(pool).lost]
    lost += counted_as_whole(pool.service.machine.accelerator, given)
    lost += unknown_share(pool.service.machine, given)
    lost += unknown_nodes(pool.service.machine, given)
    if not runtime_of(pool).histograms:
        counting = "what your server counts is not known" if pool.is_own else ""
        lost.append(f"alarms and scaling: {counting or f'{engine_name(pool)} counts no latencies'}")
    if engine_name(pool) in ("trtllm", "tensorrt-llm"):
        lost.append("what it counts: `return_perf_metrics: true` of a file for --extra_llm_api_options")
    for each in pool.classes:
        unseen = [
            slo.metric for slo in each.slos if slo.metric.partition("_")[0] not in runtime_of(pool).histograms
        ]
        if unseen:
            lost.append(f"alarms of {', '.join(unseen)} of {each.name}: no series of the engine tells it")
    lost.append("the share of whole answers: its alarm belongs to the gateway, which sees what is refused")
    if len(pool.service.regions) > 1:
        lost.append(f"regions: a cluster of its own in each of {', '.join(pool.service.regions)}")
    if scale_of(pool) is None:
        lost.append("scaling: the plan pays for every replica all the time")
    return lost


def _trained(run: TrainedRun, given: Given) -> RenderedFile:
    machine = run.run.machine
    lost = [f"an image with {run.software}: its tag below `images` in kustomization.yaml"]
    lost += [*counted_as_whole(machine.accelerator, given), *unknown_share(machine, given)]
    lost += unknown_nodes(machine, given)
    if machine.fabric not in ("none", "ethernet") and slice_of(machine.accelerator, given) is None:
        lost.append(f"{machine.fabric}: add the resource by which your cluster gives pods its network cards")
    objects = job_set(run, given), reached(run, given)
    return _file(run.name, run.title, objects, given, lost)


def _shared(given: Given) -> list[tuple[str, str, tuple[Object, ...]]]:
    """Queues, quota and priority, each with the name of its file; empty where there is nothing."""
    below: Object = {
        **named("PriorityClass", "scheduling.k8s.io/v1", VALLEYS, given),
        "value": -10,
        "preemptionPolicy": "Never",
        "description": "Work of a day, on machines that others ask least of",
    }
    valleys = any(in_valleys(pool) for pool in given.pools)
    return [
        ("cluster_queues", "queues of the runs", queues(given) if given.runs else ()),
        ("cluster_quota", "what the plan takes in all", _quota(given)),
        ("cluster_priority", "what gives way", (below,) if valleys else ()),
    ]


def _quota(given: Given) -> tuple[Object, ...]:
    """As many accelerators as all replicas and nodes ask for, by the name of their plugin, and a canary each.

    Roll-outs take the place of spares, and need no more.
    """
    counts: Counter[str] = Counter()
    for pool in given.pools:
        plugin = plugin_name(pool.service.machine.accelerator, given.devices)
        counts[plugin] += (pool.pool.replica_count + CANARIES) * pool.pool.replica.accelerator_count
    for run in given.runs:
        counts[plugin_name(run.run.machine.accelerator, given.devices)] += run.run.machine.accelerator_count
    hard: dict[str, Node] = {
        f"requests.{plugin}": Said(count, QUOTA) for plugin, count in sorted(counts.items()) if plugin
    }
    name = label(given.plan.name)
    return ({**named("ResourceQuota", "v1", name, given), "spec": {"hard": hard}},) if hard else ()


def _file(
    name: str, what: str, objects: tuple[Object, ...], given: Given, lost: list[str] | None = None
) -> RenderedFile:
    return RenderedFile(f"{name}.yaml", yaml_text(objects, head(what, given.digest, lost or ())))
