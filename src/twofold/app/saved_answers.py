"""Files that a verb wrote as data, known by their schema: a rehearsal, a live run, a proof, a validation."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from twofold.app.kinds import LARGEST_BYTES, PLAN, SAID_BYTES, broken_plan, schema_of
from twofold.contracts.results import loop, proof, simulated
from twofold.core.data import DataError, from_data
from twofold.core.errors import FileError, InputError, unread
from twofold.report.validate import Validated

HINT = "a page is made of a spec, a plan, and the JSON of `simulate`, `up` or `validate`"
KINDS: Mapping[str, Any] = MappingProxyType(
    {
        simulated.SIMULATION_SCHEMA: simulated.Simulation,
        loop.LOOP_SCHEMA: loop.LoopPage,
        proof.PROOF_SCHEMA: proof.Proof,
        Validated.schema: Validated,
    }
)
ANSWERS = (".json", ".csv")  # endings of what a verb wrote: no spec has one
SPEC_KEYS = {"name", "training", "serving"}

SavedAnswer = simulated.Simulation | loop.LoopPage | proof.Proof | Validated


def saved_answer(source: object) -> SavedAnswer | None:
    """The rehearsal or the run that data or a file is; None for a spec or a plan, which others read.

    A file is looked at before it is read: one that no page is made of is refused by its size or its schema.
    Raises FileError and InputError.
    """
    if isinstance(source, Mapping):
        return _answer(source, "this", str(source.get("schema", PLAN)))
    if not isinstance(source, (str, Path)) or (
        isinstance(source, str) and ("\n" in source or ": " in source)
    ):
        return None
    path = Path(source)
    try:
        if path.suffix in ANSWERS and not path.exists():
            raise FileError(f"`{path}` does not exist", hint=HINT)
        if not path.is_file():
            return None
        size = path.stat().st_size
        with path.open("rb") as handle:
            begin = handle.read(SAID_BYTES)
    except OSError as error:
        raise unread(path, error, HINT) from error
    if not begin.lstrip().startswith(b"{"):
        return None  # YAML, whose reader has limits of its own
    if size > LARGEST_BYTES:
        what = f"`{path}` has {size / 1e6:,.0f} MB: a page is made of {LARGEST_BYTES / 1e6:,.0f} MB at most"
        raise FileError(what, hint="write the answer of one run with `--out`, without its requests")
    said = schema_of(path)
    return None if said == PLAN else _answer(_read(path), f"`{path}`", said)


def _answer(data: Mapping[str, Any], what: str, schema: str) -> SavedAnswer | None:
    schema = schema or str(data.get("schema", ""))
    if schema == PLAN or (not schema and data.keys() & SPEC_KEYS):
        return None
    kind = KINDS.get(schema)
    if kind is None:
        raise InputError(f"{what} {_otherwise(schema)}", hint=HINT)
    try:
        made: SavedAnswer = from_data(kind, data, more=True)
    except DataError as error:
        raise InputError(f"{what} is broken at `{error.path}`: {error.what}", hint=HINT) from error
    return made


def _otherwise(schema: str) -> str:
    """Why no page is made of it."""
    ours = {each.rpartition("/")[0]: each for each in (PLAN, *KINDS)}.get(schema.rpartition("/")[0])
    if ours is not None:
        return f"is of schema {schema}, of another version: this Twofold reads {ours}"
    return f"is of schema {schema}" if schema.startswith("twofold/") else "is JSON, and no answer of Twofold"


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise unread(path, error, HINT) from error
    except (ValueError, RecursionError) as error:
        raise broken_plan(path) or InputError(f"`{path}` is not whole JSON", hint=HINT) from error
    if not isinstance(data, dict):
        raise InputError(f"`{path}` is JSON, and no answer of Twofold", hint=HINT)
    return data
