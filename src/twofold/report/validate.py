"""The screens of `validate`: goals, figures by group, the gate, findings of a lint. 100 columns wide."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from twofold.measure import results
from twofold.report.answers import Shown
from twofold.report.lines import WIDTH, both_ends, field, listed, table

NONE = "–"
WORSE = 3  # exit code
# How the goals head a column, and how the groups do.
COLUMNS: Mapping[results.Column, tuple[str, str]] = {
    results.Column.SEEN: ("SEEN", "seen"),
    results.Column.LEFT_OUT: ("LEFT OUT", "left out"),
    results.Column.CALIBRATED: ("AFTER 10", "after"),
    results.Column.PRIORS: ("PRIORS", "priors"),
}
COUNTS = {"groups off", "constants above 1", "priors better"}
RATIOS = {"Spearman in sources", "Spearman in clusters", "width"}
WORST_LINES = 40  # of one figure on the screen; `--json` has them all
WORST_FINDINGS = 60
UNKEPT = "no fit that missed a source is kept here: LEFT OUT shows the fit's own errors"
KEY = (
    "SEEN: other configurations of the row's source were fitted. LEFT OUT: nothing of its source was.",
    "AFTER 10: as left out, then calibrated with ten rows, where a source has 20 of one stack. PRIORS:",
    "nothing was fitted. Errors, biases and shares in %, of goals the mean over sources, medians over all",
    "rows. s: stated rows, a: rows with assumptions. rank: Spearman. ≤10/20/30: rows within so many %.",
)


@dataclass(frozen=True, slots=True)
class Validated(Shown):
    """Scores by group, goals, refusals, and the gate where it was asked for."""

    schema = "twofold/validation/1"
    data: str
    row_counts: Mapping[str, int]  # scored, by half
    context_rows: int  # left out for their tier
    by: tuple[str, ...]
    goals: tuple[results.Judged, ...]
    groups: tuple[results.Line, ...]
    refusals: tuple[results.Refusals, ...]
    gate: results.Gate | None
    unkept: tuple[str, ...]  # halves whose constants without a source are not kept

    @property
    def lines(self) -> tuple[str, ...]:
        """Goals first, then every figure by group, those that are furthest off first."""
        return tuple(validation_lines(self))

    @property
    def as_data(self) -> dict[str, Any]:
        """Every field: a score's columns are keys."""
        return asdict(self)

    @property
    def exit_code(self) -> int:
        """Whether the gate holds."""
        return WORSE if self.gate and self.gate.failure else 0


