"""What `report --xlsx` and `--csv` write: a plan as a spreadsheet that computes, a table of an answer."""

from twofold.contracts.results.plan import Plan
from twofold.core.data import to_data
from twofold.core.extras import require_extra
from twofold.core.tables import table_named
from twofold.pages.plan_workbook import plan_workbook
from twofold.report.tables import tables_of


def workbook_of(plan: Plan, digest: str) -> bytes:
    """An xlsx file whose amounts follow from its prices. Raises MissingExtraError without XlsxWriter."""
    require_extra("xlsx")
    return plan_workbook(plan, digest)


def table_of(answer: object, table: str = "") -> bytes:
    """One table of an answer as CSV, the main one unless named. Raises UnknownNameError for one not there."""
    return table_named(tables_of(to_data(answer)), table).csv.encode()
