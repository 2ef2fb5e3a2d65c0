"""How far the product is off where it knows least: measurements of sources that no fit has seen.

    python -m fits.unseen TRUTH_FOLDER/added

Every row is predicted by constants that saw neither its source nor a relative of it: all exports of one
benchmark are one source. Rows of one configuration count once, by the median of what was measured.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fits.picks import lines_of_picks
from twofold.measure.blind import CONFIGURATION
from twofold.measure.evidence import gather
from twofold.measure.results import Column
from twofold.measure.scores import Values, bias, coverage, mean_error, median_error, share_above, width
from twofold.measure.truth import Row, number, source_of, text
from twofold.measure.validation import Part, read_data

FEWEST_ROWS = 4  # of a source whose mean counts
STRONG_TOKENS = 8192  # per accelerator and step: fewer is strong scaling
OPEN = ("online", "burst")

Statistic = Callable[[Values], float | None]
Weighed = Callable[[Values, Sequence[str]], float | None]
"""Of rows and the source of each."""


@dataclass(frozen=True, slots=True)
class Line:
    """One figure beside its goal."""

    title: str
    figure: str  # of `validation.FIGURES`
    unit: str  # % or ×
    goal: str
    value: Weighed
    rows: Callable[[Row], bool] | None = None  # None: all


def by_source(statistic: Statistic) -> Weighed:
    """The mean over sources of a statistic, each weighing the same; sources of a few rows do not count."""

    def mean(values: Values, sources: Sequence[str]) -> float | None:
        each = [values.where(np.array([at == source for at in sources])) for source in sorted(set(sources))]
        found = [statistic(rows) for rows in each if rows.measured.size >= FEWEST_ROWS]
        told = [value for value in found if value is not None]
        return float(np.mean(told)) if told else None

    return mean


def over_rows(statistic: Statistic) -> Weighed:
    """A statistic of all rows."""
    return lambda values, _: statistic(values)


def held(values: Values) -> float | None:
    """Share of rows inside their 80 % range."""
    return coverage(values.measured, values.low_80, values.high_80)


def range_width(values: Values) -> float | None:
    """Median of the upper end of the 80 % range over the lower."""
    return width(values.low_80, values.high_80)


def tokens_each(row: Row) -> float:
    """Tokens per accelerator and step."""
    stated = [number(row, name) or 1.0 for name in ("seq_len", "global_batch_seqs", "gpus")]
    return stated[0] * stated[1] / stated[2]


def has_adapter(row: Row) -> bool:
    """Whether a run trains an adapter beside frozen weights."""
    return text(row, "adapter") not in ("", "none")


def is_full(row: Row) -> bool:
    """Whether a run trains all weights."""
    return not has_adapter(row)


def is_open(row: Row) -> bool:
    """Whether requests come whatever the server does, or all at once."""
    return text(row, "mode") in OPEN


LINES = (
    Line(
        "step, dense (mean over sources)",
        "step_time",
        "%",
        "≤ 10",
        by_source(mean_error),
        lambda row: is_full(row) and text(row, "arch") == "dense",
    ),
    Line(
        "step, MoE (mean over sources)",
        "step_time",
        "%",
        "≤ 18",
        by_source(mean_error),
        lambda row: is_full(row) and text(row, "arch") == "moe",
    ),
    Line("step, both (mean over sources)", "step_time", "%", "≤ 12", by_source(mean_error), is_full),
    Line("step, adapters (mean error)", "step_time", "%", "≤ 20", over_rows(mean_error), has_adapter),
    Line(
        "strong scaling, below 8,192 tokens per accelerator (mean error)",
        "step_time",
        "%",
        "≤ 15",
        over_rows(mean_error),
        lambda row: tokens_each(row) < STRONG_TOKENS,
    ),
    Line("peak memory (median error)", "peak_memory", "%", "≤ 6", over_rows(median_error)),
    Line("peak memory (bias)", "peak_memory", "%", "within ±3", over_rows(bias)),
    Line(
        "peak memory above its range",
        "peak_memory",
        "%",
        "≤ 8",
        over_rows(lambda values: share_above(values.measured, values.high_80)),
    ),
    Line("TPOT (median error)", "tpot", "%", "≤ 12", over_rows(median_error)),
    Line("output tokens/s (median error)", "output_rate", "%", "≤ 14", over_rows(median_error)),
    Line(
        "TTFT, closed loop (median error)",
        "ttft",
        "%",
        "≤ 25",
        over_rows(median_error),
        lambda row: not is_open(row),
    ),
    Line("TTFT, open and burst (median error)", "ttft", "%", "≤ 35", over_rows(median_error), is_open),
    *(
        Line(f"80 % range of {title} holds ({kind})", name, "%", "75–90", weigh(held))
        for name, title in (
            ("step_time", "steps"),
            ("peak_memory", "memory"),
            ("tpot", "TPOT"),
            ("output_rate", "tokens/s"),
            ("ttft", "TTFT"),
        )
        for kind, weigh in (("rows", over_rows), ("mean over sources", by_source))
    ),
    *(
        Line(f"80 % range of {title}, width", name, "×", f"≤ {goal}", over_rows(range_width))
        for name, title, goal in (
            ("step_time", "steps", 1.6),
            ("tpot", "TPOT", 2.2),
            ("output_rate", "tokens/s", 1.9),
            ("ttft", "TTFT", 6),
        )
    ),
)


def once_each(part: Part, half: str) -> tuple[list[Row], Values]:
    """Rows of one configuration, load and memory as one, with the median of what was measured."""
    told = (
        *CONFIGURATION[half],
        "framework",
        "adapter",
        "peak_mem_gib",
        "concurrency",
        "request_rate_rps",
        "framework_version",
    )
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(part.rows):
        key = (source_of(row), *(text(row, name) for name in told))
        groups.setdefault(key, []).append(place)
    first = [places[0] for places in groups.values()]
    values = part.answers[Column.LEFT_OUT]
    medians = np.array([np.median(values.measured[places]) for places in groups.values()])
    return [part.rows[place] for place in first], replace(
        values.where(np.isin(np.arange(len(part.rows)), first)),
        measured=medians,
    )


def lines_of(parts: Iterable[Part]) -> list[str]:
    """The table, a line for each figure."""
    known = {part.figure.name: once_each(part, part.figure.half) for part in parts}
    lines = [f"{'what':62} {'rows':>6} {'sources':>7} {'now':>9}  goal"]
    for line in LINES:
        if line.figure not in known:
            continue
        rows, values = known[line.figure]
        mask = np.array([line.rows is None or line.rows(row) for row in rows]) & values.answered
        sources = [source_of(row) for row, wanted in zip(rows, mask, strict=True) if wanted]
        found = line.value(values.where(mask), sources) if sources else None
        shown = "–" if found is None else f"{found:.2f}" if line.unit == "×" else f"{100 * found:.1f} %"
        lines.append(f"{line.title:62} {len(sources):6,} {len(set(sources)):7} {shown:>9}  {line.goal}")
    return lines


def main(folder: Path) -> None:
    """Print the table of one folder of truth tables."""
    found = gather(read_data(folder), only=(Column.LEFT_OUT,))
    print("\n".join([*lines_of(found.parts.values()), "", *lines_of_picks(found.parts)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
