"""The file system that a run's checkpoints are written to: what it is rented for."""

from math import ceil
from typing import NamedTuple

from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Storage
from twofold.core.quantity import YEAR_S

MONTH_S = YEAR_S / 12
TB, TIB = 1e12, 2.0**40


class FileSystem(NamedTuple):
    """What is rented while a run lasts."""

    row: Storage
    size_tb: float
    is_of_provider: bool  # that the machines are rented from

    def tb_months(self, run_s: float) -> float:
        """That a run of so many seconds pays for."""
        return self.size_tb * run_s / MONTH_S

    def usd(self, run_s: float) -> float:
        """Of a run of so many seconds."""
        return self.tb_months(run_s) * (self.row.usd_per_tb_month or 0.0)


def file_system(
    checkpoint_bytes: float | None,
    bytes_per_s: float | None,
    kind: str,
    provider: str,
    catalog: Catalog,
) -> FileSystem | None:
    """The file system that costs least for the checkpoints kept and their rate; for adapters none is rented.

    Of the provider that the machines are rented from; of any where the table has none of that one's.

    Formula  TB = max(held, rate / rate per TiB), times its price; the least product
    Why      File systems are sold by the TiB, and each TiB brings its rate: fast ones are smaller and dearer.
             Machines write at that rate only to what stands in the same halls.
    """
    if checkpoint_bytes is None or kind == "lora":
        return None
    held_bytes = checkpoint_bytes * catalog.economic("checkpoints kept").value
    found = []
    for row in catalog.rows(Storage):
        rate, price = row.write_bytes_per_s_per_unit, row.usd_per_tb_month
        if row.kind == "parallel_fs" and row.unit == "TiB" and rate and price:
            size_tb = ceil(max(held_bytes / TIB, (bytes_per_s or 0.0) / rate, 1.0)) * TIB / TB
            own = row.name.lower().startswith(f"{provider.lower()} ")
            found.append((not own, size_tb * price, row.name, row, size_tb))
    if not found:
        return None
    others, *_, row, size_tb = min(found, key=lambda each: each[:3])
    return FileSystem(row, size_tb, not others)
