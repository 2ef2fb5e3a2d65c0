from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.policy.cluster.placement import FreeNodes, Node, place

FREE = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=12)


def nodes_of(free_counts: list[tuple[int, int, int]], size: int = 8) -> dict[str, Node]:
    return {
        f"n{index}": Node(f"n{index}", size, (f"zone-{zone}", f"rail-{rail}"), count)
        for index, (count, zone, rail) in enumerate(free_counts)
    }


def filed(nodes: dict[str, Node]) -> FreeNodes:
    free = FreeNodes()
    for node in nodes.values():
        if node.free_count:
            free.add(node)
    return free


@settings(max_examples=80, deadline=None)
@given(FREE, st.integers(1, 64))
def test_a_gang_is_placed_whole_or_not_at_all(free_counts: list[tuple[int, int, int]], size: int) -> None:
    nodes = nodes_of(free_counts)
    placement = place(filed(nodes), size, 8)
    whole = sum(node.free_count for node in nodes.values() if node.whole)
    if placement is None:
        if size <= 8:
            assert all(node.free_count < size for node in nodes.values())
        else:
            assert whole < size
        return
    assert sum(count for _, count in placement) == size
    assert len(dict(placement)) == len(placement)
    assert all(0 < count <= nodes[node_id].free_count for node_id, count in placement)
    # Large gangs have whole nodes, but for one remainder.
    assert sum(count < 8 for _, count in placement) <= 1


@given(FREE, st.integers(1, 8))
def test_a_small_gang_goes_where_least_is_left(free_counts: list[tuple[int, int, int]], size: int) -> None:
    nodes = nodes_of(free_counts)
    placement = place(filed(nodes), size, 8)
    if placement is not None:
        [(node_id, _)] = placement
        enough = [node.free_count for node in nodes.values() if node.free_count >= size]
        assert nodes[node_id].free_count == min(enough)


@settings(max_examples=80, deadline=None)
@given(FREE, st.integers(2, 6))
def test_a_large_gang_stays_in_the_innermost_domain_that_holds_it(
    free_counts: list[tuple[int, int, int]], node_count: int
) -> None:
    nodes = nodes_of(free_counts)
    placement = place(filed(nodes), 8 * node_count, 8)
    if placement is None:
        return
    for depth in (2, 1):
        rooms: dict[tuple[str, ...], int] = {}
        for node in nodes.values():
            domain = node.domain[:depth]
            rooms[domain] = rooms.get(domain, 0) + node.whole
        enough = [room for room in rooms.values() if room >= node_count]
        if enough:
            used = {nodes[node_id].domain[:depth] for node_id, _ in placement}
            assert len(used) == 1 and rooms[used.pop()] == min(enough)
            return


def test_a_remainder_goes_beside_another_gang() -> None:
    nodes = nodes_of([(8, 0, 0), (8, 0, 0), (4, 0, 0), (8, 0, 1)])
    assert place(filed(nodes), 12, 8) == (("n0", 8), ("n2", 4))
    tight = nodes_of([(8, 0, 0), (4, 0, 1)])
    assert place(filed(tight), 12, 8) == (("n0", 8), ("n1", 4))


def test_nodes_of_two_sizes_hold_what_they_hold_together() -> None:
    nodes = {"big": Node("big", 8, (), 8), "small": Node("small", 4, (), 4)}
    assert place(filed(nodes), 12, 8) == (("big", 8), ("small", 4))
    assert place(filed(nodes), 10, 8) == (("big", 8), ("small", 2))
    assert place(filed(nodes), 4, 8) == (("small", 4),)
    assert place(filed(nodes), 13, 8) is None


@given(FREE)
def test_what_is_taken_out_is_as_if_it_had_never_been_in(free_counts: list[tuple[int, int, int]]) -> None:
    nodes = nodes_of(free_counts)
    free = filed(nodes)
    for node in nodes.values():
        if node.filed_in:
            free.take(node)
    assert (free.free_count, free.whole_count, list(free.leaves())) == (0, 0, [])
    assert free.whole_nodes(1) is None and free.node_with(1) is None
