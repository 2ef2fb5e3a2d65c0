"""A Hugging Face config.json becomes a `Model`. It is data: `auto_map` and other code is never run."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.config_fields import (
    EXPERTS,
    HEADS,
    HIDDEN,
    TOPK,
    ConfigFields,
    layer_counts,
    layer_words,
    read_fields,
)
from twofold.catalog.types import Attention, Model, ModelFamily
from twofold.core.errors import UnknownNameError

# Names of one field across families; the first that stands is read.
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "attn_config.kv_n_heads", "num_query_groups")
FFN = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "ffn_config.ffn_hidden_size")
VOCAB = ("vocab_size", "padded_vocab_size")
CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
EXPERT_FFN = ("moe_intermediate_size", "moe_ffn_hidden_size", *FFN)
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
# What stands in a quantisation's description, and the format of the weights that it means.
QUANTISED = (
    ("mxfp4", "mxfp4"),
    ("fp4", "nvfp4"),
    ("fp8", "fp8"),
    ("float8", "fp8"),
    ("awq", "int4"),
    ("gptq", "int4"),
    ('"num_bits": 4', "int4"),
    ("load_in_4bit", "int4"),
    ("float-quantized", "fp8"),
    ('"num_bits": 8', "int8"),
    ("load_in_8bit", "int8"),
)
KV_SCHEMES = ("kv_cache_quant_algo", "kv_cache_scheme", "kv_cache_quant_config")
FURTHER = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
SHARED_FFN = ("shared_expert_intermediate_size", "shared_intermediate_size")
CONV_WIDTH = 4  # of the short convolutions in front of linear attention and state-space mixers


def _own_config(text: str) -> Path | None:
    """The config.json that a text means for a model of one's own, or that its folder has; None for a name."""
    if "\0" in text or not (text.endswith(".json") or text.startswith((".", "/", "~"))):
        return None
    path = Path(text)
    with suppress(RuntimeError):  # nobody is called so
        path = path.expanduser()
    return path / "config.json" if _is_folder(path) else path


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that no folder can have
        return False


def _holds_config(folder: Path) -> bool:
    try:
        return (folder / "config.json").is_file()
    except OSError:  # such a name, or somebody else's folder
        return False


def model_called(text: str, catalog: Catalog) -> tuple[Model, Path | None]:
    """Of the catalogue, or one's own and its config.json. Raises UnknownNameError, ModelConfigError."""
    config = _own_config(text)
    if config is not None:
        return read_model_config(config), config
    try:
        return catalog.model(text), None
    except UnknownNameError as error:
        if _holds_config(Path(text)):  # as a repository's name, too
            error.hint = f"write `./{text}` for the model whose config.json is in that folder"
        raise


def read_model_config(path: Path) -> Model:
    """The shape that a config.json states; ModelConfigError names the field that is missing or wrong."""
    fields = read_fields(path)
    if fields.flag("is_encoder_decoder", default=False):
        raise fields.wrong("is_encoder_decoder", "encoder-decoder models are not read")
    if fields.listed("block_configs"):
        raise fields.wrong("block_configs", "models whose layers differ one by one are not read")
    family = load_catalog().family(fields.word("model_type", default="unknown"))
    hidden = fields.count(*HIDDEN)
    values = layer_counts(fields, family, layer_words(fields))
    values |= _attention(fields, family, hidden, values["softmax_attention_layers"])
    values |= _experts(fields, family) if values["moe_layers"] else {}
    values["attention"] = _attention_kind(values)
    arch: Literal["dense", "moe", "hybrid"] = "moe" if values["moe_layers"] else "dense"
    arch = "hybrid" if values["linear_layers"] else arch
    model = Model(
        name=fields.name,
        family=family.name,
        arch="encoder" if family.encoder else arch,
        parameters=1,
        parameters_active=1,
        hidden=hidden,
        ffn_hidden=1,
        ffn_matrices=3 if family.gated else 2,
        vocab=fields.count(*VOCAB),
        tied_embeddings=fields.flag("tie_word_embeddings", default=family.tied),
        max_context_tokens=fields.count(*CONTEXT, default=0),
        native_format=_native_format(fields),
        fp8_blocks=_in_blocks(fields.nested("quantization_config")),
        kv_format=_kv_format(fields),
        mtp_layers=fields.count(*FURTHER, default=0),
        source=f"config of {fields.name}",
        licence="user",
        confidence="recomputed",
        **values,
    )
    has_dense = dense_ffn_layers(model) > 0
    model = replace(model, ffn_hidden=_dense_ffn(fields, family, hidden) if has_dense else 0)
    total, active = count_parameters(model)
    return replace(model, parameters=total, parameters_active=active)


