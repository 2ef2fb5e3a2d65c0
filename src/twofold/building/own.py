"""The year of machines of one's own: what the bill, owning against renting and the building all count.

Machines that stand draw all year, whether they work or not; work adds to it. Two that share machines share
what these draw at rest: it is counted with whoever uses most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from twofold.answer.context import Context
from twofold.building.entries import COLLECTED, electricity, entries
from twofold.building.power import MONTHS, Housed, efficiency, monthly_peak_w, rest_w, work_w, year
from twofold.contracts.results.ledger import LineItem, UnitCost, line_item
from twofold.contracts.results.plan import Plan
from twofold.core.quantity import J_PER_KWH, YEAR_S


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

    @property
    def it_j(self) -> float:
        return self.rest_j + self.work_j


def own_years(plan: Plan, context: Context, shares: Mapping[str, float] | None = None) -> dict[str, OwnYear]:
    """By run and service on machines of one's own, as the building has them; of shares of their work."""
    if plan.building is None:
        return {}
    found, _ = entries(plan, context)
    years = years_of(Housed(found, plan.building.racks, plan.building.networks, context))
    return years if shares is None else at_work(years, shares)


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
            )
    return found


def at_work(years: Mapping[str, OwnYear], shares: Mapping[str, float]) -> dict[str, OwnYear]:
    """The same machines where runs and services do only a share of their work; all of it where none is given.

    Formula  work · share; demand = at rest + (as planned − at rest) · the largest share on these machines
    Why      Machines stand whether they work or not; a month in which none works has no peak of its own.
    Limits   the peaks are in proportion, as of a run that repeats less often: a service that is as busy for
             a shorter part of the day pays for a higher one.
    """
    largest: dict[str, float] = {}
    for name, own in years.items():
        largest[own.host] = max(largest.get(own.host, 0.0), shares.get(name, 1.0))
    return {
        name: replace(
            own,
            work_j=own.work_j * shares.get(name, 1.0),
            demand_usd=own.demand_rest_usd + (own.demand_usd - own.demand_rest_usd) * largest[own.host],
        )
        for name, own in years.items()
    }


def own_year_lines(own: OwnYear, tax_fraction: float = 0.0) -> tuple[LineItem, ...]:
    """Energy at the meter and the charge for its peaks, as every bill has them."""
    what = f"{own.name}: energy of {own.machines}, a year, at work and at rest"
    if not own.unit_count:
        what = f"{own.name}: energy of its work on {own.machines} that stand anyway"
    kwh = own.it_j * own.pue_ratio / J_PER_KWH
    lines = [line_item(what, "energy", kwh, "kWh", own.tariff, tax_fraction=tax_fraction)]
    if own.demand_usd:
        what = f"{own.name}: demand charge for the peaks of {own.machines}"
        lines.append(
            line_item(what, "energy", MONTHS, "month", demand_month([own]), tax_fraction=tax_fraction)
        )
    return tuple(lines)


def demand_month(own: Sequence[OwnYear]) -> UnitCost:
    """The charge for the peaks of a month."""
    return UnitCost(sum(each.demand_usd for each in own) / MONTHS, "facility.csv demand charge", COLLECTED)
