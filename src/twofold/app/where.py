"""A small filter language for tables: `mem_gb >= 80 and vendor == NVIDIA`. No Python is evaluated."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from twofold.catalog.names import did_you_mean
from twofold.catalog.schema import Cell
from twofold.core.errors import InputError

LENGTH_LIMIT = 1000
DEPTH_LIMIT = 50
GRAMMAR = "write: COLUMN >= 80 and (COLUMN == WORD or COLUMN ~ PART), with columns of the table"
FLAGS = {"true": "1", "yes": "1", "false": "0", "no": "0"}  # what is shown as yes and no is kept as 1 and 0
_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"[^"]*"|'[^']*')|(?P<operator>==|!=|<=|>=|<|>|~)|(?P<bracket>[()])|(?P<word>[^\s()<>=!~"']+))"""
)

_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Row = Mapping[str, Cell]
R = TypeVar("R", bound=Row)
Test = Callable[[Row], bool]


class Token(NamedTuple):
    """A piece of the expression and where it stands."""

    kind: str  # quoted operator bracket word end
    text: str
    at: int


@dataclass(slots=True)
class _Reader:
    """Walks over the tokens. Mutable: it moves."""

    expression: str
    tokens: list[Token]
    columns: tuple[str, ...]
    index: int = 0
    compared: list[tuple[str, str, str]] = field(default_factory=list)  # column, relation, value

    def peek(self) -> Token:
        return self.tokens[self.index]

    def take(self) -> Token:
        token = self.tokens[self.index]
        self.index += token.kind != "end"
        return token

    def takes(self, word: str) -> bool:
        token = self.peek()
        found = token.kind in {"word", "bracket"} and token.text.lower() == word
        self.index += found
        return found


def select(rows: Sequence[R], where: str) -> tuple[R, ...]:
    """The rows for which the expression holds; all rows where it is blank.

    Comparisons are `column operator value` with == != < <= > >= and ~ (contains); they combine by `not`,
    `and`, `or` and parentheses. Text compares without case. An empty cell fulfils no comparison but !=.
    """
    if not where.strip() or not rows:
        return tuple(rows)
    test, _ = _read(rows, where)
    return tuple(row for row in rows if test(row))


def unmatched(rows: Sequence[R], where: str) -> tuple[str, ...]:
    """Of a filter: the texts that its columns never hold, each with what they do hold that is near."""
    if not where.strip() or not rows:
        return ()
    _, compared = _read(rows, where)
    return tuple(
        _instead(rows, column, text)
        for column, relation, text in compared
        if relation == "=="
        and any(isinstance(row[column], str) for row in rows)
        and not any(_compare(row[column], relation, text) for row in rows)
    )


def _instead(rows: Sequence[R], column: str, text: str) -> str:
    held = {cell for row in rows if isinstance(cell := row[column], str) and cell}
    inside = sum(_compare(row[column], "~", text) for row in rows)
    part = f"`{column} ~ {text}` fits {inside:,} rows" if inside else ""
    near = did_you_mean(text, sorted(held), f"try `{column} ~ …`, which looks inside the text")
    return f"no `{column}` is `{text}`: {part or near}"


def _read(rows: Sequence[R], where: str) -> tuple[Test, list[tuple[str, str, str]]]:
    """The test that an expression means, and every comparison in it."""
    if len(where) > LENGTH_LIMIT:
        raise InputError(f"the filter is longer than {LENGTH_LIMIT} letters", hint=GRAMMAR)
    reader = _Reader(where, list(_tokens(where)), tuple(rows[0]))
    test = _either(reader, 0)
    if reader.peek().kind != "end":
        raise _error(where, reader.peek(), "expected `and`, `or` or the end")
    return test, reader.compared


def _tokens(where: str) -> Iterator[Token]:
    position = 0
    text = where.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            while text[position].isspace():
                position += 1
            raise _error(where, Token("", text[position], position), f"`{text[position]}` is not expected")
        kind = match.lastgroup or ""
        yield Token(kind, match[kind], match.start(kind))
        position = match.end()
    yield Token("end", "", len(text))


def _either(reader: _Reader, depth: int) -> Test:
    """Tests joined by `or`, each of them some joined by `and`, which binds tighter."""
    groups = [[_one(reader, depth)]]
    while (joins := reader.takes("and")) or reader.takes("or"):
        groups += [] if joins else [[]]
        groups[-1].append(_one(reader, depth))
    return lambda row: any(all(test(row) for test in tests) for tests in groups)


def _one(reader: _Reader, depth: int) -> Test:
    if depth > DEPTH_LIMIT:
        raise _error(reader.expression, reader.peek(), "too many parentheses")
    if reader.takes("not"):
        denied = _one(reader, depth + 1)
        return lambda row: not denied(row)
    if reader.takes("("):
        inner = _either(reader, depth + 1)
        if not reader.takes(")"):
            raise _error(reader.expression, reader.peek(), "expected `)`")
        return inner
    return _comparison(reader)


def _comparison(reader: _Reader) -> Test:
    where = reader.expression
    column, relation = reader.take(), reader.peek()
    if column.kind not in {"word", "quoted"}:
        raise _error(where, column, "expected a column")
    name = column.text.strip("\"'")
    if name not in reader.columns:
        hint = did_you_mean(name, reader.columns, "columns: " + ", ".join(reader.columns))
        raise _error(where, column, f"`{name}` is not a column", hint)
    if relation.kind != "operator":
        raise _error(where, relation, "expected one of == != < <= > >= ~")
    reader.take()
    value = reader.take()
    if value.kind not in {"word", "quoted"}:
        raise _error(where, value, "expected a value")
    text = value.text[1:-1] if value.kind == "quoted" else value.text
    reader.compared.append((name, relation.text, text))
    return lambda row: _compare(row[name], relation.text, text)


def _compare(cell: Cell, relation: str, text: str) -> bool:
    """One cell against the value: as numbers where the column holds them, else as text without case."""
    if cell is None:
        return relation == "!="
    if relation == "~":
        return text.lower() in str(cell).lower()
    if not isinstance(cell, (int, float)):
        return _RELATIONS[relation](cell.lower(), text.lower())
    try:
        number = float(FLAGS.get(text.lower(), text))
    except ValueError:
        return relation == "!="
    return _RELATIONS[relation](float(cell), number)


def _error(where: str, token: Token, message: str, hint: str = GRAMMAR) -> InputError:
    """The expression with a caret under the token, in the hint."""
    caret = " " * token.at + "^" * max(1, len(token.text))
    return InputError(f"the filter cannot be read: {message}", hint=f"{hint}\n  {where}\n  {caret}")
