"""The notice of whose figures the tables hold. `python -m twofold.catalog.third_party FILE` writes it."""

import sys
from collections import Counter
from pathlib import Path

from twofold.catalog.catalog import Catalog, load_catalog

OPENING = """\
# Third-party data

Twofold's catalogue holds figures and facts, each row with its source, its terms and how far to trust it.
No text or code of the sources was copied. This page is generated from the `source` and `licence` columns of
the tables; `python -m twofold.catalog.third_party THIRD_PARTY_DATA.md` writes it again, and a test holds it.

Licence names are those of the place where a figure was read. *facts (vendor figures)* and
*facts (publication)* are figures that a vendor or a paper states, which nobody owns; *own estimate* is ours.
"""


def third_party_notice(catalog: Catalog) -> str:
    """Markdown: for each table its terms, and under each the sources with their number of rows."""
    parts = [OPENING]
    for table in catalog.table_names():
        counts = Counter((str(row["licence"]), str(row["source"])) for row in catalog.table(table).rows)
        parts.append(f"\n## {table} ({counts.total()} rows)\n")
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
        print("usage: python -m twofold.catalog.third_party FILE", file=sys.stderr)
        return 2
    Path(arguments[0]).write_text(third_party_notice(load_catalog()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
