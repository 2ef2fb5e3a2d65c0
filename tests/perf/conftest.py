"""Devices and networks that the tests of this room share."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.perf.constants import Constants, load_constants
from twofold.perf.device import device, network
from twofold.perf.types import Device, Network


@pytest.fixture(scope="session")
def constants() -> Constants:
    return load_constants()


@pytest.fixture(scope="session")
def make_device(constants: Constants) -> Callable[[str], Device]:
    return lambda name: device(load_catalog().accelerator(name), constants)


@pytest.fixture(scope="session")
def h100(make_device: Callable[[str], Device]) -> Device:
    return make_device("H100-SXM5-80GB")


@pytest.fixture(scope="session")
def hgx(constants: Constants) -> Network:
    """Nodes of eight H100 with a 50 GB/s port each."""
    return network(load_catalog().accelerator("H100-SXM5-80GB"), 8, 50e9, "infiniband", constants)


@pytest.fixture(scope="session")
def nvl72(constants: Constants) -> Network:
    """Trays of four GB200 in a domain of 72."""
    return network(load_catalog().accelerator("GB200-186GB"), 4, 50e9, "infiniband", constants)


@pytest.fixture(scope="session")
def idle(hgx: Network) -> Network:
    """An idle, saturated network: no latency, no half size, nothing lost."""
    return replace(
        hgx,
        link_latency_s=0.0,
        link_half_bytes=0.0,
        nic_latency_s=0.0,
        host_latency_s=0.0,
        launch_s=0.0,
        engine_launch_s=0.0,
        engine_half_bytes=0.0,
        pair_loss_fraction=0.0,
        all_to_all_efficiency_fraction=1.0,
    )
