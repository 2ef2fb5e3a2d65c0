"""What is free on nodes, and how much of it a large gang could have."""

from twofold.twin.cluster.cluster_types import NodeGroup
from twofold.twin.cluster.nodes import BUSY, Nodes


def test_fragmentation_is_what_stands_beside_gangs() -> None:
    free_counts = [("rail-0", 8), ("rail-0", 8), ("rail-1", 8), ("rail-1", 3), ("rail-2", 5), ("rail-2", 0)]
    nodes = Nodes(
        [NodeGroup("n", 1, 8, (domain,), first=number) for number, (domain, _) in enumerate(free_counts)]
    )
    for number, (_, free_count) in enumerate(free_counts):
        if free_count < 8:
            nodes.hold("gang", ((f"n{number}", 8 - free_count),), BUSY, 0.0)
    with nodes.change(nodes["n2"], 0.0):
        nodes["n2"].quarantined = True
    assert nodes.free_blocks() == (24, 16, 16)
    assert Nodes([]).free_blocks() == (0, 0, 0)
