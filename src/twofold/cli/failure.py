"""Errors as text for people (place, source line, caret, hint) and as data for programs. Exits nothing."""

from pathlib import Path
from typing import Any

from twofold.core import InfeasibleError, InputErrors, TwofoldError

SCHEMA = "twofold/error/1"
LONGEST_SOURCE_BYTES = 1_000_000


def failure_text(error: TwofoldError) -> str:
    """What stderr gets."""
    if isinstance(error, InfeasibleError):
        return _infeasible_text(error)
    from twofold.contracts import render_error  # loads pydantic: not for `--help`

    return render_error(error, _source_lines(error))


def failure_data(error: TwofoldError) -> dict[str, Any]:
    """Schema `twofold/error/1`: every error with its code, place and hint; an infeasible plan's lines too."""
    return {"exit_code": error.exit_code, "errors": [_as_data(one) for one in _single(error)]}


def _single(error: TwofoldError) -> list[TwofoldError]:
    return [*error.errors] if isinstance(error, InputErrors) else [error]


def _as_data(error: TwofoldError) -> dict[str, Any]:
    data: dict[str, Any] = {"code": error.code, "message": error.message, "hint": error.hint}
    data["place"] = error.place._asdict() if error.place else None
    if isinstance(error, InfeasibleError):
        data["lines"] = [{"label": label, "text": text} for label, text in error.lines]
    return data


def _infeasible_text(error: InfeasibleError) -> str:
    from twofold.contracts import error_lines
    from twofold.report import field

    said = [line for label, text in error.lines for line in field(label, text)]
    hint = error_lines(f"hint: {error.hint}", "      ") if error.hint else []
    return "\n".join([*error_lines(f"infeasible: {error.message}", "  "), *said, *hint])


def _source_lines(error: TwofoldError) -> list[str]:
    """The lines of the file that an error points into; none when it cannot be shown."""
    place = next((one.place for one in _single(error) if one.place), None)
    path = Path(place.file) if place else None
    try:
        if path and path.is_file() and path.stat().st_size <= LONGEST_SOURCE_BYTES:
            return path.read_text("utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        pass  # the error itself is what matters; it is shown without its line
    return []
