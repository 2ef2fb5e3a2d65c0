"""What one partition costs and holds follows from the device that is cut."""

from twofold.catalog.catalog import load_catalog
from twofold.catalog.parts import cut_node, cut_price, find_profile, part_of

CATALOG = load_catalog()


def test_the_whole_profile_is_the_device_itself() -> None:
    for name, profile in (("H100 SXM", "7g.80gb"), ("A30", "4g.24gb"), ("MI300X", "SPX")):
        device = CATALOG.accelerator(name)
        assert part_of(device, find_profile(device, CATALOG.partitions(name), profile)) == device


def test_cutting_keeps_the_node_and_its_price() -> None:
    part = find_profile(CATALOG.accelerator("MI300X"), CATALOG.partitions("MI300X"), "CPX")
    node = CATALOG.node("MI300X-OAM-8")
    cut = cut_node(node, part)
    assert (cut.accelerator_count, cut.nic_bytes_per_s, cut.power_w_max) == (
        64,
        node.nic_bytes_per_s,
        node.power_w_max,
    )
    price = CATALOG.prices_for("MI300X")[0]
    assert cut_price(price, part).usd_per_h == price.usd_per_h
    assert cut_price(price, part).usd_per_accelerator_h == price.usd_per_accelerator_h / 8
