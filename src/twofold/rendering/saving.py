"""Whether a run's software writes checkpoints while it trains, as the plan may count, or stops for each."""

from twofold.core.display import format_seconds
from twofold.rendering.records import TrainedRun


def is_behind(run: TrainedRun) -> bool:
    """Whether the plan stops training for less than a whole write."""
    saved = run.run.run.checkpoints
    return saved.pause_s is not None and saved.pause_s < saved.write_s


def stopped(run: TrainedRun, why: str) -> list[str]:
    """What is lost where software stops for whole writes and the plan does not: how long that is in all."""
    if not is_behind(run):
        return []
    saved, count = run.run.run.checkpoints, run.steps_count // run.checkpoint_steps
    one, whole = format_seconds(saved.write_s), format_seconds(count * saved.write_s)
    counted = format_seconds(run.run.run.checkpoint_s.value)
    of = f"{run.at}.run.checkpoints"
    said = f"it stops for {of}.write_s at each, {count} × {one} = {whole}"
    return [f"checkpoints while it trains: {why}; {said}, where the plan counts {counted} by {of}.pause_s"]
