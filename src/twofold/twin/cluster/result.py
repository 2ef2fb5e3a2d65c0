"""What a cluster's run came to, from what it left behind."""

from collections.abc import Sequence

from twofold.contracts.results import TeamFigures, TrainingFigures
from twofold.twin.cluster.job import Phase
from twofold.twin.cluster.nodes import BUSY, DOWN, IDLE, QUARANTINED, SERVING, USES
from twofold.twin.cluster.serving import ServingAccount
from twofold.twin.cluster.state import ClusterState
from twofold.twin.cluster.types import ClusterResult, ClusterRow

PACE_SETTERS_COUNT = 10  # nodes that are named


def cluster_result(state: ClusterState, account: ServingAccount | None, more: bool) -> ClusterResult:
    """Fold what still runs into the figures, and read them; `more`: jobs have not even arrived."""
    now_s, figures, world = state.now_s, state.figures, state.world
    waiting_for = _waiting_for(state, more)
    placement = {
        job.job_id: " ".join(f"{node_id}:{count}" for node_id, count in job.placement)
        for job in state.jobs.values()
        if job.placement
    }
    for job in state.jobs.values():
        figures.paced(job, now_s)
        job.sync(state.nodes, now_s)
        figures.ended(job, "running" if job.placement else "queued", now_s)
    seconds = state.nodes.ledger.total_s(now_s)
    away_s = seconds[IDLE] + seconds[SERVING] + seconds[QUARANTINED] + seconds[DOWN]
    held_s, capacity_s = sum(seconds) - away_s, state.nodes.accelerator_count * now_s
    working_s = seconds[SERVING] + held_s
    setters = sorted(figures.pace_setters.items(), key=lambda item: (-item[1], item[0]))
    rows, row_count = figures.rows, max(1, len(figures.rows))
    serving, teams = account.figures(now_s) if account else None, figures.teams.shares(now_s)
    return ClusterResult(
        figures=TrainingFigures(
            duration_s=now_s,
            node_count=sum(group.count for group in world.nodes),
            accelerator_count=state.nodes.accelerator_count,
            submitted_count=sum(figures.jobs.values()),
            outcomes=dict(figures.jobs),
            accelerator_h={use.value: one / 3600 for use, one in zip(USES, seconds, strict=True)},
            goodput_fraction=seconds[BUSY] / held_s if held_s else 0.0,
            utilisation_fraction=working_s / capacity_s if capacity_s else 0.0,
            queue_s_mean={name: seen.mean for name, seen in sorted(figures.waits_by_size.items())},
            queue_s_p95={name: seen.p95 for name, seen in sorted(figures.waits_by_size.items())},
            share_deviation_fraction=_deviation_fraction(teams),
            fragmentation_fraction=figures.fragmentation_sum / row_count,
            largest_free_count_mean=sum(row.largest_free_count for row in rows) / row_count,
            failure_count=figures.losses.count,
            restart_count=figures.restart_count,
            preempted_count=figures.preempted_count,
            checkpoint_count=figures.checkpoints.count,
            checkpoint_s_mean=figures.checkpoints.mean,
            recovery_s_mean=figures.recoveries.mean,
            serving_needed_h=serving.needed_h if serving else 0.0,
            serving_shortfall_h=serving.shortfall_h if serving else 0.0,
            energy_j=working_s * world.busy_w + (capacity_s - working_s) * world.idle_w,
            event_count=figures.event_count,
            decision_count=figures.decision_count,
            effects=dict(sorted(figures.effects.items())),
            waits_for=waiting_for or None,
            teams=teams,
            slowdown_factor=figures.paced_factor_s / figures.paced_s if figures.paced_s else 1.0,
            serving_slowdown_factor=serving.slowdown_factor if serving else 1.0,
            pace_setters={name: waited_s / 3600 for name, waited_s in setters[:PACE_SETTERS_COUNT]},
            checkpoint_interval_s_mean=None,  # as the next one, of jobs that only a rehearsal looks at
            preempted_lost_s_max=None,
            deadlock_count=sum(map(_is_deadlock, rows)),
            placement=placement,
            failures_by_cause=dict(sorted(figures.failures_by_cause.items())),
        ),
        capacity_h=capacity_s / 3600,
        node_failure_count=figures.node_failure_count,
        checkpoint_failed_count=figures.checkpoint_failed_count,
        lost_s_mean=figures.losses.mean,
        serving=serving,
        timeline=tuple(rows),
    )


def _deviation_fraction(teams: Sequence[TeamFigures]) -> float | None:
    """How far the team furthest from its quota is from it, over the quota."""
    shares = [(team.share_fraction, team.quota_fraction) for team in teams]
    return max(
        (abs(share / quota - 1) for share, quota in shares if share is not None and quota), default=None
    )


def _is_deadlock(row: ClusterRow) -> bool:
    """Jobs wait at the end of a bucket of time, none runs, and nobody else has the nodes."""
    return row.queued_count > 0 and row.running_count == 0 and not (row.away_count or row.serving_count)


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
