"""A connection that is too small for a plan's servers: what binds, by how much, and what would fit it."""

from collections.abc import Iterator, Sequence
from typing import get_args

from twofold.answer import Context
from twofold.building.entries import Entry
from twofold.building.power import efficiency, it_power_w
from twofold.building.racks import Placed, climate
from twofold.contracts.results import BuiltNetwork, BuiltPower
from twofold.core import InfeasibleError, format_apart, format_enough, format_si
from twofold.facility import CoolingKind, pue


def check_power_cap(
    found: Sequence[Entry],
    racks: Placed,
    built: Sequence[BuiltNetwork],
    delivered: BuiltPower,
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
    built: Sequence[BuiltNetwork],
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
    found: Sequence[Entry], built: Sequence[BuiltNetwork], kind: CoolingKind, context: Context
) -> float:
    return sum(
        it_power_w(entry, built, context) * pue(context.catalog, kind, climate(entry, context))
        for entry in found
    )
