"""A training cluster, or a pool shared with serving: the world around the real cluster brain.

The loop takes what comes next (the heap, the store, the time at which the brain asked to be woken), changes
the truth, tells the brain what it could know, and does what it answers. Steps are never simulated: a job's
progress is one rate between two events.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count as counter
from math import inf
from typing import assert_never

import numpy as np

from twofold.contracts.results import simulated
from twofold.policy.cluster import events
from twofold.policy.machine import Woke
from twofold.twin.cluster.attempts import begin, end, save, stop, transferred
from twofold.twin.cluster.cluster_types import ClusterMachine, ClusterResult, ClusterWorld, JobRecord, RunEnd
from twofold.twin.cluster.figures import ServingAccount, placed_text
from twofold.twin.cluster.job import Job, Phase
from twofold.twin.cluster.jobs import JobArrival
from twofold.twin.cluster.node_events import NodeEvents
from twofold.twin.cluster.nodes import BUSY, DOWN, IDLE, QUARANTINED, SERVING, USES
from twofold.twin.cluster.state import ClusterState

OnJob = Callable[[JobRecord], None]
WAKES_MAX = 10_000  # at one time, in a row: then the machine asks to be woken without getting anywhere
PACE_SETTERS_COUNT = 10  # nodes that are named


def simulate_cluster(
    world: ClusterWorld, jobs: Iterable[JobArrival], on_job: OnJob | None = None
) -> ClusterResult:
    """Run `jobs`, in order of time, on the world's cluster under its brain; a pure function of both.

    `on_job` is called for every job at its end, and for what is left when the run is over.
    """
    run = _Run(world, iter(jobs), on_job)
    run.go()
    return cluster_result(run.state, run.nodes.account, run.more)


class _Run:
    """One run: the loop, arrivals, and the brain's effects. Mutable."""

    def __init__(self, world: ClusterWorld, arrivals: Iterator[JobArrival], on_job: OnJob | None) -> None:
        self.state = ClusterState(world, on_job)
        self.nodes = NodeEvents(self.state)
        self.more = True  # arrivals to come
        self._world, self._arrivals = world, arrivals
        self._brain: ClusterMachine = world.new_brain()
        self._numbers = counter(1)
        self._guess = np.random.default_rng([world.seed, 13])
        self._last_submit_s = 0.0

    def go(self) -> None:
        """From the first second to the end."""
        world, state = self._world, self.state
        for node in state.nodes:
            state.inbox.append(events.NodeAdded(node.node_id, node.accelerator_count, node.domain))
        self.nodes.begin()
        every_s = world.horizon_s / world.timeline_count
        for number in range(1, world.timeline_count + 1):
            state.at(number * every_s, self.nodes.tick)
        self._next_arrival()
        self._tell()
        wakes, ends_early = 0, world.ends is RunEnd.LAST_JOB
        while not (ends_early and not self.more and not state.jobs):
            asked_s = self._brain.wake_at_s()
            wake_s = inf if asked_s is None else max(asked_s, state.now_s)
            stored_s = min(state.data.next_at_s(), state.metadata.next_at_s())
            due = state.heap.pop_until(min(wake_s, stored_s, world.horizon_s))
            if due is not None:
                wakes, state.now_s = 0, max(due[0], state.now_s)
                due[3]()
            elif min(wake_s, stored_s) > world.horizon_s:
                break
            elif stored_s <= wake_s:
                wakes, state.now_s = 0, max(stored_s, state.now_s)
                for job_id in state.metadata.advance(state.now_s):
                    state.transfer_bytes(state.jobs[job_id])
                for job_id in state.data.advance(state.now_s):
                    transferred(state, state.jobs[job_id])
            else:
                wakes = wakes + 1 if wake_s == state.now_s else 0
                assert wakes < WAKES_MAX, f"the machine asks to be woken at {asked_s} again and again"
                state.now_s = wake_s
                state.inbox.append(Woke())
            self._tell()
        if not ends_early or state.jobs:
            state.now_s = world.horizon_s

    def _tell(self) -> None:
        """The brain hears what is new, one event after the other, and what it answers is done."""
        state = self.state
        inbox = state.inbox
        while inbox:
            effects = self._brain.handle(inbox.popleft(), state.now_s)
            state.figures.decided(effects)
            for effect in effects:
                if isinstance(effect, events.NodeOrder):
                    self.nodes.do(effect)
                elif isinstance(effect, events.JobOrder):
                    self._do(effect)  # parts of accelerators are serving's own affair

    def _next_arrival(self) -> None:
        arrival = next(self._arrivals, None)
        self.more = arrival is not None
        if arrival is not None:
            assert arrival.submit_s >= self._last_submit_s, "jobs are not in order of time"
            self._last_submit_s = arrival.submit_s
            self.state.at(arrival.submit_s, partial(self._submit, arrival))

    def _submit(self, arrival: JobArrival) -> None:
        """A job arrives; what the brain hears of its length is what its owner says."""
        state, world = self.state, self._world
        job_id = arrival.job_id or f"j{next(self._numbers)}"
        job = Job(job_id, arrival, arrival.duration_s * arrival.accelerator_count)
        assert job_id not in state.jobs, f"two jobs are called {job_id}"
        state.jobs[job_id] = job
        state.figures.submitted(job, state.now_s)
        sigma = world.estimate_sigma
        # The error has no bias in the mean: owners are wrong both ways.
        error = float(np.exp(sigma * self._guess.standard_normal() - sigma * sigma / 2)) if sigma else 1.0
        state.inbox.append(
            events.JobSubmitted(
                job_id=job_id,
                team=arrival.team,
                accelerator_count=arrival.accelerator_count,
                minimum_count=arrival.minimum_count or arrival.accelerator_count,
                priority=arrival.priority,
                expected_s=max(arrival.duration_s * error, 1e-3),
                checkpoint_write_s=self._write_s(arrival),
                restart_s=world.checkpoint.restart_s,
                preemptible=arrival.preemptible,
                checkpoint_stall_s=world.checkpoint.snapshot_s,
            )
        )
        self._next_arrival()

    def _write_s(self, arrival: JobArrival) -> float:
        """How long a checkpoint takes when nobody else writes: what its owner would say."""
        checkpoint, store = self._world.checkpoint, self._world.store
        count = arrival.accelerator_count
        write_s = checkpoint.bytes_per_accelerator * count / store.bytes_per_s
        return write_s + checkpoint.files_per_accelerator * count / store.operations_per_s

    def _do(self, effect: events.JobOrder) -> None:
        """What the brain ordered happens now; orders for jobs that have ended meanwhile come to nothing."""
        state, job = self.state, self.state.jobs.get(effect.job_id)
        if job is None:
            return
        match effect:
            case events.StartJob() | events.ResizeJob():
                most = job.arrival.accelerator_count
                given_count = sum(count for _, count in effect.placement)
                state.figures.partial_count += not (job.arrival.minimum_count or most) <= given_count <= most
                begin(state, job, effect.placement, effect.attempt)
            case events.SaveCheckpoint():
                save(state, job)
            case events.StopJob():
                stop(state, job, effect.reason)
            case events.SwapNode():
                placement = tuple(
                    (effect.spare_node_id if node_id == effect.failed_node_id else node_id, part)
                    for node_id, part in job.placement
                )
                begin(state, job, placement, effect.attempt)
            case events.RefuseJob():
                if effect.reason is not events.JobRefusal.DUPLICATE:
                    end(state, job, "refused")
            case _:
                assert_never(effect)


