"""The machines of a plan as bought ones: what they cost to buy, connect, house, cool and run."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median

from twofold.answer.context import Context
from twofold.building.entries import COLLECTED, place_of, training_token_bytes
from twofold.building.network import network_price
from twofold.building.own import OwnYear, demand_month, own_years
from twofold.catalog.types import HardwarePrice, Node, Region, Storage
from twofold.contracts.results import ledger
from twofold.contracts.results.ledger import UnitCost, cents, total_usd
from twofold.contracts.results.parts import Machine
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.quantity import YEAR_H, YEAR_S
from twofold.money.bill import rented_lines
from twofold.money.bought import (
    Bought,
    OwningTerms,
    Standing,
    cash_flow,
    crossing_utilisation,
    once_usd,
    owned_lines,
    present_usd,
)
from twofold.money.economics import cost_ratio
from twofold.money.terms import facility_value, owning_terms, pue_ratio, rent_of

TB = 1e12
IDLE = "node, 8-GPU idle (of nameplate)"
# What is claimed about training over serving, and of what.
PER_ACCELERATOR, WHOLE_BUILD, LIFETIME = (3.0, 5.0), (5.0, 10.0), (1.5, 3.0)


@dataclass(frozen=True, slots=True)
class Use:
    """One half's use of machines of one kind."""

    half: str  # training or serving
    part: TrainingPlan | ServicePlan
    used_fraction: float  # of the first year
    used_later_fraction: float  # of each later year: a run that does not repeat is over
    energy_j: float  # of the first year, at the meter
    energy_later_j: float  # of each later year
    storage_bytes: float  # held at once
    own: OwnYear | None = None  # where the machines are one's own already


@dataclass(frozen=True, slots=True)
class Fleet:
    """Machines of one kind as they would be bought, and who uses them."""

    half: str
    bought: Bought
    place: Region | None  # None: no table has it
    rent: UnitCost | None  # of an accelerator-hour
    used_fraction: float


def owning(
    plan: Plan, fleets: Sequence[Fleet], left_out: tuple[str, ...], context: Context
) -> ledger.Owning | None:
    """The same plan on bought machines beside its rent in the first year and in each later one.

    None where none of the machines has a price to buy.
    """
    if not fleets:
        return None
    rented, rented_later = (rented_lines(plan, context, later=each) for each in (False, True))
    bought = [each.bought for each in fleets]
    provisioned_w = sum(each.provisioned_w for each in bought)
    accelerators = sum(each.accelerator_count for each in bought)
    terms = owning_terms(provisioned_w, accelerators, [each.place for each in fleets], context)
    lines = owned_lines(bought, terms)
    cash = cash_flow(lines, rented, terms, rented_later, owned_once_usd=once_usd(bought, terms))
    capital = terms.cost_of_capital_fraction
    return ledger.Owning(
        years=terms.years,
        lines=lines,
        owned_usd=total_usd(lines),
        rented_usd=cents(sum(row.rented_usd for row in cash)),
        cash=cash,
        owned_present_usd=present_usd([row.owned_usd for row in cash], capital),
        rented_present_usd=present_usd([row.rented_usd for row in cash], capital),
        crossings=tuple(_crossing(each, provisioned_w, terms, context) for each in fleets),
        left_out=left_out,
    )


def _crossing(fleet: Fleet, provisioned_w: float, terms: OwningTerms, context: Context) -> ledger.Crossing:
    """A year of one fleet alone, with its share of the people by the power that it takes, beside its rent."""
    bought, keys = fleet.bought, context.spec.supply.economics
    alone = replace(terms, staff_count=terms.staff_count * (bought.provisioned_w / provisioned_w))
    owned = total_usd(owned_lines([bought], alone)) / terms.years
    listed = fleet.rent.usd if fleet.rent else 0.0
    rented = listed * (1.0 - keys.discount_fraction) * (1.0 + keys.tax_fraction)
    count = bought.accelerator_count
    return ledger.Crossing(
        name=bought.what,
        accelerator_count=count,
        owned_usd_per_accelerator_h=owned / count / YEAR_H,
        rented_usd_per_accelerator_h=rented,
        utilisation_fraction=crossing_utilisation(owned, count, rented) if rented else 0.0,
        used_fraction=fleet.used_fraction,
        yours=bought.standing is not None,
    )


