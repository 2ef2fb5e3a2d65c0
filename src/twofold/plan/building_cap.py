"""A connection that is too small for a plan's servers: what binds, by how much, and what would fit it."""

from collections.abc import Iterator, Sequence
from typing import get_args

from twofold.contracts import BuiltNetwork, BuiltPower
from twofold.core import InfeasibleError, format_si
from twofold.facility import CoolingKind, pue
from twofold.plan.building_entries import Entry
from twofold.plan.building_power import efficiency, it_power_w
from twofold.plan.building_racks import Placed, climate
from twofold.plan.context import Context


def check_power_cap(
    found: Sequence[Entry],
    racks: Placed,
    built: Sequence[BuiltNetwork],
    delivered: BuiltPower,
    context: Context,
) -> None:
    """Raises InfeasibleError when all servers at their maximum draw more than `facility.power_cap`.

    Formula  meter = sum of (servers, network and storage) × PUE of each run and service
    Why      Breakers trip on the maximum, not on the mean.
    """
    cap_w = delivered.cap_w
    if cap_w is None or delivered.meter_w <= cap_w:
        return
    parts = []
    for entry in found:
        own = efficiency(entry, racks.kinds[entry.name], context)
        meter_w = it_power_w(entry, built, context) * own.pue_ratio
        parts.append(f"{entry.name} {format_si(meter_w, 'W')} ({entry.servers.count:,} servers)")
    raise InfeasibleError(
        f"the building exceeds `facility.power_cap` of {format_si(cap_w, 'W')}",
        lines=(
            ("needs", f"{format_si(delivered.meter_w, 'W')} at the meter: {' · '.join(parts)}"),
            ("binds", f"power at the meter: {format_si(delivered.meter_w - cap_w, 'W')} too little"),
            ("would fit", " · ".join(_fitting(found, racks, built, delivered, cap_w, context))),
        ),
    )


def _fitting(
    found: Sequence[Entry],
    racks: Placed,
    built: Sequence[BuiltNetwork],
    delivered: BuiltPower,
    cap_w: float,
    context: Context,
) -> Iterator[str]:
    """A larger connection, a cooling that wastes less where it is enough, or fewer servers."""
    yield f"a connection of {format_si(delivered.meter_w, 'W')}"
    meters = {kind: _meter_w(found, built, kind, context) for kind in _possible(racks)}
    kind = min(meters, key=lambda each: meters[each], default=None)
    if kind is not None and meters[kind] <= cap_w and context.spec.facility.pue_ratio is None:
        yield f"`facility.cooling: {kind}`, which draws {format_si(meters[kind], 'W')}"
    servers = sum(entry.servers.count for entry in found)
    fewer = int(servers * cap_w / delivered.meter_w)
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
