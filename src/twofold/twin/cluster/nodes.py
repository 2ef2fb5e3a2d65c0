"""Nodes of a cluster in truth, what each accelerator does at every second, and how fast gangs work there."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from twofold.perf import collectives
from twofold.policy.cluster import events
from twofold.twin.cluster.cluster_types import NodeGroup, StepModel, Use

USES = tuple(Use)
BUSY, SLOWED, LOST, CHECKPOINTING, RESTARTING, SERVING, IDLE, QUARANTINED, DOWN = range(len(USES))


class Ledger:
    """Accelerator-seconds by use. Mutable.

    `move` counts time as it passes; `transfer` renames time that has passed, as work that turns out lost.
    Neither makes nor loses any, so all uses always sum to accelerators times seconds.
    """

    __slots__ = ("_renamed_s", "_seconds", "counts")

    def __init__(self) -> None:
        self.counts = [0] * len(USES)
        self._seconds = [0.0] * len(USES)
        self._renamed_s = [0.0] * len(USES)

    def move(self, count: int, source: int, target: int, now_s: float) -> None:
        """So many accelerators do something else from now on."""
        # HOT: per change of any job or node; a use's seconds are what left less what came, until `passed_s`.
        if source != target:
            self.counts[source] -= count
            self.counts[target] += count
            moved_s = count * now_s
            self._seconds[source] += moved_s
            self._seconds[target] -= moved_s

    def transfer(self, seconds: float, source: int, target: int) -> None:
        """So many accelerator-seconds of the past were something else."""
        self._renamed_s[source] -= seconds
        self._renamed_s[target] += seconds

    def passed_s(self, now_s: float) -> list[float]:
        """By use until now, as it passed: nothing is renamed."""
        return [past + count * now_s for past, count in zip(self._seconds, self.counts, strict=True)]

    def total_s(self, now_s: float) -> list[float]:
        """By use until now, as it turned out."""
        return [sum(pair) for pair in zip(self.passed_s(now_s), self._renamed_s, strict=True)]


@dataclass(slots=True, eq=False)
class Node:
    """One node in truth. Mutable: what says whether it is free changes within `Nodes.change`."""

    node_id: str
    index: int
    accelerator_count: int
    domain: tuple[str, ...]
    used_count: int = 0
    job_counts: dict[str, int] = field(default_factory=dict)  # accelerators of each job on it
    down: bool = False
    quarantined: bool = False
    serving: bool = False  # it is serving's
    ready: bool = False  # it serves
    is_lemon: bool = False
    device_factor: float = 1.0
    link_factor: float = 1.0

    @property
    def free_count(self) -> int:
        """Accelerators that no job has."""
        return self.accelerator_count - self.used_count

    @property
    def free_use(self) -> int:
        """What its accelerators are that no job has."""
        if self.down:
            return DOWN
        if self.quarantined:
            return QUARANTINED
        return SERVING if self.serving else IDLE


class Nodes:
    """All nodes, by name. Mutable."""

    def __init__(self, groups: Iterable[NodeGroup]) -> None:
        self.ledger = Ledger()
        self._by_id: dict[str, Node] = {}
        self.domain_counts: Counter[tuple[str, ...]] = Counter()  # accelerators
        self.domain_serving: Counter[tuple[str, ...]] = Counter()
        for group in groups:
            for number in range(group.first, group.first + group.count):
                node = Node(f"{group.name}{number}", len(self._by_id), group.accelerator_count, group.domain)
                assert node.node_id not in self._by_id, f"two nodes are called {node.node_id}"
                self._by_id[node.node_id] = node
                self.ledger.counts[IDLE] += node.accelerator_count
                self.domain_counts[node.domain] += node.accelerator_count
                self.domain_serving[node.domain] = 0
        self.accelerator_count = sum(self.domain_counts.values())

    def __getitem__(self, node_id: str) -> Node:
        return self._by_id[node_id]

    def __iter__(self) -> Iterator[Node]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def hold(self, job_id: str, placement: events.Placement, use: int, now_s: float) -> None:
        """A job has these accelerators from now on; each belongs to one job (INV: no two)."""
        for node_id, count in placement:
            node = self._by_id[node_id]
            assert 0 < count <= node.free_count, f"{node_id} has no {count} free"
            assert not node.serving, f"{node_id} is serving's"
            self.ledger.move(count, node.free_use, use, now_s)
            node.used_count += count
            node.job_counts[job_id] = node.job_counts.get(job_id, 0) + count

    def free(self, job_id: str, placement: events.Placement, use: int, now_s: float) -> None:
        """A job gives these accelerators back."""
        for node_id, count in placement:
            node = self._by_id[node_id]
            self.ledger.move(count, use, node.free_use, now_s)
            node.used_count -= count
            node.job_counts.pop(job_id, None)
            assert node.used_count >= 0, node_id

    @contextmanager
    def change(self, node: Node, now_s: float) -> Iterator[None]:
        """Around a node's failure, repair, quarantine, or change of hands. Jobs on it keep their parts."""
        use, serving = node.free_use, node.serving
        yield
        self.ledger.move(node.free_count, use, node.free_use, now_s)
        self.domain_serving[node.domain] += node.accelerator_count * (node.serving - serving)

    def free_blocks(self) -> tuple[int, int, int]:
        """Free accelerators, those on whole free nodes, and the most of these in one domain (R-016)."""
        free_count = whole_count = 0
        blocks: Counter[tuple[str, ...]] = Counter()
        for node in self._by_id.values():
            if node.free_use == IDLE:
                free_count += node.free_count
                if not node.used_count:
                    whole_count += node.accelerator_count
                    blocks[node.domain] += node.accelerator_count
        return free_count, whole_count, max(blocks.values(), default=0)


