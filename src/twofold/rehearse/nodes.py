"""What a scenario does to single nodes of a training cluster: some are slow, some fail, all are repaired."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from twofold.contracts.scenario import ClusterChange, FaultEvent
from twofold.core import UnknownNameError, ValueRefusedError, format_seconds
from twofold.policy.cluster import events
from twofold.twin.cluster import FaultRates, NodeLoss, SlowNode

NODE_NAME = "node-"  # and its number, from 0


def slow_nodes(change: ClusterChange, node_count: int) -> tuple[SlowNode, ...]:
    """Those that the scenario names. Raises ValueRefusedError for one that the cluster does not have."""
    absent = next((slow.node for slow in change.slow if slow.node >= node_count), None)
    if absent is not None:
        hint = f"its {node_count} nodes are numbered from 0"
        raise ValueRefusedError(f"the cluster has no node {absent} that could be slow", hint=hint)
    return tuple(
        SlowNode(
            f"{NODE_NAME}{slow.node}",
            from_s=slow.at_s,
            until_s=inf if slow.for_s is None else slow.at_s + slow.for_s,
            device_factor=slow.device_ratio,
            link_factor=slow.link_ratio,
        )
        for slow in change.slow
    )


def node_losses(
    faults: Sequence[FaultEvent], node_count: int, detection_s: float, horizon_s: float
) -> tuple[NodeLoss, ...]:
    """Nodes that fail when the scenario says so, the first ones each time.

    Raises ValueRefusedError for more than the cluster has, for a failure after the horizon, and for a node
    that is back before anybody knows of its failure; UnknownNameError for a cause that nodes do not have.
    """
    found: list[NodeLoss] = []
    for event in faults:
        if event.nodes > node_count:
            raise ValueRefusedError(
                f"{event.nodes} nodes are to fail, where the cluster has {node_count}",
                hint=f"write `nodes: {node_count}` or fewer for the {event.kind}",
            )
        if event.at_s >= horizon_s:
            raise ValueRefusedError(
                f"the {event.kind} begins after the {format_seconds(horizon_s)} that are simulated",
                hint="write an earlier `at`, or a longer `horizon`",
            )
        if event.back_after_s is not None and event.back_after_s < detection_s:
            raise ValueRefusedError(
                f"a node that is back after {format_seconds(event.back_after_s)} has not been missed yet",
                hint=f"write {format_seconds(detection_s)} or more: so long a failure takes to be known",
            )
        back_s = inf if event.back_after_s is None else event.back_after_s
        cause = _cause(event)
        found += (
            NodeLoss(event.at_s, f"{NODE_NAME}{number}", cause, back_s) for number in range(event.nodes)
        )
    return tuple(found)


def _cause(event: FaultEvent) -> events.FaultCause:
    known = [cause.value for cause in events.FaultCause]
    if "cause" not in event.model_fields_set:
        return events.FaultCause.HOST
    if event.cause not in known:
        raise UnknownNameError(
            f"`{event.cause[:64]}` is no cause of a {event.kind}", hint=f"causes: {', '.join(known)}"
        )
    return events.FaultCause(event.cause)


def repaired(faults: FaultRates, change: ClusterChange) -> FaultRates:
    """Repairs that take as long as the scenario says, where it says so."""
    if "repair_s" not in change.model_fields_set:
        return faults
    causes = tuple(
        replace(cause, repair_s=change.repair_s if cause.repair_s else 0.0) for cause in faults.causes
    )
    return replace(faults, causes=causes)
