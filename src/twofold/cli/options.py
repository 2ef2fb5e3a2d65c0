"""What a verb of the command line is, and the parameters that verbs share, each declared once."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

import click

from twofold.cli.progress import OpenedBar, silence

Parameter = Callable[[Callable[..., None]], Callable[..., None]]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: `answer` names the function of `twofold`, or of its `app`, that takes what is parsed."""

    help: str
    answer: str = ""  # module of `app`, and its function
    parameters: tuple[Parameter, ...] = ()
    group: str = ""
    summary: str = ""  # in the list of verbs
    epilog: Callable[[], str] = str
    progress: OpenedBar = silence  # what whoever waits for the answer sees on stderr
    writes: tuple[str, ...] = ()  # parameters that are files to write, besides `--out` of data
    fills: tuple[str, ...] = ()  # parameters that are folders to write to
    gathered: Callable[[dict[str, Any]], dict[str, Any]] = dict  # parsed words as the function's arguments
    questions: Mapping[str, "Verb"] = field(default_factory=dict)  # verbs below this one


HANDED = ("/dev/stdin", "/dev/fd", "/proc")  # where a shell's `<(…)` and what it pipes are


class FilePath(click.Path):
    """A path that a file can have: what no file system takes is refused like any other wrong word.

    Whether it can be read or written is said by who does it: that is no matter of how the line is written.
    But what is read is no named pipe and no device: who opens one may wait for ever.
    """

    def __init__(self, file_okay: bool = True, *, is_read: bool = True) -> None:
        super().__init__(file_okay=file_okay, readable=False, path_type=Path)
        self.is_read = is_read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            possible = b"\0" not in os.fsencode(value) and bool(Path(value).resolve())
        except (UnicodeEncodeError, RuntimeError):  # the latter: a link that leads to itself
            possible = False
        if not possible:
            self.fail(f"{value!r} is no name of a file", param, ctx)
        if self.is_read and _is_endless(Path(value)):
            what = (
                "is a pipe, a socket or a device, and no file: write what it gives to a file, and name that"
            )
            self.fail(f"`{value}` {what}", param, ctx)
        return super().convert(value, param, ctx)


class Whole(click.IntRange):
    """A whole number between bounds; what is none is refused with what may be written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            bounds = f"from {self.min}" + ("" if self.max is None else f" to {self.max}")
            self.fail(f"{value!r} is no whole number {bounds}", param, ctx)


def _is_endless(path: Path) -> bool:
    """Whether to read it may wait for somebody else, or never end; what this process was handed is read."""
    try:
        mode, whole = path.stat().st_mode, path.resolve()
    except OSError:
        return False
    if S_ISREG(mode) or S_ISDIR(mode) or path == Path(os.devnull):
        return False
    return not any(each.is_relative_to(folder) for each in (path, whole) for folder in HANDED)


def text(value: str) -> tuple[str, ...]:
    """`a, b` as two names; nothing as none."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


def option(name: str, said: str, *argument: str, **how: Any) -> Parameter:
    """An option, what `--help` says of it, and the function's argument where that has another name."""
    return click.option(name, *argument, help=said, **how)


def flag(name: str, said: str, *argument: str) -> Parameter:
    """An option that is there or not."""
    return option(name, said, *argument, is_flag=True)


def usual(name: str, default: object, said: str, *argument: str, **how: Any) -> Parameter:
    """An option whose default `--help` shows."""
    return option(name, said, *argument, default=default, show_default=True, **how)


def words(name: str, said: str, *argument: str) -> Parameter:
    """An option that is a text, empty where it is left out."""
    return option(name, said, *argument, default="")


FILE = FilePath()
WRITTEN = FilePath(is_read=False)
RANKS = Whole(1, 4096)
NAMES = text  # names with commas between them; `--help` shows the function's name
SPEC = click.argument("spec", type=FILE)
JSON = flag("--json", "Print data, with a versioned schema name.", "as_json")
OUT = option("--out", "Also write the answer to this file, as JSON.", "kept", type=WRITTEN)
CSV = flag("--csv", "Print the main table for a spreadsheet.", "as_csv")
TABLE = option("--table", "Print another of its tables so; a wrong name lists them.", "csv_table", default="")
TABLES = (CSV, TABLE)
FORCE = flag("--force", "Replace the output file if it exists.")
