"""The building of a plan: what its servers stand in, what whoever rents them out must have, what it costs."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from twofold.answer.context import Context
from twofold.building.cooling import COOLING_KINDS, capex_usd_per_w, pue
from twofold.building.delivery import redundancy
from twofold.building.derive import building_derivations
from twofold.building.entries import Entry, entries
from twofold.building.network import dataset_bytes, networks, storage
from twofold.building.own import billed, own_year_lines, years_of
from twofold.building.power import MONTHS, Housed, efficiency, it_power_w, power, year
from twofold.building.racks import climate, node_draws, placed
from twofold.building.sites import fewest_regions, ranked, round_trips
from twofold.catalog.figures import figure
from twofold.contracts.results import premises
from twofold.contracts.results.ledger import LineItem, UnitCost, line_item, total_usd
from twofold.contracts.results.plan import Plan
from twofold.core import record
from twofold.core.display import format_apart, format_enough, format_si
from twofold.core.errors import InfeasibleError


def with_building(plan: Plan, context: Context) -> Plan:
    """The plan with its building and where the building's estimates come from.

    Rented servers stand in somebody else's: the decision needs theirs where `facility.power_cap` bounds it.
    Raises InfeasibleError where one hall would draw more than that.
    """
    found, notes = entries(plan, context)
    is_needed = context.in_full or context.spec.facility.power_cap_w is not None
    if not any(entry.servers.count and (is_needed or entry.owned) for entry in found):
        return plan
    racks, unheld = placed(found, context)
    housed = Housed(found, racks.racks, networks(found, racks.heat, context), context)
    with record.recording() as book:
        building = _building(plan, racks, unheld, housed, notes)
    warnings = plan.warnings
    if nowhere := [entry.name for entry in found if entry.region is None]:
        told = context.spec.facility.electricity_usd_per_kwh is not None
        tariff = "the tariff that is stated" if told else "the mean tariff of US industry"
        places = f"no table has the place of {', '.join(nowhere)}"
        warnings += (f"{places}: {tariff}, the middle of all grids for its CO2",)
    rows = building_derivations(building, housed, book) if context.in_full else ()
    return replace(plan, building=building, warnings=warnings, derivations=(*plan.derivations, *rows))


def _building(
    plan: Plan, racks: premises.Racks, unheld: tuple[str, ...], housed: Housed, notes: tuple[str, ...]
) -> premises.Building:
    """Racks, cooling, networks, storage, power, a year and sites of the fleets as planned."""
    found, context = housed.entries, housed.context
    stored = storage(plan, found, context)
    delivered = power(housed)
    notes += check_power_cap(housed, racks.cooling, delivered)
    if delivered.cap_w is not None and plan.portfolio and plan.portfolio.leases:
        notes += ("`facility.power_cap` is held against these fleets, not against the portfolio's machines",)
    data = dataset_bytes(plan, context)
    regions, spare_s = fewest_regions(plan, found, context)
    bill = _bill(housed, stored)
    return premises.Building(
        **{each.name: getattr(racks, each.name) for each in fields(racks)},
        nodes=node_draws(found, context),
        networks=housed.networks,
        storage=stored,
        power=delivered,
        year=year(housed),
        sites=ranked(housed, data),
        dataset_bytes=data,
        users=round_trips(plan, found, context),
        split=regions,
        split_budget_s=spare_s,
        requirements=_requirements(housed, stored, delivered),
        bill=bill,
        bill_usd=total_usd(bill),
        warnings=(*notes, *unheld, *_unpriced(housed)),
    )


def _requirements(
    housed: Housed, stored: Sequence[premises.BuiltStorage], delivered: premises.BuiltPower
) -> tuple[premises.BuildingRequirement, ...]:
    """What rented machines need of their provider, by run and service."""
    rented = {entry.name for entry in housed.entries if not entry.owned}
    if not rented:
        return ()
    told = []
    for group in (each for each in housed.groups if each.name in rented):
        value = f"{format_si(group.rack_w, 'W')} a rack, {group.cooling.replace('_', ' ')}"
        told.append((f"{group.name}: racks", value, "facility: rack_kw"))
    for network in (each for each in housed.networks if each.name in rented and each.switch):
        value = f"{network.shape}, {network.note}, survives {network.survives}"
        told.append((f"{network.name}: network", value, f"network: {network.switch}"))
    for store in (each for each in stored if each.name in rented):
        reads, writes = (format_si(rate, "B/s") for rate in (store.read_bytes_per_s, store.write_bytes_per_s))
        value = f"{store.kind} with {reads} read ({store.read_term}), {writes} written ({store.write_term})"
        told.append((f"{store.name}: storage", value, f"storage: {store.product}"))
    up = f"{100 * delivered.availability_fraction:.3f} % of power and cooling, {delivered.scheme}"
    told.append(("redundancy", up, "facility: availability"))
    return tuple(premises.BuildingRequirement(*each) for each in told)


def _bill(housed: Housed, stored: Sequence[premises.BuiltStorage]) -> tuple[LineItem, ...]:
    """What owned machines need built, and its first year: the servers themselves are yours already.

    Shell, power and cooling, with the tier's redundancy, are paid once, for as long as the building stands.
    Energy is that of owned machines: a year of what is rented is in the rent.
    """
    own = {entry.name: entry for entry in housed.entries if entry.owned}
    if not own:
        return ()
    catalog, strips = housed.context.catalog, "rack with power strips"
    rack = UnitCost(figure(catalog, "rack", strips).value, f"facility: {strips}")
    items = [
        line_item(f"{group.name}: racks with power strips", "facility", group.rack_count, "rack", rack)
        for group in housed.groups
        if group.name in own
    ]
    tier = redundancy(catalog, housed.context.spec.facility.tier)
    for name, entry in own.items():
        kind = housed.cooling(entry)
        usd = capex_usd_per_w(catalog, kind).value * 1e3 * tier.capex_factor
        what = f"{name}: building, power and cooling, {kind.replace('_', ' ')}, {tier.scheme}"
        cost = UnitCost(usd, "facility: capex_facility, redundancy_cost")
        items.append(line_item(what, "capex", it_power_w(entry, housed) / 1e3, "kW", cost))
    for network in (each for each in housed.networks if each.name in own):
        for part in network.parts:
            if part.unit_usd is not None:
                what, cost = f"{network.name}: {part.part}", UnitCost(part.unit_usd, f"network: {part.part}")
                items.append(line_item(what, "network", float(part.count), part.kind, cost))
    for store in (each for each in stored if each.name in own):
        what = f"{store.name}: {store.product}, {store.unit_count} × {store.unit}"
        cost = UnitCost(store.usd_per_month, f"storage: {store.product}")
        items.append(line_item(what, "storage", MONTHS, "month", cost))
    for spent in billed(years_of(housed)).values():
        items += own_year_lines(spent)
    return tuple(items)


def _unpriced(housed: Housed) -> Iterator[str]:
    """Parts of owned machines' networks that no table prices: what the bill leaves out."""
    owned = {entry.name for entry in housed.entries if entry.owned}
    for network in (each for each in housed.networks if each.name in owned):
        parts = [f"{part.count:,} × {part.part}" for part in network.parts if part.unit_usd is None]
        if parts := parts or ([network.note] if not network.switch else []):
            yield f"{network.name}: not in the bill, since nobody prices it: {', '.join(parts)}"


