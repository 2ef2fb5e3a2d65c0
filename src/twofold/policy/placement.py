"""Where a gang goes: on one node, else on whole nodes inside the innermost domain that holds it.

Small gangs fill the node with the least room, so that whole nodes stay free; large ones fill the domain with
the least room, so that large blocks do. A gang is placed whole or not at all.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from twofold.policy.cluster_events import Placement

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
    prefixes: tuple[Domain, ...] = ()  # of `domain`, from () to itself

    def __post_init__(self) -> None:
        self.prefixes = tuple(self.domain[:depth] for depth in range(len(self.domain) + 1))

    @property
    def usable(self) -> bool:
        """Whether training may start something here, room apart."""
        return self.down_since_s is None and self.quarantined_until_s is None and self.use is NodeUse.TRAINING

    @property
    def whole(self) -> bool:
        """Whether nothing runs here."""
        return self.free_count == self.accelerator_count


class FreeNodes:
    """Nodes with free accelerators, filed by how much is free and by domain. Mutable."""

    def __init__(self) -> None:
        self.free_count = 0  # accelerators
        self.whole_count = 0  # accelerators on nodes where nothing runs
        self._sizes: set[int] = set()
        self._partial: dict[int, dict[str, Node]] = {}
        self._whole: dict[Domain, dict[str, Node]] = {}
        self._whole_counts: list[dict[Domain, int]] = []  # by depth; no entry is 0

    def add(self, node: Node) -> None:
        """File a node by what it has free now; it is taken out before that changes."""
        node.filed_in = self
        self.free_count += node.free_count
        self._sizes.add(node.accelerator_count)
        if not node.whole:
            self._partial.setdefault(node.free_count, {})[node.node_id] = node
            return
        self.whole_count += node.free_count
        self._whole.setdefault(node.domain, {})[node.node_id] = node
        while len(self._whole_counts) < len(node.prefixes):
            self._whole_counts.append({})
        for counts, prefix in zip(self._whole_counts, node.prefixes, strict=False):
            counts[prefix] = counts.get(prefix, 0) + node.free_count

    def take(self, node: Node) -> None:
        """Undo `add`."""
        assert node.filed_in is self, node
        node.filed_in = None
        self.free_count -= node.free_count
        if not node.whole:
            del self._partial[node.free_count][node.node_id]
            return
        self.whole_count -= node.free_count
        leaf = self._whole[node.domain]
        del leaf[node.node_id]
        if not leaf:
            del self._whole[node.domain]
        for counts, prefix in zip(self._whole_counts, node.prefixes, strict=False):
            counts[prefix] -= node.free_count
            if not counts[prefix]:
                del counts[prefix]

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
        leaf_counts = {domain: self._leaf_count(domain) for domain in self._whole if domain[:depth] == inside}
        for domain, leaf_count in leaf_counts.items():
            for node in self._whole[domain].values():
                key = (node.accelerator_count, leaf_count)
                if node.accelerator_count >= accelerator_count and (best is None or key < best_key):
                    best, best_key = node, key
                if len(self._sizes) == 1:
                    break  # its neighbours are like it
        return best

    def leaves(self) -> Iterable[tuple[Domain, int, Node]]:
        """Of every innermost domain with whole nodes: itself, the accelerators on them, the first of them."""
        return [
            (domain, self._leaf_count(domain), next(iter(nodes.values())))
            for domain, nodes in self._whole.items()
        ]

    def whole_nodes(self, accelerator_count: int) -> list[Node] | None:
        """Whole nodes for a gang, the last of which it may leave partly free; None: there are not enough.

        Innermost first: the domain with the least room that holds all; in a domain of several leaves as few
        leaves as possible, and of the last one the tightest.
        """
        for counts in reversed(self._whole_counts):
            enough = [(count, domain) for domain, count in counts.items() if count >= accelerator_count]
            if enough:
                return self._filled(min(enough)[1], accelerator_count)
        return None

    def _filled(self, inside: Domain, accelerator_count: int) -> list[Node]:
        depth, left_count = len(inside), accelerator_count
        leaves = [(self._leaf_count(domain), domain) for domain in self._whole if domain[:depth] == inside]
        leaves.sort()
        nodes: list[Node] = []
        while left_count > 0:
            index = next((i for i, (count, _) in enumerate(leaves) if count >= left_count), -1)
            for node in self._largest_first(leaves.pop(index)[1]):
                if left_count <= 0:
                    break
                nodes.append(node)
                left_count -= node.accelerator_count
        return nodes

    def _leaf_count(self, domain: Domain) -> int:
        if len(self._sizes) == 1:
            return len(self._whole[domain]) * next(iter(self._sizes))
        return sum(node.free_count for node in self._whole[domain].values())

    def _largest_first(self, domain: Domain) -> Iterable[Node]:
        nodes = self._whole[domain].values()
        if len(self._sizes) == 1:
            return nodes
        return sorted(nodes, key=lambda node: -node.accelerator_count)


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
        return _with_shared_remainder(free, accelerator_count, largest_count)
    pieces = [(node.node_id, node.accelerator_count) for node in nodes]
    over_count = sum(count for _, count in pieces) - accelerator_count
    if over_count:
        last = nodes[-1]
        part_count = last.accelerator_count - over_count
        beside = free.node_with(part_count, last.domain)
        pieces[-1] = (last.node_id if beside is None or beside.whole else beside.node_id, part_count)
    return tuple(pieces)


def _with_shared_remainder(free: FreeNodes, accelerator_count: int, largest_count: int) -> Placement | None:
    """One whole node too few: the remainder may still fit beside another gang, anywhere."""
    part_count = accelerator_count % largest_count
    nodes = free.whole_nodes(accelerator_count - part_count) if part_count else None
    if not nodes or sum(node.accelerator_count for node in nodes) != accelerator_count - part_count:
        return None
    beside = free.node_with(part_count)
    if beside is None or beside.whole:
        return None
    return (*((node.node_id, node.accelerator_count) for node in nodes), (beside.node_id, part_count))


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """How much of what is free can serve a large gang."""

    free_count: int  # accelerators
    whole_count: int  # of them, on nodes where nothing runs
    largest_block_count: int  # the most whole-node accelerators inside one innermost domain
    fraction: float  # of the free ones, that stand beside a running gang

    @property
    def largest_block_fraction(self) -> float:
        """The largest block as a share of what is free; 1 when nothing is."""
        return self.largest_block_count / self.free_count if self.free_count else 1.0


def fragmentation(nodes: Iterable[Node]) -> Fragmentation:
    """Of the nodes that training may use.

    Formula  fraction = 1 − whole / free
    Limits   nothing free, or whole nodes only: 0; every free accelerator beside a gang: 1.
    """
    free_count = whole_count = 0
    blocks: dict[Domain, int] = {}
    for node in nodes:
        if node.usable:
            free_count += node.free_count
            if node.whole:
                whole_count += node.free_count
                blocks[node.domain] = blocks.get(node.domain, 0) + node.free_count
    fraction = 1.0 - whole_count / free_count if free_count else 0.0
    return Fragmentation(free_count, whole_count, max(blocks.values(), default=0), fraction)
