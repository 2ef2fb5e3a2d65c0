"""CSV text becomes tables: cells checked against the schema, a user's rows over ours, errors with places."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from twofold.catalog.names import canonical, did_you_mean
from twofold.catalog.schema import Cell, Column, schema
from twofold.core.errors import CatalogError, InputError, InputErrors, Place

FILE_LIMIT_BYTES = 16 * 2**20
ERROR_LIMIT = 50
# What a user's row says of itself where its file has no such column.
OWN_ROW = {"source": "user", "licence": "user", "confidence": "user"}

Row = Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Source:
    """One CSV file: the name that errors show, and its bytes."""

    file: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by column name, each number in the unit of its column, and where each row stands."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    places: tuple[Place, ...] = field(repr=False)


def read_table(name: str, ours: Source, *users: Source) -> Table:
    """Our rows, those that a user's files override replaced in place, their others appended, in turn."""
    columns = schema()[name]
    merged = _groups(columns, ours, {})
    for source in users:
        merged |= _groups(columns, source, merged)
    flat = [located for group in merged.values() for located in group]
    return Table(name, columns, tuple(row for row, _ in flat), tuple(place for _, place in flat))


_Located = tuple[Row, Place]
_Groups = dict[tuple[str, ...], list[_Located]]  # rows by what makes them override one another


def _groups(columns: tuple[Column, ...], source: Source, base: _Groups) -> _Groups:
    """Every row of one file; all its errors in one pass."""
    lines = _lines(source)
    _, header = next(lines, (1, []))
    slots = _slots(columns, header, source)
    overriding = [column.name for column in columns if column.key == 1]
    telling_apart = [column.name for column in columns if column.key == 2]
    groups: _Groups = {}
    errors: list[InputError] = []
    seen: dict[tuple[str, ...], int] = {}
    for line, cells in lines:
        place = Place(source.file, line, 1)
        try:
            row = _row(columns, slots, cells, place, base, source)
        except CatalogError as error:
            errors.append(error)
            if len(errors) == ERROR_LIMIT:
                break
            continue
        key = tuple([canonical(str(row[name])) for name in overriding])
        identity = (*key, *(canonical(str(row[name])) for name in telling_apart))
        if seen.setdefault(identity, line) != line:
            errors.append(CatalogError(f"this row is there already, in line {seen[identity]}", place=place))
        groups.setdefault(key, []).append((row, place))
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return groups


def _lines(source: Source) -> Iterator[tuple[int, list[str]]]:
    """(line where it starts, cells) of every row that is not empty."""
    start = Place(source.file, 1, 1)
    if len(source.data) > FILE_LIMIT_BYTES:
        raise CatalogError(f"the file is larger than {FILE_LIMIT_BYTES >> 20} MiB", place=start)
    hint = "save the table as CSV in UTF-8"
    try:
        text = source.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = Place(source.file, source.data.count(b"\n", 0, error.start) + 1, 1)
        raise CatalogError("this is not UTF-8 text", place=place, hint=hint) from None
    if "\0" in text:
        raise CatalogError("this is not text", place=start, hint=hint)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for cells in reader:
            if cells:
                yield line, [cell.strip() for cell in cells]
            line = reader.line_num + 1
    except csv.Error as error:
        raise CatalogError(f"not readable as CSV: {error}", place=Place(source.file, line, 1)) from None


def _slots(columns: tuple[Column, ...], header: list[str], source: Source) -> dict[str, int]:
    """Column name → index in the file's rows."""
    known = [column.name for column in columns]
    slots: dict[str, int] = {}
    for index, name in enumerate(header):
        if name not in known or name in slots:
            place = Place(source.file, 1, _cell_column(source, 1, index))
            if name in slots:
                raise CatalogError(f"column `{name}` stands twice", place=place)
            hint = did_you_mean(name, known) or "columns: " + ", ".join(known)
            raise CatalogError(f"`{name}` is not a column of this table", place=place, hint=hint)
        slots[name] = index
    missing = [column.name for column in columns if column.key and column.name not in slots]
    if missing:
        hint = f"columns: {', '.join(known)}"
        raise CatalogError(f"column `{missing[0]}` is missing", place=Place(source.file, 1, 1), hint=hint)
    return slots


def _row(
    columns: tuple[Column, ...],
    slots: Mapping[str, int],
    cells: list[str],
    place: Place,
    base: _Groups,
    source: Source,
) -> Row:
    if len(cells) != len(slots):
        raise CatalogError(f"the row has {len(cells)} cells, the header {len(slots)}", place=place)
    row: dict[str, Cell] = {}
    for column in columns:
        if column.name in slots:
            index = slots[column.name]
            try:
                row[column.name] = column.read(cells[index])
            except ValueError as error:
                at = Place(place.file, place.line, _cell_column(source, place.line, index))
                raise CatalogError(str(error), place=at, hint=f"{column.name}: {column.meaning}") from None
    overridden: list[_Located] = []
    if base:
        key = [column.name for column in columns if column.key == 1]
        overridden = base.get(tuple(canonical(str(row[name])) for name in key), [])
        if overridden:  # other tables refer to the row as we spell it
            row |= {name: overridden[0][0][name] for name in key}
    for column in columns:
        if column.name not in slots:
            row[column.name] = _inherited(column, overridden, users=bool(base), place=place)
    return row


def _inherited(column: Column, overridden: list[_Located], *, users: bool, place: Place) -> Cell:
    """A cell that a user's file has no column for: from the row it overrides, or the column's default."""
    if users and column.name in OWN_ROW:
        return OWN_ROW[column.name]
    if len(overridden) == 1:
        return overridden[0][0][column.name]
    try:
        return column.read("")
    except ValueError:
        said = f"column `{column.name}` is missing, and the row overrides none of ours"
        hint = f"add `{column.name}`: {column.expected()}"
        raise CatalogError(said, place=place, hint=hint) from None


def _cell_column(source: Source, line: int, index: int) -> int:
    """Where in its line a cell starts, counted from 1; 1 for a cell after a line break inside quotes."""
    lines = source.data.decode("utf-8-sig", "replace").splitlines()
    text = lines[line - 1] if line <= len(lines) else ""
    column, quoted, passed = 1, False, 0
    for position, letter in enumerate(text, 1):
        if passed == index:
            return column
        if letter == '"':
            quoted = not quoted
        elif letter == "," and not quoted:
            passed, column = passed + 1, position + 1
    return column if passed == index else 1
