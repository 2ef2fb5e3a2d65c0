"""Figures of tables that are looked up by what they are about, with their ranges."""

from twofold.catalog.catalog import Catalog
from twofold.catalog.types import EconomicFigure

# They bill what leaves them and sell support apart; the others include both or leave them to a contract.
HYPERSCALERS = frozenset({"aws", "azure", "gcp", "google", "alibaba", "ibm"})


def economic_by_provider(what: str, provider: str, catalog: Catalog) -> EconomicFigure:
    """A row that hyperscalers and specialised clouds have apart: `egress from`, `support by`."""
    kind = "a hyperscaler" if provider.lower() in HYPERSCALERS else "a specialised cloud"
    return catalog.economic(f"{what} {kind}")
