"""Real models on real machines, as the catalogue has them."""

from collections.abc import Callable

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Model
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.types import Cluster
from twofold.training.job import TrainingJob
from twofold.training.stack import Stack, load_stack

MakeCluster = Callable[..., Cluster]
MakeJob = Callable[..., TrainingJob]


@pytest.fixture(scope="session")
def make_cluster() -> MakeCluster:
    """A cluster of one accelerator: `make_cluster("H100-80GB", 64)`."""

    def make(
        name: str = "H100-80GB",
        count: int = 64,
        nic_gbit_per_s: float = 400,
        fabric: str = "infiniband",
        oversubscription: float = 1.0,
    ) -> Cluster:
        accelerator, constants = load_catalog().benchmark_accelerator(name), load_constants()
        links = network(accelerator, 8, nic_gbit_per_s / 8 * 1e9, fabric, constants, oversubscription)
        return Cluster(device(accelerator, constants), links, count)

    return make


@pytest.fixture(scope="session")
def make_job() -> MakeJob:
    """A job by model name: `make_job("llama-3.1-70b", batch=512)`."""

    def make(
        name: str = "llama-3.1-70b", batch: int = 512, sequence: int = 8192, **fields: object
    ) -> TrainingJob:
        model: Model = load_catalog().model(name)
        kind = "lora" if "lora_rank" in fields else "pretrain"
        return TrainingJob(model, kind, sequence, batch, **fields)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def stack() -> Stack:
    """Megatron-Core on Hopper."""
    return load_stack(load_constants(), "megatron-core", "bf16", "hopper")