class Pace:
    """Work per second of placements on these nodes; it changes when their nodes do."""

    def __init__(self, step: StepModel, nodes: Nodes) -> None:
        self._step, self._nodes = step, nodes
        self._jitter = lru_cache(maxsize=1024)(
            lambda count: float(collectives.straggler_factor(step.jitter_fraction, count))
        )

    def of(self, placement: events.Placement) -> tuple[float, float, str]:
        """Work in accelerator-seconds per second, the factor on a step's time, and who sets the pace.

        Formula  step = ((1 − c)·device + c·link·(1 + neighbours))·jitter, slowest; work = accelerators / step
        Why      Every step waits for its slowest part; only the share c of it crosses the network, where
                 neighbours are serving's nodes.
        Limits   Sound nodes: the step as given. A pace setter is named where it is slower than
                 the fastest node of the gang by more than 0.1 %.
        """
        step, found = self._step, [self._nodes[node_id] for node_id, _ in placement]
        share = step.communication_fraction
        count = sum(part for _, part in placement)
        longer = 0.0
        if beside := step.training_interference_fraction:  # by serving's share of the fullest domain
            counts, serving = self._nodes.domain_counts, self._nodes.domain_serving
            longer = beside * max(serving[node.domain] / counts[node.domain] for node in found)
        slowest, quickest, name = 0.0, 2.0**60, ""
        for node in found:
            factor = (1 - share) * node.device_factor + share * node.link_factor * (1 + longer)
            if factor > slowest:
                slowest, name = factor, node.node_id
            quickest = min(quickest, factor)
        factor = slowest * self._jitter(count)
        return count / factor, factor, name if slowest > quickest * 1.001 else ""

    def own_s(self, placement: events.Placement) -> tuple[tuple[str, float], ...]:
        """What each node of a gang works itself in a step, what waits for its links apart."""
        step, nodes = self._step, self._nodes
        computed_s = (1 - step.communication_fraction) * step.step_s
        return tuple((node_id, computed_s * nodes[node_id].device_factor) for node_id, _ in placement)

    def serving_slowdown_factor(self) -> float:
        """How much longer serving takes beside training, over all its nodes (R-090)."""
        each = self._step.serving_interference_fraction
        total = beside = 0.0
        if each:
            training: Counter[tuple[str, ...]] = Counter()
            for node in self._nodes:
                training[node.domain] += node.used_count
            for domain, count in self._nodes.domain_serving.items():
                total += count
                beside += count * training[domain] / self._nodes.domain_counts[domain]
        return 1.0 + each * beside / total if total else 1.0
