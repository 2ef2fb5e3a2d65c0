"""Networks built cable by cable have the switches and cables that the formulas count."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.facility.fabric_graph import FabricGraph, build_fat_tree, build_rail_optimised
from twofold.facility.topology import FabricCounts, fat_tree, rail_optimised

PORTS = st.sampled_from([4, 8, 16, 36, 64])
RATIOS = st.sampled_from([1.0, 2.0, 3.0, 4.0])


def counted(graph: FabricGraph) -> FabricCounts:
    """What was built: switches of each tier, and cables by the tier of their upper end."""
    tiers = [len(graph.switches(tier)) for tier in range(graph.tier_count)]
    cables = Counter(graph.tier_of[upper] for _, upper in graph.cables)
    ups = Counter(lower for lower, _ in graph.cables if graph.tier_of.get(lower) == 0)
    return FabricCounts(
        tuple(tiers),
        cables[0],
        tuple(cables[tier] for tier in range(1, len(tiers))),
        max(ups.values(), default=0),
    )


@settings(max_examples=60)
@given(ends=st.integers(1, 700), ports=PORTS, ratio=RATIOS)
def test_a_fat_tree_is_what_its_formula_counts(ends: int, ports: int, ratio: float) -> None:
    graph = build_fat_tree(ends, ports, ratio)
    assert counted(graph) == fat_tree(ends, ports, ratio)
    assert max(graph.used_ports.values()) <= ports


@settings(max_examples=60)
@given(
    nodes=st.integers(1, 90),
    cards=st.sampled_from([1, 2, 4, 8]),
    ports=PORTS,
    ratio=RATIOS,
    managed=st.booleans(),
)
def test_a_rail_optimised_network_is_what_its_formula_counts(
    nodes: int, cards: int, ports: int, ratio: float, managed: bool
) -> None:
    managers = min(cards, 4) if managed else 0
    graph = build_rail_optimised(nodes, cards, ports, ratio, managers)
    assert counted(graph) == rail_optimised(nodes, cards, ports, ratio, managers)


def test_the_superpod_of_127_nodes_is_built_and_counted_alike() -> None:
    graph = build_rail_optimised(127, 8, 64, management_cables=4)
    assert counted(graph) == rail_optimised(127, 8, 64, management_cables=4)
    assert len(graph.switches(0)) == 32 and len(graph.switches(1)) == 16


@settings(max_examples=25)
@given(nodes=st.integers(33, 120))
def test_equal_cards_of_a_unit_are_one_hop_apart(nodes: int) -> None:
    leaf_of = dict(build_rail_optimised(nodes, 8, 64).cables)
    for node in range(0, nodes - nodes % 32, 32):  # full units
        for card in range(8):
            assert len({leaf_of[f"node{node + other}.{card}"] for other in range(32)}) == 1


@settings(max_examples=25)
@given(ends=st.integers(65, 2048))
def test_every_leaf_reaches_every_spine_by_as_many_cables(ends: int) -> None:
    graph = build_fat_tree(ends, 64)
    between = Counter((lower, upper) for lower, upper in graph.cables if graph.tier_of.get(lower) == 0)
    assert len(between) == len(graph.switches(0)) * len(graph.switches(1))
    assert len(set(between.values())) == 1
