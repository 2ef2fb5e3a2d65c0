"""The fields of a model's config.json: nested text part, names across families, places of what is wrong."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

from twofold.catalog.types import ModelFamily
from twofold.core.errors import InputError, Place

FILE_LIMIT_BYTES = 4 * 2**20
COUNT_LIMIT = 10**8  # no width, layer count or vocabulary is larger
TEXT_PARTS = ("text_config", "language_config", "llm_config", "thinker_config")
_ABSENT = object()
HIDDEN = ("hidden_size", "n_embd", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
LAYER_LIMIT = 10_000
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "ffn_config.moe_num_experts")
TOPK = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "top_k_experts")
LISTS = ("layer_types", "layers_block_type")
PATTERN = "hybrid_override_pattern"  # Nemotron-H: one letter per block
WINDOW = ("sliding_window", "attention_chunk_size", "attn_config.sliding_window_size")

# What one layer is, by the words and letters that configs use for it.
WORDS = {
    "attention": "attention", "full_attention": "attention", "*": "attention",
    "deepseek_sparse_attention": "attention",
    "sliding_attention": "sliding", "chunked_attention": "sliding",
    "linear_attention": "linear", "mamba": "linear", "mamba2": "linear", "M": "linear",
    "moe": "moe", "E": "moe", "mlp": "mlp", "-": "mlp",
}  # fmt: skip


class ModelConfigError(InputError):
    """A model configuration that cannot be read as an architecture; names the field."""

    code = "E-model"


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """The fields that describe the language model, and the text they stand in. Null counts as absent."""

    file: str
    name: str
    text: str
    values: dict[str, Any]

    def has(self, *names: str) -> bool:
        return any(self._raw(name) is not _ABSENT for name in names)

    def count(self, *names: str, default: int | None = None) -> int:
        """A whole number above 0 under the first name that stands; 0 is read where there is a default."""
        found = self._first(names)
        if found is None:
            if default is not None:
                return default
            hint = "state " + " or ".join(f"`{name}`" for name in names)
            raise ModelConfigError(f"`{names[0]}` is missing", place=Place(self.file, 1, 1), hint=hint)
        name, value = found
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, f"{_shown(value)} is not a whole number")
        least = 1 if default is None else 0
        if not least <= value <= COUNT_LIMIT:
            raise self.wrong(name, f"{_shown(value)} is not from {least} to {COUNT_LIMIT:,}")
        return value

    def flag(self, *names: str, default: bool) -> bool:
        """True or false under the first name that stands."""
        name, value = self._first(names) or ("", default)
        if not isinstance(value, bool):
            raise self.wrong(name, f"{_shown(value)} is neither true nor false")
        return value

    def word(self, *names: str, default: str) -> str:
        """Text under the first name that stands."""
        name, value = self._first(names) or ("", default)
        if not isinstance(value, str):
            raise self.wrong(name, f"{_shown(value)} is not text")
        return value

    def listed(self, *names: str) -> list[Any]:
        """The list under the first name that holds one; empty where none does."""
        return next((value for value in map(self._raw, names) if isinstance(value, list)), [])

    def nested(self, name: str) -> dict[str, Any]:
        """The object under this name; empty where there is none."""
        value = self._raw(name)
        return value if isinstance(value, dict) else {}

    def wrong(self, names: str | tuple[str, ...], message: str) -> ModelConfigError:
        """An error at the field, or at the first of several names that stands."""
        names = (names,) if isinstance(names, str) else names
        field = (self._first(names) or (names[0], None))[0]
        match = re.search(rf'"{re.escape(field.rsplit(".", 1)[-1])}"\s*:', self.text)
        at = match.start() if match else 0
        place = Place(self.file, self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at))
        hint = "write what the model's own config.json says, or name a model of the catalogue"
        return ModelConfigError(f"`{field}`: {message}", place=place, hint=hint)

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any] | None:
        found = ((name, self._raw(name)) for name in names)
        return next(((name, value) for name, value in found if value is not _ABSENT), None)

    def _raw(self, name: str) -> Any:
        """The value; a dot goes into a nested object."""
        value: Any = self.values
        for part in name.split("."):
            if not isinstance(value, dict) or value.get(part) is None:
                return _ABSENT
            value = value[part]
        return value


def read_fields(path: Path) -> ConfigFields:
    """The file's fields; those of the nested text model stand before those around it."""
    text, start = _read(path), Place(str(path), 1, 1)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if twice := next((key for key, count in Counter(key for key, _ in pairs).items() if count > 1), ""):
            at = text.rfind(f'"{twice}"')
            place = Place(str(path), text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
            raise ModelConfigError(f"`{twice}` stands twice", place=place, hint="keep one of them")
        return dict(pairs)

    try:
        whole = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ModelConfigError(
            f"not JSON: {error.msg}", place=Place(str(path), error.lineno, error.colno)
        ) from None
    except (ValueError, RecursionError):  # a number of thousands of digits, endless nesting
        raise ModelConfigError("not readable as JSON", place=start) from None
    if not isinstance(whole, dict):
        raise ModelConfigError("the file is not a JSON object", place=start)
    values = dict(whole)
    for _ in TEXT_PARTS:  # a text part may lie inside another: thinker_config.text_config
        nested = [values[key] for key in TEXT_PARTS if isinstance(values.get(key), dict)]
        if nested:
            values = {key: value for key, value in values.items() if key not in TEXT_PARTS} | nested[0]
    stated = whole.get("_name_or_path")
    name = stated.rstrip("/").rsplit("/", 1)[-1] if isinstance(stated, str) else ""
    stem = path.stem if path.stem != "config" else path.resolve().parent.name
    return ConfigFields(str(path), name or stem or "model", text, values)


def _read(path: Path) -> str:
    place = Place(str(path), 1, 1)
    try:
        found = path.stat()
        if not S_ISREG(found.st_mode):  # a pipe or a device might never end
            raise ModelConfigError("this is no file", place=place, hint="give a model's config.json")
        if found.st_size > FILE_LIMIT_BYTES:
            raise ModelConfigError(f"the file is larger than {FILE_LIMIT_BYTES >> 20} MiB", place=place)
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ModelConfigError(f"cannot read the file: {error.strerror}", place=place) from None
    except UnicodeDecodeError:
        raise ModelConfigError("this is not text", place=place, hint="give a model's config.json") from None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"


def layer_words(fields: ConfigFields) -> list[str]:
    """attention, sliding, linear, moe or mlp for each layer, where the config lists them; else empty."""
    field = next((name for name in LISTS if fields.listed(name)), PATTERN)
    entries = fields.listed(field) if field != PATTERN else list(fields.word(PATTERN, default=""))
    unknown = [entry for entry in entries if entry not in WORDS]
    if unknown:
        raise fields.wrong(field, f"layers of kind `{unknown[0]}` are not read")
    layers = fields.count(*LAYERS, default=0)
    if entries and layers and len(entries) != layers:
        raise fields.wrong(field, f"{len(entries)} entries for {layers} layers")
    return [WORDS[entry] for entry in entries]


def layer_counts(fields: ConfigFields, family: ModelFamily, words: list[str]) -> dict[str, Any]:
    """How many layers there are of each kind, and what the linear ones look like."""
    layers = len(words) or fields.count(*LAYERS)
    if layers > LAYER_LIMIT:
        raise fields.wrong(LAYERS, f"{layers} layers are more than {LAYER_LIMIT:,}")
    softmax, linear = _mixers(fields, family, words, layers)
    return {
        "layers": layers,
        "softmax_attention_layers": softmax,
        "linear_layers": linear,
        "moe_layers": words.count("moe") or _moe_layers(fields, layers),
        **_sliding(fields, family, words, softmax),
        **(_linear_shape(fields, family) if linear else {}),
    }


def _mixers(fields: ConfigFields, family: ModelFamily, words: list[str], layers: int) -> tuple[int, int]:
    """Layers that attend over tokens, and layers that scan them."""
    if "linear" in words:
        return words.count("attention") + words.count("sliding"), words.count("linear")
    softmax = layers
    if family.name in {"mamba", "mamba2"}:
        softmax = 0
    elif fields.has("attn_layer_period"):
        offset = fields.count("attn_layer_offset", default=0)
        softmax = len(range(offset, layers, fields.count("attn_layer_period")))
    elif fields.has("full_attention_interval"):
        softmax = layers // fields.count("full_attention_interval")
    elif listed := fields.listed("attn_layer_indices", "linear_attn_config.full_attn_layers"):
        softmax = len(listed)
    elif listed := fields.listed("attn_type_list"):  # MiniMax: 1 attends, 0 is linear
        softmax = listed.count(1)
    return min(softmax, layers), layers - min(softmax, layers)


def _moe_layers(fields: ConfigFields, layers: int) -> int:
    """How many layers have experts: listed, or every so many after the first ones."""
    if (experts := fields.count(*EXPERTS, default=0)) <= 1:
        if experts == 0 and fields.has(*EXPERTS) and fields.count(*TOPK, default=0):
            raise fields.wrong(EXPERTS, f"no expert, of which each token visits {fields.count(*TOPK)}")
        return 0
    if listed := fields.listed("moe_layers"):
        return len(listed)
    if listed := fields.listed("moe_layer_freq"):
        return listed.count(1)
    if fields.has("expert_layer_period"):
        offset = fields.count("expert_layer_offset", default=0)
        return len(range(offset, layers, fields.count("expert_layer_period")))
    first = fields.count("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0)
    if first > layers:
        raise fields.wrong("first_k_dense_replace", f"{first} dense layers of {layers}")
    step = fields.count("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq", default=1) or 1
    dense = fields.listed("mlp_only_layers")
    return sum(1 for index in range(first, layers) if (index + 1) % step == 0 and index not in dense)


def _sliding(fields: ConfigFields, family: ModelFamily, words: list[str], softmax: int) -> dict[str, int]:
    """Window, and the layers that have it. A window as long as the context is none."""
    if fields.has("compress_ratios"):  # DeepSeek-V4: the window stands beside a compressed whole
        return {}
    window = fields.count(*WINDOW, default=0)
    context = fields.count("max_position_embeddings", default=0)
    if not window or (context and window >= context) or not fields.flag("use_sliding_window", default=True):
        return {}
    if words:
        sliding = words.count("sliding")
    elif listed := fields.listed("hybrid_layer_pattern"):  # MiMo: 1 slides, 0 attends to all
        sliding = listed.count(1)
    else:  # as the family's code has it
        match family.window_layers:
            case "alternate":
                sliding = (softmax + 1) // 2
            case "three_of_four":
                sliding = softmax - softmax // 4
            case "pattern":  # every so many layers, one attends to all
                sliding = softmax - softmax // (fields.count("sliding_window_pattern", default=0) or 6)
            case "after_max_window_layers":
                sliding = max(0, softmax - fields.count("max_window_layers", default=0))
            case _:
                sliding = softmax
    return {"sliding_window": window, "sliding_layers": sliding} if sliding else {}


def _linear_shape(fields: ConfigFields, family: ModelFamily) -> dict[str, Any]:
    """Kind, heads, widths and state of the linear layers."""
    if fields.has("linear_num_value_heads"):
        heads, key_heads = fields.count("linear_num_value_heads"), fields.count("linear_num_key_heads")
        width, state = fields.count("linear_value_head_dim"), fields.count("linear_key_head_dim")
        name = "gated_delta"
    elif fields.has("linear_attn_config.num_heads"):
        heads = key_heads = fields.count("linear_attn_config.num_heads")
        width = state = fields.count("linear_attn_config.head_dim")
        name = "kda"
    elif fields.listed("attn_type_list") or family.name.startswith("minimax"):
        heads = key_heads = fields.count(*HEADS)
        width = state = fields.count("head_dim")
        name = "lightning"
    elif family.name == "mamba2" or fields.has("mamba_num_heads", "mamba_n_heads"):
        heads = fields.count("mamba_num_heads", "mamba_n_heads", "num_heads")
        key_heads = fields.count("n_groups", "mamba_n_groups", default=1)
        width = fields.count("mamba_head_dim", "mamba_d_head", "head_dim")
        state = fields.count("ssm_state_size", "mamba_d_state", "state_size")
        name = "mamba2"
    else:
        heads = (fields.count("mamba_expand", "expand", default=0) or 2) * fields.count(*HIDDEN)
        key_heads, width, state = 1, 1, fields.count("mamba_d_state", "state_size")
        name = "mamba1"
    return {
        "linear_kind": name,
        "linear_heads": heads,
        "linear_key_heads": key_heads,
        "linear_head_dim": width,
        "linear_state": state,
    }
