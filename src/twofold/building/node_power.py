"""What one server draws: from its accelerators, host, network cards, switches, fans and power supplies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil

from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure
from twofold.catalog.types import Accelerator, NetworkPart, Node
from twofold.core.estimate import Estimate

GB, TB = 1e9, 1e12
GBIT_BYTES_PER_S = 1e9 / 8
SHARED_CARD_BYTES_PER_S = 25e9  # cards that accelerators share have up to 200 Gb/s each
PER_ACCELERATOR_BYTES_PER_S = 12.5e9  # from 100 Gb/s each on, every accelerator has a card of its own
ACCELERATORS_PER_BOARD = 8
WITH_ITS_HOST = ("Superchip", "APU socket")  # the TDP counts the processor
RACK_SCALE_UNITS = 40
HOST_AT_WORK = ("node_part", "host under load (of its maximum)")
RACK_SCALE_COUNT = 32  # accelerators of one node from which switches are trays of their own


@dataclass(frozen=True, slots=True)
class NodePower:
    """A server's power by part; the parts with fans and supply losses add up to `nameplate_w`."""

    parts: Mapping[str, float]  # at their maximum: accelerators first, then the host; fans and losses last
    accelerators_w: float  # at their TDP, without the supplies' loss
    accelerators_idle_w: float
    host_w: float  # the other parts without fans
    fans_w: float  # at full speed
    supply_efficiency_fraction: float
    nameplate_w: float  # modelled maximum at the plug
    stated_w: float | None  # by the catalogue
    liquid: bool  # too dense for air

    @property
    def planned_w(self) -> float:
        """What a rack is provisioned for: the vendor's maximum where it is stated, else the model's."""
        return self.stated_w if self.stated_w is not None else self.nameplate_w


def node_power(catalog: Catalog, node: Node) -> NodePower:
    """The parts of a server and its modelled maximum.

    Formula  (accelerators · TDP + processors + memory + drives + cards + switches + board) / (1 − f) / η
    Why      Fans take the share f of what the supplies deliver, supplies lose 1 − η of what they take.
    Units    W at the plug.
    Source   catalogue: TDP, `network` for cards and switches, `facility: node_part` for the rest.
    Limits   Meets the vendors' maximum of every reference server within 10 % (tests); of hosts that a cloud
             does not describe only sockets and memory are known.
    """
    device = catalog.accelerator(node.accelerator)
    accelerators_w = node.accelerator_count * device.tdp_w
    host = _host_parts(catalog, node, device)
    liquid = is_liquid_cooled(catalog, node)
    is_card = device.form_factor.startswith("PCIe") or device.family == "cpu"
    kind = "liquid" if liquid else "air, PCIe cards" if is_card else "air, linked accelerators"
    share = figure(catalog, "node_part", f"fans, {kind} (of node power)").value
    efficiency = figure(catalog, "efficiency", "server PSU titanium at half load").value
    if node.virtualised and node.power_w_max and node.accelerator_count < ACCELERATORS_PER_BOARD:
        # A part of a server has a part of its host: what its stated power leaves.
        left_w = max(0.0, node.power_w_max * efficiency * (1 - share) - accelerators_w)
        part = min(1.0, left_w / sum(host.values()))
        host = {name: watts * part for name, watts in host.items()}
    host_w = sum(host.values())
    fans_w = (accelerators_w + host_w) * share / (1 - share)
    inside_w = accelerators_w + host_w + fans_w
    losses_w = inside_w / efficiency - inside_w
    parts = {"accelerators": accelerators_w, **host, "fans": fans_w, "supply losses": losses_w}
    rest = figure(catalog, "power_fraction", "GPU, idle no context (of TDP)").value
    idle_w = node.accelerator_count * (device.idle_w if device.idle_w is not None else rest * device.tdp_w)
    return NodePower(
        parts,
        accelerators_w,
        idle_w,
        host_w,
        fans_w,
        efficiency,
        inside_w / efficiency,
        node.power_w_max,
        liquid,
    )


def draw_w(power: NodePower, accelerator_fraction: float, host_fraction: float) -> float:
    """Watts at the plug while accelerators draw that share of their TDP and the host that of its maximum.

    Formula  (a·A + h·H + F·((a·A + h·H)/(A + H))³) / η
    Why      Air must carry the heat: fan speed follows it, fan power the cube of speed.
    Units    W.
    Source   fan affinity laws.
    Limits   Shares of 1 give the nameplate; shares above 1 hold fans at full speed.
    """
    heat_w = accelerator_fraction * power.accelerators_w + host_fraction * power.host_w
    speed = min(heat_w / (power.accelerators_w + power.host_w), 1.0)
    return (heat_w + power.fans_w * speed**3) / power.supply_efficiency_fraction


def training_w(catalog: Catalog, power: NodePower) -> Estimate:
    """Steady draw in training: the share of TDP that fleets measured."""
    return _drawn(catalog, power, figure(catalog, "power_fraction", "GPU, LLM training steady (of TDP)"))


def training_peak_w(catalog: Catalog, power: NodePower) -> float:
    """The highest draw while training: accelerators at the top of what fleets measured, host under load."""
    share = figure(catalog, "power_fraction", "GPU, LLM training steady (of TDP)").high
    return draw_w(power, share, figure(catalog, *HOST_AT_WORK).value)


