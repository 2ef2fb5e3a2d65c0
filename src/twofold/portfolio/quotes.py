"""A user's own quotes: one CSV of offers, every mistake in it told with file, line and column in one pass."""

from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import islice
from pathlib import Path

from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import economic_by_provider
from twofold.catalog.names import canonical, did_you_mean
from twofold.catalog.places import region_names
from twofold.catalog.schema import Cell, Column
from twofold.catalog.tables import check_width, slots_of
from twofold.core.csv_lines import CsvLine, csv_lines
from twofold.core.errors import CatalogError, InputError, InputErrors, Place, UnknownNameError, unread
from twofold.portfolio import listed
from twofold.portfolio.problem import CapacityOffer

FILE_LIMIT_BYTES = 4 * 2**20
LINE_LIMIT = 1 << 16  # bytes
ROWS_MAX = 5000
SHOWN_ERRORS = 10
FUTURE_DAYS, DAY = timedelta(days=366), timedelta(days=1)
TERMS = "on_demand|spot|reserved_1y|reserved_3y|community|lease"


def _column(name: str, kind: str, default: str, bounds: str, meaning: str) -> Column:
    return Column(name, name, 0, kind, "", default, bounds, meaning)


# What a row may say; a default of `none` leaves the cell, and the column, optional.
COLUMNS = (
    _column("provider", "text", "", "", "Who offers it"),
    _column("instance", "text", "", "", "What one unit is called"),
    _column("accelerator", "text", "", "", "Its accelerator, as the catalogue names it"),
    _column("accelerator_count", "int", "", ">0", "Accelerators in one unit"),
    _column("region", "text", "all", "", "Provider's region; `all` where it does not matter"),
    _column("term", TERMS, "", "", "How it is bought; `lease` is for so many weeks at least"),
    _column("usd_per_h", "float", "", ">0", "One unit, list price"),
    _column("units_max", "int", "none", ">=1", "Units that can be had; empty: as many as wanted"),
    _column("minimum_weeks", "int", "none", ">=0", "The least that a lease lasts; empty: what the term says"),
    _column("from", "date", "none", "", "First day on which it can be had; empty: at once"),
    _column("until", "date", "none", "", "Last day on which it can be had; empty: without end"),
    _column("discount_fraction", "float", "none", "0..1", "Off the list price"),
    _column("support_fraction", "float", "none", "0..1", "Of the rent, for support"),
    _column("egress_usd_per_tb", "float", "none", ">=0", "Traffic out"),
    _column("quoted", "date", "", "", "Day of the quote"),
)
HEADER_HINT = f"columns: {', '.join(column.name for column in COLUMNS)}"


@dataclass(frozen=True, slots=True)
class Quote:
    """One offer that was made to the user."""

    offer: CapacityOffer  # from the plan's first week to its last
    region: str  # as the quote names it
    first_day: date | None
    last_day: date | None
    place: Place


def offer_of_quote(quote: Quote, start: date | None) -> CapacityOffer:
    """A quote in weeks of the plan: its days count from the plan's first."""
    return replace(
        quote.offer,
        first_week=_weeks_until(quote.first_day, start, up=True) or 0,
        until_week=_weeks_until(quote.last_day and quote.last_day + DAY, start, up=False),
    )


