"""`catalog`: any table of the catalogue, filtered and cut to some of its columns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from math import isfinite
from pathlib import Path
from textwrap import wrap
from types import MappingProxyType
from typing import Any

from twofold.app.fetched import fetched_prices
from twofold.app.where import Row, select, unmatched
from twofold.catalog.capacity import supplied
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.names import did_you_mean
from twofold.catalog.schema import Cell, Column
from twofold.catalog.types import Node, Price
from twofold.core import errors
from twofold.core.errors import InputError, UsageError
from twofold.core.tables import Head, Table
from twofold.report.answers import Shown
from twofold.report.lines import WIDTH, table, table_columns

SCHEMA = "twofold/catalog/1"
STALE_DAYS = 365.25
OF_A_GPU = ("kernels", "partitions", "refresh-prices")  # refreshing prices heeds no further word
PROVENANCE = {"source", "licence", "confidence", "notes"}  # shown when asked for
# What most people ask of the widest tables; of the others, and after these, the leading columns that fit.
VIEWS = MappingProxyType(
    {
        "accelerators": "name year mem_gb mem_bw_gb_s bf16_tflops fp8_tflops link_gb_s tdp_w released",
        "models": "name arch parameters parameters_active layers hidden heads kv_heads",
        "nodes": "name accelerator accelerator_count fp16_tflops link_gb_s nic_gbit_s power_w rack_units",
        "prices": "provider accelerator region term usd_h most fabric instance supply",
    }
)
# Columns that no file has: they follow from the day, or from another table.
DERIVED = MappingProxyType(
    {
        "nodes": (
            Column("fp16_tflops", "", 0, "float", "TFLOP/s", "none", ">=0", "Dense peak of its accelerators"),
            Column("link_gb_s", "", 0, "float", "GB/s", "none", ">=0", "Scale-up links of one, one way"),
            Column("link_name", "", 0, "text", "", "none", "", "What these links are called"),
        ),
        "prices": (
            Column("age_days", "", 0, "int", "d", "none", ">=0", "Days since the price was seen"),
            Column("stale", "", 0, "flag", "", "none", "", "Whether that is more than 12 months"),
            Column("usd_h", "", 0, "float", "$/h", "none", ">=0", "usd_per_accelerator_h, in cents"),
            Column("most", "", 0, "int", "", "none", ">=0", "Accelerators to be had without a contract"),
            Column("job", "", 0, "int", "", "none", ">=0", "Of them in one job, on one fabric"),
            Column("fabric", "", 0, "text", "", "none", "", "Network between nodes, where it is stated"),
            Column("supply", "", 0, "text", "", "none", "", "Kind of offer, as far as it can be had"),
        ),
    }
)


@dataclass(frozen=True, slots=True)
class CatalogTable(Shown):
    """Some rows and columns of one table, each number in the unit of its column."""

    schema = SCHEMA
    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: tuple[str, ...]  # columns that are not shown
    hints: tuple[str, ...] = ()  # where no row fits: what the filter may have meant

    @property
    def lines(self) -> list[str]:
        """The rows on a screen, and what was left out."""
        rows = [[_text(cell) for cell in row] for row in self.rows]
        count = f"{len(rows):,} row{'s' if len(rows) != 1 else ''}"
        if not rows and self.hints:
            return [count, *(line for hint in self.hints for line in wrap(hint, WIDTH))]
        hidden = f"; more with --columns: {', '.join(self.left_out)}" if self.left_out else ""
        names = [column.name for column in self.columns]
        numbers = [index for index, column in enumerate(self.columns) if not column.is_text()]
        wide = sum(len(name) + 2 for name in names) > table_columns()
        laid_out = _records(names, rows) if wide else table(names, rows, numbers=numbers)
        return [*laid_out, *wrap(f"{count}{hidden}", WIDTH)]

    @property
    def as_data(self) -> dict[str, Any]:
        """Every row by column, and the columns' units."""
        units = {column.name: column.unit for column in self.columns}
        rows = [dict(zip(units, row, strict=True)) for row in self.rows]
        return {"table": self.name, "units": units, "rows": rows}

    @property
    def as_tables(self) -> tuple[Table, ...]:
        """The rows under the table's own name; units are the catalogue's, `GB/s` beside `mem_bw_gb_s`."""
        return (Table(self.name, tuple(Head(each.name, each.unit) for each in self.columns), self.rows),)