def check_power_cap(
    housed: Housed, cooling: Sequence[premises.CoolingChoice], delivered: premises.BuiltPower
) -> tuple[str, ...]:
    """What to know where no one hall exceeds `facility.power_cap` but all of the plan's together do.

    Formula  meter of a hall = sum of (servers, network and storage) × PUE of each run and service in it
    Limits   The cap is of the building: where the spec has machines of its own, of what stands in theirs;
             else of the servers that are rented in one place.
    Why      Breakers trip on the maximum, not on the mean.
    Raises InfeasibleError when all servers of a hall at their maximum draw more than the cap.
    """
    cap_w = delivered.cap_w
    if cap_w is None or delivered.meter_w <= cap_w:
        return ()
    meters = {
        entry.name: it_power_w(entry, housed) * efficiency(entry, housed).pue_ratio
        for entry in housed.entries
    }
    halls: dict[str, list[Entry]] = {}
    for entry in [each for each in housed.entries if each.owned] or housed.entries:
        halls.setdefault(entry.place or entry.provider, []).append(entry)
    hall = max(halls.values(), key=lambda each: sum(meters[entry.name] for entry in each))
    meter_w = sum(meters[entry.name] for entry in hall)
    if meter_w <= cap_w:
        limit = f"`facility.power_cap` of {format_si(cap_w, 'W')}"
        return (f"{limit} is of one hall, which draws {format_si(meter_w, 'W')}: the plan stands in several",)
    needed, limit = format_apart(meter_w, cap_w, "W")
    parts = [
        f"{entry.name} {format_si(meters[entry.name], 'W')} "
        f"({entry.servers.count:,} server{'' if entry.servers.count == 1 else 's'})"
        for entry in hall
    ]
    raise InfeasibleError(
        f"the building exceeds `facility.power_cap` of {limit}",
        lines=(
            ("needs", f"{needed} at the meter: {' · '.join(parts)}"),
            ("binds", f"power at the meter: {format_si(meter_w - cap_w, 'W')} too little"),
            ("would fit", " · ".join(_fitting(hall, cooling, meter_w, cap_w, housed))),
        ),
    )


def _fitting(
    hall: Sequence[Entry],
    cooling: Sequence[premises.CoolingChoice],
    meter_w: float,
    cap_w: float,
    housed: Housed,
) -> Iterator[str]:
    """A larger connection, a cooling that wastes less where it is enough, or fewer servers."""
    context = housed.context
    yield f"a connection of {format_enough(meter_w, 'W')}"
    able = [{way.kind for way in choice.ways if way.feasible} for choice in cooling]
    meters = {
        kind: sum(
            it_power_w(entry, housed) * pue(context.catalog, kind, climate(entry, context)) for entry in hall
        )
        for kind in COOLING_KINDS
        if all(kind in kinds for kinds in able)  # that hold every server of the plan
    }
    kind = min(meters, key=lambda each: meters[each], default=None)
    if kind is not None and meters[kind] <= cap_w and context.spec.facility.pue_ratio is None:
        yield f"`facility.cooling: {kind}`, which draws {format_si(meters[kind], 'W')}"
    servers = sum(entry.servers.count for entry in hall)
    if fewer := int(servers * cap_w / meter_w):
        yield f"about {fewer:,} of the {servers:,} servers: a later deadline, looser objectives"
