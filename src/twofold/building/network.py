"""The networks and the storage that a plan's runs and services ask for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from types import MappingProxyType

from twofold.answer.context import Context
from twofold.answer.serving_replica import READING
from twofold.building.cabling import cable_runs, fabric_bill, hall, unbuilt
from twofold.building.entries import COLLECTED, Entry, training_token_bytes
from twofold.building.filling import NodeList, Use
from twofold.building.node_power import network_cards, node_power
from twofold.building.racks import placed
from twofold.building.storage import (
    StorageNeed,
    archive_need,
    choose_storage,
    local_choice,
    storm_need,
    training_need,
)
from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure_of
from twofold.catalog.types import Node
from twofold.contracts.results import premises
from twofold.contracts.results.ledger import UnitCost
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.quantity import DAY_S
from twofold.perf.topology import FabricCounts, FabricParts, fabric_parts, ports_at, switch_for

RAILS_FROM = 4  # cards of a server from which each number has leaves of its own
SERVING_LINK_BYTES_PER_S = 12.5e9  # 100 Gb/s: small flows fill no more
BYTES_OF_FORMAT = MappingProxyType({"fp32": 4.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "fp4": 0.5})  # else 2
NO_SWITCH = ("ici", "none")  # fabrics without switches of ours


def networks(
    found: Sequence[Entry], racks: Sequence[premises.RackHeat], context: Context
) -> tuple[premises.BuiltNetwork, ...]:
    """Dense fabrics for runs and for replicas that span servers; pairs of leaves for every service."""
    built = []
    for entry in found:
        part, single = entry.part, entry.machine.accelerators_per_node
        if isinstance(part, TrainingPlan) or part.replica.accelerator_count > single:
            built.append(_dense(entry, racks, context))
        if isinstance(part, ServicePlan):
            built.append(_thin(entry, part, racks, context))
    return tuple(each for each in built if each is not None)


def storage(plan: Plan, found: Sequence[Entry], context: Context) -> tuple[premises.BuiltStorage, ...]:
    """A file system for each run, a store of weights for each service, and one archive for all runs.

    Beside a service's accelerators stand drives for a copy of the weights that it loads.
    """
    needs: list[tuple[Entry, StorageNeed]] = []
    local: list[premises.BuiltStorage | None] = []
    for entry in found:
        part, node = entry.part, entry.servers.node
        if isinstance(part, TrainingPlan):
            needs.append((entry, _run_need(part, context)))
        elif (weights := _weights_bytes(part)) and (read_s := _reading_s(part)):
            # Replicas of one zone start again at once, within the time that a cold start is planned with.
            together = max(1, round(part.replica_count / max(part.zones, 1)))
            needs.append((entry, storm_need(weights, together, read_s)))
            count, own = entry.servers.count, node.nvme_bytes or 0.0
            local.append(local_choice(context.catalog, entry.name, weights, read_s, count, own))
    runs = [entry for entry in found if isinstance(entry.part, TrainingPlan)]
    if runs:
        kept = sum(run.run.checkpoints.size_bytes or 0.0 for run in plan.training)
        needs.append((runs[0], archive_need(dataset_bytes(plan, context), kept, DAY_S)))
    chosen = [
        choose_storage(context.catalog, entry.name, need, entry.provider, max(entry.servers.count, 1))
        for entry, need in needs
        if need.capacity_bytes > 0
    ]
    return tuple(choice for choice in (*chosen, *local) if choice)


def _reading_s(part: ServicePlan) -> float:
    """Seconds of a cold start that go into reading the weights."""
    return sum(each.value.value for each in part.cold_start_parts if each.name == READING)


def dataset_bytes(plan: Plan, context: Context) -> float:
    """What a site must receive: as the spec says, else the largest run's tokens."""
    told = context.spec.facility.dataset_bytes
    if told is not None:
        return told
    by_tokens = [run.tokens * training_token_bytes(context.catalog) for run in plan.training if run.tokens]
    by_samples = [
        run.run.data_bytes_per_s * run.run.compute_s.value
        for run in plan.training
        if run.run.data_bytes_per_s
    ]
    return max([*by_tokens, *by_samples], default=0.0)


