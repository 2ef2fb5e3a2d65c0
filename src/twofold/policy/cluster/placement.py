"""Where a gang goes: on one node, else on whole nodes inside the innermost domain that holds it.

Small gangs fill the node with the least room, so that whole nodes stay free; large ones fill the domain with
the least room, so that large blocks do. A gang is placed whole or not at all.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from twofold.policy.cluster.events import Placement

Domain = tuple[str, ...]


class NodeUse(Enum):
    """Who may use a node."""

    TRAINING = "training"
    SPARE = "spare"  # kept free for the job that loses a node
    SERVING = "serving"


@dataclass(slots=True, eq=False)
class Node:
    """One node as the brain knows it. Mutable: `ClusterView` keeps it equal to what its jobs have."""

    node_id: str
    accelerator_count: int
    domain: Domain
    free_count: int
    use: NodeUse = NodeUse.TRAINING
    down_since_s: float | None = None  # None: up
    quarantined_until_s: float | None = None
    failed_at_s: tuple[float, ...] = ()  # within the lemon window
    job_counts: dict[str, int] = field(default_factory=dict)  # accelerators of each job on it
    filed_in: "FreeNodes | None" = None
    usable: bool = True  # whether training may start something here, room apart: `ClusterView.change` says

    @property
    def whole(self) -> bool:
        """Whether nothing runs here."""
        return self.free_count == self.accelerator_count


@dataclass(slots=True, eq=False)
class _Group:
    """A domain and what is wholly free in it. Mutable."""

    domain: Domain
    whole_count: int = 0  # accelerators on nodes where nothing runs
    nodes: dict[str, Node] = field(default_factory=dict)  # of an innermost domain: those nodes
    around: "tuple[_Group, ...]" = ()  # of an innermost domain: itself and all that hold it


class FreeNodes:
    """Nodes with free accelerators, filed by how much is free and by domain. Mutable."""

    def __init__(self) -> None:
        self.free_count = 0  # accelerators
        self.whole_count = 0  # accelerators on nodes where nothing runs
        self._sizes: set[int] = set()
        self._partial: dict[int, dict[str, Node]] = {}
        self._leaves: dict[Domain, _Group] = {}
        self._by_depth: list[dict[Domain, _Group]] = []

    def add(self, node: Node) -> None:
        """File a node by what it has free now; it is taken out before that changes."""
        # HOT: per node and change of what it has: bench/twin_cluster.py
        node.filed_in = self
        free_count = node.free_count
        self.free_count += free_count
        if free_count != node.accelerator_count:
            self._partial.setdefault(free_count, {})[node.node_id] = node
            return
        self.whole_count += free_count
        leaf = self._leaves.get(node.domain) or self._new_leaf(node.domain)
        leaf.nodes[node.node_id] = node
        for group in leaf.around:
            group.whole_count += free_count
        self._sizes.add(free_count)

    def take(self, node: Node) -> None:
        """Undo `add`."""
        assert node.filed_in is self, node
        node.filed_in = None
        free_count = node.free_count
        self.free_count -= free_count
        if free_count != node.accelerator_count:
            del self._partial[free_count][node.node_id]
            return
        self.whole_count -= free_count
        leaf = self._leaves[node.domain]
        del leaf.nodes[node.node_id]
        for group in leaf.around:
            group.whole_count -= free_count

    def node_with(self, accelerator_count: int, inside: Domain = ()) -> Node | None:
        """The node of a domain with the least room that is enough; of whole ones, in the fullest leaf."""
        depth = len(inside)
        for free_count in sorted(self._partial):
            if free_count >= accelerator_count:
                for node in self._partial[free_count].values():
                    if node.domain[:depth] == inside:
                        return node
        best: Node | None = None
        best_key: tuple[int, int] = (0, 0)
        for leaf in self._leaves_in(inside):
            for node in leaf.nodes.values():
                key = (node.accelerator_count, leaf.whole_count)
                if node.accelerator_count >= accelerator_count and (best is None or key < best_key):
                    best, best_key = node, key
                if len(self._sizes) == 1:
                    break  # its neighbours are like it
        return best

    def nodes(self) -> list[Node]:
        """All that are filed here."""
        partial = [node for nodes in self._partial.values() for node in nodes.values()]
        return partial + [node for leaf in self._leaves.values() for node in leaf.nodes.values()]

    def leaves(self) -> Iterable[tuple[Domain, int, Node]]:
        """Of every innermost domain with whole nodes: itself, the accelerators on them, the first of them."""
        return [
            (leaf.domain, leaf.whole_count, next(iter(leaf.nodes.values()))) for leaf in self._leaves_in(())
        ]

    def whole_nodes(self, accelerator_count: int) -> list[Node] | None:
        """Whole nodes for a gang, the last of which it may leave partly free; None: there are not enough.

        Innermost first: the domain with the least room that holds all; in a domain of several leaves as few
        leaves as possible, and of the last one the tightest.
        """
        if accelerator_count > self.whole_count:
            return None
        for groups in reversed(self._by_depth):
            room = [(group.whole_count, domain) for domain, group in groups.items()]
            enough = [each for each in room if each[0] >= accelerator_count]
            if enough:
                break
        left_count = accelerator_count
        # Of the nodes that stand in a domain itself, and not in one inside it.
        leaves = sorted(
            (sum(node.free_count for node in leaf.nodes.values()), leaf.domain)
            for leaf in self._leaves_in(min(enough)[1])
        )
        nodes: list[Node] = []
        while left_count > 0:
            index = next((i for i, (count, _) in enumerate(leaves) if count >= left_count), -1)
            here: Iterable[Node] = self._leaves[leaves.pop(index)[1]].nodes.values()
            if len(self._sizes) > 1:
                here = sorted(here, key=lambda node: -node.accelerator_count)
            for node in here:
                if left_count <= 0:
                    break
                nodes.append(node)
                left_count -= node.accelerator_count
        return nodes

    def _new_leaf(self, domain: Domain) -> _Group:
        while len(self._by_depth) <= len(domain):
            self._by_depth.append({})
        around = []
        for depth, groups in enumerate(self._by_depth[: len(domain) + 1]):
            prefix = domain[:depth]
            around.append(groups.setdefault(prefix, _Group(prefix)))
        leaf = self._leaves[domain] = around[-1]
        leaf.around = tuple(around)
        return leaf

    def _leaves_in(self, inside: Domain) -> list[_Group]:
        depth = len(inside)
        return [leaf for leaf in self._leaves.values() if leaf.nodes and leaf.domain[:depth] == inside]


def place(free: FreeNodes, accelerator_count: int, largest_count: int) -> Placement | None:
    """Accelerators for one gang, or None: there is no room. Nothing is taken.

    `largest_count`: of the largest node that training may use. A gang that would fit on it waits for one
    node; a larger one has whole nodes, but for its remainder, which goes beside others if there is room.
    """
    if not 0 < accelerator_count <= free.free_count:
        return None
    if accelerator_count <= largest_count:
        node = free.node_with(accelerator_count)
        return None if node is None else ((node.node_id, accelerator_count),)
    nodes = free.whole_nodes(accelerator_count)
    if nodes is None:
        # One whole node too few: the remainder may still fit beside another gang, anywhere.
        part_count = accelerator_count % largest_count
        nodes = free.whole_nodes(accelerator_count - part_count) if part_count else None
        beside = free.node_with(part_count) if nodes else None
        if not nodes or beside is None or beside.whole:
            return None
        pieces = [(node.node_id, node.accelerator_count) for node in nodes]
        fits = sum(count for _, count in pieces) == accelerator_count - part_count
        return (*pieces, (beside.node_id, part_count)) if fits else None
    pieces = [(node.node_id, node.accelerator_count) for node in nodes]
    over_count = sum(count for _, count in pieces) - accelerator_count
    if over_count:
        last = nodes[-1]
        part_count = last.accelerator_count - over_count
        beside = free.node_with(part_count, last.domain)
        pieces[-1] = (last.node_id if beside is None or beside.whole else beside.node_id, part_count)
    return tuple(pieces)
