"""The building of a plan: what its servers stand in, what whoever rents them out must have, what it costs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args

from twofold.answer import Context
from twofold.building.cooling import CoolingKind, capex_usd_per_w, pue
from twofold.building.delivery import redundancy
from twofold.building.derive import building_derivations
from twofold.building.entries import Entry, entries, nowhere_note
from twofold.building.network import dataset_bytes, networks, storage
from twofold.building.own import own_year_lines, years_of
from twofold.building.power import MONTHS, efficiency, it_power_w, power, year
from twofold.building.racks import Placed, climate, node_draws, placed
from twofold.building.sites import fewest_regions, ranked, round_trips
from twofold.catalog import figure
from twofold.contracts.results import LineItem, Plan, UnitCost, line_item, premises, total_usd
from twofold.core import InfeasibleError, format_apart, format_enough, format_si


def with_building(plan: Plan, context: Context) -> Plan:
    """The plan with its building and where the building's estimates come from."""
    held, notes = entries(plan, context)
    if not any(entry.servers.count for entry in held):
        return plan
    found = _building(plan, held, notes, context)
    return replace(
        plan,
        building=found,
        warnings=(*plan.warnings, *nowhere_note(held, context)),
        derivations=(*plan.derivations, *building_derivations(found)),
    )


def _building(
    plan: Plan, found: Sequence[Entry], notes: Sequence[str], context: Context
) -> premises.Building:
    """Racks, cooling, networks, storage, power, a year and sites, of the fleets as planned.

    Raises InfeasibleError where one hall would draw more than `facility.power_cap`.
    """
    racks = placed(found, context)
    built = networks(found, racks.racks, context)
    stored = storage(plan, found, context)
    delivered = power(found, racks.groups, built, racks.kinds, context)
    halls = check_power_cap(found, racks, built, delivered, context)
    whole_year = year(found, built, racks.kinds, context)
    data = dataset_bytes(plan, context)
    regions, spare_s = fewest_regions(plan, found, context)
    bill = _bill(found, racks, built, stored, context)
    return premises.Building(
        racks.groups,
        racks.heat,
        racks.training_imbalance_ratio,
        racks.serving_imbalance_ratio,
        racks.cooling,
        node_draws(found, context),
        built,
        stored,
        delivered,
        whole_year,
        ranked(found, racks.groups, built, racks.kinds, data, context),
        data,
        round_trips(plan, found, context),
        regions,
        spare_s,
        _requirements(found, racks.groups, built, stored, delivered),
        bill,
        total_usd(bill),
        (*notes, *halls, *_cap_note(plan, context), *racks.warnings, *_unpriced(found, built)),
    )


def _cap_note(plan: Plan, context: Context) -> tuple[str, ...]:
    """What a cap on power is held against, where the portfolio may have other machines."""
    if context.spec.facility.power_cap_w is None or not (plan.portfolio and plan.portfolio.leases):
        return ()
    return ("`facility.power_cap` is held against these fleets, not against the portfolio's machines",)


def _requirements(
    found: Sequence[Entry],
    groups: Sequence[premises.RackGroup],
    built: Sequence[premises.BuiltNetwork],
    stored: Sequence[premises.BuiltStorage],
    delivered: premises.BuiltPower,
) -> tuple[premises.BuildingRequirement, ...]:
    """What rented machines need of their provider, by run and service."""
    rented = {entry.name for entry in found if not entry.owned}
    if not rented:
        return ()
    told = []
    for group in (each for each in groups if each.name in rented):
        value = f"{format_si(group.rack_w, 'W')} a rack, {group.cooling.replace('_', ' ')}"
        told.append(premises.BuildingRequirement(f"{group.name}: racks", value, "facility: rack_kw"))
    for network in (each for each in built if each.name in rented and each.switch):
        value = f"{network.shape}, {network.note}, survives {network.survives}"
        told.append(
            premises.BuildingRequirement(f"{network.name}: network", value, f"network: {network.switch}")
        )
    for store in (each for each in stored if each.name in rented):
        reads, writes = (format_si(rate, "B/s") for rate in (store.read_bytes_per_s, store.write_bytes_per_s))
        value = f"{store.kind} with {reads} read ({store.read_term}), {writes} written ({store.write_term})"
        told.append(
            premises.BuildingRequirement(f"{store.name}: storage", value, f"storage: {store.product}")
        )
    up = f"{100 * delivered.availability_fraction:.3f} % of power and cooling, {delivered.scheme}"
    return (*told, premises.BuildingRequirement("redundancy", up, "facility: availability"))


def _bill(
    found: Sequence[Entry],
    racks: Placed,
    built: Sequence[premises.BuiltNetwork],
    stored: Sequence[premises.BuiltStorage],
    context: Context,
) -> tuple[LineItem, ...]:
    """What owned machines need built, and its first year: the servers themselves are yours already.

    Energy is that of owned machines: a year of what is rented is in the rent.
    """
    own = {entry.name: entry for entry in found if entry.owned}
    if not own:
        return ()
    items = [_racks_line(group, context) for group in racks.groups if group.name in own]
    for entry in own.values():
        items.append(_facility_line(entry, racks.kinds[entry.name], built, context))
    for network in (each for each in built if each.name in own):
        items += [
            line_item(
                f"{network.name}: {part.part}",
                "network",
                float(part.count),
                part.kind,
                UnitCost(part.unit_usd, f"network: {part.part}"),
            )
            for part in network.parts
            if part.unit_usd is not None
        ]
    for store in (each for each in stored if each.name in own):
        what = f"{store.name}: {store.product}, {store.unit_count} × {store.unit}"
        items.append(
            line_item(
                what, "storage", MONTHS, "month", UnitCost(store.usd_per_month, f"storage: {store.product}")
            )
        )
    for spent in years_of(tuple(own.values()), built, racks.kinds, context).values():
        items += own_year_lines(spent)
    return tuple(items)


