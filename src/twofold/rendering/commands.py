"""A command line as data: each option with the number of the plan that set it, and what it cannot say."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command. `because` is a path of the plan, or says in words why it is so."""

    flag: str  # as the program spells it; "" for an argument that has no name
    value: str  # "" for a switch
    because: str

    @property
    def words(self) -> tuple[str, ...]:
        """The option as a program gets it."""
        return tuple(word for word in (self.flag, self.value) if word)


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its options. `variables` are set around it; `lost` is what the plan has and it has not.

    `notes` say why what stands in a file that holds no comments.
    """

    program: tuple[str, ...]
    options: tuple[Option, ...]
    variables: tuple[Option, ...] = ()
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The whole command as words, without its variables."""
        return (*self.program, *(word for option in self.options for word in option.words))


def commented(lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Lines with what is said behind each, in one column; a line of which nothing is said stays alone."""
    wide = max((len(line) for line, said in lines if said), default=0)
    for line, said in lines:
        yield f"{line:<{wide}}  # {said}" if said else line


def option_lines(options: Sequence[Option]) -> Iterator[str]:
    """The options as lines of a shell's array, quoted, each with its reason."""
    yield from commented([(f"  {_quoted(option)}", option.because) for option in options])


def variable_lines(variables: Sequence[Option]) -> Iterator[str]:
    """Variables as a shell exports them."""
    said = [(f"export {each.flag}={_shown(each.value)}", each.because) for each in variables]
    yield from commented(said)


def _quoted(option: Option) -> str:
    """Words that a shell reads back as they are; a variable of the file stays one."""
    return " ".join(_shown(word) for word in option.words)


def _shown(word: str) -> str:
    return word if word.startswith('"$') else shlex.quote(word)
