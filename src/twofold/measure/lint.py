"""Lint of measurements: which rows cannot be true, which rarely are, and what would put them right.

A row is held against physics (rooflines, memory), against arithmetic (one quantity told twice), against its
like (copies, contradictions) and against the prediction, in this order of trust.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from twofold.catalog import Catalog
from twofold.measure.blind import PREDICT
from twofold.measure.lint_conservation import lint_conservation
from twofold.measure.lint_inference import lint_inference
from twofold.measure.lint_inference import read_bounds as read_serving
from twofold.measure.lint_table import COLUMNS, SEVERITIES, RowFinding, Table, read_table
from twofold.measure.lint_training import lint_training
from twofold.measure.truth import Row, number, text
from twofold.perf import Constants, Half

UNEXPLAINED = {"roofline", "memory", "power", "order", "rate", "flops", "mfu", "latency", "conservation"}
"""Rules that say what is wrong, and cannot say why as well as a slip that fits."""
SAME_RUN = 1.15  # largest ratio of two measurements of one configuration, software noise included


def lint(half: Half, rows: Sequence[Row], catalog: Catalog, constants: Constants) -> list[RowFinding]:
    """Every finding, by line of the file, the gravest first; no cell makes it raise."""
    table, findings = read_table(half, rows)
    predicted = PREDICT[half](table.rows, catalog, constants)
    findings += [*_unread(table, predicted), *_duplicates(table)]
    if half == "training":
        findings += lint_training(table, predicted, catalog, constants)
    else:
        bounds = read_serving(table, catalog, constants)
        findings += lint_inference(table, bounds) + lint_conservation(table, bounds, predicted)
    return sorted(
        _explained(findings), key=lambda each: (each.line, SEVERITIES.index(each.severity), each.rule)
    )


def _explained(findings: Sequence[RowFinding]) -> list[RowFinding]:
    """What is wrong, with the slip of units that explains it where another finding named one."""
    slips: dict[tuple[int, str], RowFinding] = {
        (each.line, column): each for each in findings if each.rule == "unit" for column in each.columns[:1]
    }
    explained = []
    for each in findings:
        slip = next((slips[each.line, name] for name in each.columns if (each.line, name) in slips), None)
        unclear = each.rule in UNEXPLAINED and each.severity != "note"
        explained.append(replace(each, hint=slip.hint) if slip is not None and unclear else each)
    return explained


def _unread(table: Table, predicted: Sequence[Row]) -> list[RowFinding]:
    """Rows that cannot be predicted, for whatever reason: they are checked by arithmetic alone."""
    return [
        table.finding(
            i, "unread", "note", ("model", "gpu"), text(row, "pred_error"), "it is held against no prediction"
        )
        for i, row in enumerate(predicted)
        if text(row, "pred_error")
    ]


def _duplicates(table: Table) -> list[RowFinding]:
    """Copies of an earlier row, and rows that contradict an earlier one of the same configuration."""
    columns = COLUMNS[table.half]
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(table.rows):
        if any(text(row, column) for column in columns.measured):
            groups[tuple(text(row, column) for column in columns.configuration)].append(i)
    found: list[RowFinding] = []
    for members in groups.values():
        found += _among(table, members, columns.measured)
    return found


def _among(table: Table, members: Sequence[int], measured: tuple[str, ...]) -> list[RowFinding]:
    """Findings among rows of one configuration, each against the first that it repeats or contradicts."""
    found = []
    first = members[0]
    seen: dict[tuple[str, ...], int] = {}
    for i in members:
        cells = tuple(text(table.rows[i], column) for column in measured)
        if cells in seen:
            message = f"a copy of line {seen[cells] + 2}: equal in what was run and in what was measured"
            found.append(
                table.finding(i, "duplicate", "suspect", measured[:1], message, "it would count twice")
            )
            continue
        seen[cells] = i
        if i == first:
            continue
        usual = [name for name in measured if "_p99_" not in name]  # tails of short runs differ freely
        worst, ratio = _widest(table, first, i, usual)
        if ratio > SAME_RUN:
            message = (
                f"{worst} is {table[worst][i]:.4g}, in line {first + 2} {table[worst][first]:.4g} "
                f"for the same configuration: {ratio:.4g} × apart"
            )
            hint = "another release of the software, a setting that no column holds, or a slip"
            found.append(table.finding(i, "contradiction", "suspect", (worst,), message, hint))
    return found


def _widest(table: Table, first: int, second: int, measured: Sequence[str]) -> tuple[str, float]:
    """The measured column in which two rows lie furthest apart, and the larger over the smaller."""
    worst, widest = measured[0], 1.0
    for column in measured:
        one, other = number(table.rows[first], column), number(table.rows[second], column)
        if one and other and max(one / other, other / one) > widest:
            worst, widest = column, max(one / other, other / one)
    return worst, widest
