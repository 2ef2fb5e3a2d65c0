"""`catalog refresh-prices`: a snapshot of today's list prices beside a spec."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

from twofold.catalog import load_catalog
from twofold.core import InputError
from twofold.report import Shown
from twofold.supply import fetched_prices


@dataclass(frozen=True, slots=True)
class RefreshedPrices(Shown):
    """The file that was written, its rows, and offers of accelerators that the catalogue does not know."""

    schema: ClassVar[str] = "twofold/catalog/1"
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
