"""An error as people see it: the place, the line, a caret under the value, the hint."""

import re
from collections.abc import Sequence
from textwrap import wrap

from twofold.core.errors import InputErrors, TwofoldError

WIDTH = 100
ROOM = WIDTH - 9  # of a source line: behind the number and the bar, and before a caret past its end
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_HEAD = re.compile(r"^(?:[^`]*?error\[[^\]]*\]|hint|infeasible): ")
_QUOTED, _KEPT = re.compile(r"`[^`]*`"), "\0"
_VALUE = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?:(?!: |:$|, |,$| #)[^\]}])+")
_CELL = re.compile(r'"(?:[^"]|"")*"|[^,]*')  # of a table


def render_error(error: TwofoldError, source_lines: Sequence[str] = ()) -> str:
    """The error's text; `source_lines` are the file's that it points into. Several errors end in a count."""
    if isinstance(error, InputErrors):
        texts = [render_error(one, source_lines) for one in error.errors]
        return "\n\n".join([*texts, error.message] if len(texts) > 1 else texts)
    where = f"{error.place}: " if error.place else ""
    lines = error_lines(f"{where}error[{error.code}]: {error.message}", "  ")
    if error.place and 0 < error.place.line <= len(source_lines):
        # What is wrong at the first column of a table may be its whole row.
        value = _CELL if error.place.file.endswith(".csv") and error.place.column > 1 else _VALUE
        lines += _pointed(source_lines[error.place.line - 1], error.place.line, error.place.column, value)
    if error.hint:
        lines += [part for line in f"hint: {error.hint}".split("\n") for part in error_lines(line, "      ")]
    return "\n".join(lines)


def error_lines(text: str, indent: str) -> list[str]:
    """The text broken at spaces where it is wider than the screen; backticks stay whole, to be copied."""
    whole = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", _KEPT), _clean(text))
    whole = _HEAD.sub(lambda head: head[0].replace(" ", _KEPT), whole)  # never alone on a line
    broken = wrap(whole, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_KEPT, " ") for line in broken]


def _pointed(source: str, line: int, column: int, pattern: re.Pattern[str]) -> list[str]:
    """The line with carets under the value that starts at `column`; a long line is cut around it."""
    cleaned = _clean(source.rstrip("\r\n"))
    column = min(column, len(cleaned) + 1)
    value = pattern.match(cleaned, column - 1)
    width = max(1, len(value[0].rstrip())) if value else 1
    cut = max(0, min(column - 1 - 20, len(cleaned) - ROOM)) if len(cleaned) > ROOM else 0
    shown = cleaned[cut : cut + ROOM]
    carets = "^" * max(1, min(width, ROOM - (column - 1 - cut)))
    return [f"{line:>5} | {shown}".rstrip(), f"      | {' ' * (column - 1 - cut)}{carets}"]


def _clean(text: str) -> str:
    """No control character reaches a terminal."""
    return _CONTROL.sub(" ", text)
