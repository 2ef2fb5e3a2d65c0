"""Attempts that stand still or are slow without ending: the silent, and the node that sets a gang's pace.

A gang is as fast as its slowest node, and one that hangs holds all it has for ever. Both are judged against
the job itself: its own longest step, the other nodes of its gang. A slow node is left only where another one
can take its place, after a checkpoint, so that nothing is lost by it; else it is told, and the gang goes on.
"""

import math
from statistics import median

from twofold.policy.cluster import events
from twofold.policy.cluster.attempts import halt, save
from twofold.policy.cluster.gang_queue import Job
from twofold.policy.cluster.recovery import (
    backoff_s,
    interrupted,
    may_set_apart,
    on_sound_nodes,
    replacement_for,
    set_apart,
)
from twofold.policy.cluster.view import ClusterView, Due


def is_sound(event: events.JobProgressed) -> bool:
    """Whether a report says times that steps can have."""
    return all(
        math.isfinite(time_s) and time_s >= 0 for time_s in (event.step_s, *dict(event.node_s).values())
    )


def progressed(
    view: ClusterView, job: Job, event: events.JobProgressed, now_s: float
) -> list[events.ClusterEffect]:
    """It is alive; from now on its silence is watched, and who it waits for."""
    job.step_s_max = max(job.step_s_max, event.step_s)
    _listen(view, job, now_s)
    found = slow_node(dict(event.node_s), view.settings.watch.slow_ratio)
    counts = job.slow_counts
    if found is None or found[0] not in dict(job.placement):
        counts.clear()
        return []
    node_id, ratio = found
    job.slow_counts = {node_id: counts.get(node_id, 0) + 1}
    if job.slow_counts[node_id] != view.settings.watch.slow_count:
        return []
    view.counts.slow += 1
    told = events.SlowNode(node_id, job.job_id, ratio)
    if not _can_be_left(view, job, node_id) or job.making_room is not None or not job.submitted.saves:
        return [told]
    job.slow_node_id = node_id
    return [told, *save(view, job, now_s)]


def slow_node(node_s: dict[str, float], slow_ratio: float) -> tuple[str, float] | None:
    """The node that all others of a gang wait for, and how much longer than their median it works in a step.

    Formula  slowest ≥ ratio · median of the others
    Limits   one node alone waits for nobody, and is never slow.
    """
    if len(node_s) < 2:
        return None
    slowest = max(node_s, key=lambda node_id: (node_s[node_id], node_id))
    others_s = median(time_s for node_id, time_s in node_s.items() if node_id != slowest)
    if others_s <= 0 or node_s[slowest] < slow_ratio * others_s:
        return None
    return slowest, node_s[slowest] / others_s


def left_the_slow(view: ClusterView, job: Job, now_s: float) -> list[events.ClusterEffect]:
    """A checkpoint is written: a job that waits for a slow node goes on without it, if it still can."""
    node_id, job.slow_node_id = job.slow_node_id, ""
    if not node_id or not _can_be_left(view, job, node_id):
        return []
    effects = set_apart(view, view.nodes[node_id], now_s)
    halt(view, job)
    return effects + on_sound_nodes(view, job, now_s)


def silent(view: ClusterView, job: Job, now_s: float) -> list[events.ClusterEffect]:
    """Nothing was heard for too long. While it writes a checkpoint it may be; that has a limit of its own."""
    if job.saving_since_s is not None:
        _listen(view, job, now_s)
        return []
    view.counts.hung += 1
    pause_s = backoff_s(job.failed_count + 1, view.settings.faults)
    stopped = events.StopJob(job.job_id, events.StopReason.HUNG)
    return [stopped, *interrupted(view, job, events.FaultCause.UNKNOWN, pause_s, now_s)]


def silence_s(longest_step_s: float, view: ClusterView) -> float:
    """How long a job may say nothing, by its longest step so far."""
    watch = view.settings.watch
    return max(watch.silence_s, watch.silence_ratio * longest_step_s)


def _listen(view: ClusterView, job: Job, now_s: float) -> None:
    view.timers.set(Due.SILENT, job.job_id, now_s + silence_s(job.step_s_max, view))


def _can_be_left(view: ClusterView, job: Job, node_id: str) -> bool:
    count = dict(job.placement).get(node_id)
    node = view.nodes[node_id]
    if count is None or not may_set_apart(view, node):
        return False
    return replacement_for(node, count, view.spares, view.free, view.held) is not None
