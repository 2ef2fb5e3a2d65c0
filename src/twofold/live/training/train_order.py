"""An order of a training run as people write it: JSON with the fields of a job."""

import json
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path

from twofold.core.data import DataError, from_data
from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.training.train_job import TrainJob

GIVEN = ("folder", "model_config")  # beside the order, on the command line
HINT = "docs/howto/train.md lists the keys of an order, and `twofold render` writes one"


def read_order(path: Path, folder: Path, model_config: Path) -> TrainJob:
    """The job in a file. Raises FileError for what is no JSON, ValueRefusedError for keys that no job has."""
    try:
        said = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = (error.strerror or "").lower() if isinstance(error, OSError) else str(error)
        raise FileError(f"`{path}` is no order: {why}", hint=HINT) from error
    if not isinstance(said, dict):
        raise ValueRefusedError(f"`{path}` is no order: it is no mapping", hint=HINT)
    known = {each.name: each for each in fields(TrainJob) if each.name not in GIVEN}
    for name in said:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            raise ValueRefusedError(f"`{path}`: `{name}` is no key of an order{meant}", hint=HINT)
    needed = [f"`{name}`" for name, each in known.items() if each.default is MISSING and name not in said]
    if needed:
        raise ValueRefusedError(f"`{path}` needs {', '.join(needed)}", hint=HINT)
    try:
        return from_data(TrainJob, {**said, "folder": folder, "model_config": model_config}, more=True)
    except DataError as error:
        raise ValueRefusedError(f"`{path}`: {error}", hint=HINT) from error
