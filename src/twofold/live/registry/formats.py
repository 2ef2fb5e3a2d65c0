"""What may enter the registry, and what a folder says of its model. Nothing here runs or unpickles a file.

Weights come as safetensors: their header is JSON, so reading it can do nothing. Pickles are known by their
first bytes as well as by their names, in a zip archive too; code that a model brings is refused.
"""

import hashlib
import json
import math
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twofold.core.errors import InputError
from twofold.live.training.artefact import FileEntry

PICKLED_NAMES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".distcp"}
SAFETENSORS = ".safetensors"
CODE_NAMES = {".py", ".pyc", ".so", ".sh", ".dll"}
TOKENIZER_NAMES = {"vocab.json", "vocab.txt", "merges.txt", "added_tokens.json", "special_tokens_map.json"}
TOKENIZER_NAMES |= {"spiece.model", "sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json"}
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
    context_tokens: int
    formats: tuple[str, ...]  # safetensors, gguf
    weights_sha256: str = ""  # of all weight files' digests, by name
    tokenizer_sha256: str = ""
    config_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Tensor:
    """As a header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def model_facts(folder: Path) -> ModelFacts:
    """Facts of a folder that is to be pushed, digests apart. Raises FormatRefusedError for any other."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            check_file(path.relative_to(folder).as_posix(), path)
    config = _json_of(folder / "config.json", "config.json")
    tensors = [tensor for path in folder.rglob(f"*{SAFETENSORS}") for tensor in _tensors(path, path.name)]
    formats = [name for name in ("safetensors", "gguf") if any(folder.rglob(f"*.{name}"))]
    if not formats:
        raise FormatRefusedError(
            f"`{folder}` holds no weights", hint="push a folder with safetensors, or a GGUF file, in it"
        )
    named = config.get("architectures")
    named = named if isinstance(named, list) and named else [config.get("model_type", "")]
    context_tokens = config.get("max_position_embeddings") or 0
    if type(context_tokens) is not int:
        raise _refused("config.json", "`max_position_embeddings` is no whole number")
    return ModelFacts(
        architecture=str(named[0]),
        parameter_count=sum(map(_parameter_count, tensors)),
        dtypes=tuple(sorted({each.dtype for each in tensors})),
        context_tokens=context_tokens,
        formats=tuple(formats),
    )


def with_digests(facts: ModelFacts, entries: Iterable[FileEntry]) -> ModelFacts:
    """The same with the digests of the files that were stored."""
    files = sorted(entries, key=lambda entry: entry.path)
    return replace(
        facts,
        weights_sha256=_joint_digest(each for each in files if each.path.endswith(SAFETENSORS)),
        tokenizer_sha256=_joint_digest(each for each in files if _is_of_tokenizer(each.path)),
        config_sha256=_joint_digest(each for each in files if each.path == "config.json"),
    )


def check_file(name: str, path: Path) -> None:
    """Refuse a file that opening could run, by its name and its bytes. Raises FormatRefusedError."""
    suffix = Path(name).suffix.lower()
    if suffix in CODE_NAMES:
        raise FormatRefusedError(f"`{name}` is code", hint="a model enters as data alone: leave it out")
    if name.endswith("config.json") and "auto_map" in _json_of(path, name):
        raise FormatRefusedError(
            f"`{name}` names code of its own (`auto_map`)", hint="export the model without remote code"
        )
    if suffix == SAFETENSORS:
        list(_tensors(path, name))  # whose first bytes are a length, which may look like a pickle's
    elif suffix in PICKLED_NAMES or _is_pickled(path):
        raise FormatRefusedError(
            f"`{name}` can hold a pickle, which runs what it likes when it is opened",
            hint="convert it to safetensors",
        )


def _is_of_tokenizer(name: str) -> bool:
    """What decides which tokens a text becomes, the form of a chat included."""
    return "/" not in name and (name.startswith("tokenizer") or name in TOKENIZER_NAMES)


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


def _tensors(path: Path, name: str) -> Iterator[Tensor]:
    """Every tensor in a safetensors file, whose lengths must be those of the file."""
    header, start = _header(path, name)
    ends = [start]
    for key, tensor in header.items():
        if key == "__metadata__":
            continue
        try:
            dtype, shape, (begin, end) = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
            size = math.prod(shape) * DTYPE_BYTES[dtype]
            if not all(type(each) is int and each >= 0 for each in (*shape, begin, end)):
                raise ValueError("lengths are whole numbers")
        except (KeyError, TypeError, ValueError) as error:
            raise _refused(name, f"tensor `{key}` is not described") from error
        if end - begin != size:
            raise _refused(name, f"tensor `{key}` is not as long as its shape says")
        ends.append(start + end)
        yield Tensor(key, dtype, tuple(shape))
    if max(ends) != path.stat().st_size:
        raise _refused(name, "it is longer or shorter than its tensors")


def _parameter_count(tensor: Tensor) -> int:
    """Of a weight that is kept as four integers in one, all four; its scales are no parameters."""
    if tensor.name.endswith((".weight_scale", ".weight_shape")):
        return 0
    return math.prod(tensor.shape) * (4 if tensor.name.endswith(".weight_packed") else 1)


def _header(path: Path, name: str) -> tuple[dict[str, Any], int]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(HEADER_BYTES_MAX, path.stat().st_size):
            raise _refused(name, "its header has no length")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise _refused(name, "its header is no JSON") from error
    if not isinstance(header, dict):
        raise _refused(name, "its header is no table of tensors")
    return header, 8 + length


def _json_of(path: Path, name: str) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(name, f"it cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise _refused(name, "it is no mapping")
    return data


def _joint_digest(entries: Iterable[FileEntry]) -> str:
    """One digest of several files by name; "" of none."""
    told = "".join(f"{Path(each.path).name} {each.sha256}\n" for each in entries)
    return hashlib.sha256(told.encode()).hexdigest() if told else ""


def _refused(name: str, why: str) -> FormatRefusedError:
    return FormatRefusedError(f"`{Path(name).name}` is refused: {why}", hint="export the model again")
