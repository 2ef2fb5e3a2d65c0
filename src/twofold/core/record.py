"""How numbers follow from others, noted where they are computed and kept only while somebody asks."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Note:
    """What a number is, how it follows, and the names of what it follows from."""

    value: object
    formula: str
    inputs: tuple[str, ...]


Book = dict[str, Note]
_open_book: ContextVar[Book | None] = ContextVar("_open_book", default=None)


def note(name: str, value: T, formula: str, *inputs: str) -> T:
    """The same value; its formula and the names of its inputs go into the open book, the first time.

    Without a formula it is the sum of its inputs. Costs one look at a variable while nobody records.
    """
    book = _open_book.get()
    if book is not None and name not in book:
        book[name] = Note(value, formula, inputs)
    return value


@contextmanager
def noting(part: str) -> Iterator[None]:
    """What is noted within belongs to a part: its names get the part's in front, as inputs of it too."""
    outer = _open_book.get()
    with recording() as book:
        yield
    if outer is not None:
        for name, kept in book.items():
            inputs = (f"{part}.{each}" if each in book else each for each in kept.inputs)
            outer[f"{part}.{name}"] = replace(kept, inputs=tuple(inputs))


def noted_of(book: Book, part: str) -> Book:
    """What was noted of a part, by its names there."""
    at = f"{part}."
    return {
        name.removeprefix(at): replace(kept, inputs=tuple(each.removeprefix(at) for each in kept.inputs))
        for name, kept in book.items()
        if name.startswith(at)
    }


@contextmanager
def recording() -> Iterator[Book]:
    """A book into which everything within is noted; one that was open before hears nothing of it."""
    book: Book = {}
    token = _open_book.set(book)
    try:
        yield book
    finally:
        _open_book.reset(token)
