"""What an exported model was made from, as the lineage beside it tells, where our key sealed that."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from twofold.core.errors import AlteredError, FileError
from twofold.live.training.artefact import SEAL, sha256_of
from twofold.live.training.checkpoints import state_digest
from twofold.live.training.sealing import check_sealed, key_of_run
from twofold.live.training.train_job import LINEAGE

ORDERS, SPECS = ".state", ".twofold"  # what a state is called: of orders, of specs and their queues


def made_by_run(model: Path, key: bytes) -> dict[str, str]:
    """The digests of a run's data, order, code, and state after its last step.

    Raises AlteredError for what is not as this key sealed it.
    """
    check_sealed(model, key)
    lineage = json.loads((model / LINEAGE).read_text("utf-8"))
    made_from = {
        "data": f"sha256:{hashlib.sha256(str(lineage['data']['digest']).encode()).hexdigest()}",
        "run": f"sha256:{sha256_of(model / LINEAGE)}",
    }
    if code := lineage.get("software", {}).get("code"):  # of a run of before, nobody wrote it down
        made_from["code"] = f"sha256:{code}"
    if state := state_digest(model.parent / "checkpoints", key):
        made_from["checkpoint"] = f"sha256:{state}"
    return made_from


def told_origins(folder: Path) -> tuple[dict[str, str], str]:
    """The same of any folder, by the key that lies where its run's does; and why a lineage in it is not
    believed: then nothing is told. Of a folder without a lineage there is nothing to say."""
    model = folder.resolve()
    if not (model / LINEAGE).is_file():
        return {}, ""
    if not (model / SEAL).is_file():
        return {}, f"`{LINEAGE}` has no seal: nobody knows who wrote it"
    why = ""
    for state in _states(model.parent):
        try:
            return made_by_run(model, key_of_run(model.parent, state)), ""
        except (AlteredError, FileError) as error:
            why = why if isinstance(error, FileError) and why else error.message
        except OSError as error:  # a key of another user's
            why = why or f"`{error.filename}`: {error.strerror}"
    return {}, f"`{LINEAGE}` is not believed: {why}"


def _states(run: Path) -> Iterator[Path]:
    """Where the state of a run may be: beside its folder, or around it, with `train` between."""
    yield run.parent / ORDERS
    yield from (folder for folder in run.parents if folder.name == SPECS or folder == run.parent.parent)
