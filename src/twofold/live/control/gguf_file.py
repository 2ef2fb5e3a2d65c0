"""A checkpoint folder of a Llama shape as one GGUF file, which llama.cpp serves.

GGUF is a head of typed facts, a table of tensors, and their bytes, each aligned. The facts are the model's
shape and its whole tokenizer, so that the file needs nothing beside it. Of tensors two things change: those
of one dimension are 32 bits wide, and rows of the query and key projections are put in pairs, since llama.cpp
rotates neighbours where the checkpoint rotates halves.

Limits   Llama with plain rotary positions and a byte-level BPE tokenizer, as the trainer publishes them.
Sources  ggml's description of the format, version 3.
"""

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold.core.errors import FileError
from twofold.live.training.artefact import flush, write_manifest

FILE = "model.gguf"
TOKENIZER = "tokenizer.json"
MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
UINT32, INT32, FLOAT32, BOOL, TEXT, ARRAY = 4, 5, 6, 7, 8, 9  # types of facts
F32, F16, BF16 = 0, 1, 30  # types of tensors
TYPES = {"F32": F32, "F16": F16, "BF16": BF16}
FILE_TYPES = {F32: 0, F16: 1, BF16: 32}  # as the head calls what most of its tensors are
NORMAL, CONTROL = 1, 3  # kinds of tokens
PER_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
Words = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: its bits as they are stored, 16 of a bfloat16 as a whole number."""

    name: str
    kind: int
    values: Words


def gguf_of(artefact: Path, folder: Path) -> Path:
    """`folder` with the artefact as a GGUF file and its tokenizer, in the place of what it held.

    Raises FileError for a checkpoint of another shape.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        write_gguf(artefact, partial / FILE)
        shutil.copyfile(artefact / TOKENIZER, partial / TOKENIZER)
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"`{artefact}` cannot be converted for llama.cpp: {error!s}"
        raise FileError(what, hint="convert it with llama.cpp's own converter") from error
    write_manifest(partial)
    flush(partial / FILE)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    flush(folder.parent)
    return folder


def write_gguf(artefact: Path, path: Path) -> None:
    """Raises ValueError for a checkpoint of another shape, KeyError for a config that does not say enough."""
    config = _json(artefact / "config.json")
    if config.get("model_type") != "llama":
        raise ValueError(f"it is of type `{config.get('model_type')}`, and only `llama` is known")
    tensors = sorted(_tensors(artefact, config), key=lambda tensor: tensor.name)
    wide = next(each.kind for each in tensors if each.name == "token_embd.weight")
    facts = {**_shape_facts(config, artefact.name, FILE_TYPES[wide]), **_token_facts(artefact, config)}
    with path.open("wb") as file:
        file.write(MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(facts)))
        for name, (kind, value) in facts.items():
            file.write(_text(name) + struct.pack("<I", kind) + _fact(kind, value))
        offset = 0
        for tensor in tensors:
            sizes = tensor.values.shape[::-1]  # the one that lies closest together comes first
            told = struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, tensor.kind, offset)
            file.write(_text(tensor.name) + told)
            offset += _aligned(tensor.values.nbytes)
        file.write(b"\0" * (_aligned(file.tell()) - file.tell()))
        for tensor in tensors:
            data = tensor.values.tobytes()
            file.write(data + b"\0" * (_aligned(len(data)) - len(data)))


def _shape_facts(config: Mapping[str, Any], name: str, file_type: int) -> dict[str, tuple[int, Any]]:
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head = config.get("head_dim") or hidden // heads
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if (rope.get("rope_type") or "default") != "default":
        raise ValueError(f"its positions are scaled (`{rope['rope_type']}`), which is not converted")
    counts = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": hidden,
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config.get("num_key_value_heads") or heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.dimension_count": head,
        "vocab_size": config["vocab_size"],
    }
    return {
        "general.architecture": (TEXT, "llama"),
        "general.name": (TEXT, name),
        "general.alignment": (UINT32, ALIGNMENT),
        "general.file_type": (UINT32, file_type),
        **{f"llama.{key}": (UINT32, count) for key, count in counts.items()},
        "llama.attention.layer_norm_rms_epsilon": (FLOAT32, config.get("rms_norm_eps", 1e-6)),
        "llama.rope.freq_base": (FLOAT32, rope.get("rope_theta") or config.get("rope_theta") or 10_000.0),
    }


