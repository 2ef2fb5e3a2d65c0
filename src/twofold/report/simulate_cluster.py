"""The training part of a rehearsal's screen: jobs, hours, queues, failures, and what the plan's run got."""

from collections.abc import Iterator

from twofold.contracts.results import simulated
from twofold.core.display import format_seconds, format_si
from twofold.report.figures import percent, share
from twofold.report.lines import both_ends, field, listed

NOTABLE_FACTOR = 1.001  # of times: less is not shown


def training_lines(training: simulated.TrainingFigures) -> list[str]:
    """All of it, at most 100 columns wide."""
    nodes, accelerators = training.node_count, training.accelerator_count
    span = format_seconds(training.duration_s)
    waits = [f"{size} {format_seconds(wait_s)}" for size, wait_s in training.queue_s_p95.items()]
    outcomes = [f"{name} {count:,}" for name, count in training.outcomes.items() if count]
    used = [(use, hours) for use, hours in training.accelerator_h.items() if hours > 0]
    total_h = sum(hours for _, hours in used)
    shares = [f"{use} {percent(hours / max(total_h, 1e-9))}" for use, hours in used]
    lines = [
        *both_ends(f"TRAINING  {nodes} nodes, {accelerators:,} accelerators for {span}", ""),
        *field("jobs", f"{training.submitted_count:,} submitted", *outcomes),
    ]
    for run in training.runs:
        lines += field("run", *_run_pieces(run))
    lines += [
        *field("step", *_step_pieces(training)),
        *field("hours", f"{total_h:,.0f} accelerator-h", *shares),
        *field(
            "goodput",
            f"{percent(training.goodput_fraction)} of the time that jobs held accelerators",
            f"cluster {percent(training.utilisation_fraction)} in use",
            f"{training.accelerator_h.get('lost', 0.0):,.0f} accelerator-h lost",
        ),
        *field("queue p95", *(waits or ["no job started"])),
        *field(
            "placement",
            f"largest free block {training.largest_free_count_mean:,.0f} accelerators in the mean",
            f"{percent(training.fragmentation_fraction)} of free ones fragmented",
            f"{training.partial_gang_count} gangs in part",
            f"{training.deadlock_count} deadlocks",
        ),
        *field("failures", *_failure_pieces(training)),
        *field("writes", *_checkpoint_pieces(training)),
    ]
    if training.serving_needed_h:
        short, slower = training.serving_shortfall_h, training.serving_slowdown_factor
        lines += field(
            "serving",
            f"{training.serving_needed_h:,.0f} accelerator-h needed",
            f"{share(1 - short / training.serving_needed_h)} there in time",
            f"answers take {slower:.3g} times as long beside training" if slower > NOTABLE_FACTOR else "",
        )
    lines += field("two fleets", *(_split_pieces(training.split) if training.split else ()))
    if any(team.quota_fraction is not None for team in training.teams):
        teams = listed(
            training.teams,
            ("TEAM", lambda team: team.name or "–"),
            (">accelerator-h", lambda team: f"{team.accelerator_h:,.0f}"),
            (">promised", lambda team: "–" if team.quota_fraction is None else percent(team.quota_fraction)),
            (">had", lambda team: "–" if team.share_fraction is None else percent(team.share_fraction)),
            (">queue p95", lambda team: format_seconds(team.queue_s_p95)),
        )
        lines += ["", *teams]
        deviation = training.share_deviation_fraction
        lines += field(
            "", "" if deviation is None else f"while all waited, within {percent(deviation)} of quota"
        )
    return lines


def _run_pieces(run: simulated.RunFigures) -> Iterator[str]:
    """Time to train and to completion, and the rates over it."""
    yield f"{run.name} {run.state}"
    if run.train_s is not None and run.completion_s is not None:
        yield f"trained in {format_seconds(run.train_s)}"
        yield f"complete {format_seconds(run.completion_s)} after it was submitted"
    if run.tokens_per_s is not None:
        yield format_si(run.tokens_per_s, "tok/s")
    if run.samples_per_s is not None:
        yield f"{format_si(run.samples_per_s, '').strip()} samples/s"


def _step_pieces(training: simulated.TrainingFigures) -> Iterator[str]:
    yield f"{training.slowdown_factor:.3g} times as long as on sound nodes alone"
    if step := training.step:
        p99, over = format_seconds(step.step_s_p99), percent(step.inflation_fraction)
        yield f"p99 {p99} with its jitter, {over} over the undisturbed one"
        whole = sum(step.parts_s.values()) or 1.0
        yield from (f"{name} {percent(seconds / whole)}" for name, seconds in step.parts_s.items() if seconds)
    for node_id, waited_h in list(training.pace_setters.items())[:1]:
        yield f"{node_id} sets the pace: {waited_h:,.0f} accelerator-h waited for it"


def _failure_pieces(training: simulated.TrainingFigures) -> Iterator[str]:
    back = f", back after {format_seconds(training.recovery_s_mean)}" if training.failure_count else ""
    yield f"{training.failure_count} hit a job{back}"
    yield f"{training.restart_count:,} restarts"
    lost = training.preempted_lost_s_max
    undone = f", each undoing {format_seconds(lost)} at most" if lost is not None else ""
    yield f"{training.preempted_count:,} preempted{undone}"
    causes = [f"{name} {count:,}" for name, count in training.failures_by_cause.items()]
    yield f"by cause: {', '.join(causes)}" if causes else ""


def _checkpoint_pieces(training: simulated.TrainingFigures) -> Iterator[str]:
    yield f"{training.checkpoint_count:,} checkpoints of {format_seconds(training.checkpoint_s_mean)}"
    if training.checkpoint_interval_s_mean is not None:
        yield f"one each {format_seconds(training.checkpoint_interval_s_mean)} of work"
    if training.checkpoint_metadata_s > 0:
        files = f"{training.checkpoint_files_count:,.0f} files of the largest job"
        yield f"{files} take {format_seconds(training.checkpoint_metadata_s)} to create"


def _split_pieces(split: simulated.SplitFigures) -> Iterator[str]:
    """The same nodes as two fleets."""
    one, two = percent(split.shared_utilisation_fraction), percent(split.split_utilisation_fraction)
    yield f"one pool {one} used, two fleets {two}"
    one, two = format_seconds(split.shared_shortfall_s), format_seconds(split.split_shortfall_s)
    yield f"serving short for {one} in one pool, {two} in two fleets"
    yield f"training gains {percent(split.training_gain_fraction)} in one pool"
    training, serving = split.training_slowdown_factor, split.serving_slowdown_factor
    if max(training, serving) > NOTABLE_FACTOR:
        yield f"side by side training steps take {training:.3g} times, answers {serving:.3g} times as long"
