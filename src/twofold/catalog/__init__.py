"""What can be bought and run: accelerators, nodes, fabrics, prices, regions and model shapes, as tables."""

from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.schema import Column, schema
from twofold.catalog.tables import Table
from twofold.catalog.types import (
    Accelerator,
    Attention,
    Fabric,
    Format,
    Model,
    NetworkPart,
    Node,
    Observation,
    Partition,
    Price,
    Region,
    Storage,
)

__all__ = [
    "Accelerator",
    "Attention",
    "Catalog",
    "Column",
    "Fabric",
    "Format",
    "Model",
    "NetworkPart",
    "Node",
    "Observation",
    "Partition",
    "Price",
    "Region",
    "Storage",
    "Table",
    "load_catalog",
    "schema",
]
