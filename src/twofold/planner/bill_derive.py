"""What the totals of money follow from: their own lines."""

from collections.abc import Iterable, Iterator

from twofold.answer import derived
from twofold.contracts.results import Derivation, Input, LineItem, Plan
from twofold.core import Source, format_usd


def bill_derivations(plan: Plan) -> Iterator[Derivation]:
    """One row for each total that a plan's money and portfolio state; their lines are the leaves."""
    if plan.portfolio is not None and plan.portfolio.items:
        items = plan.portfolio.items
        inputs = _inputs(items, (line.total_usd - line.tax_usd for line in items))
        yield derived("portfolio.usd", "sum of its lines before tax, of the plan's weeks", *inputs)
    if plan.money is None or not plan.money.lines:
        return
    bills = {"money.total_usd": plan.money.lines}
    if plan.money.portfolio is not None:
        bills["money.portfolio.total_usd"] = plan.money.portfolio.lines
    for path, lines in bills.items():
        inputs = _inputs(lines, (line.total_usd for line in lines))
        yield derived(path, "sum of the lines, to the cent", *inputs)


def _inputs(lines: Iterable[LineItem], amounts_usd: Iterable[float]) -> list[Input]:
    return [
        Input(line.what, format_usd(usd), "", Source.VENDOR.value, f"{line.source} {line.date}".strip())
        for line, usd in zip(lines, amounts_usd, strict=True)
    ]
