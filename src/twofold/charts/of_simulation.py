"""The charts of a rehearsal, each from the numbers of its JSON alone; what a run has not is left out."""

from collections.abc import Iterator, Sequence

from twofold.charts.chart import Axis, Bar, Bars, Chart, Curves, Line, Piece, Points, Rule, Span, Spans
from twofold.contracts.goals import METRICS, metric_text
from twofold.contracts.results import courses, simulated
from twofold.core.display import format_seconds

MARKS_MOST = 3  # faults that are drawn into a picture over time
REPLICAS_MOST = 16  # rows of a picture
SPANS_MOST = 120  # of one job: beyond, those that it ran in are joined to their neighbours by the eye
NONE = float("nan")  # breaks a line
AFTER = Axis("since the run began", "s")


def charts_of_simulation(made: simulated.Simulation) -> tuple[Chart, ...]:
    """Every chart that the rehearsal has numbers for, goals first."""
    found: list[Chart] = [*_goals(made.classes)]
    for course in made.courses:
        for latency in course.latencies:
            found += _fan(course, latency, made.classes)
        found += [*_queue(course), *_replicas(course)]
        for trial in course.trials:
            found += _posterior(course, trial)
    if made.training is not None:
        found += [*_hours(made.training), *_cluster(made.training.course)]
    return tuple(found)


def _named(course: courses.FleetCourse) -> str:
    """`serve/chat`; the service alone where its pool is called as it is."""
    return course.service if course.pool in ("", course.service) else f"{course.service}/{course.pool}"


def _goals(classes: Sequence[simulated.ClassFigures]) -> Iterator[Chart]:
    """Each goal as a share of its limit, planned and rehearsed apart: what ends before the line is kept."""
    bars, late = [], []
    for each in classes:
        for slo in each.slos:
            if not slo.limit_s or slo.metric == "finish_within":
                continue
            name = f"{each.name} {metric_text(slo.metric)} ≤ {format_seconds(slo.limit_s)}"
            if slo.simulated_s is None and each.arrived_count:
                late.append(f"{each.name} {metric_text(slo.metric)}")
            for whose, seconds in (("plan", slo.planned_s), ("twin", slo.simulated_s)):
                if seconds is not None:
                    bars.append(Bar(f"{whose}: {name}", (Piece(whose, seconds / slo.limit_s),)))
    if bars:
        note = f"too many without an answer for {', '.join(late)}" if late else ""
        limit = (Rule("limit", 1.0),)
        yield Bars(
            "goals", "goals: plan and twin", Axis("of the limit", "fraction"), tuple(bars), limit, note
        )


def _fan(
    course: courses.FleetCourse, latency: courses.LatencyCourse, classes: Sequence[simulated.ClassFigures]
) -> Iterator[Chart]:
    """Half, 95 and 99 of 100 answers over time, and the goals."""
    x = _middles(course.until_s)
    columns = (("p50", latency.p50_s), ("p95", latency.p95_s), ("p99", latency.p99_s))
    lines = tuple(
        Line(name, x, tuple(NONE if each is None else each for each in seen)) for name, seen in columns
    )
    mine = [
        slo
        for each in classes
        if (each.service, each.pool, each.name) == (course.service, course.pool, latency.name)
        for slo in each.slos
        if slo.metric.startswith(f"{latency.metric}_")
    ]
    rules = [Rule(f"{metric_text(slo.metric)} limit", slo.limit_s) for slo in mine[:1]]
    title = f"{latency.name}: {METRICS[latency.metric]} over time"
    y = Axis(METRICS[latency.metric], "s", log=True)
    key = f"fan.{course.service}.{latency.name}.{latency.metric}"
    yield Curves(key, title, AFTER, y, lines, (), (*rules, *_faults(course)), _fault_note(course))


def _queue(course: courses.FleetCourse) -> Iterator[Chart]:
    """What waits in the gate and in engines, and what is turned away, over time."""
    if not course.until_s:
        return
    x = _middles(course.until_s)
    refused = tuple(map(float, course.refused_count))
    lines = [Line("held by the gate", x, course.queued_mean), Line("wait in engines", x, course.waiting_mean)]
    lines += [Line("refused in the span", x, refused)] if any(refused) else []
    title = f"{_named(course)}: requests that wait"
    key = f"queue.{course.service}.{course.pool}"
    yield Curves(key, title, AFTER, Axis("requests", ""), tuple(lines), (), _faults(course))


def _replicas(course: courses.FleetCourse) -> Iterator[Chart]:
    """Replicas that came, went or failed, each in a row; those that stood all the time in one."""
    names = list(dict.fromkeys(each.replica for each in course.replicas))
    if not names:
        return
    end_s, shown = max(course.until_s, default=0.0), names[:REPLICAS_MOST]
    spans = [
        Span(each.replica, each.state, each.from_s, each.until_s)
        for each in course.replicas
        if each.replica in shown
    ]
    if course.steady_count:
        others = f"{course.steady_count:,} other{'s' if course.steady_count > 1 else ''}"
        spans.append(Span(others, "ready", 0.0, end_s))
    more = len(names) - len(shown)
    notes = [f"{more:,} more replicas changed"] if more else []
    notes += [f"{course.left_out_count:,} stretches are not kept"] if course.left_out_count else []
    key, title = f"replicas.{course.service}.{course.pool}", f"{_named(course)}: replicas"
    yield Spans(key, title, AFTER, tuple(spans), "; ".join(notes))


