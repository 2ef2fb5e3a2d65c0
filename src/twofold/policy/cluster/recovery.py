"""After a failure: a spare, a smaller gang, a new start, or the queue; and which nodes fail too often."""

import math
from collections import Counter
from collections.abc import Mapping

from twofold.policy.cluster import events
from twofold.policy.cluster.attempts import again, end, halt, kept_pieces, move, pause, to_queue
from twofold.policy.cluster.gang_queue import Job
from twofold.policy.cluster.placement import FreeNodes, Node, NodeUse
from twofold.policy.cluster.settings import FaultSettings
from twofold.policy.cluster.view import ClusterView, Due

NOT_THE_NODES = frozenset(
    {events.FaultCause.SOFTWARE, events.FaultCause.INPUT, events.FaultCause.MAINTENANCE}
)
INPUT_FAILURES_MAX = 2  # the second says that the first was no chance
REMEMBERED_FAILURES_MAX = 32  # of one node
NEW_REPAIR_FRACTION = 0.2  # of the latest repair in the smoothed repair time
DOUBLINGS_MAX = 64  # far beyond any backoff_s_max; keeps 2**n finite


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
    spare_count, below = 0, _poisson_fraction(mean_count, 0)
    while below < confidence_fraction and spare_count < node_count:
        spare_count += 1
        below += _poisson_fraction(mean_count, spare_count)
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
    spare_counts = Counter(node.domain for node in spares.values())
    found = min(free.leaves(), key=lambda leaf: (spare_counts[leaf[0]], -leaf[1]), default=None)
    return None if found is None else found[2]


def _poisson_fraction(mean_count: float, k: int) -> float:
    if mean_count <= 0:
        return 1.0 if k == 0 else 0.0
    return math.exp(k * math.log(mean_count) - mean_count - math.lgamma(k + 1))


def node_failed(
    view: ClusterView, node: Node, event: events.NodeFailed, now_s: float
) -> list[events.ClusterEffect]:
    """A node that was up is gone: so are the attempts on it."""
    hit = [view.jobs[job_id] for job_id in node.job_counts]
    served = node.use is NodeUse.SERVING
    with view.change(node):
        node.down_since_s = now_s
        node.use = NodeUse.TRAINING
    view.up_node_count -= 1
    effects: list[events.ClusterEffect] = []
    if served:
        view.serving_changed = True
        effects.append(events.ReclaimServing((node.node_id,)))
    effects += _blamed(view, node, event.cause, now_s)
    for job in hit:
        effects += interrupted(view, job, event.cause, 0.0, now_s)
    return effects


def job_failed(
    view: ClusterView, job: Job, event: events.JobFailed, now_s: float
) -> list[events.ClusterEffect]:
    """An attempt ended by itself; its nodes are up."""
    node = view.nodes.get(event.node_id)
    effects = [] if node is None else _blamed(view, node, event.cause, now_s)
    pause_s = backoff_s(job.failed_count + 1, view.settings.faults)
    return effects + interrupted(view, job, event.cause, pause_s, now_s)


def node_repaired(
    view: ClusterView, node: Node, event: events.NodeRepaired, now_s: float
) -> list[events.ClusterEffect]:
    """A node is back; if it was replaced or looked after, its past is forgotten."""
    looked_after = event.kind is events.RepairKind.REPLACED or node.down_since_s is None
    with view.change(node):
        if node.down_since_s is not None:
            view.repair_s += NEW_REPAIR_FRACTION * (now_s - node.down_since_s - view.repair_s)
            view.up_node_count += 1
            node.down_since_s = None
        if looked_after:
            node.failed_at_s = ()
    if looked_after and node.quarantined_until_s is not None:
        return released(view, node)
    return []


def released(view: ClusterView, node: Node) -> list[events.ClusterEffect]:
    """A quarantine is over."""
    view.timers.cancel(Due.RELEASE, node.node_id)
    with view.change(node):
        node.quarantined_until_s = None
    return [events.ReleaseNode(node.node_id)]


