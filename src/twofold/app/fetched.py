"""A fresh snapshot of list prices through gpuhunt, as a CSV that lies over the catalogue's own."""

import csv
import io
from collections.abc import Iterable
from contextlib import suppress
from datetime import date
from typing import Any

from twofold.catalog.catalog import Catalog
from twofold.core.errors import InputError, UnknownNameError, UsageError

COLUMNS = (
    *("provider", "instance", "accelerator", "accelerator_count", "region", "term"),  # which offer it is
    *("usd_per_h", "usd_per_accelerator_h", "date", "date_precision"),
)
EXTRA_HINT = "install the extra: pip install 'twofold[fetch]'; the shipped prices stay in use"
NETWORK_HINT = "the shipped prices stay in use; `twofold catalog prices` shows how old they are"


def fetched_prices(catalog: Catalog, today: date) -> tuple[str, int, int]:
    """CSV text of every offer that names an accelerator of the catalogue; how many rows, and how many others.

    Raises UsageError without gpuhunt, InputError where nothing can be reached.
    """
    try:
        import gpuhunt
    except ImportError:
        raise UsageError("prices cannot be refreshed: gpuhunt is not installed", hint=EXTRA_HINT) from None
    try:
        items: Iterable[Any] = gpuhunt.query()
        rows = [_row(item, catalog, today) for item in items]
    except Exception as error:  # whatever the library's clients raise without a network
        raise InputError(f"prices cannot be refreshed: {error}", hint=NETWORK_HINT) from error
    known = {tuple(row[:6]): row for row in rows if row is not None}
    if not known:
        raise InputError("prices cannot be refreshed: no offer came back", hint=NETWORK_HINT)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(known[key] for key in sorted(known, key=str))
    return text.getvalue(), len(known), sum(row is None for row in rows)


def _row(item: Any, catalog: Catalog, today: date) -> list[object] | None:
    """One offer as a row of prices; None where it has no accelerator that the catalogue knows."""
    count = int(item.gpu_count or 0)
    if count < 1 or not item.gpu_name or not item.price:
        return None
    name = _accelerator(str(item.gpu_name), float(item.gpu_memory or 0.0), catalog)
    if name is None:
        return None
    term = "spot" if item.spot else "on_demand"
    usd = round(float(item.price), 6)
    each = round(usd / count, 6)
    where = item.location or "all"
    return [item.provider, item.instance_name, name, count, where, term, usd, each, str(today), "day"]


def _accelerator(name: str, memory_gb: float, catalog: Catalog) -> str | None:
    """The catalogue's accelerator of that name and, where several have it, of that memory."""
    for spelled in (name, f"{name}-SXM4-{memory_gb:.0f}GB", f"{name}-{memory_gb:.0f}GB", f"{name}-SXM"):
        with suppress(UnknownNameError):
            return catalog.accelerator(spelled).name
    return None