def fleets_of(plan: Plan, context: Context) -> tuple[tuple[Fleet, ...], tuple[str, ...]]:
    """The machines to buy: runs of one kind follow each other on the largest, services stand side by side.

    What stands already stands as the building has it: with those whose machines they are.
    """
    groups: dict[tuple[str, str], list[Use]] = defaultdict(list)
    uses = {use.part.name: use for use in _uses(plan, context)}
    for use in uses.values():
        host = uses[use.own.host] if use.own else use
        groups[host.half, use.part.machine.accelerator].append(use)
    fleets, left_out = [], []
    for (half, accelerator), together in groups.items():
        fleet, note = _fleet(half, together, context)
        fleets += [fleet] if fleet else []
        left_out += [note if fleet else f"{accelerator}: nobody prices it to buy"]
    return tuple(fleets), tuple(dict.fromkeys(filter(None, left_out)))


def _uses(plan: Plan, context: Context) -> Iterable[Use]:
    years = own_years(plan, context)
    for run, entry in zip(plan.training, context.spec.training, strict=True):
        times = entry.runs_per_year
        kept = context.catalog.economic("checkpoints kept").value
        data = (run.tokens or 0.0) * training_token_bytes(context.catalog)
        held = (run.run.checkpoints.size_bytes or 0.0) * kept + data
        share, energy = min(1.0, run.run.total_s.value * times / YEAR_S), run.run.energy_j.value * times
        again = 1.0 if entry.repeats_every_s else 0.0
        own = years.get(run.name)
        yield Use("training", run, share, share * again, energy, energy * again, held, own)
    for service in plan.serving:
        machine, cost = service.machine, service.cost_usd_per_year
        whole = machine.usd_per_accelerator_h * machine.accelerator_count * YEAR_H
        share = min(1.0, cost.value / whole) if cost and whole else 1.0
        energy = service.energy_j_per_year.value
        own = years.get(service.name)
        yield Use("serving", service, share, share, energy, energy, 0.0, own)


def _fleet(half: str, uses: Sequence[Use], context: Context) -> tuple[Fleet | None, str]:
    """The machines with what to know of their network's price; None where nobody prices them."""
    counts = [use.part.machine.accelerator_count for use in uses]
    accelerators = max(counts) if half == "training" else sum(counts)
    if all(use.own for use in uses):
        stand = [use.part.machine for use in uses if use.own and use.own.unit_count]
        accelerators = sum(each.node_count * each.accelerators_per_node for each in stand)
    largest = max(uses, key=lambda use: use.part.machine.accelerator_count)
    machine = largest.part.machine
    found = server_price(machine, context)
    if found is None:
        return None, ""
    node, price = found
    servers = ceil(accelerators / node.accelerator_count)
    held = servers * node.accelerator_count
    node_w = node.power_w_max
    if not node_w:  # it states none: its accelerators, and the share that all else takes
        others = facility_value("power_fraction", "non-GPU share of node power (8xH100)", context)
        tdp_w = context.catalog.accelerator(node.accelerator).tdp_w
        node_w = node.accelerator_count * tdp_w / (1.0 - others)
    used, used_later = (
        min(1.0, sum(getattr(use, name) * count for use, count in zip(uses, counts, strict=True)) / held)
        for name in ("used_fraction", "used_later_fraction")
    )
    first_j, later_j, standing = _own_energy(uses) or (
        _energy_if_bought([(use, use.energy_j) for use in uses], servers * node_w, used, context),
        _energy_if_bought([(use, use.energy_later_j) for use in uses], servers * node_w, used_later, context),
        None,
    )
    disk = next(row for row in context.catalog.rows(Storage) if row.name == "DDN AI400X2")
    network, note = network_price(node, servers, largest.part, context)
    bought = Bought(
        what=f"{servers} × {node.name}, {' and '.join(dict.fromkeys(use.half for use in uses))}",
        node_count=servers,
        accelerator_count=held,
        node=price,
        network=network,
        storage_tb=sum(use.storage_bytes for use in uses) / TB,
        storage_tb_month=UnitCost(disk.usd_per_tb_month or 0.0, f"storage.csv {disk.name}", COLLECTED),
        provisioned_w=servers * node_w,
        it_j_per_year=later_j,
        it_j_once=first_j - later_j,
        standing=standing,
    )
    return Fleet(half, bought, place_of(machine, context), rent_of(machine, context), used), note