def keep_spares(view: ClusterView) -> None:
    """Set aside, or give back, as many whole nodes as failures and repairs suggest.

    A job that needs so much of the cluster that it could not start beside the spares has them given back.
    """
    faults = view.settings.faults
    target_count = faults.spare_count
    if target_count is None:
        rate = view.node_failures.failures_per_s
        confidence = faults.spare_confidence_fraction
        target_count = recommended_spare_count(len(view.nodes), rate, view.repair_s, confidence)
    head = view.jobs.get(view.reservation.job_id) if view.reservation is not None else None
    if target_count and head is not None:
        spare_count = sum(node.accelerator_count for node in view.spares.values())
        left_count = view.usable_count + spare_count - head.submitted.minimum_count
        target_count = max(min(target_count, left_count // max(view.largest_count, 1)), 0)
    while len(view.spares) > target_count:
        _, node = view.spares.popitem()
        with view.change(node):
            node.use = NodeUse.TRAINING
    while len(view.spares) < target_count:
        kept = spare_to_keep(view.free, view.spares)
        if kept is None:
            return
        with view.change(kept):
            kept.use = NodeUse.SPARE


def backoff_s(failed_count: int, faults: FaultSettings) -> float:
    """Pause after the k-th failure in a row: none, then the first, then doubled up to the longest."""
    if failed_count <= 1:
        return 0.0
    return min(faults.backoff_s * 2.0 ** min(failed_count - 2, DOUBLINGS_MAX), faults.backoff_s_max)


def interrupted(
    view: ClusterView, job: Job, cause: events.FaultCause, pause_s: float, now_s: float
) -> list[events.ClusterEffect]:
    """An attempt is over by a failure: it starts once more where it can, waits, or is given up."""
    faults, making = view.settings.faults, job.making_room
    job.failed_count += 1
    job.refused_count += cause is events.FaultCause.INPUT
    view.counts.interrupted += 1
    # A program that crashes again and again says nothing of how often sound ones are interrupted.
    of_program = cause in (events.FaultCause.SOFTWARE, events.FaultCause.INPUT)
    if not of_program or job.failed_count == 1:
        view.interruptions.fail()
    halt(view, job)
    if job.refused_count >= INPUT_FAILURES_MAX or job.failed_count > faults.restart_limit:
        end(view, job, now_s)
        view.counts.failed += 1
        return [events.StopJob(job.job_id, events.StopReason.GAVE_UP)]
    if making is not None and making.given_up is None:
        # It was about to leave: now it has, and loses what its checkpoint would have saved.
        to_queue(view, job, now_s)
        return [events.StopJob(job.job_id, events.StopReason.FAILED)]
    if making is not None:
        kept = kept_pieces(view, job, making.given_up)
        if sum(count for _, count in kept) >= job.submitted.minimum_count:
            view.counts.shrunk += 1
            return [move(view, job, kept, now_s)]
    if pause_s > faults.hold_s:
        pause(view, job, now_s + pause_s, now_s)
        return []
    if pause_s > 0:
        view.timers.set(Due.RESTART, job.job_id, now_s + pause_s)
        return []
    return on_sound_nodes(view, job, now_s)


def on_sound_nodes(view: ClusterView, job: Job, now_s: float) -> list[events.ClusterEffect]:
    """Start a halted job once more, on nodes that may be used."""
    kept = kept_pieces(view, job, None)
    bad = [piece for piece in job.placement if not view.nodes[piece[0]].usable]
    if not bad:
        return [again(view, job, now_s)]
    if len(bad) == 1:
        failed_id, count = bad[0]
        spare = replacement_for(view.nodes[failed_id], count, view.spares, view.free, view.held)
        if spare is not None:
            if spare.use is NodeUse.SPARE:
                with view.change(spare):
                    spare.use = NodeUse.TRAINING
            pieces = [(spare.node_id if name == failed_id else name, n) for name, n in job.placement]
            resized = move(view, job, tuple(pieces), now_s)
            view.counts.swapped += 1
            return [events.SwapNode(job.job_id, failed_id, spare.node_id, resized.attempt)]
    if kept and sum(count for _, count in kept) >= job.submitted.minimum_count:
        view.counts.shrunk += 1
        return [move(view, job, kept, now_s)]
    to_queue(view, job, now_s)
    return [events.StopJob(job.job_id, events.StopReason.FAILED)]


def _blamed(
    view: ClusterView, node: Node, cause: events.FaultCause, now_s: float
) -> list[events.ClusterEffect]:
    """Note a node's failure; one that fails beyond chance is set apart, as long as not too many are."""
    if cause in NOT_THE_NODES:
        return []
    faults = view.settings.faults
    view.node_failures.fail()
    recent = tuple(at_s for at_s in node.failed_at_s if now_s - at_s < faults.lemon_window_s)
    node.failed_at_s = (*recent, now_s)[-REMEMBERED_FAILURES_MAX:]
    rate = view.node_failures.failures_per_s
    if not is_lemon(len(node.failed_at_s), rate, len(view.nodes), faults) or not may_set_apart(view, node):
        return []
    return set_apart(view, node, now_s)


def may_set_apart(view: ClusterView, node: Node) -> bool:
    """Whether a node may be quarantined: it is not, and not too many are."""
    limit = max(1, int(view.settings.faults.quarantine_fraction_max * len(view.nodes)))
    return node.quarantined_until_s is None and len(view.quarantined) < limit


def set_apart(view: ClusterView, node: Node, now_s: float) -> list[events.ClusterEffect]:
    """Quarantine a node: nothing is started there before its time is over."""
    until_s = now_s + view.settings.faults.quarantine_s
    with view.change(node):
        node.quarantined_until_s = until_s
        if node.use is NodeUse.SPARE:
            node.use = NodeUse.TRAINING
    view.timers.set(Due.RELEASE, node.node_id, until_s)
    view.counts.quarantined += 1
    return [events.QuarantineNode(node.node_id, until_s)]
