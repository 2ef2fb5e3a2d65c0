"""Names that a catalogue knows, as plain sets: `app` passes them in, as `contracts` may not look there."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from twofold.core.errors import UnknownNameError


@dataclass(frozen=True, slots=True)
class Names:
    """Every name and alias of each table. An empty set leaves its names unchecked."""

    models: frozenset[str] = frozenset()
    accelerators: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()
    frameworks: frozenset[str] = frozenset()
    mandates: frozenset[str] = frozenset()
    # What devices, and nodes with them, are cut into, by their name as `fold` makes it.
    profiles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The most of an accelerator, or of its slices, that one server holds, by name likewise.
    per_server: Mapping[str, int] = field(default_factory=dict)


# What a message calls a name of each table.
SINGULAR = {
    "models": "model",
    "accelerators": "accelerator",
    "nodes": "node",
    "regions": "region",
    "providers": "provider",
    "frameworks": "framework",
    "mandates": "mandate",
}


CUT = frozenset({"accelerators", "nodes"})  # tables whose rows may be cut
LISTED_BY = {"providers": "prices", "frameworks": "aliases"}  # the table that shows them, where not their own


def unknown_name(text: str, tables: tuple[str, ...], names: Names) -> UnknownNameError | None:
    """The error if each of `tables` has names and none is this. A region may name a family: `us-east`.

    Behind an accelerator or a node a colon and a profile may follow, which that can be cut into.
    """
    known_by_table = [getattr(names, table) for table in tables]
    known = frozenset().union(*known_by_table)
    head, colon, profile = text.partition(":")
    if colon and not CUT.isdisjoint(tables) and all(known_by_table):
        return unknown_name(head, tables, names) or _unknown_profile(head, profile, names)
    folded = fold(text)
    if not all(known_by_table) or any(folded == fold(name) for name in known):
        return None
    if tables == ("regions",) and any(fold(name).startswith(folded) for name in known):
        return None
    what = " or ".join(SINGULAR[table] for table in tables)
    return UnknownNameError(
        f"`{text[:64]}` is not a known {what}",
        hint=did_you_mean(
            text, known, f"`twofold catalog {LISTED_BY.get(tables[-1], tables[-1])}` lists all"
        ),
    )


def _unknown_profile(head: str, profile: str, names: Names) -> UnknownNameError | None:
    """The error if what is named `head` is not cut into this; the hint lists what it is cut into."""
    known = names.profiles.get(fold(head), ())
    if not known:
        hint = f"write `{head}`; `twofold catalog partitions GPU` lists what a device is cut into"
        return UnknownNameError(f"`{head[:64]}` is not cut into slices", hint=hint)
    if fold(profile) in map(fold, known):
        return None
    what = f"`{profile[:64]}` is nothing that `{head[:64]}` is cut into"
    return UnknownNameError(what, hint=did_you_mean(profile, known, f"it is cut into {', '.join(known)}"))


def did_you_mean(text: str, known: Iterable[str], otherwise: str) -> str:
    """`did you mean …?` with the closest names, then what helps otherwise."""
    by_fold = {fold(name): name for name in sorted(known, reverse=True)}
    close = get_close_matches(fold(text), by_fold, n=3, cutoff=0.6)
    if not close and len(text) >= 3:
        close = [name for name in by_fold if name.startswith(fold(text))][-3:]
    guess = f"did you mean {' or '.join(f'`{by_fold[name]}`' for name in close)}?" if close else ""
    return " ".join(part for part in (guess, otherwise) if part)


def fold(name: str) -> str:
    """Case, spaces, dashes and underscores do not tell names apart."""
    return re.sub(r"[\s_-]", "", name[:256].lower())
