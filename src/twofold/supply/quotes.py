"""A user's own quotes: one CSV of offers, every mistake in it told with file, line and column in one pass."""

import csv
import io
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from twofold.catalog import Catalog, Cell, Column, canonical, did_you_mean
from twofold.core import CatalogError, InputError, InputErrors, Place, UnknownNameError

FILE_LIMIT_BYTES = 4 * 2**20
ROWS_MAX = 5000
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
    _column("units_max", "int", "none", ">=0", "Units that can be had; empty: as many as wanted"),
    _column("minimum_weeks", "int", "none", ">=0", "The least that a lease lasts; empty: what the term says"),
    _column("from", "date", "none", "", "First day on which it can be had; empty: at once"),
    _column("until", "date", "none", "", "Last day on which it can be had; empty: without end"),
    _column("discount_fraction", "float", "none", "0..1", "Off the list price"),
    _column("support_fraction", "float", "none", "0..1", "Of the rent, for support"),
    _column("egress_usd_per_tb", "float", "none", ">=0", "Traffic out"),
    _column("quoted", "date", "", "", "Day of the quote"),
)


@dataclass(frozen=True, slots=True)
class Quote:
    """One offer that was made to the user."""

    provider: str
    instance: str
    accelerator: str  # the catalogue's name
    accelerator_count: int
    region: str
    term: str
    usd_per_h: float
    unit_limit: int | None
    minimum_weeks: int | None
    first_day: date | None
    last_day: date | None
    discount_fraction: float
    support_fraction: float
    egress_usd_per_tb: float | None
    date: str
    place: Place


def read_quotes(path: Path, catalog: Catalog) -> tuple[Quote, ...]:
    """Every row of a file of quotes. Raises CatalogError, or InputErrors with all of them."""
    lines = _lines(path)
    if not lines:
        raise CatalogError("the file has no header", place=Place(str(path), 1, 1), hint=_header_hint())
    slots = _slots(lines[0][1], str(path))
    quotes: list[Quote] = []
    errors: list[InputError] = []
    for number, cells, raw in lines[1 : ROWS_MAX + 1]:
        try:
            quotes.append(_quote(slots, cells, _Row(str(path), number, raw), catalog))
        except InputError as error:
            errors.append(error)
    errors += _overlaps(quotes)
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return tuple(quotes)


def _header_hint() -> str:
    return f"columns: {', '.join(column.name for column in COLUMNS)}"


def _lines(path: Path) -> list[tuple[int, list[str], str]]:
    """(line, cells, the line as it stands) of every line that is not empty."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error
    if len(data) > FILE_LIMIT_BYTES or b"\0" in data:
        raise CatalogError("this is no table of quotes", place=Place(str(path), 1, 1))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CatalogError("this is not UTF-8 text", place=Place(str(path), 1, 1)) from None
    found = []
    for number, raw in enumerate(text.splitlines(), 1):
        if raw.strip():
            cells = next(csv.reader(io.StringIO(raw)), [])
            found.append((number, [cell.strip() for cell in cells], raw))
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    file: str
    line: int
    raw: str

    def place(self, index: int) -> Place:
        """Where a cell begins; of a row with quotation marks only the row."""
        if '"' in self.raw:
            return Place(self.file, self.line, 1)
        return Place(self.file, self.line, len(",".join(self.raw.split(",")[:index])) + (2 if index else 1))


def _slots(header: list[str], file: str) -> dict[str, int]:
    known = [column.name for column in COLUMNS]
    row = _Row(file, 1, ",".join(header))
    for index, name in enumerate(header):
        if name not in known:
            raise CatalogError(
                f"`{name}` is not a column of quotes",
                place=row.place(index),
                hint=did_you_mean(name, known) or _header_hint(),
            )
    slots = {name: index for index, name in enumerate(header)}
    for column in COLUMNS:
        if not column.default and column.name not in slots:
            raise CatalogError(
                f"column `{column.name}` is missing", place=Place(file, 1, 1), hint=_header_hint()
            )
    return slots


def _quote(slots: dict[str, int], cells: list[str], row: _Row, catalog: Catalog) -> Quote:
    if len(cells) != len(slots):
        raise CatalogError(f"the row has {len(cells)} cells, the header {len(slots)}", place=row.place(0))
    values: dict[str, Cell] = {}
    for column in COLUMNS:
        index = slots.get(column.name)
        text = "" if index is None else cells[index]
        if not text and not column.default:
            raise CatalogError(
                f"`{column.name}` is missing", place=row.place(index or 0), hint=column.meaning
            )
        if not text:
            values[column.name] = None if column.default == "none" else column.default
            continue
        try:
            values[column.name] = column.read(text)
        except ValueError as error:
            raise CatalogError(
                str(error), place=row.place(index or 0), hint=f"{column.name}: {column.meaning}"
            ) from None
    accelerator = _accelerator(str(values["accelerator"]), row.place(slots["accelerator"]), catalog)
    _check_region(str(values["region"]), row.place(slots.get("region", 0)), catalog)
    first, last = (_day(values[name], row, slots.get(name, 0)) for name in ("from", "until"))
    if first and last and last < first:
        raise CatalogError(f"it ends on {last}, before it begins on {first}", place=row.place(slots["until"]))
    return Quote(
        str(values["provider"]),
        str(values["instance"]),
        accelerator,
        int(values["accelerator_count"] or 1),
        str(values["region"]),
        str(values["term"]),
        float(values["usd_per_h"] or 0.0),
        _count(values["units_max"]),
        _count(values["minimum_weeks"]),
        first,
        last,
        float(values["discount_fraction"] or 0.0),
        float(values["support_fraction"] or 0.0),
        None if values["egress_usd_per_tb"] is None else float(values["egress_usd_per_tb"]),
        str(values["quoted"]),
        row.place(0),
    )


def _count(value: Cell) -> int | None:
    return None if value is None else int(value)


def _accelerator(name: str, place: Place, catalog: Catalog) -> str:
    try:
        return catalog.accelerator(name).name
    except UnknownNameError as error:
        raise CatalogError(error.message, place=place, hint=error.hint) from None


def _check_region(name: str, place: Place, catalog: Catalog) -> None:
    """A region of the catalogue's, by its own name or as a price spells it."""
    known = {region.name.lower() for region in catalog.regions()}
    known |= {f"{region.provider}:{region.name}".lower() for region in catalog.regions()}
    known |= {price.region.lower() for price in catalog.prices()} | {"all"}
    if name.lower() not in known:
        raise CatalogError(
            f"unknown region `{name}`", place=place, hint=did_you_mean(name, known) or "write `all`"
        )


def _day(value: Cell, row: _Row, index: int) -> date | None:
    if value is None:
        return None
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise CatalogError(
            f"`{value}` is not a day", place=row.place(index), hint="write 2027-01-31"
        ) from None


def _overlaps(quotes: list[Quote]) -> list[InputError]:
    """Two rows for the same thing whose days overlap: which of them would hold?"""
    errors: list[InputError] = []
    seen: dict[tuple[str, ...], list[Quote]] = {}
    for quote in quotes:
        key = (quote.provider, quote.instance, quote.accelerator, quote.region, quote.term)
        same = seen.setdefault(tuple(canonical(part) for part in key), [])
        for other in same:
            begins = max(quote.first_day or date.min, other.first_day or date.min)
            if begins <= min(quote.last_day or date.max, other.last_day or date.max):
                errors.append(
                    CatalogError(
                        f"its days overlap with those of line {other.place.line}, the same offer",
                        place=quote.place,
                        hint="end one with `until` on the day before the other's `from`",
                    )
                )
                break
        same.append(quote)
    return errors
