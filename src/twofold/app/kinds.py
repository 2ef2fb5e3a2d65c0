"""What a file of Twofold's holds, by its first bytes: a verb that is given another kind says so."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from twofold.core.errors import InputError

PLAN = "twofold/plan/1"
LARGEST_BYTES = 32_000_000  # of an answer that was saved: a rehearsal has 0.3 MB at most, a plan 2
SAID_BYTES = 4096  # of a file, that are looked at for what it says it is
HOLDS_PLAN = re.compile(rb'^\s*\{(?s:.*?)"digests"\s*:\s*\{')  # what no spec and no other answer has
SAYS = re.compile(rb'^\s*\{(?s:.*?)"schema"\s*:\s*"(twofold/[\w-]+/\d+)"')
# By the middle of the schema: what it is, and the verbs that read it, the likeliest first.
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "plan": ("a plan", ("report", "simulate", "render", "explain", "diff")),
        "simulation": ("a rehearsal", ("report",)),
        "loop": ("the page of a live run", ("report",)),
        "proof": ("a rehearsal beside what happened", ("report",)),
        "validation": ("a validation", ("report",)),
    }
)


def schema_of(path: Path) -> str:
    """The schema that a JSON file says first; "" for anything else, and for what cannot be read."""
    try:
        with path.open("rb") as handle:
            said = SAYS.match(handle.read(SAID_BYTES))
    except (OSError, ValueError):  # ValueError: a path with a NUL
        return ""
    return said[1].decode() if said else ""


def refuse_for_a_spec(path: Path) -> None:
    """Raises InputError where a file is the answer of a verb: it is given where a spec is wanted."""
    broken = broken_plan(path)
    if broken is not None:
        raise broken
    schema = schema_of(path)
    if schema:
        raise InputError(f"`{path}` {words_of(schema)}: it is no spec", hint=reading(path, schema))


def broken_plan(path: Path) -> InputError | None:
    """What is wrong with a file that begins as a saved plan, and is none; None for any other file."""
    try:
        with path.open("rb") as handle:
            begin = handle.read(SAID_BYTES)
            said = SAYS.match(begin)
            if not (said and said[1] == PLAN.encode()) and not HOLDS_PLAN.match(begin):
                return None
            content = begin + handle.read(LARGEST_BYTES)
    except (OSError, ValueError):  # ValueError: a path with a NUL
        return None
    try:
        if "schema" in json.loads(content):
            return None
        what = "it lacks its `schema`"
    except (ValueError, RecursionError):
        what = "it is cut short, or broken"
    hint = f"write it again with `twofold plan SPEC --out {shlex.quote(str(path))} --force`"
    return InputError(f"`{path}` looks like a saved plan, but {what}", hint=hint)


def refused_for_a_plan(path: Path, schema: str) -> InputError:
    """What is wrong with a file that is given where a plan is wanted; `schema` is the one that it says."""
    if schema.startswith("twofold/plan/"):
        what = f"`{path}` is a plan of schema {schema}, of another version: this Twofold reads {PLAN}"
        return InputError(what, hint="write it again from its spec: `twofold plan SPEC --out FILE`")
    if schema:
        what = f"`{path}` {words_of(schema)}: it is no plan"
        return InputError(what, hint=reading(path, schema))
    if path.is_dir() or path.suffix in (".yaml", ".yml"):
        what = f"`{path}` is a spec, and a plan is wanted here"
        return InputError(what, hint=f"write its plan with `twofold plan {path} --out plan.json`")
    broken = broken_plan(path)
    if broken is not None:
        return broken
    hint = "write one with `twofold plan SPEC --out FILE`"
    return InputError(f"`{path}` is not a plan of schema {PLAN}", hint=hint)


def words_of(schema: str) -> str:
    """What a file of this schema holds."""
    kind, _ = KINDS.get(schema.split("/")[1], ("an answer", ()))
    return f"holds {kind}, of schema {schema}"


def reading(path: Path, schema: str) -> str:
    """Which verb reads it."""
    _, verbs = KINDS.get(schema.split("/")[1], ("", ()))
    if not verbs:
        return "no verb reads this answer again: give the spec or the plan that it was made of"
    others = f"; so do {', '.join(verbs[1:])}" if len(verbs) > 1 else ""
    return f"`twofold {verbs[0]} {path}` reads it{others}"
