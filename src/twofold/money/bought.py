"""The same machines bought and rented: lines of both bills, yearly cash, and the use at which they cross."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, log1p

from twofold.contracts.results import ledger
from twofold.contracts.results.ledger import LineItem, UnitCost, line_item, total_usd
from twofold.core.quantity import J_PER_KWH, YEAR_H

W_PER_KW = 1e3
NO_INTEREST = 1e-12
PAID_OFF = ("capex", "financing")  # what a loan pays; everything else is operating expense


@dataclass(frozen=True, slots=True)
class Standing:
    """The hall that machines of one's own stand in already."""

    pue_ratio: float
    pue_source: str
    electricity: UnitCost  # one kWh
    demand_month: UnitCost  # for the peak of each month


@dataclass(frozen=True, slots=True)
class Bought:
    """Machines of one kind that are bought, with their share of network and storage."""

    what: str  # `64 × DGX-H100`
    node_count: int
    accelerator_count: int
    node: UnitCost  # one server
    network: UnitCost  # per server: switch ports, optics and cables
    storage_tb: float
    storage_tb_month: UnitCost
    provisioned_w: float  # of all servers: what the hall must provide
    it_j_per_year: float  # what they draw in each year as the plan uses them, before cooling
    it_j_once: float = 0.0  # in the first year besides: runs that do not repeat
    standing: Standing | None = None  # None: they would stand in a hall on the terms of owning

    @property
    def build_usd(self) -> float:
        """The servers with their network."""
        return self.node_count * (self.node.usd + self.network.usd)


@dataclass(frozen=True, slots=True)
class OwningTerms:
    """What owning costs beside the machines."""

    years: int  # machines are held and paid off over
    life_years: float  # over which they are written off
    cost_of_capital_fraction: float  # a year
    electricity: UnitCost  # one kWh
    pue_ratio: float
    pue_source: str
    hall: UnitCost  # one kW of IT and a month: space, power and cooling plant
    maintenance_fraction: float  # of the machines' price and a year
    maintenance_source: str
    staff_count: float
    salary: UnitCost  # one person and year
    tax_fraction: float = 0.0
    figures_date: str = ""  # when the figures without a date of their own held


def annuity_fraction(rate_fraction: float, years: int) -> float:
    """Part of a loan that is paid back, with interest, in each of `years` equal payments.

    Formula  r / (1 − (1 + r)^−n); 1/n without interest

    >>> round(annuity_fraction(0.08, 5), 4)
    0.2505
    """
    if rate_fraction < NO_INTEREST:
        return 1.0 / years
    return -rate_fraction / expm1(-years * log1p(rate_fraction))


def owned_lines(bought: Sequence[Bought], terms: OwningTerms) -> tuple[LineItem, ...]:
    """Everything that owning costs over the years it is held: the lines sum to the total to the cent (R-129).

    Formula  capex + interest of a loan over the same years + (power + cooling + hall + upkeep + storage +
             staff)·years − what the machines are still worth
    Why      Capital, operation and financing are apart, since who decides pays them from different budgets.
    Units    USD over `terms.years`.
    Source   Barroso, Hölzle and Ranganathan 2018, the datacenter as a computer, chapter 6.
    Limits   straight-line value: nothing is left after `life_years`. No tax on interest.
    """
    years, tax = terms.years, terms.tax_fraction
    lines: list[LineItem] = []
    for each in bought:
        kwh = (each.it_j_per_year * years + each.it_j_once) / J_PER_KWH
        pue_ratio, pue_source, power = _energy_terms(each, terms)
        cooling = UnitCost(power.usd, f"{power.source}; {pue_source}", power.date)
        demand = each.standing.demand_month if each.standing else UnitCost(0.0, "")
        upkeep_usd = each.build_usd * terms.maintenance_fraction
        upkeep = UnitCost(upkeep_usd, terms.maintenance_source, terms.figures_date)
        kw, nodes = each.provisioned_w / W_PER_KW, float(each.node_count)
        rows = (
            (f"servers: {each.what}", "capex", nodes, "server", each.node),
            (f"network of {each.what}", "capex", nodes, "server", each.network),
            (f"power of {each.what}", "energy", kwh, "kWh", power),
            (f"cooling of {each.what}", "cooling", kwh * (pue_ratio - 1.0), "kWh", cooling),
            (
                f"demand charge of {each.what}, all year",
                "energy",
                12.0 * years if demand.usd else 0.0,
                "month",
                demand,
            ),
            (f"hall of {each.what}", "facility", kw * 12.0 * years, "kW-month", terms.hall),
            (f"upkeep of {each.what}", "support", float(years), "year", upkeep),
            (
                f"storage of {each.what}",
                "storage",
                each.storage_tb * 12.0 * years,
                "TB-month",
                each.storage_tb_month,
            ),
        )
        lines += [line_item(*row, tax_fraction=tax) for row in rows if row[2] > 0]
    capex = total_usd(line for line in lines if line.category == "capex")
    loan_usd = capex * (annuity_fraction(terms.cost_of_capital_fraction, years) * years - 1.0)
    rate = f"{100 * terms.cost_of_capital_fraction:g} % a year over {years} years"
    interest = UnitCost(loan_usd, f"capex lines, {rate}", terms.figures_date)
    lines.append(line_item(f"interest: {rate}", "financing", 1.0, "loan", interest))
    lines.append(line_item("staff", "staff", terms.staff_count * years, "person-year", terms.salary))
    left = max(0.0, 1.0 - years / terms.life_years)
    if left > 0:
        servers_usd = sum(each.node_count * each.node.usd for each in bought)
        over = f"straight-line over {terms.life_years:g} years"
        worth = UnitCost(-servers_usd, over, terms.figures_date)
        what = f"still worth after {years} of {terms.life_years:g} years"
        lines.append(line_item(what, "capex", left, "of servers", worth))
    return tuple(lines)


