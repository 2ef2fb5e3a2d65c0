"""Writes docs/accuracy.md, and the figures that the gate compares with.

    python -m fits.accuracy TRUTH_FOLDER PAGE.md

Goals come first, long tables last. Peers are read from bench/peers/results.csv and the ledger of terms from
ledger/*.csv, what remains from remains.csv, and peers' own figures from peer_claims.csv, beside the page.
Published plans are asked by `fits.cases`.
"""

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path

import numpy as np

from fits.cases import cases_table, read_cases
from fits.picks import RULES, Crossed, Picked, crossed, picks, workloads
from fits.placebo import placebo_table
from fits.unseen import FEWEST_ROWS, by_source, held, over_rows, range_width
from twofold.core.estimate import Estimate
from twofold.measure.evidence import Evidence, gather
from twofold.measure.gate import FILE, GateFigure, gate_figures
from twofold.measure.goals import covered_groups, judge
from twofold.measure.results import Column, Judged, Reached
from twofold.measure.scores import Mask, Score, score
from twofold.measure.truth import source_of
from twofold.measure.validation import Part, read_data
from twofold.perf.known import FEW_SOURCES

TITLES: Mapping[Column, str] = {
    Column.SEEN: "source seen",
    Column.LEFT_OUT: "source left out",
    Column.CALIBRATED: "after 10 rows",
    Column.PRIORS: "priors alone",
}
HALVES = ("training", "inference", "kernels")
NONE = "–"
COUNTS = ("groups off", "constants above 1", "priors better")
WORDS = ("broken", "lost")
RATIOS = ("Spearman in sources", "Spearman in clusters", "width")
# Errors that are shown weighed the other way too.
OTHERWISE = {"mean error": "all rows", "median error": "mean of sources"}
ANSWERS = ("e2e", "e2e_p99")
SAID = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
LEDGER = ("half", "term", "why", "rows", "before", "after", "kept")

HEAD = """# Accuracy

Written by `make accuracy`; do not edit. `twofold validate --data FOLDER` prints the same for any folder of
measurements, and `twofold validate` for the sample in the package.

Every row of published measurements (tiers A and B of the tables that the fits read) is predicted four times:

- *source seen*: by a fit that saw other configurations of the row's source, but not this one;
- *source left out*: by a fit, from a cold start, that saw no row of its source. This is the headline;
- *after 10 rows*: as left out, then calibrated with ten other rows of the source, as a user would. Only where
  a source has 20 rows of one accelerator and software, thinned to 40, so on fewer rows than its neighbours;
- *priors alone*: by constants before any training or serving row. What is fitted has to beat it.

All of it still flatters: which terms, software eras and formats the models know was chosen while looking at
these same sources, four settings of how benchmarks with a limit are read were the best of 54 on MLPerf's
own rows, and that one benchmark's clients are one more than its engine runs was inferred from its rows.
What the scripts of InferenceX set for the scheduler was read in its repository; so was, after the constants
were fitted and BLIS's rows came out late, that its clients send 45 prompts in turn. Errors are fractions of
the measured value. Goals of mean errors are means over sources, each weighing the same, goals of medians are
medians of all rows; the other way to weigh stands in brackets.
"""


def page(evidence: Evidence, root: Path, ledger: Path, plans: Sequence[str] = ()) -> str:
    """The whole page as Markdown; `root` holds bench/peers, `ledger` the terms, `plans` is a section."""
    peers = _table(root / "bench" / "peers" / "results.csv")
    terms = [row for path in sorted(ledger.glob("*.csv")) for row in _table(path)]
    lines = [HEAD, *goals_table(judge(evidence)), *_unkept(evidence)]
    lines += remains_table(_table(ledger.parent / "remains.csv"))
    lines += [*widths_table(evidence), *reliability_table(evidence.parts.values())]
    lines += [*ranges_table(evidence), *refused_table(evidence)]
    lines += [*picks_table(picks(evidence.parts)), *crossed_table(crossed(workloads(evidence.parts))), *plans]
    lines += peers_summary(peers)
    lines += claims_table(_table(ledger.parent / "peer_claims.csv"), judge(evidence))
    lines += answers_table(evidence)
    lines += placebo_table(_table(ledger.parent / "placebo.csv"))
    lines += ledger_table(terms)
    for half in HALVES:
        parts = [part for part in evidence.parts.values() if part.figure.half == half]
        if parts:
            lines += [f"## {half.capitalize()}, source by source", ""]
        for part in parts:
            lines += figure_table(part)
    return "\n".join([*lines, *peers_table(peers)])


