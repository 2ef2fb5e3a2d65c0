"""What serving has of the pool: granted in time, given back when demand stays low.

Serving comes before training, but never takes a job that may not be preempted: free nodes first, then what
elastic jobs can spare, then whole jobs, the cheapest first, each after its checkpoint.
"""

from twofold.policy.cluster import events
from twofold.policy.cluster.attempts import make_room
from twofold.policy.cluster.placement import Node, NodeUse
from twofold.policy.cluster.room import Need, as_many_victims, candidates_for_serving
from twofold.policy.cluster.view import ClusterView, Due


def share(view: ClusterView, now_s: float) -> list[events.ClusterEffect]:
    """Give serving what it should have now, and take back what it need not have any longer."""
    view.serving_changed = False
    plan = view.serving_plan
    granted_count = sum(node.accelerator_count for node in view.serving.values())
    wanted_count = plan.wanted_count(granted_count, now_s)
    effects: list[events.ClusterEffect] = []
    if wanted_count < granted_count:
        effects += _reclaimed(view, granted_count - wanted_count)
    elif wanted_count > granted_count:
        effects += _granted(view, wanted_count - granted_count, now_s)
    next_s = plan.next_look_at_s(now_s)
    if next_s is not None:
        view.timers.set(Due.SERVING, "", next_s)
    return effects


def _granted(view: ClusterView, missing_count: int, now_s: float) -> list[events.ClusterEffect]:
    nodes: list[Node] = []
    for free in (view.free, view.held):
        part_count = min(missing_count, free.whole_count)
        for node in free.whole_nodes(part_count) or () if part_count > 0 else ():
            nodes.append(node)
            missing_count -= node.accelerator_count
    for node in nodes:
        with view.change(node):
            node.use = NodeUse.SERVING
    effects: list[events.ClusterEffect] = []
    if nodes:
        effects.append(events.GrantServing(tuple(node.node_id for node in nodes)))
    if missing_count > 0 and view.settings.preemption is not None:
        # Those that leave already come first to serving, when they have left.
        need = Need(missing_count, 0)
        for victim in as_many_victims(view, need, candidates_for_serving(view, now_s)):
            effects += make_room(view, victim, events.StopReason.SERVING, now_s)
    return effects


def _reclaimed(view: ClusterView, spare_count: int) -> list[events.ClusterEffect]:
    """Nodes of the domains where serving has least come first: whole domains are training's again."""
    counts: dict[tuple[str, ...], int] = {}
    for node in view.serving.values():
        counts[node.domain] = counts.get(node.domain, 0) + node.accelerator_count
    nodes = []
    for node in sorted(view.serving.values(), key=lambda node: counts[node.domain]):
        if node.accelerator_count <= spare_count:
            spare_count -= node.accelerator_count
            nodes.append(node)
    effects: list[events.ClusterEffect] = []
    if nodes:
        effects.append(events.ReclaimServing(tuple(node.node_id for node in nodes)))
    for node in nodes:
        with view.change(node):
            node.use = NodeUse.TRAINING
    return effects
