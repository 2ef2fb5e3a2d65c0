"""Lint of measurements: which rows cannot be true, which rarely are, and what would put them right.

A row is held against physics (rooflines, memory), against arithmetic (one quantity told twice), against its
like (copies, contradictions) and against the prediction, in this order of trust.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from twofold.catalog.catalog import Catalog
from twofold.measure import lint_inference, lint_training
from twofold.measure.blind import PREDICT
from twofold.measure.lint_table import COLUMNS, SEVERITIES, Table, read_table
from twofold.measure.results import RowFinding
from twofold.measure.truth import Row, number, refusal, text
from twofold.perf.constants import Constants
from twofold.perf.known import Half, load_known

UNEXPLAINED = {"roofline", "memory", "power", "order", "rate", "flops", "mfu", "latency", "conservation"}
"""Rules that say what is wrong, and cannot say why as well as a slip that fits."""
SAME_RUN = 1.15  # largest ratio of two measurements of one configuration, software noise included


def lint(half: Half, rows: Sequence[Row], catalog: Catalog, constants: Constants) -> list[RowFinding]:
    """Every finding, by line of the file, the gravest first; no cell makes it raise."""
    table, findings = read_table(half, rows)
    predicted = PREDICT[half](table.rows, catalog, constants, load_known())
    for i, row in enumerate(predicted):  # what cannot be predicted is checked by arithmetic alone
        if reason := text(row, "pred_error"):
            where, hint = ("model", "gpu"), "it is held against no prediction"
            findings.append(table.finding(i, "unread", "note", where, reason, hint))
    findings += _repeated(table)
    own = lint_training.lint_training if half == "training" else lint_inference.lint_inference
    findings += own(table, predicted, catalog, constants)
    return sorted(
        _explained(findings), key=lambda each: (each.line, SEVERITIES.index(each.severity), each.rule)
    )


def unrunnable(half: Half, rows: Sequence[Row]) -> dict[int, Row]:
    """Answers, by place, to rows that say they ran what nothing can: cells of no such number, sizes apart."""
    table, findings = read_table(half, rows)
    findings += (lint_training if half == "training" else lint_inference).layout_findings(table)
    stated, reasons = set(COLUMNS[half].configuration), dict[int, Row]()
    for each in findings:
        if each.severity == "impossible" and stated.issuperset(each.columns):
            reasons.setdefault(each.line - 2, refusal(half, f"E-value: {each.message}; {each.hint}"))
    return reasons


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


def _repeated(table: Table) -> list[RowFinding]:
    """Copies of an earlier row, and rows that contradict the first one of the same configuration."""
    columns, rows = COLUMNS[table.half], table.rows
    usual = [name for name in columns.measured if "_p99_" not in name]  # tails of short runs differ freely
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        if any(text(row, column) for column in columns.measured):
            groups[tuple(text(row, column) for column in columns.configuration)].append(i)
    found: list[RowFinding] = []
    for members in groups.values():
        first, seen = members[0], dict[tuple[str, ...], int]()
        for i in members:
            cells = tuple(text(rows[i], column) for column in columns.measured)
            if cells in seen:
                message = f"a copy of line {seen[cells] + 2}: equal in what was run and in what was measured"
                hint = "it would count twice"
                found.append(table.finding(i, "duplicate", "suspect", columns.measured[:1], message, hint))
                continue
            seen[cells] = i
            pairs = {name: (number(rows[first], name), number(rows[i], name)) for name in usual}
            apart = {name: max(a / b, b / a) for name, (a, b) in pairs.items() if a and b}
            worst = max(apart, key=lambda name: apart[name], default="")
            if worst and apart[worst] > SAME_RUN:
                message = (
                    f"{worst} is {table[worst][i]:.4g}, in line {first + 2} {table[worst][first]:.4g} "
                    f"for the same configuration: {apart[worst]:.4g} × apart"
                )
                hint = "another release of the software, a setting that no column holds, or a slip"
                found.append(table.finding(i, "contradiction", "suspect", (worst,), message, hint))
    return found
