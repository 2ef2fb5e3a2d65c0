"""The training machine: queues gangs, places them, saves their work, and shares the pool with serving.

One order of decisions, written once, in `handle` and `_settled`: the event itself → what has fallen due →
serving's share → spares → the queue. Each is a function of the view and the time, in a file of its own.
"""

import math
from typing import assert_never

from twofold.policy.cluster import attempts, events, recovery, serving_pool, watching
from twofold.policy.cluster.gang_queue import Job, JobState, TeamUse
from twofold.policy.cluster.placement import Node
from twofold.policy.cluster.room import expected_end_s
from twofold.policy.cluster.scheduling import arrived, look
from twofold.policy.cluster.settings import ClusterSettings
from twofold.policy.cluster.view import ClusterView, Due
from twofold.policy.machine import Machine, Woke


class ClusterBrain(Machine[events.ClusterEvent, events.ClusterEffect]):
    """For one cluster. `view` is for reading; only events change it.

    Time starts at 0 and never runs back: an event is handled at the latest time seen, and a time that is not
    finite counts as none. Events about jobs that are over or nodes that are unknown, reports of earlier
    attempts, and whatever comes twice, are counted as ignored. A job that cannot be is refused; a node with
    no accelerator, and a negative demand, are the driver's mistake (AssertionError).
    """

    def __init__(self, settings: ClusterSettings) -> None:
        self.view = ClusterView(settings)
        self._seen_s = 0.0
        self._given_sequences = 0

    def handle(self, event: events.ClusterEvent, now_s: float) -> list[events.ClusterEffect]:
        """Fold one event in, do what has fallen due by now, and look at the queue if anything changed."""
        if math.isfinite(now_s) and now_s > self._seen_s:
            self.view.advance(now_s - self._seen_s)
            self._seen_s = now_s
        now_s = self._seen_s
        effects = self._folded(event, now_s)
        while (key := self.view.timers.pop_due(now_s)) is not None:
            effects += self._due(*key, now_s)
        return effects + self._settled(now_s)

    def wake_at_s(self) -> float | None:
        """When the next thing falls due; None: nothing does."""
        return self.view.timers.next_at_s()

    def _folded(self, event: events.ClusterEvent, now_s: float) -> list[events.ClusterEffect]:
        """What follows from the event itself; what comes late, twice or about nobody is counted."""
        view = self.view
        match event:
            case events.JobSubmitted():
                return self._submitted(event, now_s)
            case events.JobCancelled():
                if job := view.jobs.get(event.job_id):
                    had = bool(job.placement)
                    attempts.end(view, job, now_s)
                    view.counts.cancelled += 1
                    return [events.StopJob(job.job_id, events.StopReason.CANCELLED)] if had else []
            case events.JobStarted():
                if job := self._reported(event, JobState.STARTING):
                    attempts.set_state(view, job, JobState.RUNNING)
                    job.since_s = now_s
                    view.timers.cancel(Due.SILENT, job.job_id)
                    view.expect_end(job, expected_end_s(job, job.size_count, now_s) - job.submitted.restart_s)
                    attempts.save_later(view, job, now_s)
                    return []
            case events.JobProgressed():
                job = self._reported(event, JobState.RUNNING)
                if job and watching.is_sound(event):
                    return watching.progressed(view, job, event, now_s)
            case events.JobFinished():
                if job := self._reported(event):
                    attempts.end(view, job, now_s)
                    view.counts.finished += 1
                    return []
            case events.JobFailed():
                job = self._reported(event, JobState.STARTING, JobState.RUNNING)
                if job and event.node_id in ("", *(node_id for node_id, _ in job.placement)):
                    return recovery.job_failed(view, job, event, now_s)
            case events.CheckpointWritten():
                job = self._reported(event, JobState.RUNNING)
                if job and _is_sound(event.write_s, event.stall_s):
                    effects = attempts.written(view, job, event, now_s)
                    return effects or watching.left_the_slow(view, job, now_s)
            case events.CheckpointFailed():
                job = self._reported(event, JobState.RUNNING)
                if job and job.saving_since_s is not None:
                    return attempts.lost(view, job, now_s)
            case events.NodeAdded():
                count = event.accelerator_count
                assert count >= 1, event
                if event.node_id not in view.nodes:
                    view.join(Node(event.node_id, count, event.domain, count))
                    return []
            case events.NodeFailed():
                node = view.nodes.get(event.node_id)
                if node is not None and node.down_since_s is None:
                    return recovery.node_failed(view, node, event, now_s)
            case events.NodeRepaired():
                node = view.nodes.get(event.node_id)
                if node is not None and not (node.down_since_s is None and node.quarantined_until_s is None):
                    return recovery.node_repaired(view, node, event, now_s)
            case events.ServingDemand():
                assert event.accelerator_count >= 0, event
                view.serving_plan.observe(event.accelerator_count, now_s)
                view.serving_changed = True
                return []
            case Woke():
                return []
            case _:
                assert_never(event)
        view.counts.ignored += 1
        return []

    def _reported(self, event: events.JobReport, *states: JobState) -> Job | None:
        """The job of a report, if that is of its latest attempt (0 names it), in one of these states."""
        job = self.view.jobs.get(event.job_id)
        known = job is not None and job.attempt and event.attempt in (0, job.attempt)
        return job if job and known and (not states or job.state in states) else None

    def _due(self, due: Due, name: str, now_s: float) -> list[events.ClusterEffect]:
        view = self.view
        match due:
            case Due.SAVE:
                return attempts.save(view, view.jobs[name], now_s)
            case Due.WAITED:
                return attempts.lost(view, view.jobs[name], now_s)
            case Due.RESTART if view.jobs[name].state is JobState.PAUSED:
                attempts.to_queue(view, view.jobs[name], now_s)
            case Due.RESTART:
                return recovery.on_sound_nodes(view, view.jobs[name], now_s)
            case Due.SILENT:
                return watching.silent(view, view.jobs[name], now_s)
            case Due.RELEASE:
                return recovery.released(view, view.nodes[name])
            case Due.LOOK:
                view.room_changed = True
            case Due.SERVING:
                view.serving_changed = True
            case _:
                assert_never(due)
        return []

    def _settled(self, now_s: float) -> list[events.ClusterEffect]:
        """Whoever should have something gets it: serving, then spares, then the queue in its order."""
        view = self.view
        effects: list[events.ClusterEffect] = []
        if view.serving_changed or (view.room_changed and view.serving_plan.ever_asked_s is not None):
            effects += serving_pool.share(view, now_s)
        if view.room_changed:
            recovery.keep_spares(view)
            effects += look(view, now_s)
        head = view.jobs.get(view.reservation.job_id) if view.reservation is not None else None
        if view.spares and head is not None and head.submitted.minimum_count > view.usable_count:
            recovery.keep_spares(view)
            effects += look(view, now_s)
        return effects

    def _submitted(self, event: events.JobSubmitted, now_s: float) -> list[events.ClusterEffect]:
        view = self.view
        view.counts.submitted += 1
        refusal = self._refusal(event, now_s)
        if refusal is not None:
            view.counts.refused += 1
            return [events.RefuseJob(event.job_id, refusal)]
        self._given_sequences += 1
        job = view.jobs[event.job_id] = Job(event, self._given_sequences, now_s)
        view.queue.push(job)
        return arrived(view, job, now_s)

    def _refusal(self, event: events.JobSubmitted, now_s: float) -> events.JobRefusal | None:
        view = self.view
        if event.job_id in view.jobs or event.job_id in view.over:
            return events.JobRefusal.DUPLICATE
        times_s = (event.expected_s, event.checkpoint_write_s, event.restart_s, event.checkpoint_stall_s)
        sized = 1 <= event.minimum_count <= event.accelerator_count
        if not sized or not _is_sound(*times_s):
            return events.JobRefusal.MALFORMED
        if event.minimum_count > view.total_count:
            return events.JobRefusal.TOO_LARGE
        ever_count = TeamUse(view.teams.of(event.team, now_s).quota).left_count(event.preemptible)
        if ever_count is not None and event.minimum_count > ever_count:
            return events.JobRefusal.ABOVE_QUOTA
        return events.JobRefusal.QUEUE_FULL if view.queue.full else None


def _is_sound(*times_s: float | None) -> bool:
    """Whether these are times that something can take; None is not said."""
    return all(time_s is None or (math.isfinite(time_s) and time_s >= 0) for time_s in times_s)
