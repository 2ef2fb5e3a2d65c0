"""Figures of tables that are looked up by what they are about, with their ranges."""

from twofold.catalog.catalog import Catalog
from twofold.catalog.types import ComplianceFigure, EconomicFigure, FacilityFigure
from twofold.core.errors import UnknownNameError
from twofold.core.estimate import Estimate, Source

# They bill what leaves them and sell support apart; the others include both or leave them to a contract.
HYPERSCALERS = frozenset({"aws", "azure", "gcp", "google", "alibaba", "ibm"})


def economic_by_provider(what: str, provider: str, catalog: Catalog) -> EconomicFigure:
    """A row that hyperscalers and specialised clouds have apart: `egress from`, `support by`."""
    kind = "a hyperscaler" if provider.lower() in HYPERSCALERS else "a specialised cloud"
    return catalog.economic(f"{what} {kind}")


W_PER_KW = 1e3
# A table's unit → the unit inside, and how many of it one is.
UNITS = {
    "ratio": ("ratio", 1.0),
    "fraction": ("fraction", 1.0),
    "multiplier": ("ratio", 1.0),
    "kW": ("W", W_PER_KW),
    "usd_per_kw": ("USD/W", 1.0 / W_PER_KW),
    "usd_per_kwh": ("USD/kWh", 1.0),
    "usd_per_kw_month": ("USD/W/month", 1.0 / W_PER_KW),
    "years": ("year", 1.0),
    "months": ("month", 1.0),
    "l_per_kwh": ("l/kWh", 1.0),
    "fte_per_mw": ("FTE/W", 1e-6),
    "kgco2e": ("gCO2", 1e3),
    "celsius": ("°C", 1.0),
    "W": ("W", 1.0),
    "W_per_GB": ("W/GB", 1.0),
    "W_per_TB": ("W/TB", 1.0),
    "W_per_U": ("W/U", 1.0),
    "U": ("U", 1.0),
    "kg": ("kg", 1.0),
    "kg_per_U": ("kg/U", 1.0),
    "ports": ("ports", 1.0),
    "racks": ("racks", 1.0),
    "m": ("m", 1.0),
    "usd": ("USD", 1.0),
    "V": ("V", 1.0),
    "seconds": ("s", 1.0),
    "minutes": ("s", 60.0),
    "fraction_per_minute": ("1/s", 1.0 / 60.0),
    "checkpoints": ("checkpoints", 1.0),
    "bytes": ("B", 1.0),
    "TB": ("B", 1e12),
    "Gbit/s": ("B/s", 1e9 / 8),
}


def figure(catalog: Catalog, category: str, item: str) -> Estimate:
    """One row of the table `facility` in SI units; ends that it does not state are the value itself.

    Raises UnknownNameError, with what there is, for a row that the table does not have.
    """
    rows = catalog.facility(category)
    for row in rows:
        if row.item == item:
            return _estimate(row, *UNITS[row.unit])
    raise UnknownNameError(
        f"`{category}: {item}` is not a row of the table facility",
        hint="rows: " + ", ".join(row.item for row in rows),
    )


def figure_of(catalog: Catalog, category: str, item: str) -> Estimate:
    """One row of the table `compliance_figures`; ends that it does not state are the value itself."""
    for row in catalog.rows(ComplianceFigure):
        if (row.category, row.item) == (category, item):
            return _estimate(row, row.unit)
    raise UnknownNameError(f"`{category}: {item}` is not a row of the table compliance_figures")


def _estimate(row: FacilityFigure | ComplianceFigure, unit: str, factor: float = 1.0) -> Estimate:
    low = row.value if row.low is None else min(row.low, row.value)
    high = row.value if row.high is None else max(row.high, row.value)
    source = Source.VENDOR if row.confidence == "vendor" else Source.ASSUMED
    return Estimate(row.value * factor, low * factor, high * factor, unit, source)
