"""What claims are judged against: the product's tables, what was computed of them, and what a quantity is."""

import shlex
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twofold.catalog.catalog import Catalog
from twofold.catalog.names import did_you_mean
from twofold.core.errors import UnknownNameError, ValueRefusedError
from twofold.perf.constants import Constants

T = TypeVar("T")


@dataclass(slots=True)
class World:
    """A catalogue and a table of constants. Mutable only in its cache: many claims ask the same questions.

    Another catalogue, or other constants, is another world, in which verdicts may differ.
    """

    catalog: Catalog
    constants: Constants
    _cache: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` returns, computed when first asked for."""
        if key not in self._cache:
            self._cache[key] = compute()
        found: T = self._cache[key]
        return found


CommandOf = Callable[[Mapping[str, Any], str], str]
"""A `twofold` command from a quantity's arguments and the field asked of it; "" where none shows it."""


class MissingFigure(Exception):
    """The tables lack a figure: what was asked is not known, which says nothing about whether it holds."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A named quantity. `function` takes the world, numbers and texts; its docstring says what it is."""

    function: Callable[..., Any]
    command: CommandOf | None = None


def options(arguments: Mapping[str, Any], names: Iterable[str]) -> str:
    """` --tp 4 --weights fp8`: those of these arguments that are given, as options."""
    given = [(name, value) for name in names if (value := arguments.get(name)) not in (None, "")]
    return "".join(f" --{name} {shlex.quote(str(value))}" for name, value in given)


def one_of(name: str, known: Iterable[str], what: str) -> str:
    """The name itself. Raises UnknownNameError, with what there is, for one that is not known."""
    names = list(known)
    if name not in names:
        instead = f"there are {len(names)}" if len(names) > 20 else "write one of: " + ", ".join(names)
        raise UnknownNameError(f"`{name}` is no {what}", hint=did_you_mean(name, names, instead))
    return name


def sizes_of(text: str, known: Iterable[str], what: str) -> dict[str, float]:
    """`tp=8,pp=4` as numbers by name."""
    found: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.partition("=")
        try:
            found[one_of(name.strip(), known, what)] = float(number)
        except ValueError:
            raise ValueRefusedError(f"`{part}` is no {what} with its size", hint="write `tp=8`") from None
    return found
