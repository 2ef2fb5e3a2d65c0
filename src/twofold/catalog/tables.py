"""CSV text becomes tables: cells checked against the schema, a user's rows over ours, errors with places."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from twofold.catalog.names import canonical, did_you_mean
from twofold.catalog.schema import Cell, Column, schema
from twofold.core.csv_lines import CsvLine, csv_lines
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
    lines = csv_lines(source.data, source.file, FILE_LIMIT_BYTES, CatalogError)
    header = next(lines, CsvLine(source.file, 1, "", []))
    slots = slots_of(columns, [column.name for column in columns if column.key], header)
    overriding = [column.name for column in columns if column.key == 1]
    telling_apart = [column.name for column in columns if column.key == 2]
    groups: _Groups = {}
    errors: list[InputError] = []
    seen: dict[tuple[str, ...], int] = {}
    for line in lines:
        try:
            row = _row(columns, slots, line, base)
        except CatalogError as error:
            errors.append(error)
            if len(errors) == ERROR_LIMIT:
                break
            continue
        key = tuple([canonical(str(row[name])) for name in overriding])
        identity = (*key, *(canonical(str(row[name])) for name in telling_apart))
        if seen.setdefault(identity, line.number) != line.number:
            what = f"this row is there already, in line {seen[identity]}"
            errors.append(CatalogError(what, place=line.place()))
        groups.setdefault(key, []).append((row, line.place()))
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return groups


def slots_of(
    columns: Sequence[Column], needed: Collection[str], header: CsvLine, table: str = "this table"
) -> dict[str, int]:
    """Column name → index in the file's rows. Raises CatalogError, or InputErrors where several are wrong."""
    known = [column.name for column in columns]
    listed = f"columns: {', '.join(known)}"
    slots: dict[str, int] = {}
    errors: list[InputError] = []
    for index, name in enumerate(header.cells):
        if name in slots:
            errors.append(CatalogError(f"column `{name}` stands twice", place=header.place(index)))
        elif name not in known:
            what, hint = f"`{name}` is not a column of {table}", did_you_mean(name, known, listed)
            errors.append(CatalogError(what, place=header.place(index), hint=hint))
        slots[name] = index
        if len(errors) == ERROR_LIMIT:
            break
    missing = [name for name in needed if name not in slots]
    if missing and not errors:  # what is missing may be what is misspelt
        raise CatalogError(f"column `{missing[0]}` is missing", place=header.place(), hint=listed)
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return slots


def check_width(line: CsvLine, slots: Mapping[str, int]) -> None:
    """Raises CatalogError for a row that has more or fewer cells than the header."""
    if len(line.cells) != len(slots):
        what = f"the row has {len(line.cells)} cells, the header {len(slots)}"
        raise CatalogError(what, place=line.place())


def _row(columns: tuple[Column, ...], slots: Mapping[str, int], line: CsvLine, base: _Groups) -> Row:
    check_width(line, slots)
    row: dict[str, Cell] = {}
    for column in columns:
        if column.name in slots:
            index = slots[column.name]
            try:
                row[column.name] = column.read(line.cells[index])
            except ValueError as error:
                hint = f"{column.name}: {column.meaning}"
                raise CatalogError(str(error), place=line.place(index), hint=hint) from None
    overridden: list[_Located] = []
    if base:
        key = [column.name for column in columns if column.key == 1]
        overridden = base.get(tuple(canonical(str(row[name])) for name in key), [])
        if overridden:  # other tables refer to the row as we spell it
            row |= {name: overridden[0][0][name] for name in key}
    for column in columns:
        if column.name not in slots:
            row[column.name] = _inherited(column, overridden, users=bool(base), place=line.place())
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