def _attention(fields: ConfigFields, family: ModelFamily, hidden: int, softmax_layers: int) -> dict[str, Any]:
    """Heads and their widths; multi-head latent attention by its ranks."""
    if not softmax_layers:
        return {"heads": 0, "kv_heads": 0, "head_dim": 0}
    heads = fields.count(*HEADS)
    kv_heads = _kv_heads(fields, family, heads)
    if heads % kv_heads:
        raise fields.wrong(KV_HEADS, f"{heads} heads do not divide by {kv_heads} key-value heads")
    values = {"heads": heads, "kv_heads": kv_heads}
    values["attention_gate"] = fields.flag(
        "attn_output_gate", "attention_output_gate", "mla_use_output_gate", default=family.output_gate
    )
    if rank := fields.count("kv_lora_rank", default=0):
        nope, rope = fields.count("qk_nope_head_dim"), fields.count("qk_rope_head_dim")
        return values | {
            "head_dim": nope + rope,
            "mla_kv_rank": rank,
            "mla_q_rank": fields.count("q_lora_rank", default=0),
            "mla_qk_nope": nope,
            "mla_qk_rope": rope,
            "mla_v_head_dim": fields.count("v_head_dim"),
        }
    head_dim = fields.count("head_dim", "attention_head_dim", "kv_channels", default=0)
    if not head_dim and hidden % heads:
        raise fields.wrong(HEADS, f"width {hidden} does not divide by {heads} heads; state `head_dim`")
    return values | {"head_dim": head_dim or hidden // heads}


def _kv_heads(fields: ConfigFields, family: ModelFamily, heads: int) -> int:
    """Stated, or by the older switches: Falcon's and BigCode's `multi_query`, ChatGLM's group number."""
    old_falcon = family.name == "falcon" and not fields.flag("new_decoder_architecture", default=False)
    if (old_falcon or family.name == "gpt_bigcode") and fields.flag("multi_query", default=True):
        return 1
    if fields.flag("multi_query_attention", default=False):
        return fields.count("multi_query_group_num")
    return fields.count(*KV_HEADS, default=0) or heads


def _dense_ffn(fields: ConfigFields, family: ModelFamily, hidden: int) -> int:
    """Width of the dense MLP; pure state-space models have none."""
    if family.name in {"mamba", "mamba2"}:
        return 0
    if family.name == "mpt":
        return hidden * fields.count("expansion_ratio", default=4)
    apart = fields.count("intermediate_size_mlp", "dense_intermediate_size", default=0)
    return apart or fields.count(*FFN, default=4 * hidden if family.four_times_hidden else None)


def _experts(fields: ConfigFields, family: ModelFamily) -> dict[str, Any]:
    """Routed and shared experts of one layer."""
    experts, topk = fields.count(*EXPERTS), fields.count(*TOPK, "ffn_config.moe_top_k")
    if topk > experts:
        raise fields.wrong(TOPK, f"{topk} experts per token of {experts}")
    groups, chosen = fields.count("n_group", default=0), fields.count("topk_group", default=0)
    groups = groups if 0 < chosen < groups else 0
    width = fields.count(*EXPERT_FFN)
    shared = fields.count(*SHARED_FFN, default=0)
    if family.name.startswith("llama4"):
        shared = width  # one shared expert, by architecture
    elif fields.flag("enable_moe_block", default=False):
        shared = fields.count(*FFN)  # Gemma 4: the dense MLP runs beside the experts
    elif not shared:
        count = fields.count(*SHARED, default=0)
        shared = count * (fields.count("moe_shared_expert_intermediate_size", default=0) or width)
    return {
        "experts": experts,
        "experts_topk": topk,
        "moe_ffn_hidden": width,
        "shared_ffn_hidden": shared,
        "expert_groups": groups,
        "expert_groups_topk": chosen if groups else 0,
        "moe_latent": fields.count("moe_latent_size", "routed_expert_hidden_size", default=0),
    }


def _attention_kind(values: dict[str, Any]) -> Attention:
    if values["linear_layers"]:
        return "hybrid_linear"
    if values.get("mla_kv_rank"):
        return "mla"
    if values.get("sliding_layers"):
        return "sliding"
    if values["kv_heads"] == values["heads"]:
        return "mha"
    return "mqa" if values["kv_heads"] == 1 else "gqa"


def _native_format(fields: ConfigFields) -> str:
    """The format of the weights: by the quantisation that is stated, else by the data type."""
    stated = fields.nested("quantization_config")
    text = json.dumps({key: value for key, value in stated.items() if key != "ignore"}).lower()
    for mark, name in QUANTISED:
        if mark in text:
            return name
    kind = fields.word("torch_dtype", "dtype", default="bfloat16").removeprefix("torch.")
    return {"float32": "fp32", "float16": "fp16", "float8_e4m3fn": "fp8", "int8": "int8"}.get(kind, "bf16")


def _in_blocks(stated: Mapping[str, Any]) -> bool:
    """Whether weights have a scale for each block, as two tools write it."""
    return bool(stated.get("weight_block_size")) or '"block_structure": [' in json.dumps(stated)


def _kv_format(fields: ConfigFields) -> str:
    """The cache's format where the checkpoint brings scales for it, as three tools write it."""
    stated = fields.nested("quantization_config")
    named = json.dumps({key: stated.get(key) for key in KV_SCHEMES}).lower()
    return "fp8" if any(mark in named for mark in ("fp8", '"float"')) else ""


def count_parameters(model: Model) -> tuple[int, int]:
    """All parameters, and those that one token uses (embedding and head included in both).

    Formula  embeddings + layers · (mixer + MLP or experts + 2 norms)
    Why      every matrix of the shape once; experts that a token does not visit are not active.
    Units    parameters.
    Source   Kaplan et al. 2020 for the dense count; DeepSeek-V2 2024 (MLA); Dao & Gu 2024 (Mamba-2);
             Yang et al. 2024 (gated delta rule).
    Limits   biases and learned positions are left out (below 1 %); towers, cross-attention and shapes that
             differ between layers are not described by a `Model`.
    """
    embeddings = model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
    mixers = model.softmax_attention_layers * _attention_matrices(model)
    mixers += model.linear_layers * _linear_matrices(model)
    norms = (2 * model.layers + 1) * model.hidden
    dense = dense_ffn_layers(model) * model.ffn_matrices * model.hidden * model.ffn_hidden
    routed = model.ffn_matrices * (model.moe_latent or model.hidden) * model.moe_ffn_hidden
    always = model.ffn_matrices * model.hidden * model.shared_ffn_hidden
    always += model.hidden * model.experts + 2 * model.hidden * model.moe_latent
    rest = embeddings + mixers + norms + dense + model.moe_layers * always
    all_of, visited = (model.moe_layers * count * routed for count in (model.experts, model.experts_topk))
    return rest + all_of, rest + visited


def dense_ffn_layers(model: Model) -> int:
    """Layers with a dense MLP. Where mixers are fewer than layers, each block is a mixer or an MLP."""
    if not model.ffn_hidden:
        return 0
    mixers = model.softmax_attention_layers + model.linear_layers
    only_mixers = mixers if mixers < model.layers else 0
    return model.layers - model.moe_layers - only_mixers


def _attention_matrices(model: Model) -> int:
    """Matrices of one softmax-attention layer."""
    if model.mla_kv_rank:
        query_key = model.mla_qk_nope + model.mla_qk_rope
        query = (
            model.mla_q_rank * (model.hidden + model.heads * query_key)
            if model.mla_q_rank
            else model.hidden * model.heads * query_key
        )
        latent = model.hidden * (model.mla_kv_rank + model.mla_qk_rope)
        expand = model.mla_kv_rank * model.heads * (model.mla_qk_nope + model.mla_v_head_dim)
        output = model.heads * model.mla_v_head_dim * model.hidden
        return query + latent + expand + output * (2 if model.attention_gate else 1)
    query = model.hidden * model.heads * model.head_dim
    return query * (3 if model.attention_gate else 2) + 2 * model.hidden * model.kv_heads * model.head_dim


def _linear_matrices(model: Model) -> int:
    """Matrices of one linear-attention or state-space layer."""
    inner = model.linear_heads * model.linear_head_dim
    keys = model.linear_key_heads * model.linear_state
    convolved = inner + 2 * keys
    match model.linear_kind:
        case "mamba1":
            rank = model.hidden // 16
            return inner * (3 * model.hidden + 2 * rank + 3 * model.linear_state + CONV_WIDTH)
        case "mamba2" | "kda":
            return model.hidden * (3 * inner + 2 * keys + model.linear_heads) + CONV_WIDTH * convolved
        case "gated_delta":
            return model.hidden * (3 * inner + 2 * keys + 2 * model.linear_heads) + CONV_WIDTH * convolved
        case "lightning":
            return 5 * model.hidden * inner
        case _:
            return 0
