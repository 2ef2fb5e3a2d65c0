"""Networks built cable by cable have the switches and cables that the formulas count."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.perf.topology import FabricCounts, fat_tree, rail_optimised, uplinks

PORTS = st.sampled_from([4, 8, 16, 36, 64])
RATIOS = st.sampled_from([1.0, 2.0, 3.0, 4.0])


@dataclass(slots=True)
class FabricGraph:
    """Cables between named ends and switches. Mutable while it is built; refuses a port too many."""

    port_count: int
    cables: list[tuple[str, str]] = field(default_factory=list)
    used_ports: dict[str, int] = field(default_factory=dict)  # by switch
    tier_of: dict[str, int] = field(default_factory=dict)

    def switch(self, name: str, tier: int) -> str:
        self.tier_of[name] = tier
        self.used_ports.setdefault(name, 0)
        return name

    def connect(self, lower: str, upper: str) -> None:
        """One cable; every end that is a switch gives a port for it."""
        for name in (lower, upper):
            if name in self.used_ports:
                self.used_ports[name] += 1
                assert self.used_ports[name] <= self.port_count, f"{name} has no port left"
        self.cables.append((lower, upper))

    def has_port(self, switch: str, reserved: int = 0) -> bool:
        return self.used_ports[switch] + reserved < self.port_count

    def switches(self, tier: int) -> list[str]:
        return [name for name, own in self.tier_of.items() if own == tier]

    @property
    def tier_count(self) -> int:
        return max(self.tier_of.values()) + 1


def build_fat_tree(end_count: int, port_count: int, oversubscription_ratio: float = 1.0) -> FabricGraph:
    """Ends fill one leaf after another; every leaf has the same cables to each of as few spines as can be."""
    graph = FabricGraph(port_count)
    ends = [f"end{number}" for number in range(end_count)]
    _fill(graph, ends, 0, "", uplinks(port_count, oversubscription_ratio))
    return graph


def build_rail_optimised(
    node_count: int,
    cards_per_node: int,
    port_count: int,
    oversubscription_ratio: float = 1.0,
    management_cables: int = 0,
) -> FabricGraph:
    """Units of nodes: card i of each to the unit's leaf i; a fabric manager in the last unit's free place."""
    graph = FabricGraph(port_count)
    managers = [f"manager{number}" for number in range(management_cables)]
    cards = [
        (node, card, f"node{node}.{card}") for node in range(node_count) for card in range(cards_per_node)
    ]
    if len(cards) + management_cables <= port_count:
        leaf = graph.switch("leaf", 0)
        for end in [*(end for _, _, end in cards), *managers]:
            graph.connect(end, leaf)
        return graph
    up = uplinks(port_count, oversubscription_ratio)
    unit_nodes = port_count - up
    places = node_count + bool(managers)
    shared = max(1, unit_nodes // places) if places <= unit_nodes else 1  # card numbers to one leaf
    for node, card, end in cards:
        graph.connect(end, graph.switch(f"leaf{node // unit_nodes}.{card // shared}", 0))
    for number, manager in enumerate(managers):
        unit = (places - 1) // unit_nodes
        graph.connect(manager, graph.switch(f"leaf{unit}.{number // shared}", 0))
    for card in range(0, cards_per_node, shared):  # a unit that holds the manager alone has all its leaves
        graph.switch(f"leaf{(places - 1) // unit_nodes}.{card // shared}", 0)
    _join(graph, graph.switches(0), 1, "", up)
    return graph


def _fill(graph: FabricGraph, ends: list[str], tier: int, prefix: str, up: int) -> None:
    """Ends into as few leaves as hold them, and what joins these."""
    if len(ends) <= graph.port_count:
        only = graph.switch(f"{prefix}t{tier}", tier)
        for end in ends:
            graph.connect(end, only)
        return
    leaves: list[str] = []
    for end in ends:
        if not leaves or not graph.has_port(leaves[-1], reserved=up):
            leaves.append(graph.switch(f"{prefix}t{tier}.{len(leaves)}", tier))
        graph.connect(end, leaves[-1])
    _join(graph, leaves, tier + 1, prefix, up)


def _join(graph: FabricGraph, leaves: list[str], tier: int, prefix: str, up: int) -> None:
    if len(leaves) == 1:
        return
    if len(leaves) > graph.port_count:
        for plane in range(up):  # uplink number `plane` of every leaf
            _fill(graph, leaves, tier, f"{prefix}p{plane}.", graph.port_count // 2)
        return
    spine_count = 1
    while not _even(len(leaves), up, spine_count, graph.port_count):
        spine_count += 1
    spines = [graph.switch(f"{prefix}s{tier}.{number}", tier) for number in range(spine_count)]
    for leaf in leaves:
        for number in range(up):
            graph.connect(leaf, spines[number % spine_count])


def _even(leaf_count: int, up: int, spine_count: int, port_count: int) -> bool:
    """Whether dealing every leaf's uplinks to the spines in turn gives each as many, and none too many."""
    dealt = [0] * spine_count
    for number in range(up):
        dealt[number % spine_count] += 1
    return min(dealt) == max(dealt) and max(dealt) * leaf_count <= port_count


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
