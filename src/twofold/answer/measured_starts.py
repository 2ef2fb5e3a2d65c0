"""Starts that were measured beside a spec, as the constant that plans and rehearsals take instead of logs."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from twofold.catalog.catalog import Catalog
from twofold.contracts.rows.measured_rows import StartRow
from twofold.core.errors import UnknownNameError
from twofold.core.estimate import Source
from twofold.inference.fleet import MEASURED_WARM_UP
from twofold.perf.constants import ConstantRow, format_scope
from twofold.perf.known import spread_factor
from twofold.perf.software import engine_called


def start_constants(rows: Iterable[StartRow], catalog: Catalog) -> tuple[ConstantRow, ...]:
    """One row for each accelerator and engine that starts were measured of. Raises UnknownNameError.

    Formula  the median of the warm starts; of the cold ones where there is no other
    Why      A warm start reads what lies in memory: what it takes is what a start takes besides reading.
    """
    by_place: dict[tuple[str, str], list[StartRow]] = defaultdict(list)
    for row in rows:
        try:
            accelerator, engine = (
                catalog.accelerator(row.accelerator).name,
                engine_called(row.engine, catalog),
            )
        except UnknownNameError as error:
            error.place = row.place
            raise
        by_place[accelerator, engine].append(row)
    return tuple(_constant(*place, own) for place, own in sorted(by_place.items()))


def _constant(accelerator: str, engine: str, rows: list[StartRow]) -> ConstantRow:
    warm = [row.start_s for row in rows if row.kind == "warm"] or [row.start_s for row in rows]
    middle, spread = float(np.median(warm)), spread_factor([warm])
    return ConstantRow(
        middle,
        middle / spread,
        middle * spread,
        "s",
        Source.MEASURED,
        name=MEASURED_WARM_UP,
        scope=format_scope({"accelerator": accelerator, "engine": engine}),
        rows=len(warm),
        fitted_by="none",
        note="measured beside the spec",
    )
