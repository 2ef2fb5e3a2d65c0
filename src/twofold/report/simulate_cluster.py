"""The training part of a rehearsal's screen: jobs, hours, queues, failures, and what the plan's run got."""

from twofold.contracts.results import simulated
from twofold.core import format_seconds, format_si
from twofold.report.figures import percent, share
from twofold.report.lines import both_ends, field, table

NOTABLE_FACTOR = 1.001  # of times: less is not shown
TEAM_HEADINGS = ("TEAM", "accelerator-h", "promised", "had", "queue p95")


def training_lines(training: simulated.TrainingFigures) -> list[str]:
    """All of it, at most 100 columns wide."""
    nodes, accelerators = training.node_count, training.accelerator_count
    span = format_seconds(training.duration_s)
    waits = [f"{size} {format_seconds(wait_s)}" for size, wait_s in training.queue_s_p95.items()]
    outcomes = [f"{name} {count:,}" for name, count in training.outcomes.items() if count]
    lines = [
        *both_ends(f"TRAINING  {nodes} nodes, {accelerators:,} accelerators for {span}", ""),
        *field("jobs", [f"{training.submitted_count:,} submitted", *outcomes]),
    ]
    for run in training.runs:
        lines += field("run", _run_pieces(run))
    lines += [
        *field("step", _step_pieces(training)),
        *field("hours", _hour_pieces(training)),
        *field(
            "goodput",
            [
                f"{percent(training.goodput_fraction)} of the time that jobs held accelerators",
                f"cluster {percent(training.utilisation_fraction)} in use",
                f"{training.accelerator_h.get('lost', 0.0):,.0f} accelerator-h lost",
            ],
        ),
        *field("queue p95", waits or ["no job started"]),
        *field("placement", _placement_pieces(training)),
        *field("failures", _failure_pieces(training)),
        *field("writes", _checkpoint_pieces(training)),
    ]
    if training.serving_needed_h:
        lines += field("serving", _serving_pieces(training))
    if training.split:
        lines += field("two fleets", _split_pieces(training.split))
    if any(team.quota_fraction is not None for team in training.teams):
        lines += [
            "",
            *table(TEAM_HEADINGS, [_team_row(team) for team in training.teams], numbers=(1, 2, 3, 4)),
        ]
        if training.share_deviation_fraction is not None:
            lines += field(
                "", [f"while all waited, within {percent(training.share_deviation_fraction)} of quota"]
            )
    return lines


def _run_pieces(run: simulated.RunFigures) -> list[str]:
    """Time to train and to completion, and the rates over it."""
    pieces = [f"{run.name} {run.state}"]
    if run.train_s is not None and run.completion_s is not None:
        pieces.append(f"trained in {format_seconds(run.train_s)}")
        pieces.append(f"complete {format_seconds(run.completion_s)} after it was submitted")
    if run.tokens_per_s is not None:
        pieces.append(format_si(run.tokens_per_s, "tok/s"))
    if run.samples_per_s is not None:
        pieces.append(f"{format_si(run.samples_per_s, '').strip()} samples/s")
    return pieces


def _step_pieces(training: simulated.TrainingFigures) -> list[str]:
    pieces = [f"{training.slowdown_factor:.3g} times as long as on sound nodes alone"]
    step = training.step
    if step:
        p99, over = format_seconds(step.step_s_p99), percent(step.inflation_fraction)
        pieces.append(f"p99 {p99} with its jitter, {over} over the undisturbed one")
        whole = sum(step.parts_s.values()) or 1.0
        pieces += [f"{name} {percent(seconds / whole)}" for name, seconds in step.parts_s.items() if seconds]
    for node_id, waited_h in list(training.pace_setters.items())[:1]:
        pieces.append(f"{node_id} sets the pace: {waited_h:,.0f} accelerator-h waited for it")
    return pieces


def _hour_pieces(training: simulated.TrainingFigures) -> list[str]:
    used = [(use, hours) for use, hours in training.accelerator_h.items() if hours > 0]
    total = sum(hours for _, hours in used)
    shares = [f"{use} {percent(hours / max(total, 1e-9))}" for use, hours in used]
    return [f"{total:,.0f} accelerator-h", *shares]


def _placement_pieces(training: simulated.TrainingFigures) -> list[str]:
    return [
        f"largest free block {training.largest_free_count_mean:,.0f} accelerators in the mean",
        f"{percent(training.fragmentation_fraction)} of free ones fragmented",
        f"{training.partial_gang_count} gangs in part",
        f"{training.deadlock_count} deadlocks",
    ]


def _failure_pieces(training: simulated.TrainingFigures) -> list[str]:
    back = f", back after {format_seconds(training.recovery_s_mean)}" if training.failure_count else ""
    pieces = [f"{training.failure_count} hit a job{back}", f"{training.restart_count:,} restarts"]
    lost = training.preempted_lost_s_max
    undone = f", each undoing {format_seconds(lost)} at most" if lost is not None else ""
    causes = training.failures_by_cause.items()
    struck = [f"by cause: {', '.join(f'{name} {count:,}' for name, count in causes)}"] if causes else []
    return [*pieces, f"{training.preempted_count:,} preempted{undone}", *struck]


def _checkpoint_pieces(training: simulated.TrainingFigures) -> list[str]:
    pieces = [f"{training.checkpoint_count:,} checkpoints of {format_seconds(training.checkpoint_s_mean)}"]
    if training.checkpoint_interval_s_mean is not None:
        pieces.append(f"one each {format_seconds(training.checkpoint_interval_s_mean)} of work")
    if training.checkpoint_metadata_s > 0:
        files = f"{training.checkpoint_files_count:,.0f} files of the largest job"
        pieces.append(f"{files} take {format_seconds(training.checkpoint_metadata_s)} to create")
    return pieces


def _serving_pieces(training: simulated.TrainingFigures) -> list[str]:
    short = training.serving_shortfall_h / training.serving_needed_h
    pieces = [
        f"{training.serving_needed_h:,.0f} accelerator-h needed",
        f"{share(1 - short)} there in time",
    ]
    if training.serving_slowdown_factor > NOTABLE_FACTOR:
        pieces.append(f"answers take {training.serving_slowdown_factor:.3g} times as long beside training")
    return pieces


def _split_pieces(split: simulated.SplitFigures) -> list[str]:
    """The same nodes as two fleets."""
    pieces = [
        f"one pool {percent(split.shared_utilisation_fraction)} used, "
        f"two fleets {percent(split.split_utilisation_fraction)}",
        f"serving short for {format_seconds(split.shared_shortfall_s)} in one pool, "
        f"{format_seconds(split.split_shortfall_s)} in two fleets",
        f"training gains {percent(split.training_gain_fraction)} in one pool",
    ]
    if max(split.training_slowdown_factor, split.serving_slowdown_factor) > NOTABLE_FACTOR:
        training, serving = split.training_slowdown_factor, split.serving_slowdown_factor
        pieces.append(
            f"side by side training steps take {training:.3g} times, answers {serving:.3g} times as long"
        )
    return pieces


def _team_row(team: simulated.TeamFigures) -> tuple[str, ...]:
    return (
        team.name or "–",
        f"{team.accelerator_h:,.0f}",
        percent(team.quota_fraction) if team.quota_fraction is not None else "–",
        percent(team.share_fraction) if team.share_fraction is not None else "–",
        format_seconds(team.queue_s_p95),
    )
