"""What may enter the registry, and what a folder says of its model. Nothing here runs or unpickles a file.

A list says what may enter: weights as safetensors, whose header is JSON, so that reading it can do nothing;
JSON, plain text and tokenizers. The bytes have to be what the name says. All else stays out, whatever it is;
pickles, in a zip archive or as text too, and code are named as such. A GGUF file is made here of a version,
and sealed by the registry's key.
"""

import hashlib
import json
import math
import pickletools
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

from twofold.core.errors import InputError
from twofold.live.training.artefact import FileEntry, plain_files

PICKLED_NAMES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".distcp", ".npy", ".npz"}
SAFETENSORS = ".safetensors"
CODE_NAMES = {".py", ".pyc", ".so", ".sh", ".dll"}
TOKENIZER_NAMES = {"vocab.json", "vocab.txt", "merges.txt", "added_tokens.json", "special_tokens_map.json"}
TOKENIZER_NAMES |= {"spiece.model", "sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json"}
TEXT_NAMES = ("*.txt", "*.md", "*.jinja", "*.tiktoken", "LICENSE*", "NOTICE*", "README*", ".gitattributes")
PIECES = b"\n"  # how a SentencePiece model begins: its first field, which has a length
HEADER_BYTES_MAX = 100_000_000  # as the safetensors library bounds it; of JSON and text too
PACKED_BITS = 32  # of an integer that holds several weights
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
    formats: tuple[str, ...]  # safetensors; of quantised ones how, such as compressed-tensors
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
    """Facts of a folder that is to be pushed, digests apart. Raises FormatRefusedError for any other,
    FileError for links."""
    for name, path in plain_files(folder):
        check_file(name, path)
    config = _json_of(folder / "config.json", "config.json")
    tensors = [tensor for path in folder.rglob(f"*{SAFETENSORS}") for tensor in _tensors(path, path.name)]
    if not any(folder.rglob(f"*{SAFETENSORS}")):
        raise FormatRefusedError(f"`{folder}` holds no weights", hint="push a folder with safetensors in it")
    quantised = config.get("quantization_config", {})
    if not isinstance(quantised, dict):
        raise _refused("config.json", "`quantization_config` is no mapping")
    stored = str(quantised.get("quant_method", "")) or "safetensors"
    named = config.get("architectures")
    named = named if isinstance(named, list) and named else [config.get("model_type") or ""]
    context_tokens = config.get("max_position_embeddings") or config.get("n_positions") or 0  # GPT-2's word
    if type(context_tokens) is not int:
        raise _refused("config.json", "`max_position_embeddings` is no whole number")
    return ModelFacts(
        architecture=str(named[0]),
        parameter_count=sum(_parameter_count(each, _bits(quantised)) for each in tensors),
        dtypes=tuple(sorted({each.dtype for each in tensors})),
        context_tokens=context_tokens,
        formats=(stored,),
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
    """Refuse a file that is not on the list, or not what its name says. Raises FormatRefusedError."""
    suffix = Path(name).suffix.lower()
    if suffix in CODE_NAMES:
        raise FormatRefusedError(f"`{name}` is code", hint="a model enters as data alone: leave it out")
    # A header's first bytes are a length, which may look like a pickle's.
    if suffix in PICKLED_NAMES or (suffix != SAFETENSORS and _is_pickled(path)):
        raise FormatRefusedError(
            f"`{name}` can hold a pickle, which runs what it likes when it is opened",
            hint="convert it to safetensors",
        )
    if name.endswith("config.json") and "auto_map" in _json_of(path, name):
        raise FormatRefusedError(
            f"`{name}` names code of its own (`auto_map`)", hint="export the model without remote code"
        )
    if suffix == ".gguf":
        raise FormatRefusedError(
            f"`{name}` is a GGUF file, and those that serve are made of a version here and sealed",
            hint="push the safetensors that it was made of: `up` makes the file for llama.cpp",
        )
    check = next((check for names, check in ADMITTED if _fits(name, names)), None)
    if check is None:
        raise FormatRefusedError(
            f"`{name}` is of no kind that may enter",
            hint="leave it out: weights come as safetensors, beside JSON, text and the tokenizer",
        )
    check(path, name)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(Path(name).name, pattern) for pattern in patterns)


def _check_tensors(path: Path, name: str) -> None:
    list(_tensors(path, name))


def _check_json(path: Path, name: str) -> None:
    try:
        json.loads(_text_of(path, name))
    except (ValueError, RecursionError) as error:
        raise _refused(name, f"it is no JSON{_from(error)}") from error


def _from(error: Exception) -> str:
    """Where JSON stops being any, as far as that is known."""
    if not isinstance(error, json.JSONDecodeError):
        return ""
    return f" from line {error.lineno}, column {error.colno} on"


