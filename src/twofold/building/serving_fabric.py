"""The network of a serving fleet: sized by what requests move, and by what must survive a lost switch."""

from dataclasses import dataclass
from math import ceil

from twofold.catalog import Catalog
from twofold.perf import FabricCounts, FabricParts, ports_at, switch_for

HEADER_BYTES = 2_000.0  # of one request and its answer: TLS, HTTP
USABLE_FRACTION = 0.5  # of a link that small flows fill before queues grow
LEAST_SPINES = 2


@dataclass(frozen=True, slots=True)
class ServingFabric:
    """Pairs of leaves, every node on both, so that either may fail; spines that may lose one."""

    parts: FabricParts
    link_bytes_per_s: float  # one of a node's two
    used_fraction: float  # of a node's links at the peak, both up
    used_after_failure_fraction: float  # with one leaf lost
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
    used = flow / (2 * link_bytes_per_s)
    tiers = (leaves, spines) if spines else (leaves,)
    counts = FabricCounts(tiers, 2 * node_count, (up_cables,), up_cables // leaves)
    return ServingFabric(
        parts=FabricParts(switch, ports, counts),
        link_bytes_per_s=link_bytes_per_s,
        used_fraction=used,
        used_after_failure_fraction=2 * used,
        oversubscription_ratio=ratio,
        survives_a_leaf=flow <= link_bytes_per_s and (not spines or below * flow <= up * link_bytes_per_s),
        survives_a_spine=not spines or below * flow / 2 <= up * (spines - 1) / spines * link_bytes_per_s,
    )