def goals_table(goals: Sequence[Judged]) -> list[str]:
    """One line a goal: figure, limit and by how much it is missed, in each column."""
    columns = [column for column in TITLES if any(column in goal.reached for goal in goals)]
    heads = ["goal", "rows", *(TITLES[column] for column in columns)]
    lines = ["## Goals", "", _line(heads), _line(["---", "--:"] + ["---"] * len(columns))]
    for goal in goals:
        rows = max(reached.rows for reached in goal.reached.values())
        cells = [_reached(goal, goal.reached.get(column)) for column in columns]
        lines.append(_line([f"{goal.title} ({goal.statistic})", f"{rows:,}", *cells]))
    return [*lines, ""]


def picks_table(rows: Sequence[Picked]) -> list[str]:
    """What wrong predictions cost, one line for each limit."""
    if not rows:
        return []
    lines = [
        "## What a wrong prediction costs",
        "",
        "Of the measured configurations of one workload, the one that the prediction calls best within a",
        "limit on TPOT, by a fit that saw nothing of the source. *Broken*: it does not keep the limit;",
        "*lost*: the median of tokens/s per accelerator that the best of those that keep it gives more.",
        "*Sure*: the upper end of the 80 % range has to keep the limit. *Weighed*: the most of tokens/s ×",
        "(2P − 1), P the probability that the limit holds; it was thought of while looking at these rows.",
        "Goals: broken ≤ 15 %; sure ≤ 10 % broken and ≤ 12 % lost.",
        "",
        _line(
            [
                "TPOT limit",
                "workloads",
                "broken",
                "lost",
                *(f"{r}: {w}" for r in tuple(RULES)[1:] for w in WORDS),
            ]
        ),
        _line(["--:"] * 8),
    ]
    for row in rows:
        each = (of[rule] for rule in RULES for of in (row.broken_fraction, row.lost_fraction))
        lines.append(_line([f"{row.limit_ms} ms", f"{row.workload_count}", *map(_percent, each)]))
    return [*lines, ""]


def crossed_table(rows: Sequence[Crossed]) -> list[str]:
    """What rules bring on sources that did not choose them."""
    if not rows:
        return []
    lines = [
        "A rule that every second source chose (the one that loses least of those that break at most 15 %),",
        "scored on the others, over all limits; *lost* is the mean here:",
        "",
        _line(
            [
                "chosen on",
                "rule",
                "there: broken",
                "lost",
                "scored on",
                "broken",
                "lost",
                "usual: broken",
                "lost",
            ]
        ),
        _line(["---", "---", "--:", "--:", "---", *["--:"] * 4]),
    ]
    for row in rows:
        shares = [[_percent(share) for share in each] for each in (row.there, row.elsewhere, row.believed)]
        lines.append(
            _line(
                [
                    *(", ".join(row.chosen_on), row.rule, *shares[0]),
                    *(", ".join(row.scored_on), *shares[1], *shares[2]),
                ]
            )
        )
    return [*lines, ""]


