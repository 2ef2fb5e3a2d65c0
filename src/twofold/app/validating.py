"""`validate`: how far predictions lie from measurements, and from the goals; lint; the gate."""

from collections.abc import Callable, Sequence
from pathlib import Path

from twofold.catalog import load_catalog
from twofold.core import UsageError, ValueRefusedError
from twofold.measure import (
    FACETS,
    Data,
    Evidence,
    Gate,
    compare,
    gate_figures,
    gather,
    half_of,
    judge,
    lines_of,
    lint,
    read_data,
    read_figures,
    read_rows,
)
from twofold.perf import load_constants
from twofold.report import Linted, Validated

PROCESSES = 2  # of the command, for a folder of thousands of rows
HALVES = ("training", "inference", "kernels")


def validate(
    half: str = "",
    data: Path | str | None = None,
    by: Sequence[str] = ("source",),
    gate: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    process_count: int = 1,
) -> Validated:
    """Score predictions on `data`: a folder of truth tables, one table of runs, or the packaged sample.

    `by` names facets to group by; `gate` compares with the committed figures. Raises UsageError for an
    unknown half, ValueRefusedError for an unknown facet or a gate without committed figures, TableError for
    a table that is none. With more than one process a script must guard its main module.
    """
    _check(half, by)
    path = Path(data) if data is not None else None
    if gate and (half == "kernels" or (path is not None and path.is_file())):
        what = "kernels have" if half == "kernels" else f"`{path}` has"
        raise ValueRefusedError(f"{what} no committed figures to compare with", hint="leave out `--gate`")
    found = read_data(path, half)
    if gate and found.unkept:
        raise ValueRefusedError(
            f"no fit is kept here that missed a source of `{path}`, as the committed figures did",
            hint="compare in a checkout, whose `fits/blind.csv` holds all of them",
        )
    evidence = gather(found, tell, process_count=process_count)
    return Validated(
        data=found.name,
        row_counts={name: len(rows) for name, rows in found.rows.items()},
        context_rows=found.context_rows,
        by=tuple(by),
        goals=judge(evidence),
        groups=tuple(line for part in evidence.parts.values() for line in lines_of(part, by)),
        refusals=evidence.refusals,
        gate=_gate(path, found, evidence) if gate else None,
        unkept=evidence.unkept,
    )


def lint_table(path: Path | str, half: str = "") -> Linted:
    """Which rows of a table cannot be true, or rarely are. Raises TableError for a table that is none."""
    path = Path(path)
    _check(half, ())
    rows = read_rows(path)
    found = half_of(rows[0], path, half)
    findings = lint(
        "training" if found == "training" else "inference", rows, load_catalog(), load_constants()
    )
    return Linted(str(path), found, len(rows), tuple(findings))


def validate_or_lint(
    half: str,
    data: Path | None,
    by: Sequence[str],
    table: Path | None,
    gate: bool,
    tell: Callable[[str], None],
) -> Validated | Linted:
    """The scores, or what is wrong with the rows of one table."""
    if table is None:
        return validate(half, data, by or ["source"], gate, tell, PROCESSES)
    if data is not None or gate:
        raise UsageError("`--lint` takes neither `--data` nor `--gate`", hint="run it by itself")
    return lint_table(table, half)


def _check(half: str, by: Sequence[str]) -> None:
    if half and half not in HALVES:
        raise UsageError(f"`{half}` is no half", hint="one of " + ", ".join(HALVES))
    for name in by:
        if name not in FACETS:
            raise ValueRefusedError(f"rows cannot be grouped by `{name}`", hint="by " + ", ".join(FACETS))


def _gate(path: Path | None, found: Data, evidence: Evidence) -> Gate:
    name = "truth" if path else "sample"
    return compare(read_figures(name, found.rows), gate_figures(name, evidence))