def _dense(
    entry: Entry, racks: Sequence[premises.RackHeat], context: Context
) -> premises.BuiltNetwork | None:
    """The fabric between a run's servers, with cables as long as its rows make them."""
    catalog, fabric, count = context.catalog, entry.machine.fabric, entry.servers.count
    cards, rate = network_cards(entry.servers.node)
    ratio = context.spec.supply.oversubscription_ratio
    if count < 2 or not cards or fabric in NO_SWITCH:
        return None
    by_rail = cards >= RAILS_FROM
    parts = fabric_parts(catalog, fabric, count * cards, rate, ratio, cards if by_rail else 0)
    if parts is None:
        return unbuilt(entry.name, fabric, rate)
    unit_nodes = max(1, (parts.port_count - parts.counts.uplinks_per_leaf) // (1 if by_rail else cards))
    single = parts.counts.switch_count == 1
    return fabric_bill(
        catalog,
        parts,
        rate,
        cable_runs(parts, _by_rack(entry, racks), cards, hall(catalog), unit_nodes),
        name=entry.name,
        fabric=fabric,
        shape="one switch" if single else "rail-optimised" if by_rail else "fat tree",
        oversubscription_ratio=1.0 if single else ratio,
        survives="nothing" if single else "a spine: the job goes on slower",
        note="full bisection" if single or ratio == 1.0 else f"{ratio:g}:1 at the leaves",
    )


def _by_rack(entry: Entry, racks: Sequence[premises.RackHeat]) -> list[int]:
    """Servers of an entry in each rack that holds some; all in one where no rack does."""
    counts = [rack.holds[entry.name] for rack in racks if entry.name in rack.holds]
    return counts or [entry.servers.count]


def _thin(
    entry: Entry, part: ServicePlan, racks: Sequence[premises.RackHeat], context: Context
) -> premises.BuiltNetwork | None:
    """The network of requests: two leaves over every server, so that either may fail."""
    catalog, link = context.catalog, SERVING_LINK_BYTES_PER_S
    flow = serving_flow(
        sum(each.peak_per_s for each in part.classes),
        _request_bytes(part, context),
        entry.servers.count,
        weights_bytes=_weights_bytes(part),
        load_within_s=_reading_s(part),
    )
    fabric = serving_fabric(catalog, entry.servers.count, flow, link)
    if fabric is None:
        return None
    lost = ["a leaf"] * fabric.survives_a_leaf
    lost += ["a spine"] * (fabric.survives_a_spine and len(fabric.parts.counts.switches) > 1)
    return fabric_bill(
        catalog,
        fabric.parts,
        link,
        cable_runs(fabric.parts, _by_rack(entry, racks), 2, hall(catalog), fabric.parts.port_count),
        name=entry.name,
        fabric=entry.machine.fabric,
        shape="pairs of leaves",
        oversubscription_ratio=fabric.oversubscription_ratio,
        survives=" or ".join(lost) or "nothing at the peak",
        note=f"links {100 * fabric.used_fraction:.3g} % used at the peak, "
        f"{200 * fabric.used_fraction:.3g} % with one leaf lost",
    )


def _run_need(part: TrainingPlan, context: Context) -> StorageNeed:
    checkpoints = part.run.checkpoints
    size, ingest = checkpoints.size_bytes or 0.0, part.run.data_bytes_per_s or 0.0
    reads = checkpoints.storage_term == "restart read" and checkpoints.storage_bytes_per_s
    data = ingest * part.run.compute_s.value
    if part.tokens:
        data = part.tokens * training_token_bytes(context.catalog)
    kept = context.catalog.economic("checkpoints kept").value
    return training_need(ingest, size, checkpoints.write_s, size / reads if reads else 0.0, data, kept)


def _weights_bytes(part: ServicePlan) -> float:
    """Of one copy, as it is read from the store; nothing where no model is known."""
    return (part.parameters or 0) * BYTES_OF_FORMAT.get(part.replica.weights_format or "", 2.0)


def _request_bytes(part: ServicePlan, context: Context) -> float:
    """Text of a request as it is sent and its answer as it is streamed, mean over classes by their peaks."""
    text = figure_of(context.catalog, "log", "text of one token").value
    streamed = context.catalog.economic("bytes of a streamed token").value
    peaks = sum(each.peak_per_s for each in part.classes)
    total = sum(
        each.peak_per_s * ((each.input_tokens or 0.0) * text + (each.output_tokens or 0.0) * streamed)
        for each in part.classes
    )
    return total / peaks if peaks else 0.0


def network_price(
    node: Node, servers: int, part: TrainingPlan | ServicePlan, context: Context
) -> tuple[UnitCost, str]:
    """Switches, optics and cables over the servers, and what to know where a part of it has no price.

    Formula  (bill of every network that the building gives these servers) / servers
    Limits   services that share machines count with the largest one's flows.
    """
    machine = replace(
        part.machine,
        node=node.name,
        node_count=servers,
        accelerators_per_node=node.accelerator_count,
        accelerator_count=servers * node.accelerator_count,
        fabric=node.fabric,
    )
    half: Use = "training" if isinstance(part, TrainingPlan) else "serving"
    listed = NodeList(part.name, half, node, servers)
    entry = Entry(listed, node_power(context.catalog, node), machine, True, None, 1.0, part)
    built = networks((entry,), placed((entry,), context)[0].heat, context)
    known = [each for each in built if each.usd is not None]
    switches = ", ".join(each.switch.split(" (")[0] for each in known) or "one server, no switch"
    usd = sum(each.usd or 0.0 for each in known) / servers
    lacks = (each.note or "it has no price" for each in built if each.usd is None)
    notes = [f"{servers} × {node.name}: the network is not in it, {why}" for why in lacks]
    source = f"network.csv {switches}; as the building's bill has it"
    return UnitCost(usd, source, COLLECTED), next(iter(notes), "")


HEADER_BYTES = 2_000.0  # of one request and its answer: TLS, HTTP
USABLE_FRACTION = 0.5  # of a link that small flows fill before queues grow
LEAST_SPINES = 2


@dataclass(frozen=True, slots=True)
class ServingFabric:
    """Pairs of leaves, every node on both, so that either may fail; spines that may lose one."""

    parts: FabricParts
    used_fraction: float  # of a node's links at the peak, both up
    oversubscription_ratio: float  # at the leaves
    survives_a_leaf: bool
    survives_a_spine: bool


def serving_flow(
    requests_per_s: float,
    request_bytes: float,
    node_count: int,
    *,
    weights_bytes: float = 0.0,
    load_within_s: float = 0.0,
) -> float:
    """What one of `node_count` nodes moves at the peak, each way.

    Formula  r·(b + h)/n + weights/load time
    Why      Requests are small: the network is sized by models that load while the fleet grows, not by text.
    Units    bytes/s of one node.
    Source   arithmetic; b is the text of a request and its answer on the wire, h is assumed.
    Limits   Prefill and decode share replicas: no cache moves between nodes.
    """
    weights = weights_bytes / load_within_s if load_within_s > 0 else 0.0
    return requests_per_s * (request_bytes + HEADER_BYTES) / max(node_count, 1) + weights


def serving_fabric(
    catalog: Catalog, node_count: int, flow_bytes_per_s: float, link_bytes_per_s: float
) -> ServingFabric | None:
    """Two leaves over every group of nodes, and spines for what leaves the group.

    Formula  oversubscription o = usable link / flow, from 1 to 4; leaf of k ports: u = ⌊k/(1+o)⌋ up, k − u
             nodes; pairs = ⌈n/(k − u)⌉; spines = ⌈leaves·u/k⌉, two at least
    Why      A node keeps its service when one of its two leaves or one spine fails.
    Units    counts, bytes/s.
    Source   arithmetic on `network`.
    Limits   Whatever the flow, never more than 4:1. None where no switch has the rate.
    """
    switch = switch_for(catalog, "ethernet", link_bytes_per_s)
    if switch is None or node_count < 1:
        return None
    ports = ports_at(switch, link_bytes_per_s)
    usable = USABLE_FRACTION * link_bytes_per_s
    flow = flow_bytes_per_s
    ratio = min(4.0, max(1.0, usable / max(flow, 1.0)))
    up = max(LEAST_SPINES, int(ports / (1 + ratio)))
    below = ports - up  # nodes of one pair of leaves
    pairs = ceil(node_count / below)
    leaves = 2 * pairs
    spines = max(LEAST_SPINES, ceil(leaves * up / ports)) if pairs > 1 else 0
    up_cables = leaves * up if spines else 1  # one pair is joined by a cable
    tiers = (leaves, spines) if spines else (leaves,)
    counts = FabricCounts(tiers, 2 * node_count, (up_cables,), up_cables // leaves)
    return ServingFabric(
        parts=FabricParts(switch, ports, counts),
        used_fraction=flow_bytes_per_s / (2 * link_bytes_per_s),
        oversubscription_ratio=ratio,
        survives_a_leaf=flow <= link_bytes_per_s and (not spines or below * flow <= up * link_bytes_per_s),
        survives_a_spine=not spines or below * flow / 2 <= up * (spines - 1) / spines * link_bytes_per_s,
    )
