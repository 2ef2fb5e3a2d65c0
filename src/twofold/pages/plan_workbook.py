"""A plan as a spreadsheet: change a price or a discount, and the bill, the years and the levers follow.

Every price of a bill stands once, in `Prices`. Amounts are rounded where ours are, so that the totals are the
plan's to the cent until somebody changes a cell.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal

from twofold.contracts.results import ledger
from twofold.contracts.results.plan import Plan
from twofold.core.data import to_data
from twofold.pages.workbook import Formula, Input, Sheet, SheetCell, address, sheet_of, written
from twofold.report.tables import tables_of

PRICES, BILL, OWNING, YEARS = "Prices", "Bill", "Owning", "Years"
SHOWN = {"goals": "Goals", "ladder": "Confidence", "actions": "Do this", "defaults": "What nobody wrote"}
HEADS = (
    *("what", "for", "quantity", "unit", "USD each", "list USD", "discount", "discount USD"),
    *("tax", "tax USD", "total USD", "price from"),
)
FORMATS = ("", "", "count", "", "price", "money", "share", "money", "share", "money", "money", "")
QUANTITY, EACH, LIST, OFF, TAX, TOTAL = 2, 4, 5, 6, 8, 10  # columns
PriceRows = Mapping[tuple[str, str, float], int]


def plan_workbook(plan: Plan, digest: str) -> bytes:
    """The xlsx file of a plan. Raises MissingExtraError without the library that writes it."""
    return written(plan_sheets(plan, digest), f"{plan.name}: plan")


def plan_sheets(plan: Plan, digest: str) -> tuple[Sheet, ...]:
    """A summary, then money as formulas, then goals and decisions as they are; no money without prices."""
    held = {table.name: table for table in tables_of(to_data(plan))}
    plain = [sheet_of(held[name], title) for name, title in SHOWN.items() if name in held]
    money = list(_money_sheets(plan.money)) if plan.money else []
    return (_summary(plan, digest), *money, *plain)


def _summary(plan: Plan, digest: str) -> Sheet:
    rows: list[tuple[SheetCell, ...]] = [("plan", plan.name), ("made by", f"twofold {plan.twofold}")]
    rows.append(("sha256 of the plan", digest))
    if plan.money is None:
        return Sheet("Summary", ("", ""), (*rows, ("money", "nothing of this plan has a price")))
    total = Formula(address(len(plan.money.lines), TOTAL, BILL), plan.money.total_usd)
    rows += [("first year, USD", total)]
    first = address(len(rows) - 1, 1)
    if plan.budget_usd is not None:
        rows += [("budget, USD", Input(plan.budget_usd))]
        left = Formula(f"{address(len(rows) - 1, 1)}-{first}", plan.budget_usd - plan.money.total_usd)
        rows += [("left of it, USD", left)]
    if owning := plan.money.owning:
        owned = Formula(address(len(owning.lines), TOTAL, OWNING), owning.owned_usd)
        rented = Formula(address(len(owning.cash), 6, YEARS), owning.rented_usd)
        rows += [(f"owned for {owning.years} years, USD", owned)]
        rows += [(f"rented for {owning.years} years, USD", rented)]
    rows.append(("change", "coloured cells: prices in `Prices`; discounts and taxes beside each line"))
    return Sheet("Summary", ("", ""), tuple(rows), ("", "money"))


def _money_sheets(money: ledger.Money) -> Iterator[Sheet]:
    lines = [*money.lines, *(money.owning.lines if money.owning else ())]
    stated = [line for line in lines if line.unit not in FOLLOWS]
    keys = list(dict.fromkeys((line.source, line.unit, line.unit_usd) for line in stated))
    dates = {(line.source, line.unit, line.unit_usd): line.date for line in stated}
    prices = {key: number for number, key in enumerate(keys)}
    rows = tuple((source, unit, Input(usd), dates[source, unit, usd]) for source, unit, usd in keys)
    yield Sheet(PRICES, ("price from", "unit", "USD each", "seen"), rows, ("", "", "price", ""))
    yield _lines_sheet(BILL, money.lines, prices)
    if money.owning:
        yield _lines_sheet(OWNING, money.owning.lines, prices)
        yield _years_sheet(money.owning, money.lines)
    if money.detail:
        yield _levers_sheet(money)


# Units of lines whose price follows from lines above them.
FOLLOWS = frozenset({"of the rent", "loan", "of servers"})


def _lines_sheet(name: str, lines: Sequence[ledger.LineItem], prices: PriceRows) -> Sheet:
    """The lines of a bill, each following from its price, and their sum."""
    rows = [_line_row(number, line, lines, prices) for number, line in enumerate(lines)]
    last = address(len(lines) - 1, TOTAL)
    summed = Formula(f"ROUND(SUM({address(0, TOTAL)}:{last}),2)" if lines else "0", ledger.total_usd(lines))
    rows.append(("total", *[None] * (TOTAL - 1), summed, None))
    return Sheet(name, HEADS, tuple(rows), FORMATS, frozenset({len(lines)}))


def _line_row(
    number: int, line: ledger.LineItem, lines: Sequence[ledger.LineItem], prices: PriceRows
) -> tuple[SheetCell, ...]:
    """Quantity × price, less the discount, with tax; each to the cent."""

    def cell(column: int) -> str:
        return address(number, column)

    # A spreadsheet rounds half a cent up, we to the even cent: the difference goes into the discount's share.
    listed = _half_up(line.quantity * line.unit_usd)
    gross = line.total_usd + line.discount_usd - line.tax_usd
    off = listed - gross + line.discount_usd
    taxed = listed - off
    return (
        *(line.what, line.category, line.quantity, line.unit),
        _price(number, line, lines, prices),
        Formula(f"ROUND({cell(QUANTITY)}*{cell(EACH)},2)", listed),
        Input(off / listed if listed else 0.0),
        Formula(f"ROUND({cell(LIST)}*{cell(OFF)},2)", _half_up(off)),
        Input(line.tax_usd / taxed if taxed else 0.0),
        Formula(f"ROUND(({cell(LIST)}-{cell(OFF + 1)})*{cell(TAX)},2)", line.tax_usd),
        Formula(f"{cell(LIST)}-{cell(OFF + 1)}+{cell(TAX + 1)}", line.total_usd),
        line.source,
    )


def _price(
    number: int, line: ledger.LineItem, lines: Sequence[ledger.LineItem], prices: PriceRows
) -> Formula:
    """Where the price stands; of support, a loan and what is left, what it is of."""
    if line.unit not in FOLLOWS:
        place = prices[line.source, line.unit, line.unit_usd]
        return Formula(address(place, 2, PRICES), line.unit_usd)
    of = [(each, other) for each, other in enumerate(lines[:number]) if _rests_on(line, other)]
    if line.unit == "of the rent":
        of = of[-1:]
        terms = [
            f"{address(each, QUANTITY)}*{address(each, EACH)}*(1-{address(each, OFF)})" for each, _ in of
        ]
    elif line.unit == "loan":
        terms = [address(each, TOTAL) for each, _ in of]
    else:
        terms = [f"-{address(each, QUANTITY)}*{address(each, EACH)}" for each, _ in of]
    now = _now(line, [other for _, other in of])
    factor = f"*{line.unit_usd / now!r}" if now and line.unit == "loan" else ""
    return Formula(f"({'+'.join(terms) or '0'}){factor}", line.unit_usd)


def _rests_on(line: ledger.LineItem, other: ledger.LineItem) -> bool:
    if line.unit == "of the rent":
        return other.category == "rent"
    if line.unit == "loan":
        return other.category == "capex"
    return other.what.startswith("servers: ")


def _now(line: ledger.LineItem, of: Sequence[ledger.LineItem]) -> float:
    """What the price of a line is a share of."""
    return sum(other.total_usd for other in of) if line.unit == "loan" else line.unit_usd


def _years_sheet(owning: ledger.Owning, lines: Sequence[ledger.LineItem]) -> Sheet:
    """Each year, owned and rented: fixed shares of the lines; the last year takes what rounding leaves.

    Rent follows the bill's lines of what is rented. A bill that has no rent has nothing for it to follow.
    """
    heads = ("year", "capital USD", "interest USD", "operation USD", "resale USD", "owned USD", "rented USD")
    bases = _bases(owning)
    rent, rent_usd = _rent(lines)
    rows: list[tuple[SheetCell, ...]] = []
    for number, step in enumerate(owning.cash):
        parts = (step.capex_usd, step.financing_usd, step.opex_usd, step.resale_usd)
        cells = [
            _part(number, column, usd, bases[column - 1], owning.cash) for column, usd in enumerate(parts, 1)
        ]
        owned = f"{address(number, 1)}+{address(number, 2)}+{address(number, 3)}-{address(number, 4)}"
        rented: SheetCell = step.rented_usd
        if rent_usd:
            rented = Formula(f"ROUND({rent}*{step.rented_usd / rent_usd!r},2)", step.rented_usd)
        rows.append((step.year, *cells, Formula(owned, step.owned_usd), rented))
    last = len(owning.cash) - 1
    sums = [
        Formula(f"ROUND(SUM({address(0, column)}:{address(last, column)}),2)", _column_usd(owning, column))
        for column in range(1, 7)
    ]
    formats = ("", *["money"] * 6)
    return Sheet(YEARS, heads, (*rows, ("total", *sums)), formats, frozenset({last + 1}))


def _rent(lines: Sequence[ledger.LineItem]) -> tuple[str, float]:
    """What rent is a share of, as a formula and now: all that is paid for what is rented; 0 without rent."""
    beside = ("energy", "compliance")  # of machines of one's own, and of what rules ask
    paid = [(number, line.total_usd) for number, line in enumerate(lines) if line.category not in beside]
    if not any(line.category == "rent" for line in lines):
        return "0", 0.0
    if len(paid) == len(lines):
        return address(len(lines), TOTAL, BILL), ledger.total_usd(lines)
    return f"({'+'.join(address(number, TOTAL, BILL) for number, _ in paid)})", sum(usd for _, usd in paid)


CASH = ("capex_usd", "financing_usd", "opex_usd", "resale_usd", "owned_usd", "rented_usd")


def _column_usd(owning: ledger.Owning, column: int) -> float:
    usd = sum(Decimal(repr(getattr(step, CASH[column - 1]))) for step in owning.cash)
    return float(Decimal(usd).quantize(ledger.CENT))


def _bases(owning: ledger.Owning) -> tuple[tuple[str, float], ...]:
    """Sums of lines that capital, interest, operation and resale are shares of: formulas, and now."""
    groups: tuple[list[int], ...] = ([], [], [], [])
    for number, line in enumerate(owning.lines):
        kind = {"capex": 3 if line.total_usd < 0 else 0, "financing": 1}.get(line.category, 2)
        groups[kind].append(number)
    signs = ("+", "+", "+", "-")
    found = []
    for sign, numbers in zip(signs, groups, strict=True):
        terms = "".join(f"{sign}{address(number, TOTAL, OWNING)}" for number in numbers)
        usd = sum(owning.lines[number].total_usd for number in numbers)
        found.append((f"({terms.removeprefix('+') or '0'})", -usd if sign == "-" else usd))
    return tuple(found)


def _part(
    number: int, column: int, usd: float, base: tuple[str, float], cash: Sequence[ledger.CashStep]
) -> Formula:
    text, total = base
    if number == len(cash) - 1 and number:
        return Formula(f"{text}-SUM({address(0, column)}:{address(number - 1, column)})", usd)
    return Formula(f"ROUND({text}*{usd / total if total else 0.0!r},2)", usd)


def _levers_sheet(money: ledger.Money) -> Sheet:
    """What each optimisation saves, and its share of the first year as the bill has it."""
    assert money.detail is not None
    first = address(len(money.lines), TOTAL, BILL)
    rows: list[tuple[SheetCell, ...]] = []
    for number, each in enumerate(money.detail.levers):
        of_year: SheetCell = None  # of nothing
        if money.total_usd:
            share = each.saves_usd_per_year / money.total_usd
            of_year = Formula(f"{address(number, 3)}/{first}", share)
        rows.append((each.name, each.of, each.pulled, each.saves_usd_per_year, of_year, each.how))
    heads = ("lever", "of", "state", "saves USD a year", "of the first year", "how")
    return Sheet("Levers", heads, tuple(rows), ("", "", "", "money", "share", ""))


def _half_up(usd: float) -> float:
    """To the cent as spreadsheets round."""
    return float(Decimal(repr(usd)).quantize(ledger.CENT, ROUND_HALF_UP))
