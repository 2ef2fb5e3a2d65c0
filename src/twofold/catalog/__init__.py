"""What can be bought and run: accelerators, nodes, fabrics, prices, regions and model shapes, as tables."""

from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.compliance_types import (
    Authorisation,
    ComplianceFigure,
    ControlRow,
    CostItem,
    KeyPoint,
    MandateRow,
    Regime,
)
from twofold.catalog.geography import distance_m
from twofold.catalog.lints import Finding, lint
from twofold.catalog.model_config import read_model_config
from twofold.catalog.names import canonical, did_you_mean
from twofold.catalog.offers import age_days, best_price, is_stale
from twofold.catalog.parameters import count_parameters, dense_ffn_layers
from twofold.catalog.partitions import (
    PartitionRefused,
    Placement,
    check_partition_request,
    legal_partitions,
    partition,
    partitioned,
    place_parts,
)
from twofold.catalog.places import Fit, country_of, fit_of, places_in, region_names, scope_of
from twofold.catalog.schema import Cell, Column, schema
from twofold.catalog.tables import Row, Table
from twofold.catalog.types import (
    Accelerator,
    ApiPrice,
    Attention,
    EconomicFigure,
    Fabric,
    FacilityFigure,
    Format,
    HardwarePrice,
    Model,
    ModelFamily,
    NetworkPart,
    Node,
    Observation,
    Partition,
    Price,
    Region,
    Storage,
)
from twofold.catalog.where import select, unmatched

__all__ = [
    "Accelerator",
    "ApiPrice",
    "Attention",
    "Authorisation",
    "Catalog",
    "Cell",
    "Column",
    "ComplianceFigure",
    "ControlRow",
    "CostItem",
    "EconomicFigure",
    "Fabric",
    "FacilityFigure",
    "Finding",
    "Fit",
    "Format",
    "HardwarePrice",
    "KeyPoint",
    "MandateRow",
    "Model",
    "ModelFamily",
    "NetworkPart",
    "Node",
    "Observation",
    "Partition",
    "PartitionRefused",
    "Placement",
    "Price",
    "Regime",
    "Region",
    "Row",
    "Storage",
    "Table",
    "age_days",
    "best_price",
    "canonical",
    "check_partition_request",
    "count_parameters",
    "country_of",
    "dense_ffn_layers",
    "did_you_mean",
    "distance_m",
    "fit_of",
    "is_stale",
    "legal_partitions",
    "lint",
    "load_catalog",
    "partition",
    "partitioned",
    "place_parts",
    "places_in",
    "read_model_config",
    "region_names",
    "schema",
    "scope_of",
    "select",
    "unmatched",
]
