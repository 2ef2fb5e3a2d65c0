"""The target `skypilot`: a task for each run and a service for each pool, on the offers that the plan leases.

Sources  SkyPilot's schemas of tasks and services; its clouds by the names of `infra`.
"""

import shlex
from collections.abc import Sequence
from math import ceil

from twofold.contracts.results.parts import Machine
from twofold.rendering.devices import sky_name
from twofold.rendering.files import RenderedFile, head
from twofold.rendering.given import Given
from twofold.rendering.own import PROBED
from twofold.rendering.records import ServedPool, TrainedRun
from twofold.rendering.runtimes import engine_version, over_servers, runtime_of
from twofold.rendering.scaling import scale_of
from twofold.rendering.scripts import asked_by, pool_script, run_files, used_by
from twofold.rendering.slices import made_before, slice_of, whole_count
from twofold.rendering.starting import start_limit
from twofold.rendering.yaml_text import Node, Object, Said, yaml_text

CLOUDS = (
    *("aws", "azure", "gcp", "ibm", "lambda", "oci", "runpod", "vast", "cudo", "fluidstack", "paperspace"),
    *("primeintellect", "do", "nebius", "hyperbolic", "seeweb", "shadeform", "yotta", "mithril", "verda"),
)
OWN = "k8s"  # what no cloud of SkyPilot's rents out: without an `infra` it takes the cheapest one
FABRICS = ("infiniband", "roce", "efa", "tcpx")  # that a task has to ask for
BEST_NETWORK = ("aws", "gcp", "nebius")  # clouds whose virtual machines SkyPilot joins by them
EVERYWHERE = ("", "all")  # regions of a price that holds in all of them
LEAST_DELAY_S = 1200  # SkyPilot 0.14.1: DEFAULT_INITIAL_DELAY_SECONDS of its services
SET_UP = "an image or a `setup` with your server"
FIRST_NODE = '"$(head -n1 <<< "$SKYPILOT_NODE_IPS")"'


def skypilot(given: Given) -> tuple[RenderedFile, ...]:
    """Tasks and services, and the scripts that they start."""
    files: list[RenderedFile] = []
    for pool in given.pools:
        files += [_service(pool, given), pool_script(pool, given)]
    for run in given.runs:
        files += [_task(run, given), *run_files(run, given)]
    return tuple(files)


def _service(pool: ServedPool, given: Given) -> RenderedFile:
    """Replicas of one pool behind a load balancer of their own."""
    at, servers, machine = f"serving.{pool.service.name}", pool.nodes_per_replica, pool.service.machine
    size = whole_count(machine.accelerator, ceil(pool.pool.replica.accelerator_count / servers), given)
    count = Said(size, f"{pool.at}.replica.accelerator_count")
    joined = over_servers(pool, '"$SKYPILOT_NODE_RANK"', FIRST_NODE) if servers > 1 else ()
    more = "".join(f" {option.flag} {option.value}" for option in joined or ())
    resources = _resources(machine, count, f"{at}.machine")
    task: dict[str, Node] = {
        "name": pool.name,
        "service": {"readiness_probe": _probe(pool, given), **_policy(pool)},
        "resources": {
            **resources,
            **_network(machine, servers, f"{at}.machine"),
            "ports": Said(pool.port, "one for each pool"),
        },
        "num_nodes": Said(servers, f"{pool.at}.replica.accelerator_count over servers"),
        "workdir": ".",
        **({"envs": asked} if (asked := _asked(pool_script(pool, given))) else {}),
        **({} if pool.is_own else {"secrets": {"HF_TOKEN": Said(None, "sky serve up --secret HF_TOKEN")}}),
        **_installed(pool),
        "run": f"exec bash {pool.name}.sh{more}",
    }
    lost = [*([PROBED, SET_UP] if pool.is_own else given.engine_command(pool).lost), *_lost(machine, given)]
    lost += _lost_of_network(machine, servers)
    if joined is None:
        lost.append(f"a replica over {servers} servers: its engine needs a launcher there")
    if pool.service.zones > 1:
        lost.append(f"{pool.service.zones} zones: SkyPilot chooses them")
    what = f"{pool.service.name}, {', '.join(pool.pool.classes)}: sky serve up {pool.name}.sky.yaml"
    return RenderedFile(f"{pool.name}.sky.yaml", yaml_text([task], head(what, given.digest, lost)))


def _probe(pool: ServedPool, given: Given) -> Object:
    limit_s, because = start_limit(pool, given)
    if limit_s < LEAST_DELAY_S:
        because = f"SkyPilot's own, more than {limit_s} s: {because}"
    limit = Said(max(limit_s, LEAST_DELAY_S), because)
    return {"path": runtime_of(pool).health_path, "initial_delay_seconds": limit}


def _policy(pool: ServedPool) -> Object:
    """By requests a second where the lease follows the load; spares come on top of what it counts."""
    scale, count = scale_of(pool), pool.pool.replica_count
    if scale is None:
        return {"replicas": Said(count, f"{pool.at}.replica_count")}
    spare = scale.spare_count
    scaled: Node = {
        "min_replicas": Said(scale.least_count - spare, scale.because_least),
        "max_replicas": Said(scale.most_count - spare, f"{pool.at}.replica_count less spare_count"),
        "num_overprovision": Said(spare, f"{pool.at}.spare_count"),
        "target_qps_per_replica": Said(scale.per_replica_per_s, scale.because_rate),
    }
    return {"replica_policy": scaled}


