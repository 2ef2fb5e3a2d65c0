"""Networks counted as vendors' reference designs count them, and the laws that any count obeys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog.catalog import Catalog, load_catalog
from twofold.perf.topology import FabricParts, fabric_parts, fat_tree, rail_optimised

CARD_400G = 50e9
NDR_PORTS, XDR_PORTS = 64, 144  # of one switch


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def parts_of(catalog: Catalog, count: int, fabric: str = "infiniband", ratio: float = 1.0) -> FabricParts:
    found = fabric_parts(catalog, fabric, count, CARD_400G, ratio)
    assert found
    return found


# Component counts of NVIDIA DGX SuperPOD reference architectures, as printed: H100 (RA-11333), a fabric
# manager with four cables in one node's place; B200; B300 with Quantum-X800, units of 72 nodes.
H100 = {
    1: (31, 8, 4, 252, 256),
    2: (63, 16, 8, 508, 512),
    3: (95, 24, 16, 764, 768),
    4: (127, 32, 16, 1020, 1024),
}
B200_TWO_TIERS = {2: (64, 16, 8), 4: (128, 32, 16), 8: (256, 64, 32)}
B200_THREE_TIERS = {16: (512, 128, 128, 64), 32: (1024, 256, 256, 128), 64: (2048, 512, 512, 256)}
B300_XDR = {1: (72, 8, 4), 2: (144, 16, 8), 4: (288, 32, 18), 8: (576, 64, 36), 18: (1296, 144, 72)}


@pytest.mark.parametrize("units", H100)
def test_superpods_of_h100_are_counted_exactly(units: int) -> None:
    nodes, leaves, spines, node_cables, spine_cables = H100[units]
    found = rail_optimised(nodes, 8, NDR_PORTS, management_cables=4)
    assert (found.switches, found.end_cables, found.tier_cables) == (
        (leaves, spines),
        node_cables,
        (spine_cables,),
    )


@pytest.mark.parametrize("units", [*B200_TWO_TIERS, *B200_THREE_TIERS])
def test_superpods_of_b200_are_counted_exactly(units: int) -> None:
    nodes, *switches = (B200_TWO_TIERS | B200_THREE_TIERS)[units]
    found = rail_optimised(nodes, 8, NDR_PORTS)
    assert found.switches == tuple(switches)
    cards = nodes * 8
    assert (found.end_cables, set(found.tier_cables)) == (cards, {cards})


@pytest.mark.parametrize("units", B300_XDR)
def test_superpods_of_b300_are_counted_exactly(units: int) -> None:
    nodes, leaves, spines = B300_XDR[units]
    found = rail_optimised(nodes, 8, XDR_PORTS)
    assert found.switches == (leaves, spines)
    assert (found.end_cables, found.tier_cables) == (nodes * 8, (nodes * 8,))


@pytest.mark.parametrize(
    ("cards", "switches", "cables"),
    [(32, 1, 32), (512, 16 + 8, 1024), (1024, 32 + 16, 2048), (2048, 64 + 32, 4096)],
)
def test_64_port_switches_build_the_published_two_tiers(
    catalog: Catalog, cards: int, switches: int, cables: int
) -> None:
    """Reference designs of 64-port NDR: 32 cards and 32 uplinks a leaf, at most 64 leaves."""
    found = parts_of(catalog, cards)
    assert (found.port_count, found.counts.switch_count, found.counts.cable_count) == (64, switches, cables)


def test_three_tiers_are_the_fat_tree_of_the_textbook() -> None:
    """A fat tree of k-port switches joins k³/4 hosts with 5k²/4 switches (Al-Fares et al. 2008)."""
    for ports in (4, 8, 16):
        hosts = ports**3 // 4
        found = fat_tree(hosts, ports)
        assert (found.switch_count, found.cable_count) == (5 * ports**2 // 4, 3 * hosts)
        assert len(found.switches) == 3


def test_oversubscription_saves_uplinks(catalog: Catalog) -> None:
    flat, tapered = parts_of(catalog, 1024), parts_of(catalog, 1024, ratio=4.0)
    assert tapered.counts.switch_count < flat.counts.switch_count
    assert tapered.counts.cable_count - 1024 < (flat.counts.cable_count - 1024) / 2


def test_a_rate_that_no_switch_has_is_none(catalog: Catalog) -> None:
    assert fabric_parts(catalog, "infiniband", 64, 1e12) is None
    assert fabric_parts(catalog, "infiniband", 64, 1e12, rails=8) is None


def test_each_fabric_is_built_of_its_own_switches(catalog: Catalog) -> None:
    assert parts_of(catalog, 64).switch.kind == "switch_ib"
    assert parts_of(catalog, 64, "roce").switch.kind == "switch_eth"


def test_few_nodes_share_the_leaves_of_a_unit() -> None:
    """Ten nodes leave 22 of a leaf's 32 ports free: three card numbers fit into each leaf."""
    assert rail_optimised(10, 8, NDR_PORTS).switches[0] == 3
    assert rail_optimised(8, 8, NDR_PORTS).switches == (1,)


@given(cards=st.integers(1, 40_000), more=st.integers(0, 5_000), ratio=st.sampled_from([1.0, 2.0, 4.0]))
def test_more_cards_never_take_fewer_parts(cards: int, more: int, ratio: float) -> None:
    fewer, larger = (fat_tree(count, NDR_PORTS, ratio) for count in (cards, cards + more))
    assert larger.switch_count >= fewer.switch_count
    assert larger.cable_count >= fewer.cable_count
    assert fewer.cable_count >= cards  # a cable for every card
    assert fewer.switch_count * NDR_PORTS >= cards  # a port for every card
