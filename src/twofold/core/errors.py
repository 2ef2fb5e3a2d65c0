"""The one tree of errors that a user can meet. It renders nothing beyond `str`; `cli` adds source lines and exits."""

from typing import ClassVar, NamedTuple


class Place(NamedTuple):
    """Where in a text file something stands; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class TwofoldError(Exception):
    """Root of the tree. `code` is stable and has a section in docs/errors.md; `exit_code` is the process's."""

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
        super().__init__(f"{len(errors)} errors")
        self.errors = errors


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


class ModelConfigError(InputError):
    """A model configuration that cannot be read as an architecture; names the field."""

    code = "E-model"


class InfeasibleError(TwofoldError):
    """Nothing meets what was asked: exit 3. `lines` say what is needed, what was tried and what would fit."""

    code = "E-infeasible"
    exit_code = 3

    def __init__(self, message: str, *, lines: tuple[tuple[str, str], ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.lines = lines
