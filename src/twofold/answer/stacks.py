"""What work runs on: machines as the models see them, and the software on them, both as calibrated.

Whoever asks for a speed or a size takes them from here: plans, estimates, claims and predictions alike.
"""

from twofold.answer.calibrated import calibrated, service_scope, training_scope
from twofold.catalog.types import Accelerator, Fabric
from twofold.inference.replica import Engine, engine
from twofold.perf.constants import Constants
from twofold.perf.device import device, network
from twofold.perf.types import Cluster
from twofold.training.stack import Stack, load_stack


def cluster_on(
    accelerator: Accelerator,
    node_size: int,
    nic_bytes_per_s: float,
    fabric: str | Fabric,
    constants: Constants,
    accelerator_count: int,
    oversubscription_ratio: float = 1.0,
) -> Cluster:
    """So many accelerators in nodes of one size, `nic_bytes_per_s` between nodes for each of them.

    A class of fabric by name has the efficiency that published runs showed; a row speaks for itself.
    """
    links = network(accelerator, node_size, nic_bytes_per_s, fabric, constants, oversubscription_ratio)
    return Cluster(device(accelerator, constants), links, accelerator_count)


def stack_on(cluster: Cluster, framework: str, precision: str, constants: Constants) -> tuple[Cluster, Stack]:
    """Machines and the software that trains on them, both as the user's rows have them."""
    stack = load_stack(constants, framework, precision, cluster.device.family, cluster.device.name)
    scope = training_scope(cluster.device.name, framework, precision)
    return calibrated(cluster, stack, scope, constants)


def engine_on(
    cluster: Cluster,
    name: str,
    constants: Constants,
    version: str | None = None,
    kind: str = "dense",
    weights_format: str = "bf16",
) -> tuple[Cluster, Engine]:
    """Machines and the software that serves on them, both as the user's rows have them.

    `kind` is the model's, see `model_kind`.
    """
    at = {"family": cluster.device.family, "accelerator": cluster.device.name}
    driven = engine(constants, name, version, model=kind, weights_format=weights_format, **at)
    return calibrated(cluster, driven, service_scope(cluster.device, driven), constants)
