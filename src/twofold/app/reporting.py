"""`report`: a plan, a rehearsal or a live run as one page to mail, or as Markdown for a pull request."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from twofold.app.saved_answers import SavedAnswer, saved_answer
from twofold.app.simulate_inputs import of_what_is_met, opened, staleness
from twofold.app.sources import SpecSource, whole_file
from twofold.contracts.results import proof, simulated
from twofold.contracts.results.plan import Plan
from twofold.core.data import to_data
from twofold.core.errors import FileError, UsageError
from twofold.core.extras import require_extra
from twofold.core.tables import table_named
from twofold.pages.markdown import plan_markdown
from twofold.pages.plan_page import plan_page
from twofold.pages.plan_workbook import plan_workbook
from twofold.pages.sections import Page
from twofold.report.answers import Shown
from twofold.report.lines import field
from twofold.report.tables import tables_of
from twofold.report.validate import Validated

DEFAULT = "twofold.yaml"  # what a spec is called


PAGES = (".html", ".htm")


@dataclass(frozen=True, slots=True)
class Reported(Shown):
    """Which files were written, and how large they are."""

    schema = "twofold/report/1"
    files: tuple[tuple[str, int], ...]  # name and bytes
    notes: tuple[str, ...] = ()  # what to know of what they were made of

    @property
    def lines(self) -> list[str]:
        """A line for each file, and each note."""
        wrote = [f"wrote {name}, {size / 1000:,.0f} kB" for name, size in self.files]
        return [*wrote, *(line for note in self.notes for line in field("", note))]


def write_report(
    source: SpecSource | Plan,
    out: Path,
    as_markdown: bool = False,
    as_workbook: bool = False,
    as_table: bool = False,
    table: str = "",
    today: date | None = None,
) -> Reported:
    """What `report` writes: a page, or one of the other files, as the ending says where nothing else does.

    Raises UsageError where two are asked for, and for an ending that no file of these has.
    """
    ending = out.suffix.lower()
    as_table, as_markdown = as_table or bool(table) or ending == ".csv", as_markdown or ending == ".md"
    as_workbook = as_workbook or ending == ".xlsx"
    if as_markdown + as_workbook + as_table > 1:
        raise UsageError("one file is written", hint="leave out all but one of --md, --xlsx and --csv")
    if ending and not (ending in PAGES or as_markdown or as_workbook or as_table):
        hint = "write .html, which prints from a browser, .md, .xlsx or .csv"
        raise UsageError(f"a page is HTML, and `{out.name}` ends in `{out.suffix}`", hint=hint)
    if as_workbook:
        require_extra("xlsx")  # now, not after a plan
        return _written(source, out, today, _no_workbook, plan_workbook)
    if as_table:

        def of_answer(answer: object, _digest: str = "") -> bytes:
            return table_named(tables_of(to_data(answer)), table).csv.encode()

        return _written(source, out, today, of_answer, of_answer)
    return write_page(source, out, as_markdown, today)


def write_page(
    source: SpecSource | Plan,
    out: Path = Path("report.html"),
    as_markdown: bool = False,
    today: date | None = None,
) -> Reported:
    """Write the page of a plan, a rehearsal, a live run or a validation: HTML that prints, or Markdown.

    A spec is planned first; a file that another verb wrote is known by its schema. Raises what `plan` raises,
    InputError for a file that no page is made of, FileError where it cannot be written. Where nothing meets
    one half, the page of the rest is written, and the InfeasibleError has it as `left`.
    """

    def of_saved(saved: SavedAnswer) -> bytes:
        made = _page_of(saved)
        return (made.markdown if as_markdown else made.html).encode()

    def of_plan(plan: Plan, digest: str) -> bytes:
        made = plan_markdown if as_markdown else plan_page
        return made(_with_commands(plan, source), digest).encode()

    return _written(source, out, today, of_saved, of_plan)


def _with_commands(plan: Plan, source: SpecSource | Plan) -> Plan:
    """The plan whose commands name the user's file; of a plan that was saved nobody knows it."""
    is_spec = isinstance(source, str | Path) and Path(source).suffix != ".json" and "\n" not in str(source)
    return plan.told_for(shlex.quote(str(source)) if is_spec else DEFAULT)


def _written(
    source: SpecSource | Plan,
    out: Path,
    today: date | None,
    of_saved: Callable[[SavedAnswer], bytes],
    of_plan: Callable[[Plan, str], bytes],
) -> Reported:
    """The file of an answer that was saved, or of a plan, which may be of the half that is met alone."""
    saved, refused = saved_answer(source), None
    notes: tuple[str, ...] = ()
    if saved is None:
        ready, refused = of_what_is_met(opened(source, today))
        notes = staleness(ready)
        made = of_plan(replace(ready.plan, warnings=(*notes, *ready.plan.warnings)), ready.digest)
    else:
        made = of_saved(saved)
    try:
        with whole_file(out) as handle:
            handle.buffer.write(made)
    except OSError as error:
        raise FileError(f"cannot write `{out}`: {error.strerror}") from error
    written = Reported(((str(out), len(made)),), notes)
    if refused is not None:
        refused.left = written
        raise refused
    return written


def _no_workbook(_saved: SavedAnswer) -> bytes:
    raise UsageError("a spreadsheet is made of plans alone", hint="write `--csv`, or no option for a page")


def _page_of(saved: SavedAnswer) -> Page:
    """A rehearsal, a run or a validation; its pages are loaded where one is asked for."""
    if isinstance(saved, simulated.Simulation):
        from twofold.pages.simulation_page import simulation_page

        return simulation_page(saved)
    if isinstance(saved, Validated):
        from twofold.pages.validation_page import validation_page

        return validation_page(saved)
    if isinstance(saved, proof.Proof):
        from twofold.pages.proof_page import proof_page

        return proof_page(saved)
    from twofold.pages.loop_page import run_page

    return run_page(saved)
