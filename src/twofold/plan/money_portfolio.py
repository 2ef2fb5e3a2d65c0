"""The portfolio's first year on the terms of the bill: the same kinds of lines, so that both compare."""

from collections.abc import Iterator, Sequence

from twofold.contracts import (
    LineItem,
    Plan,
    Portfolio,
    PortfolioBill,
    ServicePlan,
    TrainingPlan,
    total_usd,
)
from twofold.core import format_usd
from twofold.plan.context import Context
from twofold.plan.money_bill import LEAST_USD, file_system_line

ON_TIME, MET = ("on time", "–"), ("met", "–")


def portfolio_bill(plan: Plan, lines: Sequence[LineItem], context: Context) -> PortfolioBill | None:
    """The portfolio's own lines, and what it leaves out of those of the plan; None without a portfolio.

    Formula  its rent, support, egress and storage with tax + file systems of its runs + energy of own
             machines + what the rules ask for + runs and services that are not in it, as the plan has them
    """
    portfolio = plan.portfolio
    if portfolio is None or not lines:
        return None
    own = (*portfolio.items, *_beside(plan, portfolio, lines, context))
    return PortfolioBill(
        lines=own, total_usd=total_usd(own), difference=_difference(own, lines), answers=_answers(portfolio)
    )


def _beside(
    plan: Plan, portfolio: Portfolio, lines: Sequence[LineItem], context: Context
) -> Iterator[LineItem]:
    held = in_portfolio(portfolio)
    has_own = any(lease.term == "owned" for lease in portfolio.leases)
    for run, entry in zip(plan.training, context.spec.training, strict=True):
        leased = [each for each in portfolio.leases if each.term != "owned" and run.name in _names(each.what)]
        if leased and (line := file_system_line(run, entry, leased[0].provider, context)):
            yield line
    halves: tuple[TrainingPlan | ServicePlan, ...] = (*plan.training, *plan.serving)
    absent = [half.name for half in halves if half.name not in held]
    for line in lines:
        name = line.what.partition(":")[0]
        if line.category == "compliance" or name in absent or (line.category == "energy" and has_own):
            yield line


def in_portfolio(portfolio: Portfolio) -> frozenset[str]:
    """Runs and services that some lease of the portfolio is for."""
    return frozenset(name for lease in portfolio.leases for name in _names(lease.what))


def _names(what: str) -> tuple[str, ...]:
    """`serve.chat, monthly 2` are of `serve` and `monthly`."""
    return tuple(dict.fromkeys(each.partition(" ")[0].partition(".")[0] for each in what.split(", ")))


def _answers(portfolio: Portfolio) -> bool:
    if portfolio.conflict or not portfolio.leases:
        return False
    own = portfolio.options[0] if portfolio.options else None
    return own is None or (own.slo in MET and own.deadline in ON_TIME)


def _difference(own: Sequence[LineItem], fleets: Sequence[LineItem]) -> str:
    """`rent −1.3 M$ · storage +2.0 k$`: the portfolio less the plan's fleets, by kind of line."""
    kinds = dict.fromkeys(line.category for line in (*fleets, *own))
    parts = []
    for kind in kinds:
        mine, theirs = (total_usd(line for line in each if line.category == kind) for each in (own, fleets))
        if abs(mine - theirs) >= LEAST_USD:
            sign = "+" if mine > theirs else "−"
            parts.append(f"{kind} {sign}{format_usd(abs(mine - theirs))}")
    return " · ".join(parts)