def _posterior(course: courses.FleetCourse, trial: courses.TrialCourse) -> Iterator[Chart]:
    """How probably a release is worse by its margin, test by test, and what it was given of the requests."""
    lines = [Line(f"{name} worse", trial.at_s, chances) for name, chances in trial.worse_probability.items()]
    lines.append(Line("share of requests", trial.at_s, trial.share_fraction))
    rules = () if trial.decided_s is None else (Rule("decided", trial.decided_s, upright=True),)
    tried = max(trial.tried_count, default=0)
    note = f"{trial.decision or 'not decided'}, after {tried:,} requests; even odds before the first"
    title = f"{_named(course)}: the trial of {trial.version}"
    key = f"trial.{course.service}.{course.pool}.{trial.version}"
    yield Curves(key, title, AFTER, Axis("probability", "fraction"), tuple(lines), (), rules, note)


def _hours(training: simulated.TrainingFigures) -> Iterator[Chart]:
    """What the cluster's time went into."""
    bars = tuple(
        Bar(use, (Piece(use, hours),)) for use, hours in training.accelerator_h.items() if hours > 0.0
    )
    if bars:
        yield Bars("hours", "what the cluster's time went into", Axis("accelerator-hours", ""), bars)


def _cluster(course: courses.ClusterCourse | None) -> Iterator[Chart]:
    """The cluster by use over time, and its jobs in rows: the plan's own with failures and checkpoints."""
    if course is None or not course.until_s:
        return
    x = _middles(course.until_s)
    columns = {
        "train": course.training_count,
        "serve": course.serving_count,
        "idle": course.idle_count,
        "down or quarantined": course.away_count,
    }
    lines = tuple(Line(name, x, counts) for name, counts in columns.items() if any(counts))
    yield Curves("cluster", "accelerators by use", AFTER, Axis("accelerators", ""), lines)
    if any(course.queued_count):
        waits = (Line("jobs", x, tuple(map(float, course.queued_count))),)
        yield Curves("jobs-queued", "jobs that wait", AFTER, Axis("jobs", ""), waits)
    spans = [span for job in course.jobs for span in _job_spans(job)]
    if spans:
        notes = [note for job in course.jobs if job.own for note in _job_notes(job)]
        others = "others: the largest, from their first start to their end"
        notes += [others] if any(not job.own for job in course.jobs) else []
        yield Spans("jobs", "jobs on the cluster", AFTER, tuple(spans), "; ".join(notes))
    for job in course.jobs:
        if job.own and (job.checkpoint_s or job.failure_s):
            yield _saved(job)


def _job_spans(job: courses.JobCourse) -> Iterator[Span]:
    for each in job.spans[:SPANS_MOST]:
        text = f"{job.accelerator_count:,} accelerators of team {job.team or '–'}, at the end {job.state}"
        yield Span(job.name, each.state, each.from_s, each.until_s, text)


def _job_notes(job: courses.JobCourse) -> Iterator[str]:
    """What is on the picture of the plan's own, and what it has no room for."""
    every = f", 1 of {job.checkpoint_every} is kept" if job.checkpoint_every > 1 else ""
    yield f"{job.name}: {len(job.failure_s):,} failures, {len(job.checkpoint_s):,} checkpoints{every}"
    missing = job.left_out_count + max(0, len(job.spans) - SPANS_MOST)
    if missing:
        yield f"{missing:,} further stretches of it are not shown"


def _saved(job: courses.JobCourse) -> Chart:
    """When the plan's own failed, and when it saved: each checkpoint by its number."""
    written = tuple(float(number * job.checkpoint_every) for number, _ in enumerate(job.checkpoint_s, 1))
    before = tuple(
        float(job.checkpoint_every * sum(saved_s <= at_s for saved_s in job.checkpoint_s))
        for at_s in job.failure_s
    )
    points = [Points("failures", job.failure_s, before)] if job.failure_s else []
    lines = [Line("checkpoints", job.checkpoint_s, written)] if job.checkpoint_s else []
    title = f"{job.name}: checkpoints and failures"
    axis = Axis("checkpoints so far", "")
    return Curves(f"saved.{job.name}", title, AFTER, axis, tuple(lines), tuple(points))


def _middles(until_s: Sequence[float]) -> tuple[float, ...]:
    return tuple((start + end) / 2.0 for start, end in zip((0.0, *until_s), until_s, strict=False))


def _faults(course: courses.FleetCourse) -> tuple[Rule, ...]:
    """The first fault as a line: the names of several would cross."""
    return tuple(Rule("fault", each.at_s, upright=True) for each in course.marks[:1])


def _fault_note(course: courses.FleetCourse) -> str:
    """What befell the world, in words."""
    told = [f"{each.text} at {format_seconds(each.at_s)}" for each in course.marks[:MARKS_MOST]]
    more = len(course.marks) - len(told)
    return "; ".join([*told, f"and {more} more"] if more > 0 else told)