def cluster_result(state: ClusterState, account: ServingAccount | None, more: bool) -> ClusterResult:
    """Fold what still runs into the figures, and read them; `more`: jobs have not even arrived."""
    now_s, figures, world = state.now_s, state.figures, state.world
    waiting_for = _waiting_for(state, more)
    placement = {job.job_id: placed_text(job.placement) for job in state.jobs.values() if job.placement}
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
        figures=simulated.TrainingFigures(
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
            partial_gang_count=figures.partial_count,
            deadlock_count=sum(
                row.queued_count > 0 and not (row.running_count or row.away_count or row.serving_count)
                for row in rows
            ),
            placement=placement,
            failures_by_cause=dict(sorted(figures.failures_by_cause.items())),
        ),
        capacity_h=capacity_s / 3600,
        node_failure_count=figures.node_failure_count,
        checkpoint_failed_count=figures.checkpoint_failed_count,
        lost_s_mean=figures.losses.mean,
        serving=serving,
        timeline=tuple(rows),
        followed=tuple(figures.courses),
    )


def _deviation_fraction(teams: Sequence[simulated.TeamFigures]) -> float | None:
    """How far the team furthest from its quota is from it, over the quota."""
    shares = [(team.share_fraction, team.quota_fraction) for team in teams]
    return max(
        (abs(share / quota - 1) for share, quota in shares if share is not None and quota), default=None
    )


def _waiting_for(state: ClusterState, more: bool) -> str:
    """What a run that the horizon cut off was still waiting for."""
    queued = [job for job in state.jobs.values() if job.phase is Phase.WAITING]
    running_count = len(state.jobs) - len(queued)
    parts = [f"{running_count} running" if running_count else ""]
    if queued:
        first = queued[0]
        count = first.arrival.accelerator_count
        parts.append(f"{len(queued)} queued, first {first.job_id} ({count} accelerators)")
    parts.append("jobs that had not arrived" if more else "")
    return "; ".join(part for part in parts if part)
