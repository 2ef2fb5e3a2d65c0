"""The year of machines of one's own: what the bill, owning against renting and the building all count.

Machines that stand draw all year, whether they work or not; work adds to it. Two that share machines share
what these draw at rest: it is counted with whoever uses most. A bill has of it what each pays for its own
time on its own nodes; the rest is idle, which nobody is billed for.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from twofold.answer.context import Context
from twofold.building.entries import COLLECTED, electricity, entries
from twofold.building.power import MONTHS, Housed, efficiency, monthly_peak_w, rest_w, work_w, year
from twofold.contracts.results.ledger import LineItem, UnitCost, line_item
from twofold.contracts.results.plan import Plan
from twofold.core.quantity import J_PER_KWH, YEAR_S

IDLE = "idle"  # whose the rest of the year is


@dataclass(frozen=True, slots=True)
class OwnYear:
    """What a run or a service takes of machines of one's own in its first year."""

    name: str
    machines: str  # in words: `1 × DGX-H100`
    unit_count: int  # servers that stand; 0: on another's, which count them
    rest_j: float  # before cooling, all year; 0 where another counts it
    work_j: float  # before cooling, over the rest
    pue_ratio: float
    pue_source: str
    tariff: UnitCost  # of a kWh
    demand_usd: float  # for the peak of each month
    demand_rest_usd: float  # of it, what is asked if nothing works on them
    host: str  # whose machines they are: the one that counts their rest
    time_fraction: float = 1.0  # of the year and of the host's nodes, in which it has them

    @property
    def it_j(self) -> float:
        return self.rest_j + self.work_j


def own_years(plan: Plan, context: Context) -> dict[str, OwnYear]:
    """By run and service on machines of one's own, as the building has them."""
    if plan.building is None:
        return {}
    found, _ = entries(plan, context)
    return years_of(Housed(found, plan.building.racks, plan.building.networks, context))


def years_of(housed: Housed) -> dict[str, OwnYear]:
    """The year of every entry that is owned, and of its guests: together they are the building's year of it.

    Formula  rest = servers at rest + network and storage; work = what each adds over that, all year long
    """
    found: dict[str, OwnYear] = {}
    for entry in (each for each in housed.entries if each.owned):
        whole, cooled = year(replace(housed, entries=(entry,))), efficiency(entry, housed)
        peak_w, rests_w = monthly_peak_w(entry, housed), rest_w(entry, housed).value
        demand_rest_usd = whole.demand_usd * rests_w / peak_w if peak_w else 0.0
        for each in (entry, *entry.guests):
            stays = each is entry
            found[each.name] = OwnYear(
                each.name,
                f"{entry.servers.count} × {entry.servers.node.name}",
                entry.servers.count if stays else 0,
                rests_w * YEAR_S if stays else 0.0,
                work_w(each, housed.context).value * YEAR_S,
                cooled.pue_ratio,
                cooled.source,
                electricity([entry.region], housed.context),
                whole.demand_usd if stays else 0.0,
                demand_rest_usd if stays else 0.0,
                entry.name,
                each.servers.count
                / entry.servers.count
                * (each.busy_fraction if each.servers.use == "training" else 1.0),
            )
    return found


def billed(years: Mapping[str, OwnYear], over: Collection[str] = ()) -> dict[str, OwnYear]:
    """What each pays for its own time on its own nodes, and `idle` what is left; nothing for what is `over`.

    Formula  rest_i = rest · min(time_i · nodes_i / nodes, what others before it leave); idle is the
             rest of it; demand = at rest, in the same shares, + what its work adds to the months' peaks
    Why      Machines stand whether a run works on them or not: that cost does not depend on the run, and
             more nodes for fewer days are not dearer for it. All of it together is the building's year.
    """
    found: dict[str, OwnYear] = {}
    left = {own.name: 1.0 for own in years.values() if own.unit_count}
    peaks_usd = {own.name: own.demand_usd - own.demand_rest_usd for own in years.values() if own.name in left}
    for own in sorted(years.values(), key=lambda each: not each.unit_count):
        if own.name in over:
            continue
        stands = years[own.host]
        share = min(own.time_fraction, left[own.host])
        left[own.host] -= share
        found[own.name] = replace(
            own,
            rest_j=stands.rest_j * share,
            demand_usd=stands.demand_rest_usd * share + peaks_usd.pop(own.host, 0.0),
            demand_rest_usd=stands.demand_rest_usd * share,
        )
    for host, share in left.items():
        stands = years[host]
        rest_j, usd = stands.rest_j * share, stands.demand_rest_usd * share
        if share > 0.0:
            idle = replace(stands, name=f"{IDLE}, {host}", rest_j=rest_j, work_j=0.0, time_fraction=share)
            found[idle.name] = replace(idle, demand_usd=usd, demand_rest_usd=usd)
    return {name: found[name] for name in (*years, *found) if name in found}


def own_year_lines(own: OwnYear, tax_fraction: float = 0.0) -> tuple[LineItem, ...]:
    """Energy at the meter and the charge for its peaks, as every bill has them."""
    when = "a year, at work and at rest" if own.time_fraction >= 1.0 else "while it works on them"
    if own.name.startswith(IDLE):
        when = "at rest, while nothing works on them"
    what = f"{own.name}: energy of {own.machines}, {when}"
    if not own.rest_j:
        what = f"{own.name}: energy of its work on {own.machines} that stand anyway"
    kwh = own.it_j * own.pue_ratio / J_PER_KWH
    lines = [line_item(what, "energy", kwh, "kWh", own.tariff, tax_fraction=tax_fraction)]
    if own.demand_usd:
        what = f"{own.name}: demand charge for the peaks of {own.machines}, {when}"
        lines.append(
            line_item(what, "energy", MONTHS, "month", demand_month([own]), tax_fraction=tax_fraction)
        )
    return tuple(lines)


def demand_month(own: Sequence[OwnYear]) -> UnitCost:
    """The charge for the peaks of a month."""
    return UnitCost(sum(each.demand_usd for each in own) / MONTHS, "facility.csv demand charge", COLLECTED)