def claims_table(rows: Sequence[Mapping[str, str]], goals: Sequence[Judged]) -> list[str]:
    """What the makers of peers say of themselves, each beside the goal of ours that is nearest in kind."""
    if not rows:
        return []
    told = {goal.title: goal for goal in goals}
    lines = [
        "### What peers say of themselves",
        "",
        "Claims of their makers, not measured here, on rows of their choice: they compare with ours in kind",
        "only. Ours are all rows of the goal, source seen and left out.",
        "",
        _line(["tool", "figure", "its makers' claim", "on what", "where", "ours", "seen", "left out"]),
        _line(["---"] * 6 + ["--:", "--:"]),
    ]
    for row in rows:
        goal = told.get(row["goal"])
        ours = [_claimed(goal, column) for column in (Column.SEEN, Column.LEFT_OUT)]
        cells = (row[name] for name in ("tool", "figure", "claim", "basis", "source", "goal"))
        lines.append(_line([*cells, *ours]))
    return [*lines, ""]


def answers_table(evidence: Evidence) -> list[str]:
    """Medians and 99th percentiles of whole answers, one line for each set of rows that states them."""
    parts = [evidence.parts[name] for name in ANSWERS if name in evidence.parts]
    if not parts:
        return []
    lines = [
        "### Whole answers, set by set",
        "",
        "Vidur and BLIS claim errors of whole answers: ours on each set of rows that states them.",
        "",
        _line(["figure", "set", "rows", "seen: median error", "bias", "left out: median error", "bias"]),
        _line(["---", "---"] + ["--:"] * 5),
    ]
    for part in parts:
        for source in sorted({facets.source for facets in part.facets}):
            mask = part.mask(lambda facets, source=source: facets.source == source)  # type: ignore[misc]
            found = [score(part.answers[column].where(mask)) for column in (Column.SEEN, Column.LEFT_OUT)]
            cells = [part.figure.title, source, f"{found[0].rows:,}"]
            for each in found:
                cells += [_percent(each.median_error), NONE if each.bias is None else f"{each.bias:+.1%}"]
            lines.append(_line(cells))
    return [*lines, ""]


def _claimed(goal: Judged | None, column: Column) -> str:
    reached = goal.reached.get(column) if goal else None
    if goal is None or reached is None or reached.value is None:
        return NONE
    return _figure(goal.statistic, reached.value)


def _reached(goal: Judged, reached: Reached | None) -> str:
    if reached is None or reached.value is None:
        return NONE
    value = _figure(goal.statistic, reached.value)
    other = reached.otherwise if goal.statistic in OTHERWISE else None
    differs = other is not None and other != reached.value
    told = f" ({OTHERWISE[goal.statistic]} {_figure(goal.statistic, other)})" if other and differs else ""
    if reached.limit is None or reached.missed_by is None:
        return value + told
    limit = f"{'≥' if goal.at_least else '≤'} {_figure(goal.statistic, reached.limit)}"
    if not reached.missed_by:
        return f"{value}, goal {limit} met{told}"
    return f"**{value}**, goal {limit} missed by {_figure(goal.statistic, reached.missed_by)}{told}"


def _figure(statistic: str, value: float) -> str:
    if statistic in COUNTS:
        return f"{value:.0f}"
    return f"{value:.2f}" if statistic in RATIOS else f"{100 * value:.1f} %"


def _unkept(evidence: Evidence) -> list[str]:
    lines = [
        f"No fit of {half} without a source is kept: its *source left out* shows the fit's own errors."
        for half in sorted(evidence.unkept)
    ]
    return [*lines, ""] if lines else []


def widths_table(evidence: Evidence) -> list[str]:
    """How many rows the 80 % ranges of each figure hold, and how wide they are, by what was known."""
    columns = (Column.LEFT_OUT, Column.SEEN, Column.CALIBRATED)
    lines = [
        "## What ranges hold, and how wide they are",
        "",
        "80 % ranges of somebody new, of configurations of a source that the fit saw, and after ten rows:",
        "rows held, the mean of sources with four rows or more, and the median of upper over lower end.",
        f"Where fewer than {FEW_SOURCES} sources measured a figure under a load, `pred_group` names it among",
        "`few_sources`, and its range is that of all loads.",
        "",
        _line(["figure", "sources", *(TITLES[column] for column in columns)]),
        _line(["---", *["--:"] * (1 + len(columns))]),
    ]
    for part in evidence.parts.values():
        if part.figure.half in ("training", "inference"):
            cells = [_held_cell(part, column) for column in columns]
            sources = {source_of(row) for row in part.rows}
            lines.append(_line([part.figure.title, f"{len(sources)}", *cells]))
    return [*lines, ""]