@dataclass(frozen=True, slots=True)
class Linted(Shown):
    """What is wrong, or odd, with the rows of one table."""

    schema = "twofold/lint/1"
    file: str
    half: str
    row_count: int
    findings: tuple[results.RowFinding, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The findings, the gravest first."""
        return tuple(lint_lines(self))


def validation_lines(shown: Validated) -> Iterator[str]:
    """The whole screen."""
    rows = ", ".join(f"{count:,} {half}" for half, count in shown.row_counts.items())
    said = f"{shown.data}: {rows} rows" if rows else f"{shown.data}: kernels"
    yield from both_ends(said, f"{shown.context_rows:,} of context left out")
    for refused in shown.refusals:
        codes = [f"{count:,} refused ({code})" for code, count in refused.by_code.items()]
        large = f"{refused.not_fitting:,} of {refused.rows:,} called too large, although they ran"
        yield from field(refused.half, *codes, large)
        if refused.half in shown.unkept:
            yield from field("", UNKEPT)
    yield ""
    yield from goal_lines(shown.goals)
    for figure, lines in groupby(shown.groups, key=lambda line: line.figure):
        yield ""
        yield from group_lines(figure, list(lines), shown.by)
    if shown.gate:
        yield ""
        yield from gate_lines(shown.gate)
    yield ""
    yield from KEY


def goal_lines(goals: Sequence[results.Judged]) -> list[str]:
    """One line a goal: what each column reached, and beside it the limit and by how much it is missed."""
    columns = [column for column in COLUMNS if any(column in goal.reached for goal in goals)]
    heads, numbers = ["GOALS"], []
    for column in columns:
        numbers.append(len(heads))
        heads += [COLUMNS[column][0]] + ([] if column is results.Column.PRIORS else ["goal"])
    rows = []
    for goal in goals:
        cells = [goal.title]
        for column in columns:
            reached = goal.reached.get(column)
            cells.append(_figure(goal, reached.value) if reached else NONE)
            if column is not results.Column.PRIORS:
                cells.append(_limit(goal, reached) if reached else "")
        rows.append(cells)
    return table(heads, rows, numbers=numbers)


def _figure(goal: results.Judged, value: float | None) -> str:
    return NONE if value is None else statistic_text(goal.statistic, value)


def statistic_text(statistic: str, value: float, percent: str = "") -> str:
    """A count, a ratio, or a share as percent, with the sign that is asked for behind it."""
    if statistic in COUNTS:
        return f"{value:.0f}"
    return f"{value:.2f}" if statistic in RATIOS else f"{100 * value:.1f}{percent}"


def _limit(goal: results.Judged, reached: results.Reached) -> str:
    """`≤6 met`, `≤6 +2.1`: the limit, and how far the figure is beyond it."""
    if reached.limit is None or reached.missed_by is None:
        return ""
    plain = goal.statistic in COUNTS or goal.statistic in RATIOS
    sign = "≥" if goal.at_least else "≤"
    limit = f"{reached.limit if plain else 100 * reached.limit:.4g}"
    if not reached.missed_by:
        return f"{sign}{limit} met"
    places = 0 if goal.statistic in COUNTS else 2 if plain else 1
    missed = reached.missed_by if plain else 100 * reached.missed_by
    return f"{sign}{limit} {'−' if goal.at_least else '+'}{missed:.{places}f}"


def group_lines(figure: str, lines: Sequence[results.Line], by: Sequence[str]) -> list[str]:
    """Errors, one line a group, furthest off first; then ranges of the same groups in the same order."""
    # What a table is about: sources left out, wherever there are such predictions.
    left_out, seen = results.Column.LEFT_OUT, results.Column.SEEN
    head = left_out if any(left_out in line.scores for line in lines) else seen
    title = next((each.title for each in results.FIGURES if each.name == figure), f"{figure} above 50 µs")
    words = " · ".join("class" if lines[0].half == "kernels" and name == "source" else name for name in by)
    scored = {column for line in lines for column in line.scores}
    others = [column for column in COLUMNS if column is not head and column in scored]
    kept = [line for line in lines if line.scores[head].rows]
    shown = kept[:WORST_LINES]
    heads = ["", "", "rows", "mean", "med.", "bias", "rank", "≤10/20/30"]
    heads += [COLUMNS[each][1] for each in others]
    rows = [_errors(line, head, others) for line in shown]
    found = [f"{title} by {words}", *table(heads, rows, numbers=range(2, len(heads)))]
    if any(line.scores[head].coverage_80 is not None for line in shown):
        heads = ["its ranges", "", "in 80 %", "high/low", "above", "in 95 %", "high/low"]
        found += table(heads, [_ranges(line, head) for line in shown], numbers=range(2, len(heads)))
    if len(kept) > WORST_LINES:
        found.append(f"  and {len(kept) - WORST_LINES} groups that are nearer; `--json` has them")
    return found


def _errors(line: results.Line, head: results.Column, others: Sequence[results.Column]) -> list[str]:
    score = line.scores[head]
    within = "/".join(_percent(each) for each in (score.within_10, score.within_20, score.within_30))
    return [
        *_name(line),
        f"{score.rows:,}",
        _percent(score.mean_error, 1),
        _percent(score.median_error, 1),
        NONE if score.bias is None else f"{100 * score.bias:+.1f}",
        NONE if score.spearman is None else f"{score.spearman:.2f}",
        within,
        *(_percent(line.scores[each].mean_error if each in line.scores else None, 1) for each in others),
    ]


def _ranges(line: results.Line, head: results.Column) -> list[str]:
    score = line.scores[head]
    widths = [NONE if each is None else f"{each:.2f}" for each in (score.width_80, score.width_95)]
    shares = [_percent(each) for each in (score.coverage_80, score.above_80, score.coverage_95)]
    return [*_name(line), shares[0], widths[0], shares[1], shares[2], widths[1]]


def _name(line: results.Line) -> tuple[str, str]:
    return " · ".join(each or NONE for each in line.group), line.basis[:1]


def _percent(fraction: float | None, places: int = 0) -> str:
    return NONE if fraction is None else f"{100 * fraction:.{places}f}"


def gate_lines(gate: results.Gate) -> list[str]:
    """Whether the gate holds, and every group that moved."""
    holds = f"fails: {gate.failure}" if gate.failure else "holds"
    found = [f"GATE {holds} · {gate.compared} groups compared, {len(gate.moved)} moved"]
    lines = listed(
        gate.moved,
        ("left out", lambda each: each.name),
        (">rows", lambda each: f"{each.rows:,}"),
        (">committed", lambda each: f"{100 * each.before:.1f} %"),
        (">now", lambda each: f"{100 * each.after:.1f} %"),
        (">points", lambda each: f"{each.points:+.1f}"),
        ("", lambda each: f"{each.lost} rows fewer answered" if each.lost else ""),
    )
    unlike = [f"  other rows than committed: {name}" for name in gate.unlike]
    return [*found, *(lines if gate.moved else []), *unlike]


def lint_lines(shown: Linted) -> Iterator[str]:
    """Findings by line of the file, the gravest first."""
    counts = Counter(each.severity for each in shown.findings)
    said = ", ".join(f"{counts[name]:,} {name}" for name in ("impossible", "suspect", "note"))
    yield from both_ends(f"{shown.file}: {shown.row_count:,} {shown.half} rows", said)
    for finding in shown.findings[:WORST_FINDINGS]:
        where = f"line {finding.line}" + (f" ({finding.row_id})" if finding.row_id else "")
        yield f"{finding.severity}: {where}: {finding.rule}"[:WIDTH]
        yield from field("", finding.message)
        yield from field("  hint", finding.hint)
    if len(shown.findings) > WORST_FINDINGS:
        yield f"and {len(shown.findings) - WORST_FINDINGS} more; `--json` has them"
