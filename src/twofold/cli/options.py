"""What a verb of the command line is, and the parameters that verbs share, each declared once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import click

Parameter = Callable[[Callable[..., None]], Callable[..., None]]


class Progress(Enum):
    """What whoever waits for an answer sees on stderr."""

    NONE = "none"
    PATIENT = "patient"  # a bar in a terminal, once the wait is worth one
    STAGES = "stages"  # a bar in a terminal, a line a stage in a log
    LINES = "lines"  # a line a stage


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: `answer` names the function of `twofold`, or of its `app`, that takes what is parsed."""

    help: str
    answer: str = ""
    parameters: tuple[Parameter, ...] = ()
    group: str = ""
    summary: str = ""  # in the list of verbs
    epilog: Callable[[], str] = str
    progress: Progress = Progress.NONE
    writes: tuple[str, ...] = ()  # parameters that are files to write, besides `--out` of data
    gathered: Callable[[dict[str, Any]], dict[str, Any]] = dict  # parsed words as the function's arguments
    questions: Mapping[str, "Verb"] = field(default_factory=dict)  # verbs below this one


def text(value: str) -> tuple[str, ...]:
    """`a, b` as two names; nothing as none."""
    return tuple(name.strip() for name in value.split(",") if name.strip())


FILE = click.Path(path_type=Path)
NAMES = text  # names with commas between them; `--help` shows the function's name
JSON = click.option("--json", "as_json", is_flag=True, help="Print data, with a versioned schema name.")
OUT = click.option("--out", "kept", type=FILE, help="Write to this file instead.")
FORCE = click.option("--force", is_flag=True, help="Replace the output file if it exists.")
