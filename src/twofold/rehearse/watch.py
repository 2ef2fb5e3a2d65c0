"""What is noted while a cluster is rehearsed: where gangs stand, and each job as it ends."""

from collections.abc import Callable

from twofold.policy.cluster import ClusterBrain, ClusterSettings, events
from twofold.twin.cluster import ClusterMachine, JobRecord

OnJob = Callable[[JobRecord, events.Placement], None]


class WatchedBrain:
    """A brain; what it orders is noted. Mutable."""

    def __init__(self, brain: ClusterMachine) -> None:
        self._brain = brain
        self._needs: dict[str, tuple[int, int]] = {}  # fewest and most accelerators
        self._held: dict[str, events.Placement] = {}
        self.partial_count = 0  # orders that gave a job neither all it needs nor as few as would do

    def handle(self, event: events.ClusterEvent, now_s: float) -> list[events.ClusterEffect]:
        """What the brain answers."""
        if isinstance(event, events.JobSubmitted):
            self._needs[event.job_id] = event.minimum_count, event.accelerator_count
        effects = self._brain.handle(event, now_s)
        for effect in effects:
            if isinstance(effect, events.NewAttempt) and effect.job_id in self._needs:
                self._placed(effect)
        return effects

    def _placed(self, effect: events.NewAttempt) -> None:
        if isinstance(effect, events.SwapNode):
            self._held[effect.job_id] = tuple(
                (effect.spare_node_id if node == effect.failed_node_id else node, count)
                for node, count in self._held[effect.job_id]
            )
            return
        least, most = self._needs[effect.job_id]
        given = sum(count for _, count in effect.placement)
        self.partial_count += not least <= given <= most
        self._held[effect.job_id] = effect.placement

    def wake_at_s(self) -> float | None:
        """As the brain says."""
        return self._brain.wake_at_s()

    def forget(self, job_id: str) -> events.Placement:
        """A job is over: where it stood last, empty if it never ran."""
        self._needs.pop(job_id, None)
        return self._held.pop(job_id, ())


class Watch:
    """All that is noted of one rehearsal. Mutable; memory grows with the plan's own runs alone."""

    def __init__(self, settings: ClusterSettings, own_team: str, on_job: OnJob | None) -> None:
        self._settings, self._own_team, self._on_job = settings, own_team, on_job
        self._brain: WatchedBrain | None = None
        self.own: list[JobRecord] = []
        self.largest_count = 0
        self.preempted_lost_s_max: float | None = None
        self.worked_s = 0.0
        self.checkpoint_count = 0

    def new_brain(self) -> WatchedBrain:
        """A brain; the first one is the one that is watched, others run beside it for comparison."""
        made = WatchedBrain(ClusterBrain(self._settings))
        self._brain = self._brain or made
        return made

    @property
    def partial_count(self) -> int:
        """Orders that gave a job some of its accelerators, not all."""
        return self._brain.partial_count if self._brain else 0

    def note(self, record: JobRecord) -> None:
        """A job has ended, or the run has."""
        placement = self._brain.forget(record.job_id) if self._brain else ()
        self.largest_count = max(self.largest_count, record.accelerator_count)
        if record.team == self._own_team:
            self.own.append(record)
        if record.checkpoints_count:
            self.worked_s += (record.busy_s + record.lost_s) / record.accelerator_count
            self.checkpoint_count += record.checkpoints_count
        if record.preempted_count and not record.failures_count:
            lost_s = record.lost_s / record.accelerator_count / record.preempted_count
            self.preempted_lost_s_max = max(self.preempted_lost_s_max or 0.0, lost_s)
        if self._on_job:
            self._on_job(record, placement)
