"""What a cluster's run came to, from what it left behind."""

from twofold.twin.cluster.job import Phase
from twofold.twin.cluster.nodes import BUSY, DOWN, IDLE, QUARANTINED, SERVING, USES
from twofold.twin.cluster.serving import ServingAccount
from twofold.twin.cluster.state import ClusterState
from twofold.twin.cluster.types import ClusterResult

PACE_SETTERS_COUNT = 10  # nodes that are named


def cluster_result(state: ClusterState, account: ServingAccount | None, more: bool) -> ClusterResult:
    """Fold what still runs into the figures, and read them; `more`: jobs have not even arrived."""
    now_s, figures, world = state.now_s, state.figures, state.world
    waiting_for = _waiting_for(state, more)
    placement = tuple((job.job_id, job.placement) for job in state.jobs.values() if job.placement)
    for job in state.jobs.values():
        figures.paced(job, now_s)
        job.sync(state.nodes, now_s)
        figures.ended(job, "running" if job.placement else "queued", now_s)
    seconds = state.nodes.ledger.total_s(now_s)
    away_s = seconds[IDLE] + seconds[SERVING] + seconds[QUARANTINED] + seconds[DOWN]
    held_s, capacity_s = sum(seconds) - away_s, state.nodes.accelerator_count * now_s
    working_s = seconds[SERVING] + held_s
    setters = sorted(figures.pace_setters.items(), key=lambda item: (-item[1], item[0]))
    return ClusterResult(
        duration_s=now_s,
        accelerator_count=state.nodes.accelerator_count,
        accelerator_h={use: one / 3600 for use, one in zip(USES, seconds, strict=True)},
        capacity_h=capacity_s / 3600,
        goodput_fraction=seconds[BUSY] / held_s if held_s else 0.0,
        utilisation_fraction=working_s / capacity_s if capacity_s else 0.0,
        energy_j=working_s * world.busy_w + (capacity_s - working_s) * world.idle_w,
        jobs=dict(figures.jobs),
        waits_by_size=tuple(seen.waits(name) for name, seen in sorted(figures.waits_by_size.items())),
        teams=figures.teams.shares(now_s),
        preempted_count=figures.preempted_count,
        restart_count=figures.restart_count,
        failure_count=figures.losses.count,
        node_failure_count=figures.node_failure_count,
        failures_by_cause=dict(sorted(figures.failures_by_cause.items())),
        checkpoint_count=figures.checkpoints.count,
        checkpoint_failed_count=figures.checkpoint_failed_count,
        checkpoint_s_mean=figures.checkpoints.mean,
        lost_s_mean=figures.losses.mean,
        recovery_s_mean=figures.recoveries.mean,
        slowdown_factor=figures.paced_factor_s / figures.paced_s if figures.paced_s else 1.0,
        pace_setters=tuple((name, waited_s / 3600) for name, waited_s in setters[:PACE_SETTERS_COUNT]),
        fragmentation_fraction_mean=figures.fragmentation_sum / max(1, len(figures.rows)),
        serving=account.figures(now_s) if account else None,
        placement=placement,
        waiting_for=waiting_for,
        event_count=figures.event_count,
        decision_count=figures.decision_count,
        effects=dict(sorted(figures.effects.items())),
        timeline=tuple(figures.rows),
    )


def _waiting_for(state: ClusterState, more: bool) -> str:
    """What a run that the horizon cut off was still waiting for."""
    queued = [job for job in state.jobs.values() if job.phase is Phase.WAITING]
    running_count = len(state.jobs) - len(queued)
    parts = [f"{running_count} running" if running_count else ""]
    if queued:
        first = queued[0]
        parts.append(
            f"{len(queued)} queued, first {first.job_id} ({first.arrival.accelerator_count} accelerators)"
        )
    parts.append("jobs that had not arrived" if more else "")
    return "; ".join(part for part in parts if part)
