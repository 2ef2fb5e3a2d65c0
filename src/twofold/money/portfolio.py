"""The portfolio's first year on the terms of the bill: the same kinds of lines, so that both compare."""

from collections.abc import Container, Iterator, Sequence

from twofold.answer.context import Context
from twofold.building.own import own_year_lines, own_years
from twofold.contracts.results import ledger
from twofold.contracts.results.holdings import Portfolio
from twofold.contracts.results.ledger import LineItem, UnitCost, cents, line_item, total_usd
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.core import record
from twofold.core.display import format_usd
from twofold.core.quantity import YEAR_H
from twofold.money.bill import LEAST_USD, energy_line, kept_lines
from twofold.portfolio.report import by_lease
from twofold.portfolio.solved import NOT_PROMISED, uncorrected

CENT_USD = 0.01
WEEK_H = 7 * 24
BY_REQUEST = "million requests"  # the unit of lines that follow the traffic
ON_TIME, MET = ("on time", "–"), ("met", "–")


def portfolio_bill(plan: Plan, lines: Sequence[LineItem], context: Context) -> ledger.PortfolioBill | None:
    """The portfolio's own lines, and what it leaves out of those of the plan; None without a portfolio.

    Formula  its rent, support, egress and storage with tax + file systems of its runs + energy of own
             machines + what the rules ask for + runs and services that are not in it, as the plan has them
    Units    a portfolio's year has 52 weeks of 168 h = 8,736 h, that of the bill 8,760 h: what recurs all
             year (leases from its first week to its last, answers, requests) is taken 8,760 / 8,736 times
    """
    portfolio = plan.portfolio
    if portfolio is None or not lines:
        return None
    own = record.note("lines", (*_whole_year(portfolio), *_beside(plan, portfolio, lines, context)), "")
    return ledger.PortfolioBill(
        lines=own,
        total_usd=record.note("total_usd", total_usd(own), "sum of the lines, to the cent", "lines"),
        difference=_difference(own, lines),
        answers=answers_all(portfolio),
    )


def _whole_year(portfolio: Portfolio) -> Iterator[LineItem]:
    """The portfolio's lines for as many hours as the bill's year has; runs and what is paid once stay."""
    ratio = YEAR_H / (portfolio.weeks * WEEK_H)
    billed, others = by_lease(portfolio.leases, portfolio.items)
    for lease, rent, support in billed:
        # Held, or rented by the hour, from the first week of the plan to its last; runs go back when over.
        if lease.start_week == 0 and not lease.release:
            rent = _scaled(rent, rent.quantity * ratio)
            support = support and _scaled(support, cents(rent.total_usd - rent.tax_usd))
        yield rent
        if support:
            yield support
    for item in others:
        yield _scaled(item, item.quantity * ratio) if item.unit == BY_REQUEST else item


def _scaled(item: LineItem, quantity: float) -> LineItem:
    """The line with another quantity, its discount and its tax in proportion."""
    gross = item.quantity * item.unit_usd
    left = gross - item.discount_usd
    return line_item(
        item.what,
        item.category,
        quantity,
        item.unit,
        UnitCost(item.unit_usd, item.source, item.date),
        discount_fraction=item.discount_usd / gross if gross else 0.0,
        tax_fraction=item.tax_usd / left if left > 0 else 0.0,
    )


def rounding_usd(*bills: Sequence[LineItem]) -> float:
    """By how much totals may differ for nothing but cents: half a cent for each line, discount and tax."""
    return 1.5 * CENT_USD * max(map(len, bills), default=0)


def _beside(
    plan: Plan, portfolio: Portfolio, lines: Sequence[LineItem], context: Context
) -> Iterator[LineItem]:
    held = in_portfolio(portfolio)
    for run, entry in zip(plan.training, context.spec.training, strict=True):
        providers = [
            each.provider
            for each in portfolio.leases
            if each.term != "owned" and run.name in names_of(each.what)
        ]
        for provider in providers[:1]:
            kept = kept_lines(run, entry, provider, context)
            yield from (line for line in kept if line.total_usd >= LEAST_USD)
    absent = [half.name for half in plan.halves if half.name not in held]
    for line in lines:
        if line.category == "compliance" or line.what.partition(":")[0] in absent:
            yield line
    yield from _own_energy(plan, portfolio, context)