def _weeks_until(day: date | None, start: date | None, *, up: bool) -> int | None:
    """Whole weeks from the plan's first day to another; None where either is not stated."""
    if day is None or start is None:
        return None
    days = (day - start).days
    return max(0, -(-days // 7) if up else days // 7)


def read_quotes(path: Path, catalog: Catalog, today: date | None = None) -> tuple[Quote, ...]:
    """Every row of a file of quotes. Raises FileError, CatalogError, or InputErrors: ten and their count.

    With `today` also for a quote that was made more than a year later: no clock is that wrong.
    """
    try:
        with path.open("rb") as opened:
            data = opened.read(FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise unread(path, error) from error
    for number, text in enumerate(data.splitlines(), 1):
        if len(text) > LINE_LIMIT:
            what = f"a line of {len(text):,} characters is no quote"
            raise CatalogError(what, place=Place(str(path), number, 1))
    rows = list(islice(csv_lines(data, str(path), FILE_LIMIT_BYTES, CatalogError), 1 + ROWS_MAX))
    if not rows:
        raise CatalogError("the file has no header", place=Place(str(path), 1, 1), hint=HEADER_HINT)
    slots = slots_of(COLUMNS, [each.name for each in COLUMNS if not each.default], rows[0], "quotes")
    if len(rows) == 1:
        hint = "write an offer a row, or leave `supply: quotes:` out"
        raise CatalogError("the file holds no quote", place=Place(str(path), 1, 1), hint=hint)
    quotes: list[Quote] = []
    errors: list[InputError] = []
    for row in rows[1:]:
        values, wrong = _values(slots, row, catalog, today)
        errors += wrong
        if not wrong:
            quotes.append(_quote(values, row, catalog))
    errors += _overlaps(quotes)
    more = len(errors) - SHOWN_ERRORS
    if more > 0:
        rest = CatalogError(f"{more} more mistakes in '{path}'", hint="mend these first")
        errors = [*errors[:SHOWN_ERRORS], rest]
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return tuple(quotes)


def _values(
    slots: dict[str, int], row: CsvLine, catalog: Catalog, today: date | None
) -> tuple[dict[str, Cell], list[InputError]]:
    """The cells of a row as their columns read them, and everything that is wrong with them."""
    try:
        check_width(row, slots)
    except CatalogError as error:
        return {}, [error]
    values: dict[str, Cell] = {}
    errors: list[InputError] = []
    for column in COLUMNS:
        index = slots.get(column.name)
        text = "" if index is None else row.cells[index]
        try:
            values[column.name] = _cell(column, text, catalog)
        except InputError as error:
            errors.append(CatalogError(error.message, place=row.place(index or 0), hint=error.hint))
    first, last = values.get("from"), values.get("until")
    if first and last and str(last) < str(first):
        text = f"it ends on {last}, before it begins on {first}"
        errors.append(CatalogError(text, place=row.place(slots["until"])))
    made = values.get("quoted")
    if today is not None and made is not None and str(made) > str(today + FUTURE_DAYS):
        hint = f"today is {today}; `from` is the first day on which it can be had"
        errors.append(CatalogError(f"it was quoted on {made}", place=row.place(slots["quoted"]), hint=hint))
    return values, errors


def _cell(column: Column, text: str, catalog: Catalog) -> Cell:
    """One cell. Raises InputError with what is wrong and what to write."""
    if not text:
        if not column.default:
            raise InputError(f"`{column.name}` is missing", hint=column.meaning)
        return None if column.default == "none" else column.default
    try:
        value = column.read(text)
    except ValueError as error:
        near = did_you_mean(text, column.type.split("|")) if "|" in column.type else ""
        raise InputError(str(error), hint=near or f"{column.name}: {column.meaning}") from None
    if column.name == "accelerator":
        return catalog.accelerator(text).name
    if column.name == "region":
        known = region_names(catalog)  # and places of prices, countries
        if text.lower() not in {each.lower() for each in known} | {"all"}:
            hint = did_you_mean(text, known) or "`twofold catalog regions` lists them"
            raise UnknownNameError(f"unknown region `{text}`", hint=hint)
    if column.type == "date" and column.default == "none":
        try:
            date.fromisoformat(text)
        except ValueError:
            raise InputError(f"`{text}` is not a day", hint="write 2027-01-31") from None
    return value


def _quote(values: dict[str, Cell], row: CsvLine, catalog: Catalog) -> Quote:
    """A row without mistakes."""
    provider, instance, region, term = (
        str(values[name]) for name in ("provider", "instance", "region", "term")
    )
    first_day, last_day = (
        None if (day := values[name]) is None else date.fromisoformat(str(day)) for name in ("from", "until")
    )
    place, weeks, egress = row.place(), values["minimum_weeks"], values["egress_usd_per_tb"]
    base = listed.offer_name(provider, instance, region, term)
    offer = CapacityOffer(
        name=f"{base} from {first_day}" if first_day else base,
        provider=provider,
        instance=instance,
        accelerator=str(values["accelerator"]),
        accelerator_count=int(values["accelerator_count"] or 1),
        region=listed.place_of(provider, region, catalog),
        term=term,
        tenure=listed.tenure_of(term, False),
        usd_per_unit_h=float(values["usd_per_h"] or 0.0),
        minimum_weeks=listed.TERM_WEEKS[term] if weeks is None else int(weeks),
        unit_limit=None if values["units_max"] is None else int(values["units_max"]),
        interruptions_per_unit_h=listed.interruptions_per_h(term),
        egress_usd_per_tb=(
            economic_by_provider("egress from", provider, catalog).value if egress is None else float(egress)
        ),
        support_fraction=float(values["support_fraction"] or 0.0),
        discount_fraction=float(values["discount_fraction"] or 0.0),
        source=f"quote {place.file}:{place.line}",
        date=str(values["quoted"]),
        stated_region=listed.stated_region(region),
    )
    return Quote(offer, region, first_day, last_day, place)


def _overlaps(quotes: list[Quote]) -> list[InputError]:
    """Two rows for the same thing whose days overlap: which of them would hold?"""
    errors: list[InputError] = []
    seen: dict[tuple[str, ...], list[Quote]] = {}
    for quote in quotes:
        offer = quote.offer
        key = (offer.provider, offer.instance, offer.accelerator, quote.region, offer.term)
        same = seen.setdefault(tuple(canonical(part) for part in key), [])
        for other in same:
            begins = max(quote.first_day or date.min, other.first_day or date.min)
            if begins <= min(quote.last_day or date.max, other.last_day or date.max):
                text = f"its days overlap with those of line {other.place.line}, the same offer"
                hint = "end one with `until` on the day before the other's `from`"
                errors.append(CatalogError(text, place=quote.place, hint=hint))
                break
        same.append(quote)
    return errors
