"""Networks counted as vendors' reference designs count them, and the laws that any count obeys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog import Catalog, load_catalog
from twofold.plan.fabric_parts import FabricParts, _clos, fabric_parts

CARD_400G = 50e9


def parts_of(catalog: Catalog, count: int, fabric: str = "infiniband", ratio: float = 1.0) -> FabricParts:
    found = fabric_parts(catalog, fabric, count, CARD_400G, ratio)
    assert found
    return found


@pytest.mark.parametrize(
    ("cards", "switches", "cables"),
    [(32, 1, 32), (512, 16 + 8, 1024), (1024, 32 + 16, 2048), (2048, 64 + 32, 4096)],
)
def test_64_port_switches_build_the_published_two_tiers(
    catalog: Catalog, cards: int, switches: int, cables: int
) -> None:
    """Reference designs of 64-port NDR: 32 cards and 32 uplinks a leaf, at most 64 leaves."""
    found = parts_of(catalog, cards)
    assert (found.port_count, found.switch_count, found.cable_count) == (64, switches, cables)


def test_three_tiers_are_the_fat_tree_of_the_textbook() -> None:
    """A fat tree of k-port switches joins k³/4 hosts with 5k²/4 switches (Al-Fares et al. 2008)."""
    for ports in (4, 8, 16):
        hosts = ports**3 // 4
        assert _clos(hosts, ports, 1.0) == (5 * ports**2 // 4, 3 * hosts, 3)


def test_oversubscription_saves_uplinks(catalog: Catalog) -> None:
    flat, tapered = parts_of(catalog, 1024), parts_of(catalog, 1024, ratio=4.0)
    assert tapered.switch_count < flat.switch_count
    assert tapered.cable_count - 1024 < (flat.cable_count - 1024) / 2


def test_a_rate_that_no_switch_has_is_none(catalog: Catalog) -> None:
    assert fabric_parts(catalog, "infiniband", 64, 1e12) is None


def test_each_fabric_is_built_of_its_own_switches(catalog: Catalog) -> None:
    kinds = {part.name: part.kind for part in catalog.network()}
    assert kinds[parts_of(catalog, 64).switch] == "switch_ib"
    assert kinds[parts_of(catalog, 64, "roce").switch] == "switch_eth"


@given(cards=st.integers(1, 40_000), more=st.integers(0, 5_000), ratio=st.sampled_from([1.0, 2.0, 4.0]))
def test_more_cards_never_take_fewer_parts(cards: int, more: int, ratio: float) -> None:
    fewer, larger = (parts_of(load_catalog(), count, ratio=ratio) for count in (cards, cards + more))
    assert larger.switch_count >= fewer.switch_count
    assert larger.cable_count >= fewer.cable_count
    assert fewer.cable_count >= cards  # a cable for every card
    assert fewer.switch_count * fewer.port_count >= cards  # a port for every card
