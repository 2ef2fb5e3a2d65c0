"""What every answer of a verb is: lines for a terminal and a notebook, data with a schema for programs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from twofold.core.data import to_data, to_json
from twofold.core.tables import Table, table_named

Data = TypeVar("Data")


class Shown:
    """An answer that shows itself. A class of answers gives its `lines`, and more where it differs."""

    __slots__ = ()
    schema: ClassVar[str] = ""  # of `--json`; "" where the data carry their own
    only_ascii: ClassVar[bool] = False

    @property
    def lines(self) -> Sequence[str]:
        """The screen, at most 100 columns wide."""
        return ()

    @property
    def as_data(self) -> Any:
        """What `--json` prints, as plain data, below its schema."""
        return to_data(self)

    @property
    def json(self) -> str:
        """What `--json` prints."""
        return to_json(self._data, only_ascii=self.only_ascii)

    def saved_at(self, path: Path) -> str:
        """What a file at `path` holds: the same, and maybe where what it was made of stands from there."""
        del path
        return self.json

    @property
    def _data(self) -> Any:
        return {"schema": self.schema, **self.as_data} if self.schema else self.as_data

    @property
    def as_tables(self) -> Sequence[Table]:
        """Every table of the data, the main one first, as spreadsheets and frames take them."""
        from twofold.report.tables import tables_of  # rarely asked for

        return tables_of(to_data(self._data))

    def to_csv(self, table: str = "") -> str:
        """One table as CSV: the main one, or that with a name. Raises UnknownNameError."""
        return table_named(self.as_tables, table).csv

    def to_frame(self, table: str = "") -> Any:
        """One table as a pandas DataFrame. Raises ImportError where pandas is not installed."""
        return table_named(self.as_tables, table).to_frame()

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        return 0

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        """Lines as a notebook shows them: their columns stay columns, heads bold, misses red."""
        bold = re.sub(r"(?m)^([A-Z][A-Z ]*[A-Z])(?= |$)", r"<b>\1</b>", escape(str(self)))
        return "<pre>" + bold.replace("✗", '<b style="color: #c00">✗</b>') + "</pre>"


@dataclass(frozen=True, slots=True)
class Held(Shown, Generic[Data]):
    """An answer whose data are of another room."""

    data: Data

    @property
    def as_data(self) -> Any:
        """The data alone."""
        return to_data(self.data)


@dataclass(frozen=True, slots=True)
class ShownData(Held[Data]):
    """An answer as data that carry their schema, and the lines that a terminal or a notebook shows of it."""

    only_ascii = True  # as plans are written
    lines: tuple[str, ...]
