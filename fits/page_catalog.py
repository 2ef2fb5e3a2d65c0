"""The reference page of the catalogue, written by `python -m fits.page_catalog FILE`."""

import sys
from pathlib import Path

from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.schema import Column, schema

OPENING = """\
# The catalogue, column by column

Generated from the tables' schema by `python -m fits.page_catalog docs/reference/catalog.md`; do not
edit.

`twofold catalog TABLE` lists a table, `--where` filters it, and `twofold catalog partitions GPU` shows the
legal cuts of a device. A CSV file of the same name in a folder `catalog/` beside the spec overrides rows of
the same key and adds new ones; a column it leaves out keeps the value of our row.
"""


def reference_page(catalog: Catalog) -> str:
    """Markdown: each table's rows in number, its key, and its columns with kind, default and meaning."""
    return OPENING + "".join(_section(catalog, table) for table in catalog.table_names())


def _section(catalog: Catalog, table: str) -> str:
    columns = schema()[table]
    keys = ", ".join(f"`{column.name}`" for column in columns if column.key == 1)
    lines = [
        f"\n## {table}\n",
        f"{len(catalog.table(table).rows)} rows" + (f"; the key is {keys}." if keys else "."),
        "",
        "| column | holds | when empty | meaning |",
        "| --- | --- | --- | --- |",
        *(_line(column) for column in columns),
    ]
    return "\n".join(lines) + "\n"


def _line(column: Column) -> str:
    empty = {"": "refused", "none": "not known"}.get(column.default, column.default)
    return f"| `{column.name}` | {column.expected()} | {empty} | {column.meaning} |"


def main(arguments: list[str]) -> int:
    """Write the page of our own tables."""
    if len(arguments) != 1:
        print("usage: python -m fits.page_catalog FILE", file=sys.stderr)
        return 2
    Path(arguments[0]).write_text(reference_page(load_catalog()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