def _own_energy(uses: Sequence[Use]) -> tuple[float, float, Standing] | None:
    """J of the first year and of a later one before cooling, and the hall; None where some are not one's own.

    The year is the building's: all servers that stand, at work and at rest.
    """
    own = [use.own for use in uses if use.own]
    if len(own) < len(uses):
        return None
    first = sum(each.it_j for each in own)
    later = sum(use.own.it_j if use.used_later_fraction else use.own.rest_j for use in uses if use.own)
    meter_j = sum(each.it_j * each.pue_ratio for each in own)
    pue = meter_j / first if first else own[0].pue_ratio
    return first, later, Standing(pue, own[0].pue_source, own[0].tariff, demand_month(own))


def _energy_if_bought(
    uses: Sequence[tuple[Use, float]], nameplate_w: float, used_fraction: float, context: Context
) -> float:
    """J of a year before cooling: what the plan takes at the meter, and idle servers."""
    idle_w = nameplate_w * facility_value("power_fraction", IDLE, context)
    taken_j = sum(meter_j / pue_ratio(use.part.machine, context) for use, meter_j in uses)
    return taken_j + idle_w * (1.0 - used_fraction) * YEAR_S


def server_price(machine: Machine, context: Context) -> tuple[Node, UnitCost] | None:
    """A server with these accelerators and what it costs: a price for it, else for its parts.

    Formula  of parts: accelerator price · count · f, f the median of server over accelerators where both
             are priced
    Why      Most servers are quoted whole; of the others only the accelerators are.
    """
    catalog = context.catalog
    rows = {row.name: row for row in catalog.rows(HardwarePrice)}
    whole = [node for node in catalog.nodes_with(machine.accelerator) if node.name in rows]
    if whole:
        exact = [node for node in whole if node.name == machine.node]
        node = min(exact or whole, key=lambda each: (rows[each.name].usd / each.accelerator_count, each.name))
        row, count, factor = rows[node.name], 1, 1.0
    else:
        servers = [node for node in catalog.nodes_with(machine.accelerator) if node.provider == "onprem"]
        if machine.accelerator not in rows or not servers:
            return None
        node = max(servers, key=lambda each: (each.accelerator_count, each.name))
        row, count = rows[machine.accelerator], node.accelerator_count
        factor = median(
            rows[each.name].usd / (each.accelerator_count * rows[each.accelerator].usd)
            for each in catalog.rows(Node)
            if each.name in rows and each.accelerator in rows
        )
    return node, UnitCost(row.usd * count * factor, f"hardware_prices.csv {row.name}", row.date)


def ratios(plan: Plan, fleets: Sequence[Fleet], context: Context) -> tuple[ledger.RatioRow, ...]:
    """Training over serving per accelerator, per build and over the years, beside what is claimed (R-130)."""
    halves = [[each.bought for each in fleets if each.half == half] for half in ("training", "serving")]
    keys = context.spec.supply.economics
    found = []
    if all(halves):
        train, serve = (max(each, key=lambda one: one.accelerator_count) for each in halves)
        words = f"{train.what} against {serve.what}, with network"
        trained_usd, served_usd = (one.build_usd / one.accelerator_count for one in (train, serve))
        found.append(cost_ratio("per accelerator, bought", trained_usd, served_usd, PER_ACCELERATOR, words))
        trained_usd, served_usd = (sum(one.build_usd for one in each) for each in halves)
        counts = [sum(one.accelerator_count for one in each) for each in halves]
        words = f"{counts[0]:,} accelerators against {counts[1]:,}"
        found.append(cost_ratio("whole build", trained_usd, served_usd, WHOLE_BUILD, words))
    runs = sum(
        run.cost_usd.value * entry.runs_per_year * (keys.years if entry.repeats_every_s else 1)
        for run, entry in zip(plan.training, context.spec.training, strict=True)
        if run.cost_usd
    )
    served = keys.years * sum(one.cost_usd_per_year.value for one in plan.serving if one.cost_usd_per_year)
    if runs and served:
        words = f"serving over training, rented, {keys.years} years; a run that does not repeat is paid once"
        row = cost_ratio("lifetime", served, runs, LIFETIME, words)
        found.append(replace(row, training_usd=runs, serving_usd=served))
    return tuple(found)