@dataclass(frozen=True, slots=True)
class CatalogTables(Shown):
    """The name of every table with the number of its rows."""

    schema = SCHEMA
    tables: dict[str, int]

    @property
    def lines(self) -> list[str]:
        """A line a table."""
        rows = [(name, f"{count:,}") for name, count in self.tables.items()]
        return table(("table", "rows"), rows, numbers=(1,))

    @property
    def as_tables(self) -> tuple[Table, ...]:
        """A row a table."""
        heads = (Head("table"), Head("rows"))
        return (Table("tables", heads, tuple(self.tables.items())),)


def catalog(
    table: str | None = None,
    gpu: str | None = None,
    where: str = "",
    columns: Sequence[str] = (),
    fit: str = "",
    folder: Path | None = None,
    as_json: bool = False,
    today: date | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Shown:
    """The list of tables, rows of one, or what a device is cut into or runs; `refresh-prices` writes a table.

    Data have every column, unless some are named. Raises UsageError for words that do not go together.
    """
    if gpu and table not in OF_A_GPU:
        what = f"`{gpu}`: only `partitions` and `kernels` take a GPU"
        raise UsageError(what, hint=f'filter with --where "{_naming_column(table)} ~ {gpu}"')
    if fit and table != "partitions":
        raise UsageError("`--fit` is for partitions alone", hint="filter with --where")
    if table == "refresh-prices":
        tell("asking providers for their prices")
        return refresh_prices(folder or Path("catalog"), today)
    if table is None:
        return catalog_tables(folder)
    if table == "kernels" and not gpu:
        raise UsageError("`kernels` needs a GPU", hint="write `twofold catalog kernels H100-SXM`")
    if gpu:
        from twofold.app.device_tables import kernels, partitions

        return kernels(gpu, folder) if table == "kernels" else partitions(gpu, fit)
    every = list(columns) == ["all"] or (as_json and not columns)
    return catalog_rows(table, where, catalog_columns(table) if every else columns, folder, today)


def _naming_column(table: str | None) -> str:
    """The column in which a table has accelerators or models by name; the first where it has none."""
    held = load_catalog()
    columns = catalog_columns(table) if table in held.table_names() else ["name"]
    named = ("accelerator", "accelerators", "name", "model")
    return next((each for each in named if each in columns), columns[0])


def catalog_tables(folder: Path | None = None) -> CatalogTables:
    """Every table with the number of its rows; `folder` holds a user's own rows."""
    found = load_catalog(folder)
    return CatalogTables({name: len(found.table(name).rows) for name in found.table_names()})


def catalog_columns(name: str) -> list[str]:
    """Every column of a table, those that follow from others last."""
    return [column.name for column in (*load_catalog().table(name).columns, *DERIVED.get(name, ()))]


def catalog_rows(
    name: str,
    where: str = "",
    columns: Sequence[str] = (),
    folder: Path | None = None,
    today: date | None = None,
) -> CatalogTable:
    """Rows of a table that meet `where`, such as `mem_gb >= 80 and vendor == nvidia`.

    Without `columns`, those that fit on a screen are taken. Prices have their age on `today` (default: this
    day), nodes the peak and the links of their accelerators.
    """
    catalog = load_catalog(folder)
    found = catalog.table(name)
    by_name = {column.name: column for column in (*found.columns, *DERIVED.get(name, ()))}
    for column in columns:
        if column not in by_name:
            hint = did_you_mean(column, by_name, f"columns: {', '.join(by_name)}")
            raise errors.UnknownKeyError(f"`{column}` is not a column", hint=hint)
    everything = _with_derived(found.rows, name, catalog, today or date.today())
    rows = select(everything, where)
    view = VIEWS.get(name, "").split()
    shown = list(columns) or _fitting([*view, *by_name], rows)
    if not columns and len(shown) < len(view):  # what is alike in every row makes room for what is not
        same = {each for each in view if len(rows) > 1 and len({row[each] for row in rows}) == 1}
        told = [each for each in view if each not in same]
        shown = _fitting([*told, *view, *by_name], rows)
    return CatalogTable(
        name,
        tuple(by_name[column] for column in shown),
        tuple(tuple(row[column] for column in shown) for row in rows),
        () if columns else tuple(column for column in by_name if column not in shown),
        () if rows else unmatched(everything, where),
    )


def _records(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of more columns than a screen has room for: a line per cell, each row a table of its own."""
    return [
        line
        for key, *cells in rows
        for line in (*table((names[0], key), list(zip(names[1:], cells, strict=True))), "")
    ]


def _with_derived(rows: Sequence[Row], name: str, catalog: Catalog, today: date) -> Sequence[Row]:
    """The rows of a table with the columns of `DERIVED`."""
    if name == "prices":
        return [
            {
                **row,
                "age_days": round(age_days(price, today)),
                "stale": is_stale(price, today),
                **_quantity(price, catalog),
            }
            for row, price in zip(rows, catalog.prices(), strict=True)
        ]
    if name == "nodes":
        links = {part["name"]: part["link_name"] for part in catalog.table("accelerators").rows}
        derived: list[Row] = []
        for row, node in zip(rows, catalog.rows(Node), strict=True):
            device = catalog.accelerator(node.accelerator)
            peak = device.fp16_flops_per_s and node.accelerator_count * device.fp16_flops_per_s / 1e12
            link_gb_s = device.scaleup_bytes_per_s / 1e9
            own = {"fp16_tflops": peak or None, "link_gb_s": link_gb_s, "link_name": links[device.name]}
            derived.append({**row, **own})
        return derived
    return rows


def _quantity(price: Price, catalog: Catalog) -> Row:
    """How many accelerators a price is good for, in all and in one job."""
    can = supplied(price, catalog)
    most, job = (int(each) if isfinite(each) else None for each in (can.most_count, can.gang_count))
    usd = round(price.usd_per_accelerator_h, 2)
    return {"usd_h": usd, "most": most, "job": job, "fabric": can.fabric, "supply": can.kind}


def age_days(price: Price, today: date) -> float:
    """Days from the price's date to `today`; a month or a year counts from its middle, never below 0."""
    year, month, day = (int(part) for part in (price.date + "-00-00")[:10].split("-"))
    read_on = date(year, month or 7, day or (15 if month else 1))
    return float(max(0, (today - read_on).days))


def is_stale(price: Price, today: date) -> bool:
    """Older than twelve months."""
    return age_days(price, today) > STALE_DAYS


def _fitting(columns: Iterable[str], rows: Sequence[Row]) -> list[str]:
    """As many leading columns as fit side by side; provenance only when asked for."""
    shown: list[str] = []
    used = 0
    for column in dict.fromkeys(columns):
        used += max([len(column), *(len(_text(row[column])) for row in rows)]) + 2
        if used > table_columns() or column in PROVENANCE:
            break
        shown.append(column)
    return shown


def _text(cell: Cell) -> str:
    if cell is None or cell == "":
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}" if cell >= 10_000 else str(cell)  # years and widths as they are written
    return f"{cell:,.10g}"


@dataclass(frozen=True, slots=True)
class RefreshedPrices(Shown):
    """The file that was written, its rows, and offers of accelerators that the catalogue does not know."""

    schema = SCHEMA
    file: Path
    row_count: int
    left_out: int

    @property
    def lines(self) -> list[str]:
        """What to read after it was written."""
        unknown = f"; {self.left_out:,} offers have no accelerator of the catalogue" if self.left_out else ""
        return [
            f"{self.file}: {self.row_count:,} prices of today{unknown}",
            f"a spec beside `{self.file.parent.name}` is planned with them; the shipped rows stay below them",
        ]

    @property
    def as_data(self) -> dict[str, Any]:
        """The file and its counts."""
        return {"file": str(self.file), "rows": self.row_count, "left_out": self.left_out}


def refresh_prices(folder: Path, today: date | None = None) -> RefreshedPrices:
    """Write `prices.csv` in a folder of your own rows. Raises InputError where one is there already."""
    file = folder / "prices.csv"
    if file.exists():
        raise InputError(f"'{file}' is there already", hint="move it away, or name another --folder")
    text, rows, left_out = fetched_prices(load_catalog(), today or date.today())
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return RefreshedPrices(file, rows, left_out)
