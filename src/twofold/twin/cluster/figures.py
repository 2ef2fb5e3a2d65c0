"""What a cluster's run is judged by, gathered as it goes: memory does not grow with time or jobs."""

from collections import Counter
from collections.abc import Callable

from twofold.policy.cluster import events
from twofold.twin.cluster.job import Job, Phase
from twofold.twin.cluster.nodes import DOWN, IDLE, QUARANTINED, SERVING, USES, Nodes
from twofold.twin.cluster.tally import Tally
from twofold.twin.cluster.teams import TeamAccounts
from twofold.twin.cluster.types import ClusterRow, ClusterWorld, JobRecord

SIZE_CLASSES = ((1, "1"), (8, "2-8"), (64, "9-64"), (512, "65-512"))
LARGEST_CLASS = "above 512"


def size_class(accelerator_count: int) -> str:
    """The class whose waits a job counts in."""
    return next((name for limit, name in SIZE_CLASSES if accelerator_count <= limit), LARGEST_CLASS)


class ClusterFigures:
    """Sums and counts of one run. Mutable."""

    def __init__(self, world: ClusterWorld, nodes: Nodes, on_job: Callable[[JobRecord], None] | None) -> None:
        self._world, self._nodes, self._on_job = world, nodes, on_job
        self.teams = TeamAccounts(dict(world.quotas or {}))
        self.waits_by_size: dict[str, Tally] = {}
        self.jobs: Counter[str] = Counter()
        self.failures_by_cause: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.event_count = self.decision_count = 0
        self.restart_count = self.preempted_count = 0
        self.node_failure_count = self.checkpoint_failed_count = 0
        self.checkpoints, self.losses, self.recoveries = Tally(), Tally(), Tally()
        self.paced_s = self.paced_factor_s = 0.0
        self.pace_setters: dict[str, float] = {}  # accelerator-seconds that others waited
        self.queued_count = self.running_count = 0
        self.rows: list[ClusterRow] = []
        self._passed_s = [0.0] * len(USES)
        self.fragmentation_sum = 0.0

    # --- of jobs ---

    def entered_queue(self, job: Job, now_s: float) -> None:
        """It waits for accelerators."""
        self.queued_count += 1
        self.teams.queue(job.arrival.team, 1, now_s)

    def left_queue(self, job: Job, now_s: float) -> None:
        """It has some, or it is gone."""
        self.queued_count -= 1
        self.teams.queue(job.arrival.team, -1, now_s)

    def held(self, job: Job, now_s: float) -> None:
        """It has its accelerators from now on."""
        self.running_count += 1
        self.teams.hold(job.arrival.team, job.held_count, now_s)

    def gave_back(self, job: Job, now_s: float) -> None:
        """It has them no longer."""
        self.running_count -= 1
        self.teams.hold(job.arrival.team, -job.held_count, now_s)

    def first_started(self, job: Job, now_s: float) -> None:
        """It waited so long."""
        waited_s = now_s - job.arrival.submit_s
        name = size_class(job.arrival.accelerator_count)
        self.waits_by_size.setdefault(name, Tally()).add(waited_s)
        self.teams.waited(job.arrival.team, waited_s)

    def paced(self, job: Job, now_s: float) -> None:
        """Before it is synchronised: how much slower than sound accelerators it has run, and by whom."""
        elapsed_s = now_s - job.since_s
        if job.phase is Phase.RUNNING and elapsed_s > 0:
            held_s = job.held_count * elapsed_s
            self.paced_s += held_s
            self.paced_factor_s += held_s * job.step_factor
            if job.pace_setter:
                waited_s = held_s * (1 - 1 / job.step_factor)
                self.pace_setters[job.pace_setter] = self.pace_setters.get(job.pace_setter, 0.0) + waited_s

    def failed(self, lost_s: float) -> None:
        """A failure undid so many seconds of a job's work."""
        self.losses.add(lost_s)

    def recovered(self, after_s: float) -> None:
        """A job goes on, so long after its failure."""
        self.recoveries.add(after_s)

    def written(self, took_s: float) -> None:
        """A checkpoint is whole."""
        self.checkpoints.add(took_s)

    def ended(self, job: Job, outcome: str, now_s: float) -> None:
        """It is over, or the run is."""
        self.jobs[outcome] += 1
        if self._on_job is not None:
            self._on_job(_record(job, outcome, now_s))

    # --- of the machine and of time ---

    def decided(self, effects: list[events.ClusterEffect]) -> None:
        """The brain answered an event."""
        self.event_count += 1
        self.decision_count += len(effects)
        for effect in effects:
            self.effects[type(effect).__name__] += 1

    def tick(self, from_s: float, now_s: float, needed_count: int) -> None:
        """A bucket of the timeline is over."""
        passed_s = self._nodes.ledger.passed_s(now_s)
        mean = [
            (late - early) / (now_s - from_s) for late, early in zip(passed_s, self._passed_s, strict=True)
        ]
        self._passed_s = passed_s
        free_count, whole_count, block_count = self._nodes.free_blocks()
        fragmentation = 1 - whole_count / free_count if free_count else 0.0
        self.fragmentation_sum += fragmentation
        away = mean[DOWN] + mean[QUARANTINED]
        self.rows.append(
            ClusterRow(
                from_s=from_s,
                until_s=now_s,
                training_count=sum(mean) - away - mean[IDLE] - mean[SERVING],
                serving_count=mean[SERVING],
                idle_count=mean[IDLE],
                away_count=away,
                queued_count=self.queued_count,
                running_count=self.running_count,
                largest_free_count=block_count,
                fragmentation_fraction=fragmentation,
                needed_count=needed_count,
            )
        )


def _record(job: Job, outcome: str, now_s: float) -> JobRecord:
    """A job's row, at its end or the run's."""
    arrival, over = job.arrival, outcome not in ("running", "queued")
    started_s = job.started_s
    run_s = now_s - started_s if started_s is not None else 0.0
    done = job.done_s / job.work_s if job.work_s else 1.0
    rates = [
        amount * done / run_s if amount and run_s > 0 else None
        for amount in (arrival.tokens, arrival.samples)
    ]
    return JobRecord(
        job_id=job.job_id,
        team=arrival.team,
        accelerator_count=arrival.accelerator_count,
        state=outcome,
        submit_s=arrival.submit_s,
        started_s=started_s,
        ended_s=now_s if over else None,
        waited_s=(now_s if started_s is None else started_s) - arrival.submit_s,
        completion_s=now_s - arrival.submit_s if over else None,
        busy_s=job.done_s,
        lost_s=job.lost_s,
        attempts=job.attempt,
        preempted_count=job.preempted_count,
        failures_count=job.failures_count,
        checkpoints_count=job.checkpoints_count,
        slowest_node=job.pace_setter,
        tokens_per_s=rates[0],
        samples_per_s=rates[1],
    )
