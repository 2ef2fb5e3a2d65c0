"""The shape of a model as numbers that broadcast: one model, or one per candidate of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from twofold.catalog import Model
from twofold.perf import Floats


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What serving needs of a model. Fields are floats, or arrays over candidates; absent parts are 0."""

    layers: Floats
    dense_ffn_layers: Floats  # layer equivalents: what a hybrid's block count leaves
    moe_layers: Floats
    softmax_layers: Floats  # attend over the context
    sliding_layers: Floats  # of these, see at most `sliding_window` tokens
    sliding_window: Floats
    linear_layers: Floats  # keep a fixed state per sequence instead of a cache
    linear_state: Floats  # numbers that one of them keeps
    hidden: Floats
    heads: Floats
    kv_heads: Floats
    head_dim: Floats
    ffn_hidden: Floats
    ffn_matrices: Floats
    experts: Floats
    experts_topk: Floats
    moe_ffn_hidden: Floats
    expert_input: Floats  # what routed experts read and write: the hidden size, or a narrower latent
    shared_ffn_hidden: Floats
    vocab: Floats
    embedding_weights: Floats  # once when tied
    other_weights: Floats  # in matrices that the other fields do not describe: linear mixers, towers, biases
    mla_kv_rank: Floats
    mla_q_rank: Floats
    mla_qk_nope: Floats
    mla_qk_rope: Floats
    mla_v_head_dim: Floats
    max_context_tokens: Floats


def model_shape(model: Model) -> ModelShape:
    """Read a catalogue row; parameters that its fields do not explain become `other_weights`."""
    embedding = float(model.vocab * model.hidden * (1 if model.tied_embeddings else 2))
    ffn_layers = float(model.layers - model.moe_layers) if model.ffn_hidden else 0.0
    values = {
        "layers": model.layers,
        "dense_ffn_layers": ffn_layers,
        "moe_layers": model.moe_layers,
        "softmax_layers": model.softmax_attention_layers,
        "sliding_layers": model.sliding_layers if model.sliding_window else 0,
        "sliding_window": model.sliding_window,
        "linear_layers": model.linear_layers,
        "linear_state": model.linear_heads * model.linear_head_dim * model.linear_state,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "ffn_hidden": model.ffn_hidden,
        "ffn_matrices": model.ffn_matrices,
        "experts": model.experts,
        "experts_topk": model.experts_topk,
        "moe_ffn_hidden": model.moe_ffn_hidden,
        "expert_input": model.moe_latent or model.hidden,
        "shared_ffn_hidden": model.shared_ffn_hidden,
        "vocab": model.vocab,
        "embedding_weights": embedding,
        "other_weights": 0.0,
        "mla_kv_rank": model.mla_kv_rank,
        "mla_q_rank": model.mla_q_rank,
        "mla_qk_nope": model.mla_qk_nope,
        "mla_qk_rope": model.mla_qk_rope,
        "mla_v_head_dim": model.mla_v_head_dim,
        "max_context_tokens": model.max_context_tokens,
    }
    described = ModelShape(**{name: float(value) for name, value in values.items()})
    rest = float(model.parameters) - float(total_weights(described))
    if rest < 0 and ffn_layers:
        # A hybrid's `layers` counts blocks that hold a mixer or an FFN, not both, and a pruned model has lost
        # or narrowed some: fewer whole FFNs than layers.
        per_layer = model.ffn_matrices * model.hidden * model.ffn_hidden
        values["dense_ffn_layers"] = max(0.0, ffn_layers + rest / per_layer)
    values["other_weights"] = max(0.0, rest)
    return ModelShape(**{name: float(value) for name, value in values.items()})


def stack_shapes(shapes: Sequence[ModelShape]) -> ModelShape:
    """One shape whose fields are arrays over `shapes`, so that a sweep over models is one call."""
    return ModelShape(
        **{f.name: np.array([getattr(shape, f.name) for shape in shapes], float) for f in fields(ModelShape)}
    )


def attention_weights(shape: ModelShape) -> Floats:
    """Weights of the softmax-attention projections of all layers; MLA's low-rank ones where it has a rank."""
    plain = shape.hidden * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    query_width = shape.heads * (shape.mla_qk_nope + shape.mla_qk_rope)
    query = np.where(
        np.asarray(shape.mla_q_rank) > 0,
        shape.mla_q_rank * (shape.hidden + query_width),
        shape.hidden * query_width,
    )
    latent = shape.hidden * (shape.mla_kv_rank + shape.mla_qk_rope)
    expand = shape.mla_kv_rank * shape.heads * (shape.mla_qk_nope + shape.mla_v_head_dim)
    mla = query + latent + expand + shape.heads * shape.mla_v_head_dim * shape.hidden
    return shape.softmax_layers * np.where(is_mla(shape), mla, plain)


def expert_weights(shape: ModelShape) -> Floats:
    """Weights of all routed experts of all layers."""
    return shape.moe_layers * shape.experts * shape.ffn_matrices * shape.expert_input * shape.moe_ffn_hidden


def ffn_weights(shape: ModelShape) -> Floats:
    """Weights of the dense and shared FFNs and the routers of all layers."""
    dense = shape.dense_ffn_layers * shape.ffn_matrices * shape.hidden * shape.ffn_hidden
    shared = shape.moe_layers * shape.ffn_matrices * shape.hidden * shape.shared_ffn_hidden
    return dense + shared + shape.moe_layers * shape.hidden * shape.experts


def total_weights(shape: ModelShape) -> Floats:
    """All weights, parts summed."""
    return (
        shape.embedding_weights
        + attention_weights(shape)
        + expert_weights(shape)
        + ffn_weights(shape)
        + shape.other_weights
    )


def is_mla(shape: ModelShape) -> Floats:
    """1 where the cache holds a latent (multi-head latent attention), else 0."""
    return np.asarray(np.asarray(shape.mla_kv_rank) > 0, float)


def model_kind(model: Model) -> str:
    """How engines treat it: `mla` with a latent cache, `moe` with routed experts, else `dense`."""
    return "mla" if model.mla_kv_rank else "moe" if model.experts else "dense"
