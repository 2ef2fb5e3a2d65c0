"""What a cluster's run is judged by, gathered as it goes: memory does not grow with time or jobs."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from twofold.contracts.results import courses, simulated
from twofold.policy.cluster import events
from twofold.twin.cluster.cluster_types import (
    ClusterRow,
    ClusterWorld,
    JobRecord,
    ServingFigures,
    ServingLoad,
)
from twofold.twin.cluster.courses import Followed
from twofold.twin.cluster.job import Job, Phase
from twofold.twin.cluster.nodes import DOWN, IDLE, QUARANTINED, SERVING, USES, Nodes
from twofold.twin.histogram import Histogram

BLOCK_COUNT = 1024
SIZE_CLASSES = ((1, "1"), (8, "2-8"), (64, "9-64"), (512, "65-512"))
LARGEST_CLASS = "above 512"
FOLLOWED_MOST = 20  # jobs


class Tally:
    """Values from 0. Mutable; memory does not grow with their number."""

    __slots__ = ("_block", "_seen", "_sum")

    def __init__(self) -> None:
        self._seen = Histogram()
        self._block: list[float] = []
        self._sum = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self._block.append(value)
        self._sum += value
        if len(self._block) >= BLOCK_COUNT:
            self._flushed()

    def _flushed(self) -> Histogram:
        if self._block:
            self._seen.add(np.array(self._block))
            self._block.clear()
        return self._seen

    @property
    def count(self) -> int:
        """How many there were."""
        return self._flushed().count

    @property
    def mean(self) -> float:
        """Of all of them; 0 of nothing."""
        return self._sum / self.count if self.count else 0.0

    @property
    def p95(self) -> float:
        """The smallest value that 95 % do not exceed."""
        return self._flushed().quantile(0.95)


@dataclass(slots=True, eq=False)
class Team:
    """One team. Mutable."""

    held_count: int = 0  # accelerators
    queued_count: int = 0  # jobs
    held_s: float = 0.0
    contended_s: float = 0.0  # of that, while every team with a quota had jobs waiting
    waits: Tally = field(default_factory=Tally)


class TeamAccounts:
    """Accelerator-seconds by team. Mutable.

    Shares are taken over the time in which every team with a quota had jobs waiting: only then does a share
    below the quota mean that a team was kept from it.
    """

    def __init__(self, quotas: Mapping[str, float]) -> None:
        self._quotas = quotas
        self._teams = defaultdict(Team, {team: Team() for team in quotas})
        self._hungry_count = 0  # teams with a quota and with jobs waiting
        self._now_s = 0.0

    def queue(self, team: str, change: int, now_s: float) -> None:
        """So many more jobs of it wait."""
        one = self.of(team, now_s)
        before = one.queued_count
        one.queued_count += change
        if team in self._quotas:
            self._hungry_count += (one.queued_count > 0) - (before > 0)

    def of(self, team: str, now_s: float) -> Team:
        """What a team had until now."""
        elapsed_s = now_s - self._now_s
        if elapsed_s > 0:
            contended = 0 < len(self._quotas) == self._hungry_count
            for one in self._teams.values():
                one.held_s += one.held_count * elapsed_s
                if contended:
                    one.contended_s += one.held_count * elapsed_s
            self._now_s = now_s
        return self._teams[team]

    def shares(self, now_s: float) -> tuple[simulated.TeamFigures, ...]:
        """All teams until now, by name."""
        if self._teams:
            self.of(next(iter(self._teams)), now_s)
        total_s = sum(one.contended_s for team, one in self._teams.items() if team in self._quotas)
        whole = sum(self._quotas.values())
        rows = []
        for team, one in sorted(self._teams.items()):
            quota = self._quotas[team] / whole if team in self._quotas and whole else None
            share = one.contended_s / total_s if total_s and quota is not None else None
            rows.append(simulated.TeamFigures(team, one.held_s / 3600, quota, share, one.waits.p95))
        return tuple(rows)


class ServingAccount:
    """Needed and ready accelerators over time. Mutable.

    A missing accelerator stands for requests outside their SLO: how far outside, only the fleet's own world
    says.
    """

    def __init__(self, load: ServingLoad) -> None:
        self.load = load
        self.needed_count = self.ready_count = 0
        self.slowdown_factor = 1.0
        self._now_s = self._needed_s = self._ready_s = self._missing_s = self._short_s = self._slow_s = 0.0

    def change(
        self, now_s: float, needed: int | None = None, ready: int = 0, slowdown_factor: float | None = None
    ) -> None:
        """From now on so much is needed, so many more are ready, and they are so much slower."""
        elapsed_s = now_s - self._now_s
        if elapsed_s > 0:
            missing = max(0.0, self.needed_count - self.ready_count / self.slowdown_factor)
            self._needed_s += self.needed_count * elapsed_s
            self._ready_s += self.ready_count * elapsed_s
            self._slow_s += self.ready_count * self.slowdown_factor * elapsed_s
            self._missing_s += missing * elapsed_s
            # Less than one accelerator's worth is within what a queue evens out.
            self._short_s += elapsed_s if missing >= 1.0 else 0.0
            self._now_s = now_s
        self.needed_count = self.needed_count if needed is None else needed
        self.ready_count += ready
        assert self.ready_count >= 0
        self.slowdown_factor = self.slowdown_factor if slowdown_factor is None else slowdown_factor

    def figures(self, now_s: float) -> ServingFigures:
        """Until now."""
        self.change(now_s)
        slow = self._slow_s / self._ready_s if self._ready_s else 1.0
        return ServingFigures(self._needed_s / 3600, self._missing_s / 3600, self._short_s, slow)


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
        self.partial_count = 0  # attempts that gave a job neither all it needs nor as few as would do
        self.node_failure_count = self.checkpoint_failed_count = 0
        self.checkpoints, self.losses, self.recoveries = Tally(), Tally(), Tally()
        self.paced_s = self.paced_factor_s = 0.0
        self.pace_setters: dict[str, float] = {}  # accelerator-seconds that others waited
        self.queued_count = self.running_count = 0
        self.rows: list[ClusterRow] = []
        self._passed_s = [0.0] * len(USES)
        self.fragmentation_sum = 0.0
        self._followed: dict[str, Followed] = {}  # by job
        self.courses: list[courses.JobCourse] = []  # of those that were followed

    # --- of jobs ---

    def submitted(self, job: Job, now_s: float) -> None:
        """It is there from now on; one of the followed team is followed."""
        team = self._world.followed_team
        if team and job.arrival.team == team and len(self._followed) < FOLLOWED_MOST:
            self._followed[job.job_id] = Followed(now_s)
            job.follow = self._followed[job.job_id].enters
        self.queued(job, 1, now_s)

    def saved(self, job: Job, took_s: float, now_s: float) -> None:
        """A checkpoint of it is whole."""
        self.checkpoints.add(took_s)
        if job.follow is not None:
            self._followed[job.job_id].saved(now_s)

    def queued(self, job: Job, change: int, now_s: float) -> None:
        """One more waits for accelerators, or (−1) it has some, or is gone."""
        self.queued_count += change
        self.teams.queue(job.arrival.team, change, now_s)

    def held(self, job: Job, change: int, now_s: float) -> None:
        """One more has its accelerators from now on, or (−1) has them no longer."""
        self.running_count += change
        self.teams.of(job.arrival.team, now_s).held_count += change * job.held_count

    def first_started(self, job: Job, now_s: float) -> None:
        """It waited so long."""
        waited_s, count = now_s - job.arrival.submit_s, job.arrival.accelerator_count
        name = next((name for limit, name in SIZE_CLASSES if count <= limit), LARGEST_CLASS)
        self.waits_by_size.setdefault(name, Tally()).add(waited_s)
        self.teams.of(job.arrival.team, now_s).waits.add(waited_s)

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

    def ended(self, job: Job, outcome: str, now_s: float) -> None:
        """It is over, or the run is."""
        self.jobs[outcome] += 1
        if self._on_job is None and job.follow is None:
            return
        record = _record(job, outcome, now_s)
        if job.follow is not None:
            self.courses.append(self._followed[job.job_id].course(record, now_s))
        if self._on_job is not None:
            self._on_job(record)

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


def placed_text(placement: events.Placement) -> str:
    """Such as `n0:8 n1:4`."""
    return " ".join(f"{node_id}:{count}" for node_id, count in placement)


def _record(job: Job, outcome: str, now_s: float) -> JobRecord:
    """The job as it ended, or as it stands when the run is over."""
    arrival, started_s, over = job.arrival, job.started_s, outcome not in ("running", "queued")
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
        placement=placed_text(job.stood),
    )
