"""What happens to nodes in truth: they fail, are repaired, are slow, go to serving and come back."""

from collections.abc import Callable
from functools import partial
from math import inf
from operator import mul, truediv
from typing import assert_never

from twofold.policy.cluster import events
from twofold.twin.cluster.attempts import hang, repace, vacate
from twofold.twin.cluster.cluster_types import NodeLoss, NodeStall, SlowNode
from twofold.twin.cluster.faults import FaultClocks, NodeFailure
from twofold.twin.cluster.figures import ServingAccount
from twofold.twin.cluster.job import Phase
from twofold.twin.cluster.nodes import Node
from twofold.twin.cluster.state import ClusterState


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
        for node in state.nodes:
            self._expect(node, self._clocks.next(node))
        here = {node.node_id for node in state.nodes}  # a part of a pool has some of its nodes
        for slow in world.slow_nodes:
            if slow.node_id in here:
                state.at(slow.from_s, partial(self._slow, slow, mul))
                state.at(slow.until_s, partial(self._slow, slow, truediv))
        for loss in world.losses:
            if loss.node_id in here:
                state.at(loss.at_s, partial(self._lose, loss))
        for stall in world.stalls:
            if stall.node_id in here:
                state.at(stall.at_s, partial(self._stall, stall))
        if world.serving:
            for at_s, count in world.serving.needed:
                state.at(at_s, partial(self._need, count))
            for at_s, count in world.serving.asked:
                state.at(at_s, partial(state.inbox.append, events.ServingDemand(count)))

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
                with state.nodes.change(node, state.now_s):
                    node.quarantined = True
                state.later(state.world.faults.inspection_s, partial(self._inspected, node))
            case events.ReleaseNode():
                node = state.nodes[effect.node_id]
                with state.nodes.change(node, state.now_s):
                    node.quarantined = False
            case events.GrantServing():
                for node_id in effect.node_ids:
                    self._grant(state.nodes[node_id])
                self._neighbours_changed(effect.node_ids)
            case events.ReclaimServing():
                for node_id in effect.node_ids:
                    node = state.nodes[node_id]
                    self._not_ready(node)
                    with state.nodes.change(node, state.now_s):
                        node.serving = False
                self._neighbours_changed(effect.node_ids)
            case events.SlowNode():
                pass  # nobody is there to be told
            case _:
                assert_never(effect)

    # --- failures ---

    def _expect(self, node: Node, failure: NodeFailure | None) -> None:
        if failure is not None and failure.at_s <= self._state.world.horizon_s:
            fails = partial(self._fail, node, failure)
            self._failure_due[node.node_id] = self._state.at(failure.at_s, fails)
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
            state.later(detection_s + failure.repair_s, partial(self._repaired, node, failure.repair))
            return
        slot = failure.slot
        for job_id, count in node.job_counts.items():  # the one that has the accelerator of this number
            if slot < count:
                job = state.jobs[job_id]
                if hang(state, job):
                    state.figures.failures_by_cause[failure.cause.value] += 1
                    known = partial(self._job_known, job_id, job.attempt, failure.cause)
                    state.later(detection_s, known)
                return
            slot -= count

    def _lose(self, loss: NodeLoss) -> None:
        """A node fails as the world says; it is back in time, or never."""
        state, node = self._state, self._state.nodes[loss.node_id]
        if node.down:
            return
        self._take_down(node, loss.cause)
        if loss.back_after_s < inf:
            back_s = max(loss.back_after_s, state.world.faults.detection_s)
            state.later(back_s, partial(self._repaired, node, events.RepairKind.REBOOTED))

    def _stall(self, stall: NodeStall) -> None:
        """What runs there hangs, and nothing tells of it."""
        for job_id in list(self._state.nodes[stall.node_id].job_counts):
            hang(self._state, self._state.jobs[job_id])

    def _take_down(self, node: Node, cause: events.FaultCause) -> None:
        """All that runs on it hangs; the brain hears of it a little later."""
        state = self._state
        state.figures.node_failure_count += 1
        state.figures.failures_by_cause[cause.value] += 1
        self._not_ready(node)
        with state.nodes.change(node, state.now_s):
            node.down = True
        for job_id in list(node.job_counts):
            hang(state, state.jobs[job_id])
        state.later(state.world.faults.detection_s, partial(self._node_known, node, cause))

    def _node_known(self, node: Node, cause: events.FaultCause) -> None:
        """The brain hears of a node's failure."""
        for job_id in node.job_counts:
            self._pause(job_id)
        self._state.inbox.append(events.NodeFailed(node.node_id, cause))

    def _job_known(self, job_id: str, attempt: int, cause: events.FaultCause) -> None:
        """The brain hears that an attempt failed, if it is still the latest and hangs."""
        job = self._state.jobs.get(job_id)
        if job is not None and job.attempt == attempt and job.phase is Phase.HUNG:
            self._pause(job_id)
            self._state.inbox.append(events.JobFailed(job_id, cause, "", attempt))

    def _pause(self, job_id: str) -> None:
        job = self._state.jobs[job_id]
        if job.phase is not Phase.PAUSED:
            hang(self._state, job)
            job.enter(Phase.PAUSED, self._state.nodes, self._state.now_s)

    def _repaired(self, node: Node, repair: events.RepairKind) -> None:
        state = self._state
        with state.nodes.change(node, state.now_s):
            node.down = False
        state.inbox.append(events.NodeRepaired(node.node_id, repair))

    def _inspected(self, node: Node) -> None:
        """A quarantined node has been looked after; a lemon is none any more."""
        state = self._state
        if node.quarantined and node.down:  # it is with its repairers: look again later
            state.later(state.world.faults.inspection_s, partial(self._inspected, node))
        elif node.quarantined:
            if node.is_lemon:
                due = self._failure_due.pop(node.node_id, None)
                if due is not None:
                    state.heap.cancel(due)
                self._expect(node, self._clocks.heal(node, state.now_s))
            state.inbox.append(events.NodeRepaired(node.node_id, events.RepairKind.REPLACED))

    # --- pace ---

    def _slow(self, slow: SlowNode, change: Callable[[float, float], float]) -> None:
        node = self._state.nodes[slow.node_id]
        node.device_factor = change(node.device_factor, slow.device_factor)
        node.link_factor = change(node.link_factor, slow.link_factor)
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

    def _need(self, count: int) -> None:
        if self.account:
            self.account.change(self._state.now_s, needed=count)

    def _grant(self, node: Node) -> None:
        state = self._state
        assert self.account is not None, "nobody serves here"
        if not node.serving:
            vacate(state, node.node_id)
            assert node.used_count == 0, f"{node.node_id} has {node.job_counts} and was granted to serving"
            with state.nodes.change(node, state.now_s):
                node.serving = True
            if not node.down:
                start_s = self.account.load.start_s
                state.starting[node.node_id] = state.later(start_s, partial(self._serves, node))

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
