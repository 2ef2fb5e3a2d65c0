"""What a row of the table of quantities is: a function of the world, and the command that shows the same."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twofold.catalog import did_you_mean
from twofold.core import UnknownNameError, ValueRefusedError

CommandOf = Callable[[Mapping[str, Any], str], str]
"""A `twofold` command from a quantity's arguments and the field asked of it; "" where none shows it."""


class MissingFigure(Exception):
    """The tables lack a figure: what was asked is not known, which says nothing about whether it holds."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A named quantity. `function` takes the world, numbers and texts; its docstring says what it is."""

    function: Callable[..., Any]
    command: CommandOf | None = None


def options(arguments: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """` --tp 4 --weights fp8`: the arguments that are given, as the options that `names` calls them."""
    given = [
        (option, value) for name, option in names.items() if (value := arguments.get(name)) not in (None, "")
    ]
    return "".join(f" {option} {shlex.quote(str(value))}" for option, value in given)


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
