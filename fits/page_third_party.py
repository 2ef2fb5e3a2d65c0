"""The notice of whose figures the tables hold. `python -m fits.page_third_party FILE` writes it."""

import csv
import sys
from collections import Counter
from importlib.resources import files
from io import StringIO
from pathlib import Path

from twofold.catalog.catalog import Catalog, load_catalog
from twofold.perf.measured_products import products_path

OPENING = """\
# Third-party data

Twofold's catalogue holds figures and facts, each row with its source, its terms and how far to trust it.
No text or code of the sources was copied. This page is generated from the `source` and `licence` columns of
the tables; `python -m fits.page_third_party THIRD_PARTY_DATA.md` writes it again, and a test holds it.

Licence names are those of the place where a figure was read. *facts (vendor figures)* and
*facts (publication)* are figures that a vendor or a paper states, which nobody owns; *own estimate* is ours.
"""


def third_party_notice(catalog: Catalog) -> str:
    """Markdown: for each table its terms, and under each the sources with their number of rows."""
    tables = {name: catalog.table(name).rows for name in catalog.table_names()}
    counted = {
        name: Counter((str(r["licence"]), str(r["source"])) for r in rows) for name, rows in tables.items()
    }
    return "".join([OPENING, *(_section(name, counts) for name, counts in (counted | _measured()).items())])


def _measured() -> dict[str, Counter[tuple[str, str]]]:
    """The measurements that `validate` scores without a file of the user's, by table."""
    counted = {}
    for half in ("training", "inference"):
        text = (files("twofold") / "measure" / "sample" / f"{half}.csv").read_text(encoding="utf-8")
        rows = list(csv.DictReader(StringIO(text)))
        counted[f"measured {half} runs"] = Counter((row["licence"], row["source_ref"]) for row in rows)
    with products_path().open(encoding="utf-8", newline="") as lines:
        products = Counter((row["licence"], row["source"]) for row in csv.DictReader(lines))
    return counted | {"measured products": products}


def _section(name: str, counts: Counter[tuple[str, str]]) -> str:
    parts = [f"\n## {name} ({counts.total()} rows)\n"]
    licence = ""
    for (terms, source), count in sorted(counts.items()):
        if terms != licence:
            licence = terms
            parts.append(f"\n**{terms}**\n\n")
        parts.append(f"- {source} ({count})\n")
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write the notice of our own tables."""
    if len(arguments) != 1:
        print("usage: python -m fits.page_third_party FILE", file=sys.stderr)
        return 2
    Path(arguments[0]).write_text(third_party_notice(load_catalog()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
