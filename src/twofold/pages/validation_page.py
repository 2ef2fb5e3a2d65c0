"""A validation as a page, HTML or Markdown: which goals of accuracy are met, then errors by goal and group.

Its pictures are made here: `charts` stands below what scores are made by.
"""

from collections.abc import Iterator, Mapping, Sequence

from twofold.charts.chart import Axis, Bar, Bars, Chart, Piece, Rule
from twofold.measure import results
from twofold.pages.sections import Derived, Linked, Page, Section, led
from twofold.report.validate import Validated, statistic_text, validation_lines

ROWS, GOALS, VERDICT = "rows", "goals", "verdict"
GROUPS_MOST = 16  # bars of one figure, the worst first
OF_A_GOAL = (results.Column.LEFT_OUT, results.Column.SEEN)  # the first that has a limit is what is promised
SAID: Mapping[results.Column, str] = {
    results.Column.SEEN: "seen",
    results.Column.LEFT_OUT: "left out",
    results.Column.CALIBRATED: "after ten rows",
    results.Column.PRIORS: "priors",
}


def validation_page(made: Validated) -> Page:
    """What its page shows."""
    return Page(
        "predicted against measured",
        "Predicted against measured",
        Linked(_rows_of(made), ROWS),
        (_verdict(made),),
        charts=charts_of_validation(made.goals, made.groups),
        rest=(_goals_table(made.goals),),
        screen=tuple(validation_lines(made)),
        derived=(
            Derived(
                ROWS, f"rows of others' measurements in {made.data}, each asked of the models by its command"
            ),
            Derived(VERDICT, "what each goal reached, held against its limit", (f"rows: {_rows_of(made)}",)),
        ),
    )


def _rows_of(made: Validated) -> str:
    counts = [f"{count:,} rows of {half}" for half, count in made.row_counts.items()]
    return f"{', '.join(counts)}, of {made.data}"


def _verdict(made: Validated) -> Section:
    """The goals that are missed, by what the fit had seen."""
    set_ones = [(goal, column, each) for goal in made.goals for column, each in goal.reached.items()]
    judged = [(goal, column, each) for goal, column, each in set_ones if each.missed_by is not None]
    missed = [(goal, column, each) for goal, column, each in judged if each.missed_by]
    said = [f"{len(judged) - len(missed)} of {len(judged)} goals are met"]
    for goal, column, each in missed:
        reached, limit = _shown(goal, each.value), _shown(goal, each.limit)
        at = "at least" if goal.at_least else "at most"
        said.append(f"✗ {goal.title}, {goal.statistic}, {SAID[column]}: {reached}, {limit} {at}")
    if made.gate is not None and made.gate.failure:
        said.append(f"✗ {made.gate.failure}")
    title = "Not judged" if not judged else "Goals are missed" if missed else "Every goal is met"
    return Section(title, sentences=led(VERDICT, *said))


def _goals_table(goals: Sequence[results.Judged]) -> Section:
    rows = [
        (
            *led(GOALS, goal.title, goal.statistic),
            SAID[column],
            *led(GOALS, f"{each.rows:,}", _shown(goal, each.value), _shown(goal, each.limit)),
            "" if each.missed_by is None else "✗ missed" if each.missed_by else "✓",
        )
        for goal in goals
        for column, each in goal.reached.items()
    ]
    heads = ("goal", "statistic", "of rows that were", "rows", "reached", "limit", "")
    parts = (
        "rows: measurements that the figure is over; seen: the fit had them, left out: it had not",
        "reached: the statistic that the row names, over all its rows; limit: the goal that is set for it",
    )
    derived = (Derived(GOALS, "each row is predicted, and its error counted", parts),)
    return Section("Goals", heads, tuple(rows), (3, 4, 5), derived=derived)


def _shown(goal: results.Judged, value: float | None) -> str:
    return "–" if value is None else statistic_text(goal.statistic, value, " %")


def charts_of_validation(
    goals: Sequence[results.Judged], groups: Sequence[results.Line]
) -> tuple[Chart, ...]:
    """Goals as shares of their limits, then the median error of every group, figure by figure."""
    found: list[Chart] = [*_goals(goals)]
    for half, figure in dict.fromkeys((line.half, line.figure) for line in groups):
        found += _errors(
            half, figure, [line for line in groups if (line.half, line.figure) == (half, figure)]
        )
    return tuple(found)


def _goals(goals: Sequence[results.Judged]) -> Iterator[Chart]:
    """Errors alone: of what is to be reached at least, more than the limit is better."""
    bars = []
    for goal in goals:
        for column in OF_A_GOAL:
            reached = goal.reached.get(column)
            if reached is None or not reached.limit or reached.value is None or goal.at_least:
                continue
            name = f"{SAID[column]}: {goal.title}"
            bars.append(Bar(name, (Piece("reached", reached.value / reached.limit),)))
    if bars:
        title, axis = "errors against their goals", Axis("of the limit", "fraction")
        yield Bars("goals", title, axis, tuple(bars), (Rule("limit", 1.0),))


def _errors(half: str, figure: str, lines: Sequence[results.Line]) -> Iterator[Chart]:
    """The median error by group, of sources that the fit had not seen where there are such."""
    known = []
    for line in lines:
        column = next((each for each in OF_A_GOAL if each in line.scores), None)
        score = line.scores[column] if column else None
        if score is not None and score.median_error is not None:
            name = f"{' · '.join(line.group)} ({line.basis[:1]})"
            known.append((score.median_error, Bar(name, (Piece("median error", score.median_error),))))
    known.sort(key=lambda each: -each[0])
    bars = tuple(bar for _, bar in known[:GROUPS_MOST])
    if bars:
        more = len(known) - len(bars)
        note = f"{more} further groups are closer" if more else ""
        title = f"{half}: {figure.replace('_', ' ')}, predicted against measured"
        yield Bars(f"errors.{half}.{figure}", title, Axis("median error", "fraction"), bars, note=note)
