"""Machines given in words, `64x8xH100-SXM` or `8xp5.48xlarge`, and what a question varies of them."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from twofold.answer.offers import Offer, rented_offer
from twofold.answer.stacks import cluster_on
from twofold.answer.uncertainty import factor_ends
from twofold.catalog.catalog import Catalog
from twofold.catalog.parts import is_share
from twofold.catalog.types import Accelerator, Node
from twofold.contracts.results.parts import Machine, PriceUsed
from twofold.contracts.spec.parts import FixedCluster
from twofold.contracts.spec.supply import Supply
from twofold.core.errors import UnknownNameError, ValueRefusedError
from twofold.core.estimate import Estimate, Source, exact
from twofold.perf.constants import Constants
from twofold.perf.formats import peak_format
from twofold.perf.types import Cluster, Device

CLUSTER = re.compile(r"(?:(?P<nodes>\d{1,6})\s*[x×]\s*)?(?P<count>\d{1,6})\s*[x×]\s*(?P<name>\S.{0,60})")
SCALED = MappingProxyType({"nic": "fabric", "memory": "memory_capacity", "bandwidth": "memory_bandwidth"})
RESOURCES = ("compute", "memory_bandwidth", "memory_capacity", "link", "fabric", "host")
TERMS = ("on_demand", "reserved_1y")  # ways to pay that a quick answer may price with


@dataclass(frozen=True, slots=True)
class Variation:
    """What is other than the catalogue says. The defaults change nothing."""

    scale: Mapping[str, float] = field(default_factory=dict)  # factors by name of `RESOURCES`
    oversubscription_ratio: float = 1.0
    fabric: str = ""  # another class of fabric
    nic_bytes_per_s: float | None = None  # per accelerator, line rate
    virtual_overhead_fraction: float = 0.0
    price_usd_per_h: float | None = None  # of one accelerator, instead of the catalogue's


AS_IT_IS = Variation()


@dataclass(frozen=True, slots=True)
class Given:
    """Equal nodes of one kind with everything that the models need of them."""

    accelerator: Accelerator
    node: Node
    machine: Machine  # how many of them, on which network and at what price
    nic_bytes_per_s: float  # per accelerator, line rate
    cluster: Cluster
    warnings: tuple[str, ...] = ()

    @property
    def accelerator_count(self) -> int:
        """Accelerators in all."""
        return self.machine.accelerator_count


def given(text: str, catalog: Catalog, constants: Constants, variation: Variation = AS_IT_IS) -> Given:
    """Machines in words with their network and price, and whatever `variation` changes."""
    on = _named(text, catalog)
    offer = rented_offer(on, catalog, Supply(), TERMS)
    accelerator, node, per_node = offer.accelerator, offer.node, offer.node.accelerator_count
    fabric = catalog.fabric(variation.fabric).name if variation.fabric else node.fabric
    nic = variation.nic_bytes_per_s or node.nic_bytes_per_s / per_node
    # By name, so that the class of fabric has the efficiency that published runs showed.
    count, ratio = on.count * per_node, variation.oversubscription_ratio
    bare = cluster_on(accelerator, per_node, nic, fabric, constants, count, ratio)
    cluster = bare.scaled(scaled(variation.scale))
    overhead = variation.virtual_overhead_fraction
    cluster = cluster.virtualised(overhead) if overhead else cluster
    price = _price_of(offer, variation, constants)
    warnings = []
    if not accelerator.released:
        warnings.append(f"{accelerator.name} is announced, not released: its figures are the vendor's plans")
    if node.source == "assumed":
        rate = f"{nic * 8 / 1e9:,.0f} Gb/s"
        warnings.append(
            f"no server of {per_node} × {accelerator.name} is known: {rate} {fabric} each is assumed"
        )
    if price is None:
        warnings.append(f"no price for {accelerator.name}: give one with `--price`")
    machine = Machine(accelerator.name, node.name, on.count, per_node, count, fabric, price)
    return Given(accelerator, node, machine, nic, cluster, tuple(warnings))


def resized(machines: Given, accelerator_count: int) -> Given:
    """The same machines, as many as hold `accelerator_count`; below one node, a part of a node."""
    machine = machines.machine
    per_node = min(machine.accelerators_per_node, accelerator_count)
    nodes = -(-accelerator_count // per_node)
    links = replace(machines.cluster.network, node_size=per_node)
    if links.domain_size <= machine.accelerators_per_node:
        links = replace(links, domain_size=min(links.domain_size, per_node))
    count = nodes * per_node
    cluster = replace(machines.cluster, network=links, accelerator_count=count)
    machine = replace(machine, node_count=nodes, accelerators_per_node=per_node, accelerator_count=count)
    return replace(machines, machine=machine, cluster=cluster)


def check_units(device: Device, fmt: str) -> None:
    """Refuse a number format that nothing on the device multiplies, not even wider units in its stead."""
    runs_in = "fp32" if fmt == "fp32" else peak_format(device.compute_format(fmt, fmt).format)
    if runs_in not in device.peak_flops_per_s:
        known = ", ".join(device.peak_flops_per_s) or "none"
        raise ValueRefusedError(
            f"{device.name} has no {runs_in} units", hint=f"its formats in the catalogue: {known}"
        )


def scaled(names: Mapping[str, float]) -> dict[str, float]:
    """Factors by the names that `Cluster.scaled` knows; people also say `nic`, `memory` and `bandwidth`."""
    known = {SCALED.get(name, name): factor for name, factor in names.items()}
    for name in known:
        if name not in RESOURCES:
            raise UnknownNameError(
                f"`{name}` is nothing that scales",
                hint="write one of: " + ", ".join((*RESOURCES, *SCALED)) + "; for example `link=0.5`",
            )
    return known


def _price_of(offer: Offer, variation: Variation, constants: Constants) -> PriceUsed | None:
    """The user's own price, without doubt; else the catalogue's usual one with what offers vary by."""
    own = variation.price_usd_per_h
    if own is not None:
        return PriceUsed("yours", "", "", "", "", exact(own, "USD/h"))
    if offer.price is None:
        return None
    low, high = factor_ends(constants, "price")
    listed = offer.price.usd_per_accelerator_h
    source = Source.ASSUMED if is_share(offer.price) else Source.VENDOR
    spread = Estimate(listed, listed * low, listed * high, "USD/h", source)
    found = offer.price
    return PriceUsed(found.provider, found.instance, found.region, found.term, found.date, spread)


def _named(text: str, catalog: Catalog) -> FixedCluster:
    """A node may be named instead of an accelerator, and `512xH100` is as many nodes as that takes."""
    match = CLUSTER.fullmatch(text.strip())
    if not match and not re.fullmatch(r"[A-Za-z].{0,60}", text.strip()):
        raise ValueRefusedError(
            f"`{text[:64]}` is not a cluster", hint="write for example `64x8xH100-SXM` or `4xH200`"
        )
    name = match["name"].strip() if match else text.strip()
    nodes, count = (int(match["nodes"] or 1), int(match["count"])) if match else (1, 1)
    if nodes * count == 0:
        raise ValueRefusedError(f"`{text}` has no accelerators", hint="write for example `4xH200`")
    with suppress(UnknownNameError):  # else it names an accelerator, whose own error says what is known
        return FixedCluster(node=catalog.node(name).name, count=nodes * count)
    accelerator = catalog.accelerator(name).name
    if match and not match["nodes"]:
        # One server where one suffices, else several of the usual size.
        sizes = [node.accelerator_count for node in catalog.nodes_with(accelerator)]
        dividing = [size for size in sizes if count % size == 0 and count > max(sizes)]
        if dividing:
            usual = max(set(dividing), key=dividing.count)
            nodes, count = count // usual, usual
    return FixedCluster(accelerator=accelerator, accelerators_per_node=count, count=nodes)