def _check_pieces(path: Path, name: str) -> None:
    with path.open("rb") as file:
        if file.read(1) != PIECES:
            raise _refused(name, "it is no SentencePiece model")


def _text_of(path: Path, name: str) -> str:
    if path.stat().st_size > HEADER_BYTES_MAX:
        raise _refused(name, f"it is longer than {HEADER_BYTES_MAX:,} bytes")
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise _refused(name, "it is no text in UTF-8") from error
    if "\0" in text:
        raise _refused(name, "it is no text: it holds bytes of zero")
    return text


# What may enter, and what has to hold for its bytes.
ADMITTED: tuple[tuple[tuple[str, ...], Callable[[Path, str], object]], ...] = (
    ((f"*{SAFETENSORS}",), _check_tensors),
    (("*.json",), _check_json),
    (TEXT_NAMES, _text_of),
    (("tokenizer.model", "spiece.model", "sentencepiece.bpe.model"), _check_pieces),
)


def _is_of_tokenizer(name: str) -> bool:
    """What decides which tokens a text becomes, the form of a chat included."""
    return "/" not in name and (name.startswith("tokenizer") or name in TOKENIZER_NAMES)


def _is_pickled(path: Path) -> bool:
    """By its bytes: protocol 2 or later, text that is one of protocol 0, or a zip archive with one in it, as
    torch writes, or with arrays of numpy's, which may hold some."""
    with path.open("rb") as file:
        head = file.read(4)
    if len(head) >= 2 and head[0] == 0x80 and head[1] <= 5:
        return True
    if head != b"PK\x03\x04":
        return _is_pickled_text(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return any(each.endswith((".pkl", ".npy")) for each in archive.namelist())
    except zipfile.BadZipFile:
        return True


def _is_pickled_text(path: Path) -> bool:
    """Whether a file begins with a whole pickle of a protocol without a mark of its own.

    A text may begin with words of one; what one takes off its stack has to be there too.
    """
    depth, marks = 0, list[int]()
    with path.open("rb") as file:
        try:
            for word, _, _ in pickletools.genops(file):
                taken = word.stack_before
                if pickletools.markobject in taken:
                    depth = marks.pop() - taken.index(pickletools.markobject)
                elif word.name == "POP" and marks and marks[-1] == depth:
                    marks.pop()
                    continue
                else:
                    depth -= len(taken)
                if depth < 0:
                    return False
                if word.name == "MARK":
                    marks.append(depth)
                else:
                    depth += len(word.stack_after)
        except (ValueError, IndexError, OverflowError):
            return False
    return True


def _tensors(path: Path, name: str) -> Iterator[Tensor]:
    """Every tensor in a safetensors file, whose lengths must be those of the file."""
    header, start = _header(path, name)
    ends = [(0, 0)]
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
        ends.append((begin, end))
        yield Tensor(key, dtype, tuple(shape))
    ends.sort()
    if any(one[1] != other[0] for one, other in pairwise(ends)):
        raise _refused(name, "its tensors overlap, or leave holes between them")
    if start + ends[-1][1] != path.stat().st_size:
        raise _refused(name, "it is longer or shorter than its tensors")


def _bits(quantised: Mapping[str, Any]) -> int:
    """How wide packed weights are, as compressed-tensors says; 8 where nothing does."""
    groups = quantised.get("config_groups", {})
    try:
        found = [int(each["weights"]["num_bits"]) for each in groups.values()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _refused("config.json", "`quantization_config` does not say how wide weights are") from error
    if len({*found}) > 1 or not all(0 < each <= PACKED_BITS for each in found):
        why = f"`quantization_config` packs weights of {found} bits: one width of 1 to {PACKED_BITS} is read"
        raise _refused("config.json", why)
    return found[0] if found else 8


def _parameter_count(tensor: Tensor, bits: int) -> int:
    """Of a weight that is kept as several integers in one, all of them; its scales are no parameters."""
    if tensor.name.endswith((".weight_scale", ".weight_shape")):
        return 0
    return math.prod(tensor.shape) * (PACKED_BITS // bits if tensor.name.endswith(".weight_packed") else 1)


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
    except OSError as error:
        raise _refused(name, "it cannot be read") from error
    except (ValueError, RecursionError) as error:
        raise _refused(name, f"it is no JSON{_from(error)}") from error
    if not isinstance(data, dict):
        raise _refused(name, "it is no mapping")
    return data


def _joint_digest(entries: Iterable[FileEntry]) -> str:
    """One digest of several files by name; "" of none."""
    told = "".join(f"{Path(each.path).name} {each.sha256}\n" for each in entries)
    return hashlib.sha256(told.encode()).hexdigest() if told else ""


def _refused(name: str, why: str) -> FormatRefusedError:
    return FormatRefusedError(f"`{Path(name).name}` is refused: {why}", hint="export the model again")
