"""Screens of what is learned from sampled requests."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from twofold.core.display import format_seconds
from twofold.live.registry.attributions import Attributed, Attribution, AttributionCost
from twofold.live.registry.sampled import Curated, FailureSlice, Sample
from twofold.policy.release.watch import WatchSettings, WindowEnded
from twofold.report.lines import field, listed

SLICES_SHOWN, SHARES_SHOWN = 12, 5


def curated_lines(folder: Path, found: Curated) -> list[str]:
    """What was written, and which requests fail."""
    count = len(found.failures)
    lines = [
        str(folder),
        f"  candidates.jsonl  {len(found.candidates):,} texts to train on: `data` of a training order",
        f"  regression.jsonl  {len(found.regression):,} texts of other prompts, to test on:"
        " `registry evaluate --on`",
        f"  failures.jsonl    {count:,} request{'s' * (count != 1)} without an answer",
    ]
    if found.repeated_count:
        lines.append(f"{found.repeated_count:,} more were there before")
    if found.hosted_count:
        lines.append(f"{found.hosted_count:,} answers of a hosted API are left out: not ours to learn from")
    if not found.slices:
        return [*lines, "no slice of requests fails"]
    rows = found.slices[:SLICES_SHOWN]
    table = listed(
        rows,
        ("", lambda each: "✗" if each.stands_out else ""),
        ("requests by", lambda each: each.what),
        ("", lambda each: each.value[:40]),
        ("failed", lambda each: f"{each.failed_count:,} of {each.count:,}"),
        ("", _bound),
    )
    return [*lines, "", *table, "✗ fails more often than all do, at 95 %"]


def _bound(each: FailureSlice) -> str:
    return f"{each.failed_count / each.count:.1%}, at least {each.low_fraction:.1%}".replace("%", " %")


def watched_lines(
    version: str,
    answer_count: int,
    other_count: int,
    windows: Sequence[WindowEnded],
    settings: WatchSettings,
) -> list[str]:
    """A line per window after the reference."""
    reference_count = settings.block_count * settings.reference_blocks_count
    window_count = settings.block_count * settings.window_blocks_count
    head = f"{version}  {answer_count:,} answers scored since its release"
    if other_count:
        head += f", {other_count:,} of other models left out"
    if not windows:
        return [
            head,
            f"too few to judge: {reference_count} are the reference, then each {window_count} a window",
        ]
    table = listed(
        windows,
        ("window", lambda each: str(each.number)),
        ("from", lambda each: _clock(each.from_s)),
        ("until", lambda each: _clock(each.until_s)),
        ("nats/token", lambda each: f"{each.mean_nats:.3f}"),
        ("worse by", lambda each: f"{each.mean_nats - each.reference_nats:+.3f}"),
        ("", lambda each: "✗ ALERT: worse than after the release" if each.alert else ""),
    )
    ended = "an alert" if any(each.alert for each in windows) else "no alert"
    why = f"{ended}: {settings.margin_nats:g} nats per token worse count, false alarms"
    said = f"{why} {settings.errors.false_alarm_fraction:.1%} of trials".replace("%", " %")
    first = f"reference {windows[0].reference_nats:.3f} nats/token over its first {reference_count} answers"
    return [head, first, *table, said]


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def attributed_lines(told: Attributed, samples: Sequence[Sample]) -> list[str]:
    """Each answer, whether its shares sum up, and what telling it costs."""
    whole = sum(each.complete for each in told.found)
    worst = max(each.missed_fraction for each in told.found)
    lines = [f"{told.version}  {told.digest}", told.method]
    for sample, each in zip(samples, told.found, strict=True):
        lines += ["", *_answer(sample, each)]
    mark = "✓" if whole == len(told.found) else "✗"
    complete = (
        f"{mark} complete: {whole} of {len(told.found)}, the worst misses {worst:.2%} of what it explains"
    )
    same = "✓ in series and beside the same" if told.same else "✗ in series and beside differ"
    return [*lines, "", complete.replace("%", " %"), same, *_cost(told.cost)]


def _answer(sample: Sample, each: Attribution) -> list[str]:
    decided = f"{sample.outcome} by {sample.replica or 'nobody'}, attempts {sample.attempts}"
    largest = sorted(zip(each.shares_nats, each.tokens, strict=True), key=lambda pair: -abs(pair[0]))
    explained = each.value_nats - each.before_nats
    sums = f"{len(each.tokens)} shares sum to {sum(each.shares_nats):.4f} of {explained:.4f}"
    return [
        f"{each.request_id}  {sample.at[:19]}  {sample.class_name}  {decided}",
        *field(
            "token",
            f"{each.token!r}: ln p {each.value_nats:.3f}",
            f"{each.before_nats:.3f} without the prompt",
        ),
        *field("sum", sums, f"off by {each.delta_nats:+.1e} nats", f"{each.step_count} steps"),
        *field("most", *(f"{token!r} {share:+.3f}" for share, token in largest[:SHARES_SHOWN])),
    ]


def _cost(cost: AttributionCost) -> list[str]:
    added_s, beside_s = cost.series_s - cost.alone_s, cost.beside_s - cost.alone_s
    rows = (
        ("in series", added_s, cost.series_core_s, "every request waits for it"),
        ("beside", beside_s, cost.beside_core_s, "while one is attributed, on the same cores"),
    )
    table = listed(
        rows,
        ("attribution", lambda each: str(each[0])),
        ("added to an answer", lambda each: f"{each[1] * 1e3:+.1f} ms"),
        ("processor", lambda each: f"{each[2]:.3f} core-s each"),
        ("", lambda each: str(each[3])),
    )
    return ["", *table, f"an answer alone takes {format_seconds(cost.alone_s)}; {cost.core_count} cores"]
