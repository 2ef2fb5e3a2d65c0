"""What happens to nodes in truth: they fail, are repaired, are slow, go to serving and come back."""

from dataclasses import dataclass
from math import inf
from typing import assert_never

import numpy as np

from twofold.policy.cluster import events
from twofold.twin.cluster.attempts import hang, repace, vacate
from twofold.twin.cluster.clocks import FaultClocks, NodeFailure
from twofold.twin.cluster.job import Phase
from twofold.twin.cluster.nodes import Node
from twofold.twin.cluster.serving import ServingAccount
from twofold.twin.cluster.state import (
    ASKED,
    BROWNOUT,
    JOB_KNOWN,
    NEEDED,
    NODE_FAILS,
    NODE_INSPECTED,
    NODE_KNOWN,
    NODE_REPAIRED,
    SERVES,
    SLOWED_FROM,
    SLOWED_UNTIL,
    WITHOUT_LIMIT,
    ClusterState,
)
from twofold.twin.cluster.types import NodeLoss, SlowNode


@dataclass(frozen=True, slots=True)
class _Known:
    """A failure on its way to the brain."""

    subject: str  # a node, or a job
    cause: events.FaultCause
    attempt: int = 0


class NodeEvents:
    """Everything about nodes in one run. Mutable."""

    def __init__(self, state: ClusterState) -> None:
        world = state.world
        self._state = state
        self._clocks = FaultClocks(world.faults, state.nodes, world.seed)
        self._failure_due: dict[str, int] = {}  # heap entries, by node
        self.account = ServingAccount(world.serving) if world.serving else None
        self._ticked_s = 0.0

    def begin(self) -> None:
        """Everything that is known beforehand goes on the heap."""
        state, world = self._state, self._state.world
        chosen = _slow_from_the_start(state)
        for node in state.nodes:
            if node.index in chosen:
                node.device_factor *= world.step.straggler_factor
            self._expect(node, self._clocks.next(node))
        here = {node.node_id for node in state.nodes}  # a part of a pool has some of its nodes
        for slow in world.slow_nodes:
            if slow.node_id in here:
                state.heap.push(slow.from_s, SLOWED_FROM, slow)
                state.heap.push(slow.until_s, SLOWED_UNTIL, slow)
        for loss in world.losses:
            if loss.node_id in here:
                state.heap.push(loss.at_s, NODE_FAILS, loss)
        for from_s, until_s, factor in world.store.brownouts:
            assert 0 < factor <= 1 and from_s < until_s, world.store
            state.heap.push(from_s, BROWNOUT, factor)
            state.heap.push(until_s, BROWNOUT, 1.0)
        if world.serving:
            for at_s, count in world.serving.needed:
                state.heap.push(at_s, NEEDED, count)
            for at_s, count in world.serving.asked:
                state.heap.push(at_s, ASKED, count)

    def happen(self, kind: int, subject: object) -> None:
        """One entry of the heap."""
        state = self._state
        if kind == NODE_FAILS and isinstance(subject, tuple):
            self._fail(*subject)
        elif kind == NODE_FAILS and isinstance(subject, NodeLoss):
            self._lose(subject)
        elif kind in (NODE_KNOWN, JOB_KNOWN) and isinstance(subject, _Known):
            self._known(kind, subject)
        elif kind == NODE_REPAIRED and isinstance(subject, tuple):
            self._repaired(*subject)
        elif kind == NODE_INSPECTED:
            self._inspected(state.nodes[str(subject)])
        elif kind in (SLOWED_FROM, SLOWED_UNTIL) and isinstance(subject, SlowNode):
            self._slow(subject, kind)
        elif kind == BROWNOUT and isinstance(subject, float):
            rate = min(state.world.store.bytes_per_s, WITHOUT_LIMIT)
            state.data.set_rate(rate * subject, state.now_s)
        elif kind == SERVES:
            self._serves(state.nodes[str(subject)])
        elif kind == NEEDED and isinstance(subject, int) and self.account:
            self.account.change(state.now_s, needed=subject)
        else:
            assert kind == ASKED and isinstance(subject, int), (kind, subject)
            state.inbox.append(events.ServingDemand(subject))

    def tick(self) -> None:
        """A bucket of the timeline ends."""
        state = self._state
        needed = 0
        if self.account:
            self.account.change(state.now_s, slowdown_factor=state.pace.serving_slowdown_factor())
            needed = self.account.needed_count
        state.figures.tick(self._ticked_s, state.now_s, needed)
        self._ticked_s = state.now_s

    def do(self, effect: events.NodeOrder) -> None:
        """An order of the brain about nodes."""
        state = self._state
        match effect:
            case events.QuarantineNode():
                node = state.nodes[effect.node_id]
                state.nodes.set_quarantined(node, state.now_s)
                state.later(state.world.faults.inspection_s, NODE_INSPECTED, node.node_id)
            case events.ReleaseNode():
                state.nodes.set_released(state.nodes[effect.node_id], state.now_s)
            case events.GrantServing():
                for node_id in effect.node_ids:
                    self._grant(state.nodes[node_id])
                self._neighbours_changed(effect.node_ids)
            case events.ReclaimServing():
                for node_id in effect.node_ids:
                    self._not_ready(state.nodes[node_id])
                    state.nodes.reclaim(state.nodes[node_id], state.now_s)
                self._neighbours_changed(effect.node_ids)
            case _:
                assert_never(effect)

    # --- failures ---

    def _expect(self, node: Node, failure: NodeFailure | None) -> None:
        if failure is not None and failure.at_s <= self._state.world.horizon_s:
            number = self._state.heap.push(failure.at_s, NODE_FAILS, (node, failure))
            self._failure_due[node.node_id] = number
        else:
            self._failure_due.pop(node.node_id, None)

    def _fail(self, node: Node, failure: NodeFailure) -> None:
        """A node, or the job on one of its accelerators, fails; a node that is down cannot fail again."""
        state, detection_s = self._state, self._state.world.faults.detection_s
        self._expect(node, self._clocks.next(node))
        if node.down:
            return
        if failure.repair_s > 0:
            self._take_down(node, failure.cause)
            state.later(detection_s + failure.repair_s, NODE_REPAIRED, (node, failure.repair))
            return
        hit = _job_at(node, failure.slot)
        if hit and hang(state, state.jobs[hit]):
            state.figures.failures_by_cause[failure.cause.value] += 1
            state.later(detection_s, JOB_KNOWN, _Known(hit, failure.cause, state.jobs[hit].attempt))

    def _lose(self, loss: NodeLoss) -> None:
        """A node fails as the world says; it is back in time, or never."""
        state, node = self._state, self._state.nodes[loss.node_id]
        if node.down:
            return
        self._take_down(node, loss.cause)
        if loss.back_after_s < inf:
            back_s = max(loss.back_after_s, state.world.faults.detection_s)
            state.later(back_s, NODE_REPAIRED, (node, events.RepairKind.REBOOTED))

    def _take_down(self, node: Node, cause: events.FaultCause) -> None:
        """All that runs on it hangs; the brain hears of it a little later."""
        state = self._state
        state.figures.node_failure_count += 1
        state.figures.failures_by_cause[cause.value] += 1
        self._not_ready(node)
        state.nodes.set_down(node, state.now_s)
        for job_id in list(node.job_counts):
            hang(state, state.jobs[job_id])
        state.later(state.world.faults.detection_s, NODE_KNOWN, _Known(node.node_id, cause))

    def _known(self, kind: int, known: _Known) -> None:
        """The brain hears of a failure."""
        state = self._state
        if kind == NODE_KNOWN:
            node = state.nodes[known.subject]
            for job_id in node.job_counts:
                self._pause(job_id)
            state.inbox.append(events.NodeFailed(node.node_id, known.cause))
            return
        job = state.jobs.get(known.subject)
        if job is not None and job.attempt == known.attempt and job.phase is Phase.HUNG:
            self._pause(job.job_id)
            state.inbox.append(events.JobFailed(job.job_id, known.cause, "", known.attempt))

    def _pause(self, job_id: str) -> None:
        job = self._state.jobs[job_id]
        if job.phase is not Phase.PAUSED:
            hang(self._state, job)
            job.enter(Phase.PAUSED, self._state.nodes, self._state.now_s)

    def _repaired(self, node: Node, repair: events.RepairKind) -> None:
        state = self._state
        state.nodes.set_up(node, state.now_s)
        state.inbox.append(events.NodeRepaired(node.node_id, repair))

    def _inspected(self, node: Node) -> None:
        """A quarantined node has been looked after; a lemon is none any more."""
        state = self._state
        if node.quarantined and node.down:  # it is with its repairers: look again later
            state.later(state.world.faults.inspection_s, NODE_INSPECTED, node.node_id)
        elif node.quarantined:
            if node.is_lemon:
                due = self._failure_due.pop(node.node_id, None)
                if due is not None:
                    state.heap.cancel(due)
                self._expect(node, self._clocks.heal(node, state.now_s))
            state.inbox.append(events.NodeRepaired(node.node_id, events.RepairKind.REPLACED))

    # --- pace ---

    def _slow(self, slow: SlowNode, kind: int) -> None:
        node = self._state.nodes[slow.node_id]
        if kind == SLOWED_FROM:
            node.device_factor *= slow.device_factor
            node.link_factor *= slow.link_factor
        else:
            node.device_factor /= slow.device_factor
            node.link_factor /= slow.link_factor
        for job_id in list(node.job_counts):
            repace(self._state, self._state.jobs[job_id])

    def _neighbours_changed(self, node_ids: tuple[str, ...]) -> None:
        state = self._state
        if not state.world.step.training_interference_fraction:
            return
        domains = {state.nodes[node_id].domain for node_id in node_ids}
        for job in list(state.jobs.values()):
            if any(state.nodes[node_id].domain in domains for node_id, _ in job.placement):
                repace(state, job)

    # --- serving ---

    def _grant(self, node: Node) -> None:
        state = self._state
        assert self.account is not None, "nobody serves here"
        if not node.serving:
            vacate(state, node.node_id)
            state.nodes.grant(node, state.now_s)
            if not node.down:
                start_s = self.account.load.start_s
                state.starting[node.node_id] = state.later(start_s, SERVES, node.node_id)

    def _serves(self, node: Node) -> None:
        del self._state.starting[node.node_id]
        node.ready = True
        if self.account:
            self.account.change(self._state.now_s, ready=node.accelerator_count)

    def _not_ready(self, node: Node) -> None:
        """It stops serving, or starting to."""
        due = self._state.starting.pop(node.node_id, None)
        if due is not None:
            self._state.heap.cancel(due)
        if node.ready and self.account:
            node.ready = False
            self.account.change(self._state.now_s, ready=-node.accelerator_count)


def _job_at(node: Node, slot: int) -> str:
    """The job that has the node's accelerator of this number; "": none."""
    for job_id, count in node.job_counts.items():
        if slot < count:
            return job_id
        slot -= count
    return ""


def _slow_from_the_start(state: ClusterState) -> set[int]:
    """Nodes that are stragglers, by their number, each by its own chance."""
    fraction = state.world.step.straggler_fraction
    if not fraction:
        return set()
    luck = np.random.default_rng([state.world.seed, 14]).random(len(state.nodes))
    return {int(index) for index in np.flatnonzero(luck < fraction)}