def _unpriced(found: Sequence[Entry], built: Sequence[premises.BuiltNetwork]) -> list[str]:
    """Parts of owned machines' networks that no table prices: what the bill leaves out."""
    owned = {entry.name for entry in found if entry.owned}
    told = []
    for network in (each for each in built if each.name in owned):
        parts = [f"{part.count:,} × {part.part}" for part in network.parts if part.unit_usd is None]
        parts = parts or ([network.note] if not network.switch else [])
        if parts:
            told.append(f"{network.name}: not in the bill, since nobody prices it: {', '.join(parts)}")
    return told


def _racks_line(group: premises.RackGroup, context: Context) -> LineItem:
    usd = figure(context.catalog, "rack", "rack with power strips").value
    what = f"{group.name}: racks with power strips"
    return line_item(
        what, "facility", group.rack_count, "rack", UnitCost(usd, "facility: rack with power strips")
    )


def _facility_line(
    entry: Entry, kind: CoolingKind, built: Sequence[premises.BuiltNetwork], context: Context
) -> LineItem:
    """Shell, power and cooling, with the tier's redundancy: once, for as long as the building stands."""
    kw = it_power_w(entry, built, context) / 1e3
    tier = redundancy(context.catalog, context.spec.facility.tier)
    usd = capex_usd_per_w(context.catalog, kind).value * 1e3 * tier.capex_factor
    what = f"{entry.name}: building, power and cooling, {kind.replace('_', ' ')}, {tier.scheme}"
    return line_item(what, "capex", kw, "kW", UnitCost(usd, "facility: capex_facility, redundancy_cost"))


def check_power_cap(
    found: Sequence[Entry],
    racks: Placed,
    built: Sequence[premises.BuiltNetwork],
    delivered: premises.BuiltPower,
    context: Context,
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
        entry.name: it_power_w(entry, built, context)
        * efficiency(entry, racks.kinds[entry.name], context).pue_ratio
        for entry in found
    }
    hall = max(_halls(found), key=lambda each: sum(meters[entry.name] for entry in each))
    meter_w = sum(meters[entry.name] for entry in hall)
    if meter_w <= cap_w:
        limit = f"`facility.power_cap` of {format_si(cap_w, 'W')}"
        return (f"{limit} is of one hall, which draws {format_si(meter_w, 'W')}: the plan stands in several",)
    needed, limit = format_apart(meter_w, cap_w, "W")
    parts = [
        f"{entry.name} {format_si(meters[entry.name], 'W')} ({_servers(entry.servers.count)})"
        for entry in hall
    ]
    raise InfeasibleError(
        f"the building exceeds `facility.power_cap` of {limit}",
        lines=(
            ("needs", f"{needed} at the meter: {' · '.join(parts)}"),
            ("binds", f"power at the meter: {format_si(meter_w - cap_w, 'W')} too little"),
            ("would fit", " · ".join(_fitting(hall, racks, built, meter_w, cap_w, context))),
        ),
    )


def _halls(found: Sequence[Entry]) -> list[list[Entry]]:
    """What stands together: by region, of one's own machines alone where there are any."""
    own = [entry for entry in found if entry.owned]
    halls: dict[str, list[Entry]] = {}
    for entry in own or found:
        place = f"{entry.region.provider}:{entry.region.name}" if entry.region else entry.provider
        halls.setdefault(place, []).append(entry)
    return list(halls.values())


def _servers(count: int) -> str:
    return f"{count:,} server{'' if count == 1 else 's'}"


def _fitting(
    found: Sequence[Entry],
    racks: Placed,
    built: Sequence[premises.BuiltNetwork],
    meter_w: float,
    cap_w: float,
    context: Context,
) -> Iterator[str]:
    """A larger connection, a cooling that wastes less where it is enough, or fewer servers."""
    yield f"a connection of {format_enough(meter_w, 'W')}"
    meters = {kind: _meter_w(found, built, kind, context) for kind in _possible(racks)}
    kind = min(meters, key=lambda each: meters[each], default=None)
    if kind is not None and meters[kind] <= cap_w and context.spec.facility.pue_ratio is None:
        yield f"`facility.cooling: {kind}`, which draws {format_si(meters[kind], 'W')}"
    servers = sum(entry.servers.count for entry in found)
    if fewer := int(servers * cap_w / meter_w):
        yield f"about {fewer:,} of the {servers:,} servers: a later deadline, looser objectives"


def _possible(racks: Placed) -> list[CoolingKind]:
    """Ways of cooling that hold every server of the plan."""
    kinds = [{way.kind for way in choice.ways if way.feasible} for choice in racks.cooling]
    return [kind for kind in get_args(CoolingKind) if all(kind in each for each in kinds)] if kinds else []


def _meter_w(
    found: Sequence[Entry], built: Sequence[premises.BuiltNetwork], kind: CoolingKind, context: Context
) -> float:
    return sum(
        it_power_w(entry, built, context) * pue(context.catalog, kind, climate(entry, context))
        for entry in found
    )
