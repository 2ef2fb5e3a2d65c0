"""What may enter the registry, and what a folder says of its model. Nothing here runs or unpickles a file.

Weights come as safetensors: their header is JSON, so reading it can do nothing. Pickles are known by their
first bytes as well as by their names, in a zip archive too; code that a model brings is refused.
"""

import hashlib
import json
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.core.errors import InputError
from twofold.live.training.artefact import sha256_of

PICKLED_NAMES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".distcp"}
SAFETENSORS = ".safetensors"
CODE_NAMES = {".py", ".pyc", ".so", ".sh", ".dll"}
HEADER_BYTES_MAX = 100_000_000  # as the safetensors library bounds it
DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4}
DTYPE_BYTES |= {"I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "U16": 2, "U32": 4, "U64": 8}


class FormatRefusedError(InputError):
    """A file that could run something when it is opened, or weights that are not what their header says."""

    code = "E-format"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a folder says of its model; "" and 0 where it does not."""

    architecture: str
    parameter_count: int
    dtypes: tuple[str, ...]
    weights_sha256: str  # of all weight files' digests, by name
    tokenizer_sha256: str
    config_sha256: str
    context_tokens: int
    formats: tuple[str, ...]  # safetensors, gguf


def model_facts(folder: Path) -> ModelFacts:
    """Facts of a folder that is about to be pushed. Raises FormatRefusedError for what may not enter."""
    check_formats(folder)
    config = _json_of(folder / "config.json")
    if "auto_map" in config:
        raise FormatRefusedError(
            "`config.json` names code of its own (`auto_map`)", hint="export the model without remote code"
        )
    weights = sorted(folder.rglob(f"*{SAFETENSORS}"))
    tensors = [tensor for path in weights for tensor in _tensors(path)]
    formats = [name for name in ("safetensors", "gguf") if any(folder.rglob(f"*.{name}"))]
    if not formats:
        raise FormatRefusedError(
            f"`{folder}` holds no weights", hint="push a folder with safetensors, or a GGUF file, in it"
        )
    named = config.get("architectures")
    named = named if isinstance(named, list) and named else [config.get("model_type", "")]
    context_tokens = config.get("max_position_embeddings") or 0
    if type(context_tokens) is not int:
        raise _refused(folder / "config.json", "`max_position_embeddings` is no whole number")
    return ModelFacts(
        architecture=str(named[0]),
        parameter_count=sum(math.prod(shape) for _, shape in tensors),
        dtypes=tuple(sorted({dtype for dtype, _ in tensors})),
        weights_sha256=_joint_digest(weights),
        tokenizer_sha256=_joint_digest(sorted(folder.glob("tokenizer*"))),
        config_sha256=_joint_digest([folder / "config.json"] if config else []),
        context_tokens=context_tokens,
        formats=tuple(formats),
    )


def check_formats(folder: Path) -> None:
    """Refuse a folder with a file that opening could run. Raises FormatRefusedError, naming the file."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        if path.suffix.lower() in CODE_NAMES:
            raise FormatRefusedError(f"`{name}` is code", hint="a model enters as data alone: leave it out")
        if path.suffix == SAFETENSORS:
            list(_tensors(path))  # whose first bytes are a length, which may look like a pickle's
        elif path.suffix.lower() in PICKLED_NAMES or _is_pickled(path):
            raise FormatRefusedError(
                f"`{name}` can hold a pickle, which runs what it likes when it is opened",
                hint="convert it to safetensors",
            )


def _is_pickled(path: Path) -> bool:
    """By its first bytes: protocol 2 or later, or a zip archive with a pickle in it, as torch writes."""
    with path.open("rb") as file:
        head = file.read(4)
    if len(head) >= 2 and head[0] == 0x80 and head[1] <= 5:
        return True
    if head != b"PK\x03\x04":
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(each.endswith(".pkl") for each in archive.namelist())
    except zipfile.BadZipFile:
        return True


def _tensors(path: Path) -> Iterator[tuple[str, list[int]]]:
    """Type and shape of every tensor in a safetensors file, whose lengths must be those of the file."""
    header, start = _header(path)
    ends = [start]
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (begin, end) = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
            size = math.prod(shape) * DTYPE_BYTES[dtype]
            if not all(type(each) is int and each >= 0 for each in (*shape, begin, end)):
                raise ValueError("lengths are whole numbers")
        except (KeyError, TypeError, ValueError) as error:
            raise _refused(path, f"tensor `{name}` is not described") from error
        if end - begin != size:
            raise _refused(path, f"tensor `{name}` is not as long as its shape says")
        ends.append(start + end)
        yield dtype, shape
    if max(ends) != path.stat().st_size:
        raise _refused(path, "it is longer or shorter than its tensors")


def _header(path: Path) -> tuple[dict[str, Any], int]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(HEADER_BYTES_MAX, path.stat().st_size):
            raise _refused(path, "its header has no length")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise _refused(path, "its header is no JSON") from error
    if not isinstance(header, dict):
        raise _refused(path, "its header is no table of tensors")
    return header, 8 + length


def _json_of(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(path, f"it cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise _refused(path, "it is no mapping")
    return data


def _joint_digest(paths: list[Path]) -> str:
    """One digest of several files by name; "" of none."""
    if not paths:
        return ""
    joint = hashlib.sha256()
    for path in paths:
        joint.update(f"{path.name} {sha256_of(path)}\n".encode())
    return joint.hexdigest()


def _refused(path: Path, why: str) -> FormatRefusedError:
    return FormatRefusedError(f"`{path.name}` is refused: {why}", hint="export the model again")
