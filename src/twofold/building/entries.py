"""What a plan puts into a building: its servers by run and service, where they stand, how busy they are."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median

from twofold.answer.context import Context, region_of
from twofold.answer.offers import assumed_node, own_offers
from twofold.building.filling import NodeList, Use
from twofold.building.node_power import NodePower, node_power
from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import figure
from twofold.catalog.types import Node, Region
from twofold.contracts.results.ledger import UnitCost
from twofold.contracts.results.parts import Machine
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.errors import InputError
from twofold.core.quantity import YEAR_S

COLLECTED = "2026"  # the year in which tables without a date of their own were read


@dataclass(frozen=True, slots=True)
class Entry:
    """One run or service as the building sees it."""

    servers: NodeList
    power: NodePower
    machine: Machine
    owned: bool
    region: Region | None  # whose tariff, grid and climate count; None: not known
    busy_fraction: float  # of a year (a run), of its capacity (a service)
    part: TrainingPlan | ServicePlan
    guests: tuple["Entry", ...] = ()  # that use the same machines of yours

    @property
    def name(self) -> str:
        return self.servers.name

    @property
    def place(self) -> str:
        return f"{self.region.provider}:{self.region.name}" if self.region else ""

    @property
    def provider(self) -> str:
        price = self.machine.price
        return price.provider if price else ""


def entries(plan: Plan, context: Context) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Every run and service with its servers, and what to know.

    Servers of one's own that several use in turn stand once, and are counted with whoever uses most.
    """
    # What runs on a desk needs no building.
    found = [
        _entry(each, context)
        for each in plan.halves
        if context.catalog.accelerator(each.machine.accelerator).form_factor != "laptop"
    ]
    kept, guests, notes = _standing(found, context)
    kept = [replace(entry, guests=tuple(guests.get(entry.name, ()))) for entry in kept]
    order = {entry.name: index for index, entry in enumerate(found)}
    return tuple(sorted(kept, key=lambda each: order[each.name])), tuple(notes)


def _standing(
    found: Iterable[Entry], context: Context
) -> tuple[list[Entry], dict[str, list[Entry]], list[str]]:
    """Who has servers to itself, who works on another's, and what to know of these.

    Why      All stand side by side from their first hours while there are servers for it, as the plan shares
             them out; what finds none left works in the hours that others leave.
    """
    left: dict[tuple[str, str], int] = {}  # accelerators of one's own that stand for nobody yet
    for offer in own_offers(context.catalog, context.spec.supply):
        kind = offer.accelerator.name, offer.node.name
        left[kind] = left.get(kind, 0) + offer.held
    kept: list[Entry] = []
    guests: dict[str, list[Entry]] = {}
    notes: list[str] = []
    for entry in sorted(found, key=lambda each: -each.servers.count):
        machine, takes = entry.machine, entry.servers.count * entry.servers.node.accelerator_count
        kinds = [each for each in left if each[0] == machine.accelerator]  # a part of a node is of that stock
        kinds.sort(key=lambda each: each[1] != machine.node)
        host = next((each for each in kept if each.owned and each.machine.node == machine.node), None)
        if entry.owned and host and not (kinds and left[kinds[0]] >= takes):
            guests.setdefault(host.name, []).append(entry)
            notes.append(f"{entry.name} works on machines of {host.name}, which are all: counted once")
            continue
        kept.append(entry)
        if entry.owned and kinds:
            left[kinds[0]] -= takes
    return kept, guests, notes


def node_of(machine: Machine, context: Context) -> Node:
    """The catalogue's server, its share where a plan uses part of one, else one like its accelerators."""
    size = machine.accelerators_per_node
    try:
        node = context.catalog.node(machine.node)
    except InputError:
        return assumed_node(context.catalog.accelerator(machine.accelerator), size)
    if node.accelerator_count == size:
        return node
    share = size / node.accelerator_count
    return replace(
        node,
        accelerator_count=size,
        nic_bytes_per_s=node.nic_bytes_per_s * share,
        nic_type="",
        power_w_max=None if node.power_w_max is None else node.power_w_max * share,
        ram_bytes=None if node.ram_bytes is None else node.ram_bytes * share,
        nvme_bytes=None if node.nvme_bytes is None else node.nvme_bytes * share,
        rack_units=None,
    )


def is_owned(machine: Machine, context: Context) -> bool:
    """Whether the spec has these machines: they cost energy, not rent."""
    return machine.price is None and bool(_own_regions(machine.accelerator, context))


def own_place(accelerator: str, context: Context) -> Region | None:
    """Where the spec says that its machines with these accelerators stand: the first place that is known."""
    for region in _own_regions(accelerator, context):
        with suppress(InputError):
            if region:
                return context.catalog.region(region)
    return None


def _own_regions(accelerator: str, context: Context) -> list[str | None]:
    """The region of each row of `supply: own` with these accelerators, under whatever name."""
    catalog, found = context.catalog, []
    for each in context.spec.supply.own:
        name = catalog.node(each.node).accelerator if each.node else each.accelerator
        if name and catalog.accelerator(name).name == accelerator:
            found.append(each.region)
    return found


def place_of(machine: Machine, context: Context) -> Region | None:
    """Where machines stand: one's own as the spec says, others as their price; None: the table has it not."""
    used = machine.price
    return region_of(used, context) if used else own_place(machine.accelerator, context)


def training_token_bytes(catalog: Catalog) -> float:
    """What a token of training data takes on disk and on the way there."""
    return figure(catalog, "storage", "bytes of one training token").value


def electricity(places: Iterable[Region | None], context: Context) -> UnitCost:
    """USD per kWh as the building counts it: the spec's, else of the first place that is known.

    Where none is, the mean of US industry.
    """
    if (told := context.spec.facility.electricity_usd_per_kwh) is not None:
        return UnitCost(told, "spec facility.electricity")
    if region := next((place for place in places if place), None):
        at = f"regions.csv {region.provider}:{region.name}"
        return UnitCost(region.electricity_usd_per_kwh, at, COLLECTED)
    mean = figure(context.catalog, "electricity", "US industrial average").value
    return UnitCost(mean, "facility.csv US industrial average", "2024")


def grid_gco2_per_kwh(region: Region | None, context: Context) -> float:
    """The region's grid, or the middle of all regions."""
    if region is not None:
        return region.grid_gco2_per_kwh
    return median(each.grid_gco2_per_kwh for each in context.catalog.regions())


def _entry(part: TrainingPlan | ServicePlan, context: Context) -> Entry:
    machine, node = part.machine, node_of(part.machine, context)
    use: Use = "serving"
    if isinstance(part, TrainingPlan):
        use = "training"
        spec = next(each for each in context.spec.training if each.name == part.name)
        busy = min(1.0, part.run.total_s.value * spec.runs_per_year / YEAR_S)
    else:
        rate = sum(each.rate_per_s for each in part.classes)
        peak = sum(max(each.peak_per_s, each.rate_per_s) for each in part.classes)
        busy = 1 - part.spare_count / part.replica_count if part.replica_count else 1.0
        busy = busy * rate / peak if peak > 0 else busy
    return Entry(
        NodeList(part.name, use, node, machine.node_count),
        node_power(context.catalog, node),
        machine,
        is_owned(machine, context),
        place_of(machine, context),
        busy,
        part,
    )
