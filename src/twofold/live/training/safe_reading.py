"""Reads a distributed checkpoint without running what somebody may have put into it.

Its index is a pickle, and so is each value that is no tensor: the library opens both without looking.
Here an index may name only what an index is made of, and values only what `torch.load` takes for weights.
Anything else is refused by its name before it is called.
"""

import io
import pickle
import re
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

from twofold.core.errors import AlteredError
from twofold.live.training.checkpoints import METADATA

# Module -> the names in it that an index is made of.
INDEX_NAMES = {
    "torch": r"Size|(b?float|u?int|complex|bool|q[u]?int)\w*",
    "torch.serialization": r"_get_layout",
    "torch.distributed.checkpoint.metadata": r"Metadata|MetadataIndex|StorageMeta|ChunkStorageMetadata"
    r"|TensorProperties|TensorStorageMetadata|BytesStorageMetadata|_MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem": r"_StorageInfo|_StoragePrefix",
    "collections": r"OrderedDict",
    "pathlib": r"(Pure)?PosixPath",
}


class _IndexUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if not re.fullmatch(INDEX_NAMES.get(module, "(?!)"), name):
            raise AlteredError(
                f"`{METADATA}` of a checkpoint names `{module}.{name}`, which none of ours does",
                hint="delete that checkpoint: somebody else wrote it",
            )
        return super().find_class(module, name)


class SafeReader(FileSystemReader):  # type: ignore[misc]
    """Of the files of a checkpoint."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """The index. Raises AlteredError for one that names what no index is made of."""
        with (Path(self.path) / METADATA).open("rb") as file:
            metadata = _IndexUnpickler(file).load()
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class _SafePlanner(DefaultLoadPlanner):  # type: ignore[misc]
    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        try:
            loaded = torch.load(value, weights_only=True)
        except pickle.UnpicklingError as error:
            name = read_item.dest_index.fqn
            raise AlteredError(
                f"`{name}` of a checkpoint holds more than numbers: {str(error).splitlines()[0]}",
                hint="delete that checkpoint: somebody else wrote it",
            ) from error
        checked = io.BytesIO()  # what the library opens is what was found to be harmless
        torch.save(loaded, checked)
        checked.seek(0)
        super().load_bytes(read_item, checked)


def load_state(state: dict[str, Any], reader: SafeReader) -> None:
    """Fill `state` in place, by all ranks. Raises AlteredError for what may run something."""
    try:
        dcp.load(state, storage_reader=reader, planner=_SafePlanner())
    except dcp.CheckpointException as error:
        for failure, _ in error.failures.values():
            if isinstance(failure, AlteredError):
                raise failure from error
        raise