def _held_cell(part: Part, column: Column) -> str:
    if column not in part.answers:
        return NONE
    mask = part.answers[column].answered & np.isfinite(part.answers[column].low_80)
    sources = [source_of(row) for row, wanted in zip(part.rows, mask, strict=True) if wanted]
    if not sources:
        return NONE
    found = part.where(column, mask)
    rows, each = (_percent(weigh(held)(found, sources)) for weigh in (over_rows, by_source))
    return f"{rows}, sources {each}, × {range_width(found):.2f}"


def reliability_table(parts: Iterable[Part]) -> list[str]:
    """How often goals held of which a probability was said, on sources left out."""
    lines = [
        "## Whether goals hold as often as is said",
        "",
        "For each row of a source left out, a limit that is said to hold with the probability that heads the",
        "column, read from its 80 % range as a plan reads `P(goal)`: how often it held. Tokens/s are to be",
        "at least the limit, all else at most. Means of sources with four rows or more, then all rows. The",
        "upper end of memory is at 95 %, not 90: too little ends a run.",
        "",
        _line(["figure", "sources", *(f"said {share:.0%}" for share in SAID)]),
        _line(["---", *["--:"] * (1 + len(SAID))]),
    ]
    for part in parts:
        if part.figure.half in ("training", "inference") and Column.LEFT_OUT in part.answers:
            lines.append(_line([part.figure.title, *_reliability(part)]))
    return [*lines, ""]


def _reliability(part: Part) -> list[str]:
    values = part.answers[Column.LEFT_OUT]
    mask = values.answered & np.isfinite(values.low_80)
    found, sources = values.where(mask), np.array([source_of(row) for row in part.rows])[mask]
    ranges = zip(found.predicted, found.low_80, found.high_80, found.measured, strict=True)
    place = np.array(
        [Estimate(said, low, high, "").probability_within(was) for said, low, high, was in ranges]
    )
    place = 1 - place if part.figure.name == "output_rate" else place
    names, counts = np.unique(sources, return_counts=True)
    enough = names[counts >= FEWEST_ROWS]
    cells = [f"{enough.size}"]
    for share in SAID:
        each = [float(np.mean(place[sources == name] <= share)) for name in enough]
        cells.append(f"{np.mean(each):.0%}, {np.mean(place <= share):.0%}" if each else NONE)
    return cells


def ranges_table(evidence: Evidence) -> list[str]:
    """The groups whose 80 % range holds too few rows or too many."""
    lines = [
        "## Ranges that hold too few rows, or too many",
        "",
        "80 % ranges of groups of 50 rows or more that hold not 75–90 % of what was measured.",
        "",
        _line(["column", "figure", "source", "rows", "in the range"]),
        _line(["---", "---", "---", "--:", "--:"]),
    ]
    for column in (Column.SEEN, Column.LEFT_OUT):
        for figure, source, rows, share in covered_groups(evidence.parts.values(), column):
            if not 0.75 <= share <= 0.90:
                lines.append(_line([TITLES[column], figure, source, f"{rows:,}", f"{share:.0%}"]))
    return [*lines, ""]