def _own_energy(plan: Plan, portfolio: Portfolio, context: Context) -> Iterator[LineItem]:
    """What your own machines take in the portfolio: they cost no rent.

    Formula  rest as in the plan's fleets, since they stand all year; work and what it adds to the peaks by
             the share of it that they do
    Limits   work on them is taken to need as much as on the plan's machines. Of machines that the fleets
             leave alone and the portfolio uses, only the work counts.
    """
    owned = {lease.offer: lease for lease in portfolio.leases if lease.term == "owned"}
    held = in_portfolio(portfolio)
    needs = {
        run.name: run.run.energy_j.value * entry.runs_per_year
        for run, entry in zip(plan.training, context.spec.training, strict=True)
    } | {each.name: each.energy_j_per_year.value for each in plan.serving}
    # The part of a run's work, of all times that it takes place, that own machines do.
    shares = {
        run.name: sum(
            row.share_fraction for row in portfolio.trained if row.run == run.name and row.offer in owned
        )
        for run in plan.training
        if run.name in held
    }
    shares |= {
        each.name: _own_share_of_service(each, portfolio, owned) for each in plan.serving if each.name in held
    }
    years = own_years(plan, context, shares)
    for name, share in shares.items():
        lines: Sequence[LineItem] = ()
        if name in years:
            lines = own_year_lines(years[name], context.spec.supply.economics.tax_fraction)
        elif lease := next((each for each in owned.values() if name in names_of(each.what)), None):
            what = f"{name}: energy on your own machines"
            lines = (energy_line(what, needs[name] * share, lease.accelerator, context),)
        yield from (line for line in lines if line.total_usd >= LEAST_USD)


def _own_share_of_service(service: ServicePlan, portfolio: Portfolio, own: Container[str]) -> float:
    """The part of a service's tokens (of requests, where they are not counted) that own machines answer."""
    weights, shares = [], []
    for one in service.classes:
        name = f"{service.name}.{one.name}"
        rows = [row for row in portfolio.served if row.demand.partition("@")[0] == name]
        regions = len({row.demand for row in rows})
        weights.append(one.rate_per_s * ((one.input_tokens or 0.0) + (one.output_tokens or 0.0) or 1.0))
        shares.append(sum(row.share_fraction for row in rows if row.offer in own) / max(regions, 1))
    total = sum(weights)
    return sum(a * b for a, b in zip(weights, shares, strict=True)) / total if total else 0.0


def in_portfolio(portfolio: Portfolio) -> frozenset[str]:
    """Runs and services that some lease of the portfolio is for."""
    return frozenset(name for lease in portfolio.leases for name in names_of(lease.what))


def names_of(what: str) -> tuple[str, ...]:
    """`serve.chat, monthly 2` are of `serve` and `monthly`."""
    return tuple(dict.fromkeys(each.partition(" ")[0].partition(".")[0] for each in what.split(", ")))


def answers_all(portfolio: Portfolio) -> bool:
    """Whether it answers all within what it promises and its rehearsal saw.

    A spec that asks for hosted interfaces takes them as they are: they promise no latency, and that is said.
    """
    if portfolio.conflict or not portfolio.leases or uncorrected(portfolio):
        return False
    own = portfolio.options[0] if portfolio.options else None
    if own is None:
        return True
    return (own.slo in MET or own.slo.startswith(NOT_PROMISED)) and own.deadline in ON_TIME


def _difference(own: Sequence[LineItem], fleets: Sequence[LineItem]) -> str:
    """`rent −1.3 M$ · storage +2.0 k$`: the portfolio less the plan's fleets, by kind of line."""
    kinds = dict.fromkeys(line.category for line in (*fleets, *own))
    parts = []
    for kind in kinds:
        both = [[line for line in each if line.category == kind] for each in (own, fleets)]
        mine, theirs = map(total_usd, both)
        if abs(mine - theirs) > rounding_usd(*both):
            sign = "+" if mine > theirs else "−"
            parts.append(f"{kind} {sign}{format_usd(abs(mine - theirs))}")
    return " · ".join(parts)