def serving_w(catalog: Catalog, power: NodePower, busy_fraction: float = 1.0) -> Estimate:
    """Draw while serving: the token phase's share of TDP when busy, idle with a loaded model else."""
    busy = figure(catalog, "power_fraction", "GPU, inference token phase (of TDP)")
    idle = figure(catalog, "power_fraction", "GPU, idle with context (of TDP)")
    low, middle, high = (
        busy_fraction * at_work + (1 - busy_fraction) * waiting
        for at_work, waiting in zip(_three(busy), _three(idle), strict=True)
    )
    return _drawn(catalog, power, Estimate(middle, low, high, "fraction", busy.source))


def resting_w(catalog: Catalog, power: NodePower) -> Estimate:
    """Draw of a server that does nothing: accelerators at rest, the host between what is assumed."""
    host = figure(catalog, "node_part", "host idle (of its maximum)")
    low, middle, high = (
        draw_w(power, power.accelerators_idle_w / power.accelerators_w, share) for share in _three(host)
    )
    return Estimate(middle, low, high, "W", host.source)


def is_liquid_cooled(catalog: Catalog, node: Node) -> bool:
    """Whether one rack unit of the node gives off more heat than air carries; unknown heights: no."""
    if is_rack_scale(node):
        return True
    if node.rack_units is None or node.power_w_max is None:
        return False
    limit = figure(catalog, "rack", "heat that air carries from one rack unit").value
    return node.power_w_max / node.rack_units > limit


def is_rack_scale(node: Node) -> bool:
    """Whether the node is a rack of its own: by its height, or by its accelerators where none is stated."""
    if node.rack_units is not None:
        return node.rack_units >= RACK_SCALE_UNITS
    return node.accelerator_count >= RACK_SCALE_COUNT


def network_cards(node: Node) -> tuple[int, float]:
    """(cards, bytes/s of one) of a node: as its type says (`8x400`), else by the rate of an accelerator.

    >>> from twofold.catalog.catalog import load_catalog
    >>> network_cards(load_catalog().node("DGX-H100"))
    (8, 50000000000.0)
    """
    total = node.nic_bytes_per_s
    if total <= 0:
        return 0, 0.0
    said = re.search(r"\b(\d+)x(\d+)\b", node.nic_type)
    if said:
        return int(said[1]), int(said[2]) * GBIT_BYTES_PER_S
    if total / node.accelerator_count >= PER_ACCELERATOR_BYTES_PER_S:
        return node.accelerator_count, total / node.accelerator_count
    count = ceil(total / SHARED_CARD_BYTES_PER_S)
    return count, total / count


def _host_parts(catalog: Catalog, node: Node, device: Accelerator) -> dict[str, float]:
    def part_w(item: str) -> float:
        return figure(catalog, "node_part", item).value

    # `2x Xeon …` has two processors, a name alone one, an unknown host two.
    said = re.match(r"(\d+)x ", node.cpu)
    sockets = int(said[1]) if said else (1 if node.cpu and node.accelerator_count < 4 else 2)
    if device.family == "cpu" or device.form_factor in WITH_ITS_HOST:
        sockets = 0
    boards = max(1.0, node.accelerator_count / ACCELERATORS_PER_BOARD) if sockets else 0.5
    half = 0.5 if sockets and node.accelerator_count < ACCELERATORS_PER_BOARD else 1.0
    return {
        "processors": sockets * part_w("host processor (socket)"),
        "memory": (node.ram_bytes or 0.0) / GB * part_w("host memory"),
        "drives": (node.nvme_bytes or 0.0) / TB * part_w("local NVMe"),
        "network cards": _cards_w(catalog, node),
        "accelerator switches": _switches_w(catalog, node, device),
        "board": boards * half * part_w("board, management and bridges"),
    }


def _cards_w(catalog: Catalog, node: Node) -> float:
    """Cards with one transceiver each, at most: the slowest that carries the rate, else the fastest."""
    count, rate = network_cards(node)
    if not count or "out of box" in node.nic_type:  # on the accelerators themselves, in their TDP
        return 0.0
    total_w = 0.0
    for kind in ("nic", "transceiver"):
        parts = [part for part in catalog.rows(NetworkPart) if part.kind == kind and part.power_w_max]
        able = [part for part in parts if part.bytes_per_s >= 0.999 * rate]
        fastest = max(parts, key=lambda part: part.bytes_per_s)
        nearest = min(able, key=lambda part: (part.bytes_per_s, part.power_w_max), default=fastest)
        total_w += nearest.power_w_max or 0.0
    return count * total_w


def _switches_w(catalog: Catalog, node: Node, device: Accelerator) -> float:
    """NVLink switches: on the board of eight, or trays of a rack (nine for 72)."""
    if device.vendor != "NVIDIA" or node.accelerator_count < ACCELERATORS_PER_BOARD:
        return 0.0
    is_rack = node.accelerator_count >= RACK_SCALE_COUNT
    if not is_rack and not device.form_factor.startswith("SXM"):
        return 0.0
    named = "NVLink Switch tray" if is_rack else "NVSwitch"
    part = next(part for part in catalog.rows(NetworkPart) if part.name.startswith(named))
    return (part.power_w_max or 0.0) * (node.accelerator_count / ACCELERATORS_PER_BOARD if is_rack else 1)


def _drawn(catalog: Catalog, power: NodePower, shares: Estimate) -> Estimate:
    hosts = figure(catalog, *HOST_AT_WORK)
    low, middle, high = map(partial(draw_w, power), _three(shares), _three(hosts))
    return Estimate(middle, low, high, "W", shares.source)


def _three(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.low, estimate.value, estimate.high