def refused_table(evidence: Evidence) -> list[str]:
    """What got no answer, and what a planner would have called too large although it ran."""
    lines = [
        "## Refused",
        "",
        _line(["half", "rows", "refused", "called too large, although they ran"]),
        _line(["---", "--:", "---", "--:"]),
    ]
    for each in evidence.refusals:
        codes = ", ".join(f"{count} {code}" for code, count in each.by_code.items()) or "none"
        lines.append(_line([each.half, f"{each.rows:,}", codes, f"{each.not_fitting:,}"]))
    return [*lines, ""]


def figure_table(part: Part) -> list[str]:
    """One line per kind of model and source, furthest off first, then the means over sources."""
    head = Column.LEFT_OUT if Column.LEFT_OUT in part.answers else Column.SEEN
    others = [column for column in TITLES if column in part.answers and column is not head]
    heads = [
        "source",
        "models",
        "rows",
        "mean",
        "median",
        "bias",
        "Spearman",
        "in 80 %",
        "high / low",
        "in 95 %",
    ]
    heads += [f"{TITLES[column]}: mean" for column in others]
    lines = [f"### {part.figure.title}: {TITLES[head]}", "", _line(heads)]
    lines.append(_line(["---", "---"] + ["--:"] * (len(heads) - 2)))
    groups = _groups(part)
    scores = {
        key: {column: score(values.where(mask)) for column, values in part.answers.items()}
        for key, mask in groups.items()
    }
    order = sorted(scores, key=lambda key: (key[1], -(scores[key][head].mean_error or 0.0)))
    lines += [_line([key[0], key[1], *_cells(scores[key], head, others)]) for key in order]
    for arch in dict.fromkeys(key[1] for key in order):
        of_arch = [scores[key] for key in order if key[1] == arch]
        lines.append(_line(["**mean of sources**", arch, *_means(of_arch, head, others)]))
    return [*lines, ""]


def _groups(part: Part) -> dict[tuple[str, str], Mask]:
    keys = [(facets.source, facets.arch) for facets in part.facets]
    return {key: np.array([each == key for each in keys], bool) for key in sorted(set(keys))}


def _cells(scores: Mapping[Column, Score], head: Column, others: Sequence[Column]) -> list[str]:
    one = scores[head]
    return [
        f"{one.rows:,}",
        *(_percent(each) for each in (one.mean_error, one.median_error)),
        NONE if one.bias is None else f"{one.bias:+.1%}",
        *(NONE if each is None else f"{each:.2f}" for each in (one.spearman,)),
        NONE if one.coverage_80 is None else f"{one.coverage_80:.0%}",
        NONE if one.width_80 is None else f"{one.width_80:.2f}",
        NONE if one.coverage_95 is None else f"{one.coverage_95:.0%}",
        *(_percent(scores[column].mean_error) for column in others),
    ]


def _means(of_arch: Sequence[Mapping[Column, Score]], head: Column, others: Sequence[Column]) -> list[str]:
    def mean(column: Column, name: str) -> float | None:
        found = [getattr(scores[column], name) for scores in of_arch]
        kept = [value for value in found if value is not None]
        return float(np.mean(kept)) if kept else None

    bias, spearman, width = (mean(head, name) for name in ("bias", "spearman", "width_80"))
    shares = [mean(head, name) for name in ("coverage_80", "coverage_95")]
    inside = [NONE if share is None else f"{share:.0%}" for share in shares]
    return [
        f"{sum(scores[head].rows for scores in of_arch):,}",
        *(_percent(mean(head, name)) for name in ("mean_error", "median_error")),
        NONE if bias is None else f"{bias:+.1%}",
        NONE if spearman is None else f"{spearman:.2f}",
        inside[0],
        NONE if width is None else f"{width:.2f}",
        inside[1],
        *(_percent(mean(column, "mean_error")) for column in others),
    ]


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}"


