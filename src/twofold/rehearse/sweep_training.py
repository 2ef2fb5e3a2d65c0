"""What a sweep of a training cluster says: how many spares pay, what jitter, files and size cost."""

from collections.abc import Sequence

from twofold.contracts.results import SweepFinding, SweepPoint
from twofold.core import format_seconds
from twofold.twin import METADATA_ALARM_FRACTION
from twofold.twin.cluster import ALARM_INFLATION_FRACTION, StepParts, rising_shares

ENOUGH = 0.002  # of the hours that are paid for: what a further step has to gain to be worth it
CAUSES = {
    "communication": "links, or what of them is shared",
    "input": "storage that nodes share for reading",
    "sync": "jitter, or a slow node that all wait for",
}


def training_findings(key: str, points: Sequence[SweepPoint]) -> list[SweepFinding]:
    """Of each key what it is swept for; of any other the smallest value beyond which nothing is gained."""
    match key:
        case "cluster.jitter":
            return [_jitter(points)]
        case "cluster.files":
            return [_metadata(points)]
        case "cluster.run_nodes":
            return _imbalance(points)
        case _:
            return [_enough(key, points)]


def _mean(point: SweepPoint, name: str) -> float:
    return point.figures[f"training.{name}"].mean


def _jitter(points: Sequence[SweepPoint]) -> SweepFinding:
    """The least jitter whose p99 step is too long."""
    if "training.step_p99_s" not in points[0].figures:
        return SweepFinding("alarm", "the plan has no run whose steps could jitter")
    beyond = [one for one in points if _mean(one, "step_inflation_fraction") > ALARM_INFLATION_FRACTION]
    limit = f"{100 * ALARM_INFLATION_FRACTION:.0f} %"
    if not beyond:
        return SweepFinding("alarm", f"none: p99 steps stay within {limit} of the undisturbed one")
    first = min(beyond, key=lambda one: _mean(one, "step_inflation_fraction"))
    over = _mean(first, "step_inflation_fraction")
    text = (
        f"from a jitter of {first.value} the p99 step is {100 * over:.0f} % over the undisturbed one, beyond "
        f"{limit}"
    )
    return SweepFinding("alarm", text, over)


def _metadata(points: Sequence[SweepPoint]) -> SweepFinding:
    """The fewest files that throttle a checkpoint."""

    def fraction(one: SweepPoint) -> float:
        metadata_s, data_s = _mean(one, "checkpoint_metadata_s"), _mean(one, "checkpoint_data_s")
        return metadata_s / (metadata_s + data_s) if metadata_s else 0.0

    limit = f"{100 * METADATA_ALARM_FRACTION:.0f} %"
    beyond = [one for one in points if fraction(one) > METADATA_ALARM_FRACTION]
    if not beyond:
        return SweepFinding(
            "small files", f"none are too many: metadata takes less than {limit} of a checkpoint"
        )
    first = min(beyond, key=fraction)
    text = (
        f"from {first.value} an accelerator, {_mean(first, 'checkpoint_files_count'):,.0f} in all, they take "
        f"{format_seconds(_mean(first, 'checkpoint_metadata_s'))}: {100 * fraction(first):.0f} % of a "
        f"checkpoint, {limit} at most; write fewer, larger ones"
    )
    return SweepFinding("small files", text, fraction(first))


def _imbalance(points: Sequence[SweepPoint]) -> list[SweepFinding]:
    """Parts of the step whose share rises with the run, and what that comes from."""
    if "training.step_compute_s" not in points[0].figures:
        return [SweepFinding("imbalance", "the plan has no run that could grow")]
    names = ("compute", "communication", "input", "sync")
    rows = sorted(
        (
            StepParts(
                round(_mean(one, "run_accelerators")), *(_mean(one, f"step_{name}_s") for name in names)
            )
            for one in points
        ),
        key=lambda row: row.accelerator_count,
    )
    found = rising_shares(rows)
    if not found:
        return [SweepFinding("imbalance", "none: no part of the step rises by more than 5 points of it")]
    return [
        SweepFinding(
            "imbalance",
            f"{one.part} rises from {100 * one.first_share:.0f} % to {100 * one.share:.0f} % of a step at "
            f"{one.accelerator_count:,} accelerators: look at {CAUSES[one.part]}",
            one.share,
        )
        for one in found
    ]


def _enough(key: str, points: Sequence[SweepPoint]) -> SweepFinding:
    """The smallest value beyond which nothing is gained for each hour that is paid for."""
    worth = [_mean(one, "work_fraction") for one in points]
    best = max(worth)
    enough = next(one for one, each in zip(points, worth, strict=True) if each >= best * (1.0 - ENOUGH))
    text = (
        f"{key} {enough.value}: more gains less than {100 * ENOUGH:g} % of work kept per hour paid for "
        f"(back after a failure in {format_seconds(_mean(enough, 'recovery_s_mean'))})"
    )
    return SweepFinding("enough", text)
