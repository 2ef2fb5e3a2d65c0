"""The one tree of errors that a user can meet. `str` is all it renders; `cli` adds source lines and exits.

An error that one room alone raises is defined there, below one of these.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol


class Place(NamedTuple):
    """Where in a text file something stands; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class TwofoldError(Exception):
    """Root of the tree. `code` is stable, with a section in docs/errors.md; `exit_code` is the process's."""

    code: ClassVar[str] = "E-internal"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, place: Place | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.place, self.hint = message, place, hint

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        hint = f"\nhint: {self.hint}" if self.hint else ""
        return f"{where}error[{self.code}]: {self.message}{hint}"


class InputError(TwofoldError):
    """What the user gave is wrong: exit 2."""

    code = "E-input"
    exit_code = 2


class InputErrors(InputError):
    """Several errors found in one pass over one input; each keeps its own place and hint."""

    def __init__(self, errors: list[InputError]) -> None:
        super().__init__(f"{len(errors)} error{'s' if len(errors) != 1 else ''}")
        self.errors = errors


class EmptyError(InputError):
    """A file that holds nothing, or nothing to plan."""

    code = "E-empty"


class ShapeError(InputError):
    """A mapping where a text belongs, a text where a list belongs, and the like."""

    code = "E-shape"


class UnknownKeyError(InputError):
    """A key that a mapping does not have."""

    code = "E-key"


class ValueRefusedError(InputError):
    """A value outside what the key takes, or values that contradict each other."""

    code = "E-value"


class BatchError(ValueRefusedError):
    """A batch in tokens that does not divide by the sequence."""

    code = "E-batch"


class TraceError(InputError):
    """A traffic trace that cannot be read; names the line."""

    code = "E-trace"


class TableError(InputError):
    """A CSV table of runs that cannot be read, or lacks the columns that a prediction needs."""

    code = "E-table"


class InferenceSourceError(InputError):
    """A command line, log or accounting file from which no spec can be inferred."""

    code = "E-infer"


class QuantityError(InputError):
    """A quantity that cannot be read, has the wrong unit, or lies outside its range."""

    code = "E-quantity"


class UnitError(QuantityError):
    """A bare number where a unit is needed, or a unit of another dimension."""

    code = "E-unit"


class UnknownNameError(InputError):
    """A name that no catalog table holds, or that fits two of its rows."""

    code = "E-name"


class CatalogError(InputError):
    """A catalog row, ours or a user's, that breaks the table's schema."""

    code = "E-catalog"


class ConstantsError(InputError):
    """A table of fitted constants, ours or a calibration's, that is broken or lacks what is asked."""

    code = "E-constants"


class FileError(InputError):
    """A file or folder that cannot be read or written, or an output path that exists already."""

    code = "E-file"


def unread(path: Path | str, error: OSError | ValueError, hint: str = "") -> FileError:
    """Why a file cannot be read, in one wording for every verb; `hint` says what to do where none is."""
    number = getattr(error, "errno", None)
    if number in (errno.ENOENT, errno.ENOTDIR):
        return FileError(f"`{path}` does not exist", hint=hint)
    if number in (errno.EACCES, errno.EPERM):
        return FileError(f"`{path}` may not be read", hint="check who may read it, and its folder")
    if number == errno.EISDIR:
        return FileError(f"`{path}` is a folder", hint=hint)
    return FileError(f"cannot read `{path}`: {getattr(error, 'strerror', None) or error}", hint=hint)


class EncodingError(FileError):
    """Bytes that are not UTF-8 text."""

    code = "E-encoding"


class UsageError(InputError):
    """A command line with a wrong verb, option or argument."""

    code = "E-usage"


class MissingExtraError(InputError):
    """A part of the product whose libraries are not installed: names the extra."""

    code = "E-extra"


class BusyError(InputError):
    """Another `twofold` works on the same state; two would undo each other's work."""

    code = "E-busy"


class AlteredError(InputError):
    """Files that are not what their digest says: cut short, or changed after they were published."""

    code = "E-altered"


class RunError(InputError):
    """A program that we started failed or never became ready; names its log and quotes its last lines."""

    code = "E-run"


class Answered(Protocol):
    """What a verb answers: lines of a screen, data, and tables of it."""

    @property
    def lines(self) -> Sequence[str]: ...
    @property
    def json(self) -> str: ...
    def saved_at(self, path: Path) -> str: ...
    def to_csv(self, table: str = "") -> str: ...


class InfeasibleError(TwofoldError):
    """Nothing meets what was asked: exit 3. `lines` say what is needed, what was tried and what would fit.

    `whose` names the run or service that nothing meets, `others` are those of its spec that nothing meets
    either, and `left` is what is planned without all of them.
    """

    code = "E-infeasible"
    exit_code = 3

    def __init__(self, message: str, *, lines: tuple[tuple[str, str], ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.lines = lines
        self.whose = ""
        self.others: tuple[InfeasibleError, ...] = ()
        self.left: Answered | None = None

    @classmethod
    @contextmanager
    def of(cls, name: str) -> Iterator[None]:
        """An error that there is nothing for a run or service names it."""
        try:
            yield
        except cls as error:
            error.whose = "" if "budget" in error.message else name  # a budget is everybody's
            raise
