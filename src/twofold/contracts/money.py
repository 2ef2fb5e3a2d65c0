"""Money as lines of a bill: what every room that prices something returns, and what adds up to the cent."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class LineItem:
    """One line of a bill, before and after discount and tax; `total_usd` is rounded to the cent."""

    what: str  # in words: `base: 64 × H100-SXM5-80GB, 27.7 d`
    category: str  # rent energy storage network egress support staff capex financing compliance api facility
    quantity: float  # of `unit`
    unit: str  # accelerator-h, TB-month, Mtok …
    unit_usd: float  # list price of one unit, before discount
    discount_usd: float  # taken off
    tax_usd: float  # added
    total_usd: float  # quantity × unit_usd − discount + tax, to the cent
    source: str  # the offer, catalogue row or spec line that it rests on
    date: str  # of that price; "" where a price has no date


def line_item(
    what: str,
    category: str,
    quantity: float,
    unit: str,
    unit_usd: float,
    *,
    discount_fraction: float = 0.0,
    tax_fraction: float = 0.0,
    source: str,
    date: str = "",
) -> LineItem:
    """A line with its discount, then its tax on what is left; each to the cent (half to even)."""
    gross = cents(quantity * unit_usd)
    discount = cents(gross * discount_fraction)
    tax = cents((gross - discount) * tax_fraction)
    total = cents(gross - discount + tax)
    return LineItem(what, category, quantity, unit, unit_usd, discount, tax, total, source, date)


def cents(usd: float) -> float:
    """An amount to the cent."""
    return float(Decimal(repr(usd)).quantize(CENT, ROUND_HALF_EVEN))


def total_usd(items: Iterable[LineItem]) -> float:
    """The sum of a bill's lines: exact in cents, whatever their order."""
    return float(sum((Decimal(repr(item.total_usd)) for item in items), Decimal(0)))
