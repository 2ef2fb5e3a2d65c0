"""Replicas of real models on real parts, for every test of the room."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.catalog.catalog import Catalog, load_catalog
from twofold.inference.replica import Replica, engine
from twofold.inference.search import Hardware, ModelVariant
from twofold.perf.constants import Constants, load_constants
from twofold.perf.device import device, network
from twofold.perf.shape import ModelShape, model_kind
from twofold.perf.types import Cluster

MakeReplica = Callable[..., Replica]


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="session")
def constants() -> Constants:
    return load_constants()


@pytest.fixture(scope="session")
def cluster_of(catalog: Catalog, constants: Constants) -> Callable[[str], Cluster]:
    def make(name: str) -> Cluster:
        part = catalog.accelerator(name)
        return Cluster(device(part, constants), network(part, 8, 50e9, "infiniband", constants), 8)

    return make


@pytest.fixture(scope="session")
def replica_of(catalog: Catalog, constants: Constants, cluster_of: Callable[[str], Cluster]) -> MakeReplica:
    def make(
        model: str = "llama-3.1-70b", part: str = "H200", weights: str = "bf16", **layout: object
    ) -> Replica:
        found, cluster = catalog.model(model), cluster_of(part)
        software = engine(
            constants,
            "vllm",
            "0.15",
            family=cluster.device.family,
            model=model_kind(found),
            weights_format=weights,
        )
        activation = cluster.device.default_activation_format(weights)
        replica = Replica(ModelShape.of(found), cluster, software, weights, activation, tp=8.0)
        return replace(replica, **layout)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def offer_of(constants: Constants, cluster_of: Callable[[str], Cluster]) -> Callable[..., Hardware]:
    def make(part: str, price: float | None, formats: tuple[str, ...] = ("fp8", "bf16")) -> Hardware:
        cluster = cluster_of(part)
        software = engine(constants, "vllm", "0.15", family=cluster.device.family)
        return Hardware(cluster.device.name, cluster, software, price, formats)

    return make


@pytest.fixture(scope="session")
def variant_of(catalog: Catalog) -> Callable[[str], ModelVariant]:
    return lambda name: ModelVariant(name, ModelShape.of(catalog.model(name)))
