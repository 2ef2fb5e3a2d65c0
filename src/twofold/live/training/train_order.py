"""An order of a training run as people write it: JSON with the fields of a job."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from twofold.core.data import DataError, from_data
from twofold.core.errors import FileError, InputError, Place, ValueRefusedError
from twofold.live.training.train_job import TrainJob, checked_model

GIVEN = ("folder", "model_config")  # beside the order, on the command line
HINT = "docs/howto/train.md lists the keys of an order, and `twofold render` writes one"
NOTHING: Mapping[str, Any] = MappingProxyType({})


def read_order(path: Path, folder: Path, model_config: Path, usual: Mapping[str, Any] = NOTHING) -> TrainJob:
    """The job in a file; `usual` is what it has where it does not say. Raises FileError for what is no JSON,
    ValueRefusedError for keys that no job has and values that none can have, each with its place."""
    text, said = _read(path)
    known = {each.name: each for each in fields(TrainJob) if each.name not in GIVEN}
    for name in said:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            what = f"`{name}` is no key of an order{meant}"
            raise ValueRefusedError(what, place=_place(path, text, name), hint=HINT)
    needed = [f"`{name}`" for name, each in known.items() if each.default is MISSING and name not in said]
    if needed:
        what = f"an order needs {', '.join(needed)}"
        raise ValueRefusedError(what, place=_place(path, text, ""), hint=HINT)
    whole = {**usual, **said, "folder": folder, "model_config": model_config}
    try:
        return from_data(TrainJob, whole, more=True)
    except DataError as error:
        raise ValueRefusedError(str(error), place=_place(path, text, error.path), hint=HINT) from error


def queued_order(path: Path, folder: Path, model_config: Path, *, device: str) -> TrainJob:
    """The job in a file, for a queue that asks for checkpoints and whose slots are of this device: none is
    written in between unless the order says so. Raises also what the run itself would refuse."""
    usual = {"device": device, "checkpoint_every_steps": 2**31}
    job = read_order(path, folder, model_config, usual)
    job = replace(job, checkpoint_every_steps=min(job.checkpoint_every_steps, max(1, job.steps)))
    start = Place(str(path), 1, 1)
    if job.device == "cuda" != device:
        hint = "leave `device` out: a run trains on what its slots are"
        raise ValueRefusedError("no slot here has an accelerator", place=start, hint=hint)
    try:
        checked_model(job)
    except InputError as error:
        error.place = error.place or start
        raise
    return job


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of an order, and what it says."""
    try:
        text = path.read_text("utf-8")
        said = json.loads(text, object_pairs_hook=partial(_once, path, text))
    except json.JSONDecodeError as error:
        place = Place(str(path), error.lineno, error.colno)
        raise FileError(f"this is no order: {error.msg}", place=place, hint=HINT) from error
    except OSError as error:
        why = (error.strerror or "").lower()
        raise FileError(f"`{path}` is no order: {why}", hint=HINT) from error
    except (ValueError, RecursionError) as error:  # other bytes, endless nesting
        start = Place(str(path), 1, 1)
        raise FileError(f"this is no order: {error}", place=start, hint=HINT) from error
    if not isinstance(said, dict):
        raise ValueRefusedError("this is no order: it is no mapping", place=Place(str(path), 1, 1), hint=HINT)
    return text, said


def _once(path: Path, text: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The mapping of these pairs, whose keys are to differ."""
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise ValueRefusedError(
                f"`{name}` stands twice", place=_place(path, text, name), hint="keep one of them"
            )
    return dict(pairs)


def _place(path: Path, text: str, key: str) -> Place:
    """Where a key stands; the file's beginning where it does not."""
    found = re.search(rf"{re.escape(json.dumps(key, ensure_ascii=False))}\s*:", text)
    at = found.start() if found else 0
    return Place(str(path), text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