def _energy_terms(each: Bought, terms: OwningTerms) -> tuple[float, str, UnitCost]:
    """PUE, its source and a kWh: where the machines stand already, else on the terms of owning."""
    if each.standing:
        return each.standing.pue_ratio, each.standing.pue_source, each.standing.electricity
    return terms.pue_ratio, terms.pue_source, terms.electricity


def once_usd(bought: Sequence[Bought], terms: OwningTerms) -> float:
    """What of the lines is paid in the first year alone: power and cooling of runs that do not repeat."""
    usd = 0.0
    for each in bought:
        pue_ratio, _, price = _energy_terms(each, terms)
        usd += each.it_j_once / J_PER_KWH * pue_ratio * price.usd
    return usd * (1.0 + terms.tax_fraction)


def cash_flow(
    owned: Sequence[LineItem],
    rented: Sequence[LineItem],
    terms: OwningTerms,
    rented_later: Sequence[LineItem] | None = None,
    *,
    owned_once_usd: float = 0.0,
) -> tuple[ledger.CashStep, ...]:
    """The same plan as cash, year by year: the years add up to both totals to the cent (R-136).

    Formula  a loan over the years: each pays annuity = repayment + interest on what is left of it
    Why      Repayment is capital, interest is financing, the rest is operation; rent is operation alone.
    Units    USD. `rented` is the bill of the first year, `rented_later` of each one after it; None: the same.
             `owned_once_usd`: of the owned lines, what is paid in the first year besides.
    """
    positive = [line for line in owned if line.category == "capex" and line.total_usd >= 0]
    capex, resale = total_usd(positive), -total_usd(line for line in owned if line.total_usd < 0)
    financing = total_usd(line for line in owned if line.category == "financing")
    opex = total_usd(line for line in owned if line.category not in PAID_OFF)
    first = total_usd(rented)
    later = first if rented_later is None else total_usd(rented_later)
    years, rate = terms.years, terms.cost_of_capital_fraction
    yearly = (opex - owned_once_usd) / years
    left, repaid, interest = capex, [], []
    for _ in range(years):
        interest.append(left * rate)
        repaid.append(capex * annuity_fraction(rate, years) - left * rate)
        left -= repaid[-1]
    cents = zip(
        _in_cents(repaid, capex),
        _in_cents(interest, financing),
        _in_cents([yearly + owned_once_usd, *[yearly] * (years - 1)], opex),
        [*[0] * (years - 1), round(resale * 100)],
        strict=True,
    )
    return tuple(
        ledger.CashStep(
            year=index + 1,
            capex_usd=paid / 100,
            financing_usd=lent / 100,
            opex_usd=spent / 100,
            resale_usd=back / 100,
            owned_usd=(paid + lent + spent - back) / 100,
            rented_usd=later if index else first,
        )
        for index, (paid, lent, spent, back) in enumerate(cents)
    )


def _in_cents(amounts: Sequence[float], total: float) -> list[int]:
    """Whole cents that add up to the total's: what rounding leaves goes to the last."""
    cents = [round(amount * 100) for amount in amounts]
    return [*cents[:-1], round(total * 100) - sum(cents[:-1])]


def present_usd(flows: Sequence[float], rate_fraction: float) -> float:
    """Flows at the ends of years 1, 2, … as money of today.

    >>> round(present_usd([110.0, 121.0], 0.1), 6)
    200.0
    """
    return sum(flow / (1.0 + rate_fraction) ** (year + 1) for year, flow in enumerate(flows))


def crossing_utilisation(
    owned_usd_per_year: float, accelerator_count: int, rent_usd_per_accelerator_h: float
) -> float:
    """Part of the year for which machines must be used so that owning costs as much as renting by the hour.

    Formula  owned / (accelerators · 8760 · rent)
    Why      An owned machine costs the same whether it is used or not; a rented one goes back.
    Limits   above 1: renting is cheaper even all year round. Power that idle machines save is left out.

    >>> crossing_utilisation(8760.0, 1, 2.0)
    0.5
    """
    rented = accelerator_count * YEAR_H * rent_usd_per_accelerator_h
    return owned_usd_per_year / rented if rented > 0 else float("inf")
