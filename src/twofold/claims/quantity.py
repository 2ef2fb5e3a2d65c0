"""What a row of the table of quantities is: a function of the world, and the command that shows the same."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

CommandOf = Callable[[Mapping[str, Any], str], str]
"""A `twofold` command from a quantity's arguments and the field asked of it; "" where none shows it."""


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