def _token_facts(artefact: Path, config: Mapping[str, Any]) -> dict[str, tuple[int, Any]]:
    """The tokenizer; a vocabulary that is shorter than the model's is filled up."""
    told = _json(artefact / TOKENIZER)
    if told["model"]["type"] != "BPE" or "ByteLevel" not in json.dumps(told["pre_tokenizer"]):
        raise ValueError("its tokenizer is no byte-level BPE")
    ids = {**told["model"]["vocab"], **{each["content"]: each["id"] for each in told["added_tokens"]}}
    special = {each["id"] for each in told["added_tokens"] if each["special"]}
    names = {number: word for word, number in ids.items()}
    tokens = [names.get(number, f"[unused {number}]") for number in range(config["vocab_size"])]
    kinds = [CONTROL if number in special or number not in names else NORMAL for number in range(len(tokens))]
    merges = [each if isinstance(each, str) else " ".join(each) for each in told["model"]["merges"]]
    facts: dict[str, tuple[int, Any]] = {
        "tokenizer.ggml.model": (TEXT, "gpt2"),
        "tokenizer.ggml.pre": (TEXT, "gpt-2"),
        "tokenizer.ggml.tokens": (ARRAY, (TEXT, tokens)),
        "tokenizer.ggml.token_type": (ARRAY, (INT32, kinds)),
        "tokenizer.ggml.merges": (ARRAY, (TEXT, merges)),
        "tokenizer.ggml.add_bos_token": (BOOL, False),
    }
    for key, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if isinstance(number := config.get(f"{key}_token_id"), int):
            facts[f"tokenizer.ggml.{name}_token_id"] = (UINT32, number)
    if template := _chat_template(artefact):
        facts["tokenizer.chat_template"] = (TEXT, template)
    return facts


def _chat_template(artefact: Path) -> str:
    """From a file of its own, or from beside the tokenizer, as checkpoints have it; "": none."""
    own, beside = artefact / "chat_template.jinja", artefact / "tokenizer_config.json"
    if own.exists():
        return own.read_text("utf-8")
    found = _json(beside).get("chat_template") if beside.exists() else None
    return found if isinstance(found, str) else ""


def _tensors(artefact: Path, config: Mapping[str, Any]) -> Iterator[Tensor]:
    heads = {"attn_q": config["num_attention_heads"]}
    heads["attn_k"] = config.get("num_key_value_heads") or heads["attn_q"]
    files = sorted(artefact.glob("*.safetensors"))
    if not files:
        raise ValueError("it has no safetensors")
    for path in files:
        for name, kind, values in _stored(path):
            if name == "lm_head.weight" and config.get("tie_word_embeddings"):
                continue
            name = _name_of(name)
            part = name.split(".")[-2]
            if values.ndim == 1:
                kind, values = F32, _wide(kind, values)
            elif part in heads:
                values = _paired(values, heads[part])
            yield Tensor(name, kind, values)


def _name_of(name: str) -> str:
    plain, ending = name.rpartition(".")[::2]
    if plain in OUTSIDE:
        return f"{OUTSIDE[plain]}.{ending}"
    start, _, rest = plain.removeprefix("model.layers.").partition(".")
    if not start.isdigit() or rest not in PER_LAYER or ending != "weight":
        raise ValueError(f"a Llama has no `{name}`")
    return f"blk.{start}.{PER_LAYER[rest]}.{ending}"


def _paired(values: Words, heads: int) -> Words:
    """Rows of each head: the first of the lower half, the first of the upper half, and so on."""
    rows, columns = values.shape
    return values.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _wide(kind: int, values: Words) -> Words:
    if kind == BF16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def _stored(path: Path) -> Iterator[tuple[str, int, Words]]:
    """Tensors of a safetensors file: a length, a head in JSON, and the bytes."""
    with path.open("rb") as file:
        [size] = struct.unpack("<Q", file.read(8))
        head = json.loads(file.read(size))
    data, codes = np.memmap(path, np.uint8, "r", offset=8 + size), {F32: "<f4", F16: "<f2", BF16: "<u2"}
    for name, told in head.items():
        if name == "__metadata__":
            continue
        if told["dtype"] not in TYPES:
            raise ValueError(f"`{name}` is {told['dtype']}, and of {', '.join(TYPES)} it is to be one")
        kind, (start, end) = TYPES[told["dtype"]], told["data_offsets"]
        yield name, kind, data[start:end].view(codes[kind]).reshape(told["shape"])


def _fact(kind: int, value: Any) -> bytes:
    if kind == TEXT:
        return _text(value)
    if kind == ARRAY:
        inner, values = value
        return struct.pack("<IQ", inner, len(values)) + b"".join(_fact(inner, each) for each in values)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