def _task(run: TrainedRun, given: Given) -> RenderedFile:
    """A run on all of its nodes."""
    machine, at = run.run.machine, f"{run.at}.machine"
    size = whole_count(machine.accelerator, machine.accelerators_per_node, given)
    count = Said(size, f"{at}.accelerators_per_node")
    lines = (
        "export FILES=.",
        'export NODE_RANK="$SKYPILOT_NODE_RANK"',
        f"export MASTER_ADDR={FIRST_NODE}",
        f"exec bash {run.name}.sh",
    )
    task: dict[str, Node] = {
        "name": run.name,
        "resources": {**_resources(machine, count, at), **_network(machine, machine.node_count, at)},
        "num_nodes": Said(machine.node_count, f"{at}.node_count"),
        "workdir": ".",
        "envs": _asked(run_files(run, given)[0]),
        **({} if run.is_own else {"secrets": {"HF_TOKEN": Said(None, "--secret HF_TOKEN")}}),
        "run": "".join(f"{line}\n" for line in lines),
    }
    lost = [f"an image or a `setup` with {run.software}", *_lost(machine, given)]
    lost += _lost_of_network(machine, machine.node_count)
    what = f"{run.run.name}: sky jobs launch {run.name}.sky.yaml"
    return RenderedFile(f"{run.name}.sky.yaml", yaml_text([task], head(what, given.digest, lost)))


def _asked(script: RenderedFile) -> dict[str, Node]:
    """What a script cannot do without, and where it keeps what it writes: SkyPilot asks for each."""
    kept = dict.fromkeys(("CHECKPOINTS", "RUNS"), "a folder that all nodes mount")
    wanted = dict(asked_by(script)) | {name: what for name, what in kept.items() if name in used_by(script)}
    return {name: Said(None, f"--env {name}=…: {what}") for name, what in wanted.items()}


def _resources(machine: Machine, count: Said, at: str) -> dict[str, Node]:
    """Where, and on what: the offer that is leased, or a cluster that is there. Nothing else is rented."""
    price, accelerators = machine.price, {sky_name(machine.accelerator): count}
    if price is None or price.provider not in CLOUDS:
        why = f"{at}.price: none, machines that are there" if price is None else f"{at}.price.provider"
        return {"infra": Said(OWN, f"{why}; name its context, {OWN}/CONTEXT"), "accelerators": accelerators}
    region = "" if price.region in EVERYWHERE else f"/{price.region}"
    return {
        "infra": Said(f"{price.provider}{region}", f"{at}.price.provider"),
        "use_spot": Said(price.term == "spot", f"{at}.price.term"),
        "accelerators": accelerators,
    }


def _network(machine: Machine, node_count: int, at: str) -> dict[str, Node]:
    """The plan's step or replica is over this fabric; unasked, nodes are joined by Ethernet."""
    price = machine.price
    if node_count == 1 or machine.fabric not in FABRICS or not price or price.provider not in BEST_NETWORK:
        return {}
    return {"network_tier": Said("best", f"{at}.fabric: {machine.fabric}")}


def _lost_of_network(machine: Machine, node_count: int) -> list[str]:
    """Where nothing asks for it."""
    if node_count == 1 or machine.fabric not in FABRICS or _network(machine, node_count, ""):
        return []
    if machine.price is not None and machine.price.provider in CLOUDS:
        whose = (
            f"SkyPilot asks {machine.price.provider} for no network; see what joins the nodes before a run"
        )
        return [f"{machine.fabric}: {whose}"]
    return [
        f"{machine.fabric}: `network_tier: best` where SkyPilot knows your cluster's, else its `pod_config`"
    ]


def _installed(pool: ServedPool) -> dict[str, Node]:
    install, version = runtime_of(pool).install, engine_version(pool)
    wanted = shlex.quote(f"{install}=={version}" if version else install)
    return {"setup": f"pip install {wanted}"} if install else {}


def _lost(machine: Machine, given: Given) -> Sequence[str]:
    name = machine.accelerator
    whole = f"slices: SkyPilot rents whole devices, {sky_name(name)} for a part of one"
    slices = [whole, *made_before(name, given)] if slice_of(name, given) else []
    return [*slices, *_lost_of_lease(machine)]


def _lost_of_lease(machine: Machine) -> Sequence[str]:
    price = machine.price
    if price is None:
        return [
            f"your own machines: which cluster, as `{OWN}/CONTEXT`, or `ssh/POOL` of hosts that it reaches"
        ]
    lost = []
    if price.provider not in CLOUDS:
        joined = f"`{OWN}/CONTEXT` or `ssh/POOL`"
        lost.append(f"{price.provider}: no cloud of SkyPilot's; rent it apart, then {joined}")
    elif price.term not in ("on_demand", "spot"):
        lost.append(f"the term `{price.term}`: SkyPilot rents on demand or spot")
    if base := machine.base_price:
        held = f"{machine.base_node_count} of {machine.node_count} nodes"
        lost.append(f"{held} by `{base.term}` of {base.provider}: rent these apart, all year")
    return lost
