"""The smallest machine that can drive the cluster's world: strictly in order, whole gangs, a fixed cadence."""

from dataclasses import dataclass, field

from twofold.policy import (
    CheckpointFailed,
    CheckpointWritten,
    ClusterEffect,
    ClusterEvent,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    NodeAdded,
    NodeFailed,
    NodeRepaired,
    SaveCheckpoint,
    StartJob,
    StopJob,
    StopReason,
)


@dataclass
class Fifo:
    """Queues again, at the front, what a failure hits."""

    interval_s: float = 1e9
    free: dict[str, int] = field(default_factory=dict)
    away: dict[str, int] = field(default_factory=dict)
    queue: list[JobSubmitted] = field(default_factory=list)
    jobs: dict[str, JobSubmitted] = field(default_factory=dict)
    placed: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    due_s: dict[str, float] = field(default_factory=dict)

    def wake_at_s(self) -> float | None:
        return min(self.due_s.values(), default=None)

    def handle(self, event: ClusterEvent, now_s: float) -> list[ClusterEffect]:
        effects: list[ClusterEffect] = []
        match event:
            case NodeAdded():
                self.free[event.node_id] = event.accelerator_count
            case JobSubmitted():
                self.jobs[event.job_id] = event
                self.queue.append(event)
            case JobStarted():
                self.due_s[event.job_id] = now_s + self.interval_s
            case CheckpointWritten() | CheckpointFailed():
                if event.job_id in self.placed:
                    self.due_s[event.job_id] = now_s + self.interval_s
            case JobFinished() | JobCancelled():
                self._give_back(event.job_id)
            case JobFailed():
                effects += self._again(event.job_id)
            case NodeFailed():
                for job_id in [one for one, places in self.placed.items() if event.node_id in dict(places)]:
                    effects += self._again(job_id)
                self.away[event.node_id] = self.free.pop(event.node_id)
            case NodeRepaired():
                self.free[event.node_id] = self.away.pop(event.node_id)
        for job_id in [one for one, due_s in self.due_s.items() if due_s <= now_s]:
            del self.due_s[job_id]
            effects.append(SaveCheckpoint(job_id))
        return effects + self._start()

    def _give_back(self, job_id: str) -> None:
        self.due_s.pop(job_id, None)
        for node_id, count in self.placed.pop(job_id, ()):
            self.free[node_id] += count

    def _again(self, job_id: str) -> list[ClusterEffect]:
        self._give_back(job_id)
        self.queue.insert(0, self.jobs[job_id])
        return [StopJob(job_id, StopReason.NODE_FAILED)]

    def _start(self) -> list[ClusterEffect]:
        effects: list[ClusterEffect] = []
        while self.queue and self.queue[0].accelerator_count <= sum(self.free.values()):
            job = self.queue.pop(0)
            left, parts = job.accelerator_count, []
            for node_id, count in self.free.items():
                if left and count:
                    parts.append((node_id, min(left, count)))
                    left -= parts[-1][1]
            for node_id, count in parts:
                self.free[node_id] -= count
            self.placed[job.job_id] = tuple(parts)
            self.attempts[job.job_id] = self.attempts.get(job.job_id, 0) + 1
            effects.append(StartJob(job.job_id, tuple(parts), self.attempts[job.job_id]))
        return effects
