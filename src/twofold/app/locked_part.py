"""The pins of a lock that Twofold needs with some of its extras, by what the lock says needs what."""

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path

from twofold.core.errors import FileError, Place, ValueRefusedError

PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
NEEDED_BY = re.compile(r"^\s+#\s+(?:via\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)")  # as pip-compile tells it


def plain(name: str) -> str:
    """A project's name, however it is written."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_part(lock: Path, extras: Sequence[str]) -> str:
    """The lines of a lock that the core and these extras need.

    Raises ValueRefusedError for an extra that Twofold has not got, FileError for a lock that pins too little,
    or that does not tell what needs what.
    """
    blocks = _blocks(lock)
    needs: dict[str, set[str]] = {}
    for name, lines in blocks.items():
        for line in lines:
            if (found := NEEDED_BY.match(line)) is not None:
                needs.setdefault(plain(found[1]), set()).add(name)
    if not needs:
        hint = "`pip-compile --extra …` writes one that does; without `--extra` all of it is bundled"
        raise FileError(f"`{lock}` does not say what needs what", hint=hint)
    asked = set(_asked(extras))
    if missing := sorted(asked - blocks.keys()):
        raise FileError(f"`{lock}` pins no {', '.join(missing[:4])}", hint="name another by `--lock`")
    wanted: set[str] = set()
    while asked:
        wanted |= asked
        asked = {other for name in asked for other in needs.get(name, ())} - wanted
    return "".join(line for name, lines in blocks.items() if name in wanted for line in lines)


def _blocks(lock: Path) -> dict[str, list[str]]:
    """The lines of each pin, by its name. Options at the head are no part of any."""
    found: dict[str, list[str]] = {}
    name = ""
    for number, line in enumerate(lock.read_text("utf-8").splitlines(keepends=True), start=1):
        if (pin := PIN.match(line)) is not None:
            name = plain(pin[1])
        elif line.strip() and not line.startswith((" ", "\t", "#", "-")):
            what = "a line that pins nothing by `NAME==VERSION`"
            raise FileError(
                what, place=Place(str(lock), number, 1), hint="write the lock with `--strip-extras`"
            )
        if name:
            found.setdefault(name, []).append(line)
    return found


def check_extras(extras: Sequence[str]) -> None:
    """Raise ValueRefusedError for an extra that Twofold has not got."""
    known = distribution("twofold").metadata.get_all("Provides-Extra") or []
    for extra in extras:
        if extra not in known:
            raise ValueRefusedError(f"there is no extra `{extra}`", hint=f"write one of {', '.join(known)}")


def _asked(extras: Sequence[str]) -> Iterator[str]:
    """What Twofold asks for itself, by its metadata."""
    check_extras(extras)
    for line in distribution("twofold").requires or ():
        of, name = EXTRA.search(line), NAME.match(line)
        if name is not None and (of is None or of[1] in extras):
            yield plain(name[0])
