"""Measured rows: `predict` answers them, `validate` scores the answers, `calibrate` fits to them."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, TextIO

from twofold.app.local_tables import local_tables
from twofold.app.sources import CALIBRATION_FILE, device_folder, whole_file
from twofold.catalog.catalog import load_catalog
from twofold.contracts.names import fold
from twofold.contracts.rows import calibrations
from twofold.core import errors
from twofold.core.data import to_json
from twofold.core.errors import FileError, Place, TableError, UsageError, ValueRefusedError
from twofold.measure.blind import PREDICT
from twofold.measure.calibration import calibrate as fitted
from twofold.measure.evidence import gather
from twofold.measure.gate import gate_of
from twofold.measure.goals import judge
from twofold.measure.lint import lint, unrunnable
from twofold.measure.lint_table import COLUMNS
from twofold.measure.truth import FACETS, NEEDED, half_of, read_rows
from twofold.measure.validation import lines_of, read_data
from twofold.perf.constants import load_constants
from twofold.perf.known import load_known
from twofold.report.answers import Shown
from twofold.report.calibrate import calibration_lines
from twofold.report.lines import WIDTH, field
from twofold.report.validate import Linted, Validated

CHUNK_ROWS = 512
SHOWN = 3  # refused rows
PREFIX = "pred_"
NEARLY = 0.8  # similarity of names from which one is taken for the other misspelt
Half = Literal["training", "inference"]
Row = dict[str, str]
PROCESSES = 2  # of the command, for a folder of thousands of rows
HALVES = ("training", "inference", "kernels")


@dataclass(frozen=True, slots=True)
class Predicted(Shown):
    """How many rows were answered, and why the others were refused."""

    schema = "twofold/predict/1"
    half: str
    file: str
    row_count: int
    stated_count: int
    assumed_count: int
    refused: Mapping[str, int]  # error code -> rows
    unread: tuple[str, ...]  # columns that nothing reads
    first_refused: tuple[str, ...]  # the first rows that were, with line and reason

    @property
    def lines(self) -> list[str]:
        """The counts, and where the predictions are."""
        told = [f"{self.stated_count:,} answered as stated", f"{self.assumed_count:,} with assumptions"]
        told += [f"{count:,} refused ({code})" for code, count in self.refused.items()]
        counts = wrap(f"{self.row_count:,} rows: {', '.join(told)}", WIDTH, subsequent_indent="  ")
        unread = field("not read", *self.unread, separator=", ") if self.unread else []
        head = [*counts, f"wrote {self.file}"]
        return [*head, *(line for each in self.first_refused for line in field("refused", each)), *unread]

    @property
    def exit_code(self) -> int:
        """2 where no row could be answered."""
        return 0 if self.stated_count or self.assumed_count else 2


def predict(half: Half, rows: Path, out: Path, tell: Callable[[str], None] = lambda _: None) -> Predicted:
    """Predict every row of the CSV file `rows` into `out`, with `pred_…` columns appended.

    Other columns pass through unchanged; one that is nearly named as one that is missing is refused. A row
    that cannot be predicted says why in `pred_error`, the rest goes on. `tell` hears how much of the file is
    read.
    """
    counts: Counter[str] = Counter()
    unread: tuple[str, ...] = ()
    first: list[str] = []
    if not rows.exists():
        raise FileError(f"`{rows}` does not exist", hint=f"name a CSV table of {half} runs, a row for each")
    with (
        rows.open("rb") as raw,
        TextIOWrapper(raw, "utf-8-sig", newline="") as source,
        whole_file(out) as sink,
    ):
        writer = csv.writer(sink, lineterminator="\n")
        columns: list[str] = []  # in the order of the first answer; refused rows may have another
        for numbers, given, answers in _answered(source, half, rows):
            if not columns:
                columns = [name for name in answers[0] if name.startswith(PREFIX)]
                unread = tuple(name for name in given[0] if name and name not in COLUMNS[half].every)
                writer.writerow([*given[0], *columns])
            for row, answer in zip(given, answers, strict=True):
                writer.writerow([*row.values(), *(answer[name] for name in columns)])
            # `stated` or `assumed`, or the code that the row was refused with
            counts.update(each["pred_error"].partition(":")[0] or each["pred_basis"] for each in answers)
            reasons = ((line, each["pred_error"]) for line, each in zip(numbers, answers, strict=True))
            first += [f"{rows}:{line}: {reason}" for line, reason in reasons if reason][: SHOWN - len(first)]
            tell(f"read {raw.tell()} of {rows.stat().st_size} bytes")
        if not counts:
            raise TableError(f"`{rows}` holds no rows", hint="the first line names the columns")
    count, stated, assumed = counts.total(), counts.pop("stated", 0), counts.pop("assumed", 0)
    refusals = dict(sorted(counts.items()))
    return Predicted(half, str(out), count, stated, assumed, refusals, unread, tuple(first))


def _answered(source: TextIO, half: Half, path: Path) -> Iterator[tuple[list[int], list[Row], list[Row]]]:
    """Lines, rows as they stand there, and with their predictions, a chunk at a time."""
    catalog, constants = load_catalog(), load_constants()
    lines = _lines(source, path)
    header = _header(next(lines, (1, []))[1], half, path)
    while chunk := list(islice(lines, CHUNK_ROWS)):
        rows = [dict(zip(header, cells, strict=True)) for _, cells in chunk]
        given = [{name: cell for name, cell in row.items() if not name.startswith(PREFIX)} for row in rows]
        answers = PREDICT[half](given, catalog, constants, load_known())
        for place, refused in unrunnable(half, given).items():
            answers[place] |= {} if answers[place]["pred_error"] else refused
        yield [line for line, _ in chunk], given, answers


def _lines(source: TextIO, path: Path) -> Iterator[tuple[int, list[str]]]:
    """The lines of the table, numbered, as cells, as many as the header has; blank lines are left out."""
    reader = csv.reader(source, strict=True)
    width = 0
    try:
        for cells in reader:
            width = width or len(cells)
            if len(cells) > width:
                what = f"{len(cells)} cells under a header of {width}"
                place = Place(str(path), reader.line_num, 1)
                raise TableError(what, place=place, hint="quote commas")
            if cells:
                yield reader.line_num, cells + [""] * (width - len(cells))
    except csv.Error as error:
        raise TableError(f"not a CSV table: {error}", place=Place(str(path), reader.line_num, 1)) from error
    except UnicodeDecodeError as error:
        place = Place(str(path), reader.line_num + 1, 1)
        raise errors.EncodingError("not UTF-8 text", place=place, hint="save the table as UTF-8") from error


def _header(names: list[str], half: Half, path: Path) -> list[str]:
    missing = [name for name in NEEDED[half] if name not in names]
    place = Place(str(path), 1, 1)
    if missing:
        what = f"no column {' and no column '.join(f'`{name}`' for name in missing)}"
        hint = f"a table of {half} runs needs at least {', '.join(NEEDED[half])}"
        raise TableError(what, place=place, hint=hint)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"two columns are named `{twice[0]}`", place=place)
    found = list(_misspelt(names, half, path))
    if found:
        raise found[0] if len(found) == 1 else errors.InputErrors(found)
    return names


def _misspelt(names: list[str], half: Half, path: Path) -> Iterator[errors.InputError]:
    """Columns that nothing reads, named almost as one that would say what was run and is not there."""
    lacking = {fold(name): name for name in COLUMNS[half].configuration if name not in names}
    for index, name in enumerate(names):
        if not name or name in COLUMNS[half].every or name.startswith(PREFIX):
            continue
        if near := get_close_matches(fold(name), lacking, n=1, cutoff=NEARLY):
            place = Place(str(path), 1, 1 + sum(len(each) + 1 for each in names[:index]))
            longer = [each for each in lacking if each.startswith(fold(name))]
            meant = " or ".join(f"`{lacking[each]}`" for each in longer or near)
            hint = f"did you mean {meant}? else give it a name that is further from it"
            yield errors.UnknownKeyError(f"nothing reads a column `{name}`", place=place, hint=hint)


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
        what = f"no fit is kept here that missed a source of `{path}`, as the committed figures did"
        hint = "compare in a checkout, whose `fits/blind.csv` holds all of them"
        raise ValueRefusedError(what, hint=hint)
    evidence = gather(found, tell, process_count=process_count)
    return Validated(
        data=found.name,
        row_counts={name: len(rows) for name, rows in found.rows.items()},
        context_rows=found.context_rows,
        by=tuple(by),
        goals=judge(evidence),
        groups=tuple(line for part in evidence.parts.values() for line in lines_of(part, by)),
        refusals=evidence.refusals,
        gate=gate_of("truth" if path else "sample", found.rows, evidence) if gate else None,
        unkept=evidence.unkept,
    )


def lint_table(path: Path | str, half: str = "") -> Linted:
    """Which rows of a table cannot be true, or rarely are. Raises TableError for a table that is none."""
    path = Path(path)
    _check(half, ())
    rows = read_rows(path)
    found = half_of(rows[0], path, half)
    kind: Half = "training" if found == "training" else "inference"
    findings = lint(kind, rows, load_catalog(), load_constants())
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


@dataclass(frozen=True, slots=True)
class Calibrated(Shown):
    """What the rows say, and where it was written."""

    schema = calibrations.Calibration.schema
    data: calibrations.Calibration
    path: Path
    told: str = ""  # what became of the service that runs beside it; "": there is none

    @property
    def lines(self) -> tuple[str, ...]:
        """Factors with their ranges, errors before and after, rows refused."""
        beside = self.path.parts[-2:] == CALIBRATION_FILE.parts
        used = (
            ": plans beside it use it" if beside else f"; plans read `{CALIBRATION_FILE}` beside their spec"
        )
        return (*calibration_lines(self.data), "", f"wrote {self.path}{used}", *filter(None, [self.told]))

    @property
    def as_data(self) -> dict[str, Any]:
        """The calibration, and its file."""
        return {"file": str(self.path), **self.data.as_data()}


def calibrate(measurements: Path, out: Path = CALIBRATION_FILE, today: date | None = None) -> Calibrated:
    """Calibrate with the CSV table `measurements` and write `out`, whole or not at all.

    Where a machine was measured beside it, that machine is what the rows are held against. Raises TableError
    where no row can be used, InputError for a table that cannot be read. The gate of a service that `up`
    started beside it is told what to believe from now on.
    """
    rows = read_rows(measurements)
    is_beside = out.parts[-2:] == CALIBRATION_FILE.parts
    device = device_folder(out.resolve().parent.parent) if is_beside else None
    constants = local_tables(device, None).constants
    calibration = fitted(rows, load_catalog(device), constants, measurements.name, today or date.today())
    if out == CALIBRATION_FILE:
        out.parent.mkdir(exist_ok=True)
    with whole_file(out) as handle:
        handle.write(to_json({"schema": calibrations.Calibration.schema, **calibration.as_data()}))
    return Calibrated(calibration, out, _told(out.resolve().parent, today) if is_beside else "")


def _told(state: Path, today: date | None) -> str:
    if not (state / "controller").is_dir():
        return ""
    from twofold.app.believing import tell_service  # a plan and its rehearsal, which few calibrations want

    return tell_service(state, today)
