"""Which layers of a config.json attend, slide, scan or hold experts, by the patterns that families use."""

from typing import Any

from twofold.catalog.config_fields import ConfigFields
from twofold.catalog.types import ModelFamily

HIDDEN = ("hidden_size", "n_embd", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
LAYER_LIMIT = 10_000
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
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
    counts: dict[str, Any] = {
        "layers": layers,
        "softmax_attention_layers": softmax,
        "linear_layers": linear,
        "moe_layers": words.count("moe") or _moe_layers(fields, layers),
    }
    return (
        counts | _sliding(fields, family, words, softmax) | (_linear_shape(fields, family) if linear else {})
    )


def _mixers(fields: ConfigFields, family: ModelFamily, words: list[str], layers: int) -> tuple[int, int]:
    """Layers that attend over tokens, and layers that scan them."""
    if "linear" in words:
        return words.count("attention") + words.count("sliding"), words.count("linear")
    softmax = layers
    if family.name in {"mamba", "mamba2"}:
        softmax = 0
    elif fields.has("attn_layer_period"):
        softmax = len(
            range(fields.count("attn_layer_offset", default=0), layers, fields.count("attn_layer_period"))
        )
    elif fields.has("full_attention_interval"):
        softmax = layers // fields.count("full_attention_interval")
    elif listed := fields.listed("attn_layer_indices", "linear_attn_config.full_attn_layers"):
        softmax = len(listed)
    elif listed := fields.listed("attn_type_list"):  # MiniMax: 1 attends, 0 is linear
        softmax = listed.count(1)
    return min(softmax, layers), layers - min(softmax, layers)


def _moe_layers(fields: ConfigFields, layers: int) -> int:
    """How many layers have experts: listed, or every so many after the first ones."""
    experts = ("n_routed_experts", "num_local_experts", "num_experts", "ffn_config.moe_num_experts")
    if fields.count(*experts, default=0) <= 1:
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
    else:
        sliding = _sliding_by_family(fields, family, softmax)
    return {"sliding_window": window, "sliding_layers": sliding} if sliding else {}


def _sliding_by_family(fields: ConfigFields, family: ModelFamily, softmax: int) -> int:
    """Layers with a window where the config lists none, as the family's code has it."""
    match family.window_layers:
        case "alternate":
            return (softmax + 1) // 2
        case "three_of_four":
            return softmax - softmax // 4
        case "pattern":  # every so many layers, one attends to all
            return softmax - softmax // (fields.count("sliding_window_pattern", default=0) or 6)
        case "after_max_window_layers":
            return max(0, softmax - fields.count("max_window_layers", default=0))
        case _:
            return softmax


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
