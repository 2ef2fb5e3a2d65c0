"""`report --xlsx` and `--csv`: a plan as a spreadsheet that computes, or one of its tables as a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from twofold.app.simulate_inputs import opened, rehearsable
from twofold.app.sources import SpecSource, whole_file
from twofold.contracts.results.plan import Plan
from twofold.core.data import to_data
from twofold.core.errors import FileError
from twofold.core.extras import require_extra
from twofold.core.tables import table_named
from twofold.pages.plan_workbook import plan_workbook
from twofold.report.tables import tables_of


def write_workbook(source: SpecSource | Plan, out: Path, today: date | None = None) -> int:
    """Write an xlsx file whose amounts follow from its prices, and count its bytes. A spec is planned first.

    Raises what `plan` raises, MissingExtraError before that where XlsxWriter is not installed, and FileError.
    """
    require_extra("xlsx")
    ready = rehearsable(opened(source, today))
    made = plan_workbook(ready.plan, ready.digest)
    with _told(out), whole_file(out) as handle:
        return handle.buffer.write(made)


def write_table(source: SpecSource | Plan, out: Path, table: str = "", today: date | None = None) -> int:
    """Write one table of a plan as CSV, the bill where none is named; its bytes are counted.

    Raises what `plan` raises, UnknownNameError for a table that there is none of, and FileError.
    """
    made = table_named(tables_of(to_data(rehearsable(opened(source, today)).plan)), table).csv
    with _told(out), whole_file(out) as handle:
        handle.write(made)
    return len(made.encode())


@contextmanager
def _told(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot write `{out}`: {error.strerror}") from error
