"""How many nodes to keep spare, which one takes a failed node's place, and which nodes fail too often."""

import math
from collections.abc import Mapping

from twofold.policy.cluster.placement import FreeNodes, Node
from twofold.policy.cluster.settings import FaultSettings


def recommended_spare_count(
    node_count: int, failures_per_node_s: float, repair_s: float, confidence_fraction: float
) -> int:
    """The fewest spares that are enough for this fraction of the time.

    Formula  least s with P(Poisson(N·λ·R) ≤ s) ≥ confidence
    Why      Nodes fail at random and each is away for a repair: the number away is that of busy servers in an
             M/G/∞ queue, Poisson whatever the repair times' distribution.
    Limits   nothing fails, or repairs are instant: 0.

    >>> recommended_spare_count(2000, 4.4e-8, 4 * 3600, 0.95)
    3
    """
    mean_count = node_count * failures_per_node_s * repair_s
    spare_count, below = 0, math.exp(-mean_count)
    while below < confidence_fraction and spare_count < node_count:
        spare_count += 1
        log_chance = spare_count * math.log(mean_count) - mean_count - math.lgamma(spare_count + 1)
        below += math.exp(log_chance)
    return spare_count


def is_lemon(failed_count: int, failures_per_node_s: float, node_count: int, settings: FaultSettings) -> bool:
    """Whether a node failed more often within the window than chance explains for the worst of the fleet.

    Formula  N · P(Poisson(λ·window) ≥ k) < chance, and k at least the settings' count
    Why      Among many nodes some fail often by chance; times N is Bonferroni's bound for any of them.
    """
    if failed_count < settings.lemon_failure_count:
        return False
    tail = poisson_tail_fraction(failures_per_node_s * settings.lemon_window_s, failed_count)
    return node_count * tail < settings.lemon_chance_fraction


def poisson_tail_fraction(mean_count: float, least_count: int) -> float:
    """P(Poisson(mean) ≥ least), summed from its largest term, so that small tails keep their digits."""
    if least_count <= mean_count:
        terms = (_poisson_fraction(mean_count, k) for k in range(least_count))
        return max(1.0 - math.fsum(terms), 0.0)
    total, term, k = 0.0, _poisson_fraction(mean_count, least_count), least_count
    while term > total * 1e-16:
        total += term
        k += 1
        term *= mean_count / k
    return total


def replacement_for(
    failed: Node, accelerator_count: int, spares: Mapping[str, Node], free: FreeNodes, held: FreeNodes
) -> Node | None:
    """The nearest node that can take over a failed node's piece: innermost common domain first.

    In each domain a node that already runs something comes first, or one that is free; then a spare; then one
    that is reserved for a waiting job, which waits longer rather than that a running one stops.
    """
    for depth in range(len(failed.domain), -1, -1):
        inside = failed.domain[:depth]
        beside = free.node_with(accelerator_count, inside)
        if beside is not None and not beside.whole:
            return beside
        for node in spares.values():
            if node.domain[:depth] == inside and node.accelerator_count >= accelerator_count:
                return node
        reserved = held.node_with(accelerator_count, inside)
        if beside is not None or reserved is not None:
            return beside or reserved
    return None


def spare_to_keep(free: FreeNodes, spares: Mapping[str, Node]) -> Node | None:
    """The whole free node to set aside next: of the domain with the fewest spares, then the most room."""
    spare_counts: dict[tuple[str, ...], int] = {}
    for node in spares.values():
        spare_counts[node.domain] = spare_counts.get(node.domain, 0) + 1
    best: Node | None = None
    best_key = (0, 0)
    for domain, whole_count, node in free.leaves():
        key = (spare_counts.get(domain, 0), -whole_count)
        if best is None or key < best_key:
            best, best_key = node, key
    return best


def _poisson_fraction(mean_count: float, k: int) -> float:
    if mean_count <= 0:
        return 1.0 if k == 0 else 0.0
    return math.exp(k * math.log(mean_count) - mean_count - math.lgamma(k + 1))
