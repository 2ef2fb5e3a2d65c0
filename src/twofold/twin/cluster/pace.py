"""How fast a gang works where it stands: the slowest node, the way between nodes, jitter, neighbours."""

from bisect import bisect_right
from functools import lru_cache

from twofold.perf import straggler_factor
from twofold.policy.cluster import events
from twofold.twin.cluster.nodes import Node, Nodes
from twofold.twin.cluster.types import StepModel

FELT_FRACTION = 0.01  # of the cluster; smaller changes of what crosses its borders are not felt by others


class Pace:
    """Work per second of placements on these nodes; it changes when their nodes do."""

    def __init__(self, step: StepModel, nodes: Nodes) -> None:
        self._step, self._nodes = step, nodes
        self._crossing_count = self._felt_count = 0  # accelerators of gangs across borders
        self._jitter = lru_cache(maxsize=1024)(
            lambda count: float(straggler_factor(step.jitter_fraction, count))
        )

    def cross(self, change_count: int) -> bool:
        """So many more accelerators belong to gangs across borders; whether others feel it."""
        self._crossing_count += change_count
        felt = abs(self._crossing_count - self._felt_count) > FELT_FRACTION * self._nodes.accelerator_count
        if felt:
            self._felt_count = self._crossing_count
        return felt

    def crosses(self, placement: events.Placement) -> bool:
        """Whether a gang stands in more than one domain of a level that is slower to cross."""
        return self._crossing([self._nodes[node_id] for node_id, _ in placement]) > 0

    def _crossing(self, nodes: list[Node]) -> float:
        """How much longer its communication takes by the way, when no other gang is on it."""
        return sum(
            fraction
            for level, fraction in enumerate(self._step.crossing_fractions)
            if len({node.domain[: level + 1] for node in nodes}) > 1
        )

    def scaling_efficiency(self, count: int) -> float:
        """Of each of so many accelerators side by side, from the world's table: straight between its rows."""
        table = self._step.efficiency_by_count
        if not table:
            return 1.0
        place = bisect_right(table, (count, 2.0))
        if place in (0, len(table)):
            return table[min(place, len(table) - 1)][1]
        (low, first), (high, second) = table[place - 1 : place + 1]
        return first + (second - first) * (count - low) / (high - low)

    def of(self, placement: events.Placement) -> tuple[float, float, str]:
        """Work in accelerator-seconds per second, the factor on a step's time, and who sets the pace.

        Formula  step = ((1 − c)·device + c·link·(1 + Σ crossings + others + neighbours))·jitter, slowest;
                 work = accelerators · efficiency(accelerators) / step
        Why      Every step waits for its slowest part; only the share c of it crosses the network.
                 Gangs across borders share the way with `others` there; neighbours are serving's nodes.
        Limits   Sound nodes in one domain: the step as given. A pace setter is named where it is slower than
                 the fastest node of the gang by more than 0.1 %.
        """
        step, found = self._step, [self._nodes[node_id] for node_id, _ in placement]
        share = step.communication_fraction
        count = sum(part for _, part in placement)
        crossing = self._crossing(found)
        if crossing and step.contention_fraction:
            others_count = max(0, self._felt_count - count)
            crossing += step.contention_fraction * others_count / self._nodes.accelerator_count
        crossing += self._neighbours(found)
        slowest, quickest, name = 0.0, 2.0**60, ""
        for node in found:
            factor = (1 - share) * node.device_factor + share * node.link_factor * (1 + crossing)
            if factor > slowest:
                slowest, name = factor, node.node_id
            quickest = min(quickest, factor)
        factor = slowest * self._jitter(count)
        rate = count * self.scaling_efficiency(count) / factor
        return rate, factor, name if slowest > quickest * 1.001 else ""

    def _neighbours(self, nodes: list[Node]) -> float:
        """How much longer communication takes beside serving: by its share of the fullest domain."""
        each = self._step.training_interference_fraction
        if not each:
            return 0.0
        counts, serving = self._nodes.domain_counts, self._nodes.domain_serving
        return each * max(serving[node.domain] / counts[node.domain] for node in nodes)

    def serving_slowdown_factor(self) -> float:
        """How much longer serving takes beside training, over all its nodes (R-090)."""
        each = self._step.serving_interference_fraction
        total = beside = 0.0
        if each:
            training: dict[tuple[str, ...], int] = {}
            for node in self._nodes:
                training[node.domain] = training.get(node.domain, 0) + node.used_count
            for domain, count in self._nodes.domain_serving.items():
                total += count
                beside += count * training[domain] / self._nodes.domain_counts[domain]
        return 1.0 + each * beside / total if total else 1.0
