"""Devices as the catalogue knows them, whatever they are called."""

import pytest

from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Accelerator
from twofold.rendering.devices import image_vendor, is_processor, plugin_name


@pytest.mark.parametrize("name", ["Xeon-8480C", "EPYC-9654", "Graviton4", "CPU-8-core-AVX2"])
def test_processors_are_no_devices_and_take_nobodys_image(name: str, catalog: Catalog) -> None:
    """An EPYC got ROCm's image, and one GPU a node by Slurm."""
    devices = catalog.named(Accelerator)
    assert (
        is_processor(name, devices) and image_vendor(name, devices) == "" and plugin_name(name, devices) == ""
    )


def test_accelerators_keep_their_vendor(catalog: Catalog) -> None:
    devices = catalog.named(Accelerator)
    for each in devices.values():
        assert is_processor(each.name, devices) == (each.family == "cpu")
        assert image_vendor(each.name, devices) == ("" if each.family == "cpu" else each.vendor)
