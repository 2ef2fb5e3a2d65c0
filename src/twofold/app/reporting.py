"""`report`: a plan as one page to mail, or as Markdown for a pull request."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from twofold.app.simulate_inputs import of_what_is_met, opened
from twofold.app.sources import SpecSource, whole_file
from twofold.app.spreadsheets import write_table, write_workbook
from twofold.contracts.results.plan import Plan
from twofold.core.errors import FileError, UsageError
from twofold.pages.markdown import plan_markdown
from twofold.pages.plan_page import plan_page
from twofold.report.answers import Shown


@dataclass(frozen=True, slots=True)
class Reported(Shown):
    """Which files were written, and how large they are."""

    schema = "twofold/report/1"
    files: tuple[tuple[str, int], ...]  # name and bytes

    @property
    def lines(self) -> list[str]:
        """A line for each file."""
        return [f"wrote {name}, {size / 1000:,.0f} kB" for name, size in self.files]


def write_report(
    source: Path,
    out: Path,
    as_markdown: bool = False,
    as_workbook: bool = False,
    as_table: bool = False,
    table: str = "",
    today: date | None = None,
) -> Reported:
    """What `report` writes: a page, or one of the other files. Raises UsageError where two are asked for."""
    as_table = as_table or bool(table)
    if as_markdown + as_workbook + as_table > 1:
        raise UsageError("one file is written", hint="leave out all but one of --md, --xlsx and --csv")
    if as_workbook:
        return Reported(((str(out), write_workbook(source, out, today)),))
    if as_table:
        return Reported(((str(out), write_table(source, out, table, today)),))
    return write_page(source, out, as_markdown, today)


def write_page(
    source: SpecSource | Plan,
    out: Path = Path("report.html"),
    as_markdown: bool = False,
    today: date | None = None,
) -> Reported:
    """Write the page of a plan: HTML that opens offline and prints, or Markdown.

    A spec is planned first. Raises what `plan` raises, and FileError where the file cannot be written. Where
    nothing meets one half, the page of the rest is written, and the InfeasibleError has it as `left`.
    """
    ready, refused = of_what_is_met(opened(source, today))
    made = plan_markdown(ready.plan, ready.digest) if as_markdown else plan_page(ready.plan, ready.digest)
    try:
        with whole_file(out) as handle:
            handle.write(made)
    except OSError as error:
        raise FileError(f"cannot write `{out}`: {error.strerror}") from error
    written = Reported(((str(out), len(made.encode())),))
    if refused is not None:
        refused.left = written
        raise refused
    return written
