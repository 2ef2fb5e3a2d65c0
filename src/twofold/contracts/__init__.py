"""Every outside schema as data without behaviour, and the readers that say where a file is wrong."""

from twofold.contracts.parts import FixedCluster, ModelReference, parse_cluster
from twofold.contracts.service import LatencyClass, Lengths, Service, Slo, Traffic, Variant
from twofold.contracts.spec import Spec
from twofold.contracts.supply import Owned, Shop, Supply
from twofold.contracts.training_run import Checkpoint, Headroom, TrainingRun, Window

__all__ = [
    "Checkpoint",
    "FixedCluster",
    "Headroom",
    "LatencyClass",
    "Lengths",
    "ModelReference",
    "Owned",
    "Service",
    "Shop",
    "Slo",
    "Spec",
    "Supply",
    "Traffic",
    "TrainingRun",
    "Variant",
    "Window",
    "parse_cluster",
]