def peers_summary(peers: Sequence[Mapping[str, str]]) -> list[str]:
    """Means over sources, theirs and ours on the same rows."""
    if not peers:
        return []
    lines = [
        "## Peers and baselines, on the same rows",
        "",
        "Means over sources of the mean absolute error; ours has the source left out, where such a fit is",
        "kept. How rows became questions, and what is unfair to whom, says `bench/peers/README.md`. Each",
        "source stands at the end.",
        "",
        _line(["figure", "tool", "sources", "rows", "theirs", "ours"]),
        _line(["---", "---", "--:", "--:", "--:", "--:"]),
    ]
    keys = dict.fromkeys((row["half"], row["figure"], row["tool"]) for row in peers)
    for half, figure, tool in keys:
        own = [row for row in peers if (row["half"], row["figure"], row["tool"]) == (half, figure, tool)]
        theirs, ours = (
            np.mean([float(row[name]) for row in own]) for name in ("mean_error", "ours_mean_error")
        )
        rows = sum(int(row["rows"]) for row in own)
        lines.append(_line([figure, tool, str(len(own)), f"{rows:,}", f"{theirs:.1%}", f"{ours:.1%}"]))
    return [*lines, ""]


def peers_table(peers: Sequence[Mapping[str, str]]) -> list[str]:
    """Source by source."""
    if not peers:
        return []
    names = ("figure", "tool", "source", "rows")
    lines = ["## Peers and baselines, source by source", ""]
    lines.append(_line([*names, "theirs: mean", "median", "bias", "ours: mean", "median", "bias"]))
    lines.append(_line(["---"] * 3 + ["--:"] * 7))
    for row in peers:
        errors = []
        for whose in ("", "ours_"):
            errors += [f"{float(row[whose + name]):.1%}" for name in ("mean_error", "median_error")]
            errors.append(f"{float(row[whose + 'bias']):+.1%}")
        lines.append(_line([*(row[name] for name in names), *errors]))
    return [*lines, ""]


def remains_table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Why goals are missed, and which measurement would settle it."""
    if not rows:
        return []
    names = ("goal", "remains", "measurement")
    titles = ("goal", "what remains", "which measurement would settle it")
    lines = ["## What remains", "", _line(titles), _line(["---"] * len(titles))]
    return [*lines, *(_line([row.get(name, "") for name in names]) for row in rows), ""]


def ledger_table(terms: Sequence[Mapping[str, str]]) -> list[str]:
    """Every term that was tried: those that were kept, then those that failed."""
    if not terms:
        return []
    lines = [
        "## Ledger of terms",
        "",
        "What was tried, why, and the error before and after. What failed stands last.",
        "",
    ]
    lines += [_line(LEDGER), _line(["---"] * len(LEDGER))]
    failed = {"no", "0", "false", ""}
    ordered = sorted(terms, key=lambda row: row.get("kept", "").strip().lower() in failed)
    lines += [_line([row.get(name, "").replace("|", "/") for name in LEDGER]) for row in ordered]
    return [*lines, ""]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def write_figures(found: Iterable[GateFigure], path: Path = FILE) -> None:
    """Write all figures anew."""
    names = [field.name for field in fields(GateFigure)]
    order = attrgetter("data", "half", "figure", "arch", "source")
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(names)
        for row in sorted(found, key=order):
            cells = (getattr(row, name) for name in names)
            writer.writerow([f"{cell:.4f}" if isinstance(cell, float) else cell for cell in cells])


def _told(words: str) -> None:
    print(words, file=sys.stderr)


def _evidence(truth: Path) -> Iterator[tuple[str, Evidence]]:
    yield "truth", gather(read_data(truth), _told, process_count=2)
    yield "sample", gather(read_data(None), only=(Column.LEFT_OUT,))


def main() -> None:
    """Write the page and the committed figures."""
    truth, out = map(Path, sys.argv[1:])
    found = dict(_evidence(truth))
    write_figures(figure for name, evidence in found.items() for figure in gate_figures(name, evidence))
    plans = cases_table(read_cases())
    out.write_text(page(found["truth"], out.resolve().parents[1], out.parent / "ledger", plans), "utf-8")


if __name__ == "__main__":
    main()
