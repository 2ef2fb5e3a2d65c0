"""Trains a model a second time from what its lineage says: the same data, code and settings give equal bytes.

Nothing but the lineage and what it names goes in: no weights of the model that is repeated.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.core.data import DataError, from_data
from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.training.artefact import package_digest
from twofold.live.training.corpus import TOKENIZER_FILES, tokenizer_name
from twofold.live.training.data_sources import list_files
from twofold.live.training.train_job import LINEAGE, TrainJob, run_training, trained_model

GONE = {  # settings that a lineage has the digest of, and not the place
    "weights": "the model began with weights that the lineage knows by their digest alone",
    "branch_from": "the model went on from a checkpoint that the lineage knows by its digest alone",
}
HINT = "what `up` or a queue of jobs trains from now on can be trained again"
ABSENT = "nothing"


@dataclass(frozen=True, slots=True)
class Difference:
    """What a second training had that the first had not: what, then, now."""

    what: str  # code, data, settings.seed, …
    was: str
    found: str


def trained_again(
    first: Path, folder: Path, data: str, tell: Callable[[str], None]
) -> tuple[Path, tuple[Difference, ...]]:
    """Train what an export was trained from, in `folder`; the new export, and what its lineage has other.

    `data` names the files where they were given. Raises ValueRefusedError where the lineage does not hold
    what is needed, AlteredError where the data is other, and what training raises.
    """
    before = _lineage(first)
    job = _job(first, before, folder, data)
    if before["software"].get("code") != package_digest():
        tell("the code is not what it was: trained again by that of now")
    run_training(job, folder, tell, int(before["thread_count"]))
    made = trained_model(job, folder)
    after = json.loads((made / LINEAGE).read_text("utf-8"))
    return made, tuple(_differences("", before, after))


def _lineage(model: Path) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads((model / LINEAGE).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        what = f"the model has no `{LINEAGE}`: nothing says what it was trained from"
        raise FileError(what, hint=HINT) from error
    wanted = ("data", "tokenizer", "settings", "thread_count", "software", "model_config")
    missing = [f"`{name}`" for name in wanted if name not in said]
    if missing:
        raise ValueRefusedError(f"the model's `{LINEAGE}` says nothing of {', '.join(missing)}", hint=HINT)
    return said


def _job(first: Path, before: Mapping[str, Any], folder: Path, data: str) -> TrainJob:
    """The job that a lineage tells of, its model's config written beside it."""
    for name, why in GONE.items():
        if before["settings"].get(name):
            raise ValueRefusedError(f"{why} ({before['settings'][name][:12]}…)", hint=HINT)
    digests = before["data"]["sha256"]
    if data == "" and len(digests) != 1:
        what = f"the model read {len(digests)} files, and the lineage knows them by their digests alone"
        raise ValueRefusedError(what, hint="name them: `--data`, as the spec had them")
    is_one = len(list_files(data)) == 1 if data else True
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(before["model_config"]), "utf-8")
    _copy_tokenizer(first, model, before)
    told = {**before["settings"], "name": "rerun", "data": data}
    told |= {
        "data_digest": before["data"]["digest"] if is_one else ""
    }  # of several it is of those read alone
    try:
        return from_data(
            TrainJob, {**told, "folder": folder / "run", "model_config": model / "config.json"}, more=True
        )
    except DataError as error:
        raise ValueRefusedError(f"the model's `{LINEAGE}` tells of no job: {error}", hint=HINT) from error


def _copy_tokenizer(first: Path, model: Path, before: Mapping[str, Any]) -> None:
    """Where the model had a tokenizer of its own that is used again; else one is trained on the same text."""
    files = [first / name for name in TOKENIZER_FILES if (first / name).is_file()]
    texts = [each.read_text("utf-8") for each in files]
    if tokenizer_name(texts, int(before["model_config"]["vocab_size"])) == before["tokenizer"]:
        for each in files:
            shutil.copyfile(each, model / each.name)


def _differences(what: str, before: Any, after: Any) -> Iterator[Difference]:
    """Leaf by leaf."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            inner = f"{what}.{name}" if what else name
            yield from _differences(inner, before.get(name, ABSENT), after.get(name, ABSENT))
    elif before != after:
        yield Difference(what, str(before), str(after))
