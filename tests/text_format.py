"""Reads the text format of Protocol Buffers, as far as our files use it: no schema is known here."""

import re
from collections.abc import Iterator
from typing import Any

TOKEN = re.compile(r'\s+|#[^\n]*|("(?:[^"\\\n]|\\.)*"|[\[\]{}:,]|[A-Za-z_][A-Za-z0-9_]*|-?\d+)')


def read(text: str) -> dict[str, Any]:
    """Fields by name; a name that comes twice, and what is no field, is a ValueError."""
    tokens = list(_tokens(text))
    found, rest = _fields(tokens, 0)
    if rest != len(tokens):
        raise ValueError(f"{tokens[rest]!r} closes nothing")
    return found


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{text[at : at + 20]!r} is no token")
        if match[1]:
            yield match[1]
        at = match.end()


def _fields(tokens: list[str], at: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while at < len(tokens) and tokens[at] not in "}":
        name = tokens[at]
        if not re.fullmatch(r"[a-z_]+", name) or name in found:
            raise ValueError(f"{name!r} is no new field")
        at += 1
        if tokens[at] == ":":
            at += 1
        found[name], at = _value(tokens, at)
        if at < len(tokens) and tokens[at] == ",":
            at += 1
    return found, at


def _value(tokens: list[str], at: int) -> tuple[Any, int]:
    if tokens[at] == "{":
        inner, at = _fields(tokens, at + 1)
        if tokens[at] != "}":
            raise ValueError("a message is not closed")
        return inner, at + 1
    if tokens[at] == "[":
        values, at = [], at + 1
        while tokens[at] != "]":
            value, at = _value(tokens, at)
            values.append(value)
            if tokens[at] == ",":
                at += 1
        return values, at + 1
    token = tokens[at]
    if token.startswith('"'):
        return token[1:-1], at + 1
    if token in ("true", "false"):
        return token == "true", at + 1
    return (int(token) if token.lstrip("-").isdecimal() else token), at + 1
