"""`completion`: the script by which a shell completes verbs, options and names."""

from dataclasses import dataclass
from typing import Literal

from click.shell_completion import get_completion_class

from twofold.core.errors import UnknownNameError
from twofold.report.answers import Shown

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TWOFOLD_COMPLETE"  # by which the script asks the command


@dataclass(frozen=True, slots=True)
class Completion(Shown):
    """A script for one shell."""

    schema = "twofold/completion/1"
    shell: str
    lines: tuple[str, ...]


def completion(shell: Literal["bash", "zsh", "fish"]) -> Completion:
    """The script for a shell: what it prints is read at the shell's start. Raises UnknownNameError."""
    made = get_completion_class(shell) if shell in SHELLS else None
    if made is None:
        raise UnknownNameError(
            f"`{shell}` is no shell that is known here", hint=f"one of {', '.join(SHELLS)}"
        )
    said = {"complete_func": "_twofold_completion", "complete_var": VARIABLE, "prog_name": "twofold"}
    return Completion(shell, tuple((made.source_template % said).strip().splitlines()))
