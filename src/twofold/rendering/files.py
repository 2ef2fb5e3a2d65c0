"""A file as it is to be written, and what stands at the top of each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

PLAN = "By the plan of sha256"


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """One file. `path` is relative, with `/` between folders."""

    path: str
    text: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Weights:
    """Where the weights of models are, as far as it is known: a hub's repository.

    They are known by the repository that a spec names, or by the model's name alone.
    """

    repositories: Mapping[str, str]
    said: Mapping[str, str]  # why each is that one

    def variable(self, model: str) -> str:
        """The name of the variable that says where a model's weights are."""
        plain = "".join(each if each.isascii() and each.isalnum() else "_" for each in model.upper())
        return f"WEIGHTS_{plain}"

    def assignment(self, model: str, *, in_folder: bool = False) -> str:
        """A line of shell: what the caller set, else the repository, else a refusal that says what to set.

        `in_folder`: for software that reads no repository.
        """
        line = f'{self.variable(model)}="{self.expansion(model, in_folder=in_folder)}"'
        said = "" if in_folder else self.because(model)
        return f"{line}  # {one_line(said)}" if said else line

    def because(self, model: str) -> str:
        """Why a model's repository is that one; "" where none is known."""
        return self.said.get(model, "")

    def expansion(self, model: str, *, in_folder: bool = False) -> str:
        """The same without the name that it is assigned to, as shells and Compose read it."""
        known = "" if in_folder else self.repositories.get(model, "")
        where = "a folder" if in_folder else "a folder or a repository"
        unset = f"?set it to {where} with the weights of {plain(model)}"
        return f"${{{self.variable(model)}:{f'-{known}' if known else unset}}}"


def plain(text: str) -> str:
    """A name within a message of the shell."""
    return "".join(each if each.isalnum() or each in "._-/" else "_" for each in text)


def head(what: str, plan_digest: str, lost: Iterable[str] = ()) -> list[str]:
    """The first lines of a file: what it is, which plan set its values, and what it leaves out."""
    lines = [
        what,
        f"{PLAN} {plan_digest[:16]}; behind each value stands the number that set it.",
        *(f"lost: {each}" for each in lost),
    ]
    return [f"# {one_line(each)}" for each in lines]


def with_lost(file: RenderedFile, lost: Iterable[str]) -> RenderedFile:
    """The file with more that the plan lacks, below the line of its head that names the plan."""
    lines = file.text.split("\n")
    named = next((at for at, line in enumerate(lines) if PLAN in line), None)
    if named is None:
        return file
    mark = lines[named].partition(" ")[0]
    lines[named + 1 : named + 1] = [f"{mark} {one_line(f'lost: {each}')}" for each in lost]
    return replace(file, text="\n".join(lines))


def one_line(text: str) -> str:
    """A text that stays in its comment: what a saved plan says may hold line ends."""
    return "".join(each if each.isprintable() else " " for each in text)
