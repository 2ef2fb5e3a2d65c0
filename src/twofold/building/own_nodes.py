"""A user's own server type: does its power, network, height and weight add up?"""

from dataclasses import dataclass
from typing import Literal

from twofold.building.filling import nodes_per_rack, rack_limits
from twofold.building.node_power import network_cards, node_power
from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Accelerator, NetworkPart, Node

PCIE_LANE_BYTES_PER_S = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
CARD_LANES = 16
PHYSICAL_POWER_RATIO = (0.85, 4.0)  # of the accelerators' TDP: outside, a digit or a count is wrong
MODEL_POWER_RATIO = (0.70, 1.45)  # of the modelled maximum: outside, worth a second look


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """One thing about a server that cannot be, or is worth a look."""

    severity: Literal["error", "warning"]
    column: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """A server type as a build-out: what it draws, its ports, and where it stands."""

    node: str
    planned_w: float
    modelled_w: float
    card_count: int
    card_bytes_per_s: float
    nodes_per_rack: int  # in contained air, with liquid where air cannot
    cooling: str
    findings: tuple[NodeFinding, ...]

    @property
    def passes(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)


def judge_node(catalog: Catalog, node: Node) -> NodeVerdict:
    """Power against its parts, ports against what a bus carries, and the rack that holds it."""
    device = catalog.accelerator(node.accelerator)
    power = node_power(catalog, node)
    count, rate = network_cards(node)
    air = nodes_per_rack(catalog, node, rack_limits(catalog, "contained_air"))
    wet = nodes_per_rack(catalog, node, rack_limits(catalog, "liquid_800_v"))
    findings = [*_power(node, device, power.nameplate_w), *_ports(catalog, node, device, count, rate)]
    if not air.nodes_per_rack and not wet.nodes_per_rack:
        findings.append(NodeFinding("error", "power_w", f"no rack holds it: {wet.binding} is the limit"))
    return NodeVerdict(
        node.name,
        power.planned_w,
        power.nameplate_w,
        count,
        rate,
        air.nodes_per_rack or wet.nodes_per_rack,
        "contained air" if air.nodes_per_rack else "liquid",
        tuple(findings),
    )


def _power(node: Node, device: Accelerator, modelled_w: float) -> list[NodeFinding]:
    if node.power_w_max is None:
        return []
    tdp_w = node.accelerator_count * device.tdp_w
    ratio = node.power_w_max / tdp_w
    stated = f"{node.power_w_max / 1e3:.4g} kW for {node.accelerator_count} × {device.name}"
    if ratio < PHYSICAL_POWER_RATIO[0]:
        return [NodeFinding("error", "power_w", f"{stated}: they alone draw {tdp_w / 1e3:.4g} kW")]
    if ratio > PHYSICAL_POWER_RATIO[1] and node.power_w_max > 2 * modelled_w:
        words = f"{stated}: {ratio:.1f} times what they draw, {tdp_w / 1e3:.4g} kW"
        return [NodeFinding("error", "power_w", words)]
    low, high = MODEL_POWER_RATIO
    if not node.virtualised and not low <= node.power_w_max / modelled_w <= high:
        words = f"{stated}: its parts add up to {modelled_w / 1e3:.4g} kW"
        return [NodeFinding("warning", "power_w", words)]
    return []


def _ports(
    catalog: Catalog, node: Node, device: Accelerator, count: int, rate_bytes_per_s: float
) -> list[NodeFinding]:
    """Cards: none faster than its bus, a rate that a switch of its fabric has, as many as are stated."""
    found = []
    lane = PCIE_LANE_BYTES_PER_S.get(device.pcie_generation or 0)
    gbit = rate_bytes_per_s * 8 / 1e9
    if "out of box" in node.nic_type:  # ports of the accelerators
        return []
    if lane and rate_bytes_per_s > CARD_LANES * lane:
        carried = CARD_LANES * lane * 8 / 1e9
        words = f"a card of {gbit:.0f} Gb/s: 16 lanes of PCIe {device.pcie_generation} carry {carried:.0f}"
        found.append(NodeFinding("warning", "nic_gbit_s", words))
    if count and abs(count * rate_bytes_per_s / node.nic_bytes_per_s - 1) > 0.3:
        words = (
            f"`{node.nic_type}` is {count * gbit:.0f} Gb/s, the row says {node.nic_bytes_per_s * 8 / 1e9:.0f}"
        )
        found.append(NodeFinding("error", "nic_type", words))
    kinds = "switch_ib" if node.fabric == "infiniband" else "switch_eth"
    rates = [part.port_bytes_per_s for part in catalog.rows(NetworkPart) if part.kind == kinds]
    if count and node.fabric not in ("ici", "none") and rate_bytes_per_s > 1.001 * max(rates):
        words = f"no {node.fabric} switch of the catalogue has ports of {gbit:.0f} Gb/s"
        found.append(NodeFinding("error", "nic_gbit_s", words))
    return found
