"""A serving world over time: what is noted of replicas and releases while it runs, and the course of it all.

Memory is bounded: a course has at most `POINTS_MOST` spans, of lives the first `SPANS_MOST` are kept and the
rest counted, and of a trial every look, then every second one, and so on.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import exp

from twofold.contracts.results import courses
from twofold.policy.gate.canary import Trial
from twofold.twin.histogram import merged
from twofold.twin.serving.fleet_state import Life
from twofold.twin.serving.fleet_types import TimelineRow
from twofold.twin.serving.metrics import Bucket, Metrics

Decision = tuple[str, str, float]  # a version, what was decided of it, and when
POINTS_MOST = 200  # spans of a course, and looks at a trial
SPANS_MOST = 400  # of replicas' lives
MARKS_MOST = 40
DIGITS = 4  # that are kept: a percentile is known to half a percent


class Lives:
    """When which replica stood where. Mutable; what is told twice is one stretch."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Life, float]] = {}  # by replica, since when
        self._spans: list[courses.ReplicaSpan] = []
        self._left_out_count = 0

    def told(self, replica_id: str, life: Life, now_s: float) -> None:
        """From now on it stands there."""
        before = self._open.get(replica_id)
        if before is not None and before[0] is life:
            return
        if before is not None:
            self._close(replica_id, *before, now_s)
        if life is Life.GONE:
            self._open.pop(replica_id, None)
        else:
            self._open[replica_id] = life, now_s

    def spans(self, now_s: float) -> tuple[tuple[courses.ReplicaSpan, ...], int, int]:
        """All stretches until now, how many were ready from 0 on, and how many stretches are left out."""
        steady = [each for each, opened in self._open.items() if opened == (Life.READY, 0.0)]
        for replica_id in steady:
            del self._open[replica_id]
        for replica_id, (life, since_s) in self._open.items():
            self._close(replica_id, life, since_s, now_s)
        self._open.clear()
        return tuple(self._spans), len(steady), self._left_out_count

    def _close(self, replica_id: str, life: Life, since_s: float, now_s: float) -> None:
        if len(self._spans) >= SPANS_MOST:
            self._left_out_count += 1
        elif since_s < now_s:
            self._spans.append(courses.ReplicaSpan(replica_id, life.name.lower(), since_s, now_s))


@dataclass(slots=True)
class _Looks:
    """What was seen of one trial. Mutable."""

    trial: Trial
    rows: list[tuple[float, float, int, dict[str, float]]] = field(default_factory=list)
    every: int = 1  # looks that a row stands for
    seen_count: int = 0
    decision: str = ""
    decided_s: float | None = None

    def look(self, now_s: float) -> None:
        """Note how it stands, as far as there is room."""
        if self.seen_count % self.every == 0:
            if len(self.rows) == POINTS_MOST:
                self.rows = self.rows[::2]
                self.every *= 2
            self._note(now_s)
        self.seen_count += 1

    def _note(self, now_s: float) -> None:
        trial = self.trial
        odds = {name: 1.0 / (1.0 + exp(-ratio)) for name, ratio in trial.log_ratios().items()}
        self.rows.append((now_s, trial.share_fraction(), trial.canary_count, odds))

    def decided(self, decision: str, now_s: float) -> None:
        """The gate has decided: the last look is what it saw then."""
        self._note(now_s)
        self.decision, self.decided_s = decision, now_s

    def course(self) -> courses.TrialCourse:
        """A test that had nothing to say yet stood at even odds."""
        at_s, shares, counts, odds = zip(*self.rows, strict=True)
        names = dict.fromkeys(name for each in odds for name in each)
        return courses.TrialCourse(
            pool=self.trial.pool,
            version=self.trial.version,
            at_s=at_s,
            share_fraction=shares,
            tried_count=counts,
            worse_probability={name: _short([each.get(name, 0.5) for each in odds]) for name in names},
            decision=self.decision,
            decided_s=self.decided_s,
        )


class Trials:
    """The releases that a gate tried. Mutable."""

    def __init__(self) -> None:
        self._looks: list[_Looks] = []

    def look(self, trials: Collection[Trial], decisions: Sequence[Decision], now_s: float) -> None:
        """How those stand that are not decided; a new one is followed from here on.

        `decisions`: all of the run so far. What was measured of a trial ends with its decision, so that what
        is seen of it here is what the gate saw then.
        """
        for trial in trials:
            if not any(each.trial is trial for each in self._looks):
                self._looks.append(_Looks(trial))
        for each in self._looks:
            if each.decided_s is not None:
                continue
            since_s = each.trial.offered_s
            told = [one for one in decisions if one[0] == each.trial.version and one[2] >= since_s]
            if told:
                each.decided(*told[0][1:])
            else:
                each.look(now_s)

    def courses(self) -> tuple[courses.TrialCourse, ...]:
        """All of them, the first one first."""
        return tuple(each.course() for each in self._looks)


def fleet_course(metrics: Metrics, lives: Lives, trials: Trials, now_s: float) -> courses.FleetCourse:
    """The whole run until now; where there are too many buckets, neighbours make one span."""
    rows, buckets = metrics.timeline.rows(now_s), metrics.timeline.buckets
    step = 1 + (len(rows) - 1) // POINTS_MOST if rows else 1
    parts = [(rows[at : at + step], buckets[at : at + step]) for at in range(0, len(rows), step)]
    replicas, steady_count, left_out_count = lives.spans(now_s)

    def total(count_of: Callable[[TimelineRow], int]) -> tuple[int, ...]:
        return tuple(sum(map(count_of, some)) for some, _ in parts)

    def mean(value_of: Callable[[TimelineRow], float]) -> tuple[float, ...]:
        return _short([sum(map(value_of, some)) / len(some) for some, _ in parts])

    return courses.FleetCourse(
        until_s=tuple(some[-1].until_s for some, _ in parts),
        arrived_count=total(lambda row: row.arrived_count),
        finished_count=total(lambda row: row.finished_count),
        refused_count=total(lambda row: row.refused_count),
        failed_count=total(lambda row: row.failed_count),
        queued_mean=mean(lambda row: row.queued_mean),
        waiting_mean=mean(lambda row: row.waiting_mean),
        ready_count=tuple(some[-1].ready_replica_count for some, _ in parts),
        busy_fraction=mean(lambda row: row.busy_fraction),
        kv_used_fraction=mean(lambda row: row.kv_used_fraction),
        latencies=tuple(
            _latency(tally.model.name, (tally.number, metric), [some for _, some in parts])
            for tally in metrics.classes
            for metric in tally.followed
        ),
        replicas=replicas,
        steady_count=steady_count,
        left_out_count=left_out_count,
        marks=tuple(courses.Mark(at_s, text) for at_s, text in metrics.notes[:MARKS_MOST]),
        trials=trials.courses(),
    )


def _latency(name: str, key: tuple[int, str], spans: Sequence[Sequence[Bucket]]) -> courses.LatencyCourse:
    seen = [merged(each.latencies[key] for each in some if key in each.latencies) for some in spans]
    columns = (
        tuple(_digits(each.quantile(fraction)) if each.count else None for each in seen)
        for fraction in (0.5, 0.95, 0.99)
    )
    return courses.LatencyCourse(name, key[1], *columns)


def _short(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(map(_digits, values))


def _digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
