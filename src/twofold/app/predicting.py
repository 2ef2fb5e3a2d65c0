"""`predict`: a table of runs gets predicted columns, chunk by chunk: no table is too long for memory."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal, TextIO

from twofold.app.files import whole_file
from twofold.catalog import load_catalog
from twofold.core import EncodingError, Place, TableError
from twofold.measure import NEEDED, PREDICT
from twofold.perf import load_constants
from twofold.report import Shown

CHUNK_ROWS = 512
PREFIX = "pred_"
Half = Literal["training", "inference"]
Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class Predicted(Shown):
    """How many rows were answered, and why the others were refused."""

    schema: ClassVar[str] = "twofold/predict/1"
    half: str
    file: str
    row_count: int
    stated_count: int
    assumed_count: int
    refused: Mapping[str, int]  # error code -> rows

    @property
    def lines(self) -> list[str]:
        """The counts, and where the predictions are."""
        answered = f"{self.stated_count:,} answered as stated, {self.assumed_count:,} with assumptions"
        refused = "".join(f", {count:,} refused ({code})" for code, count in self.refused.items())
        return [f"{self.row_count:,} rows: {answered}{refused}", f"wrote {self.file}"]


def predict(half: Half, rows: Path, out: Path, tell: Callable[[str], None] = lambda _: None) -> Predicted:
    """Predict every row of the CSV file `rows` into `out`, with `pred_…` columns appended.

    Other columns pass through unchanged. A row that cannot be predicted says why in `pred_error`, the rest
    goes on. `tell` hears how much of the file is read.
    """
    counts: Counter[str] = Counter()
    with (
        rows.open("rb") as raw,
        TextIOWrapper(raw, "utf-8-sig", newline="") as source,
        whole_file(out) as sink,
    ):
        writer = csv.writer(sink, lineterminator="\n")
        columns: list[str] = []  # in the order of the first answer; refused rows may have another
        for given, answers in _answered(source, half, rows):
            if not columns:
                columns = [name for name in answers[0] if name.startswith(PREFIX)]
                writer.writerow([*given[0], *columns])
            for row, answer in zip(given, answers, strict=True):
                writer.writerow([*row.values(), *(answer[name] for name in columns)])
            counts.update(map(_outcome, answers))
            tell(f"read {raw.tell()} of {rows.stat().st_size} bytes")
        if not counts:
            raise TableError(f"`{rows}` holds no rows", hint="the first line names the columns")
    stated, assumed = counts.pop("stated", 0), counts.pop("assumed", 0)
    return Predicted(
        half, str(out), stated + assumed + counts.total(), stated, assumed, dict(sorted(counts.items()))
    )


def _answered(source: TextIO, half: Half, path: Path) -> Iterator[tuple[list[Row], list[Row]]]:
    """Rows as they stand, and with their predictions, a chunk at a time."""
    catalog, constants = load_catalog(), load_constants()
    lines = _lines(source, path)
    header = _header(next(lines, []), half, path)
    while chunk := list(islice(lines, CHUNK_ROWS)):
        given = [
            {name: cell for name, cell in zip(header, cells, strict=True) if not name.startswith(PREFIX)}
            for cells in chunk
        ]
        yield given, PREDICT[half](given, catalog, constants)


def _lines(source: TextIO, path: Path) -> Iterator[list[str]]:
    """The lines of the table as cells, as many as the header has; blank lines are left out."""
    reader = csv.reader(source, strict=True)
    width = 0
    try:
        for cells in reader:
            width = width or len(cells)
            if len(cells) > width:
                place = Place(str(path), reader.line_num, 1)
                raise TableError(
                    f"{len(cells)} cells under a header of {width}", place=place, hint="quote commas"
                )
            if cells:
                yield cells + [""] * (width - len(cells))
    except csv.Error as error:
        raise TableError(f"not a CSV table: {error}", place=Place(str(path), reader.line_num, 1)) from error
    except UnicodeDecodeError as error:
        place = Place(str(path), reader.line_num + 1, 1)
        raise EncodingError("not UTF-8 text", place=place, hint="save the table as UTF-8") from error


def _header(names: list[str], half: Half, path: Path) -> list[str]:
    missing = [name for name in NEEDED[half] if name not in names]
    if missing:
        raise TableError(
            f"no column {' and no column '.join(f'`{name}`' for name in missing)}",
            place=Place(str(path), 1, 1),
            hint=f"a table of {half} runs needs at least {', '.join(NEEDED[half])}",
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"two columns are named `{twice[0]}`", place=Place(str(path), 1, 1))
    return names


def _outcome(answer: Row) -> str:
    """`stated` or `assumed`, or the code that the row was refused with."""
    return answer["pred_error"].partition(":")[0] or answer["pred_basis"]
