"""What a layer keeps from forward to backward, and what the backward pass repeats instead of keeping it.

One list of operators tells both: what a way to recompute does not keep, it computes again.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from twofold.perf.types import Floats
from twofold.training.compute import NORM_PASSES, LayerCompute, rank_tokens
from twofold.training.job import Dimension, Workload
from twofold.training.layouts import Layouts, Recompute
from twofold.training.stack import Stack

WAYS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "attention": {"attention": 1.0},
        "products": {"norms": 1.0, "keys": 1.0, "out": 1.0, "wide": 0.5, "active": 1.0, "passes": 1.0},
        "light": {"norms": 1.0, "active": 1.0, "latent": 1.0, "passes": 0.8},
        "mlp": {"wide": 1.0, "active": 1.0, "down": 1.0, "ffn_passes": 1.0},
        "full": dict.fromkeys(("attention", "queries", "keys", "out", "wide", "down", "rest", "passes"), 1.0),
    }
)
"""Shares of what a way to recompute drops (tensors) and repeats (operators).

`attention` is Megatron's `core_attn`: it drops score matrices alone, and flash attention has none. `products`
is torchtitan's policy per operator: every second matrix product, and whatever lies between products.
`light` are Megatron's `layernorm`, `moe_act` and `mla_up_proj`, which DeepSeek-V3's report repeats too: cheap
passes, and what grows again from a latent. `mlp` is Megatron's module of that name.
"""


def kept_bytes(work: Workload, layouts: Layouts) -> dict[str, Dimension]:
    """Bytes that the average layer keeps of one micro-batch when nothing is recomputed, by tensor.

    Formula  T·(10·h/sp + (2·(q + k + v) + 2·heads·d_v + FFN)/tp), FFN: ungated 4·width, gated 6·width bytes,
             without dropout 8·h; MoE: routed copies of input and FFN. In 8 bits inputs of products take half
    Why      Kept in 16 bits: both norms' inputs and outputs, Q, K, V, the attention's output, the inputs of
             each FFN product. Sequence parallelism divides what tensor parallelism copies.
    Shapes   broadcasts over layouts.
    Units    bytes.
    Source   Korthikanti et al. 2022, equations 1-4: 34·s·b·h for multi-head attention and 4·h ungated FFN,
             of which 10 are not divided by tp without sequence parallelism.
    Limits   flash attention: the 5·a·s/h term is `score_bytes`.
    """
    tokens = rank_tokens(work, layouts)
    shards = np.where(layouts.sequence_parallel == 1, layouts.tp, 1)
    dropout = np.asarray(work.ffn_matrices) == 2  # gated models are trained without
    kv_heads = np.maximum(work.full_kv_heads, np.minimum(layouts.tp, work.heads))
    dense_share, moe_share = work.dense_ffn_layers / work.layers, work.moe_layers / work.layers
    width = dense_share * work.ffn_hidden + moe_share * work.shared_ffn_hidden
    width = width + moe_share * work.experts_topk * work.moe_ffn_hidden
    cut = tokens / layouts.tp
    return {
        "inputs": np.where(dropout, 6, 4) * tokens * work.hidden / shards,
        "norms": 2 * work.input_bytes * tokens * work.hidden / shards,
        "queries": 2 * cut * work.heads * work.qk_head_dim,
        "keys": 2 * cut * kv_heads * work.qk_head_dim,
        "values": 2 * cut * kv_heads * work.v_head_dim,
        "attended": 2 * cut * work.heads * work.v_head_dim,
        "wide": np.where(dropout, 2, 4) * cut * width,
        "active": work.input_bytes * cut * width,
        "routed": (2 + work.input_bytes) * cut * moe_share * work.experts_topk * work.expert_input,
    }


def by_way(layouts: Layouts, stack: Stack, none: Floats, priced: Callable[[str], Floats]) -> Floats:
    """What each layout's way to recompute comes to; what `selective` means is the stack's."""
    products = np.asarray(stack.selective_products_fraction) > 0
    selective = np.where(products, priced("products"), priced("attention"))
    named = (Recompute.FULL, Recompute.SELECTIVE, Recompute.MLP, Recompute.LIGHT)
    modes = [layouts.recompute == mode for mode in named]
    return np.select(modes, [priced("full"), selective, priced("mlp"), priced("light")], none)


def kept_activation_bytes(work: Workload, layouts: Layouts, stack: Stack) -> Floats:
    """Bytes that one layer keeps of one micro-batch from forward to backward, by way to recompute."""
    kept = kept_bytes(work, layouts)
    everything = sum(kept.values(), np.zeros(1)) * stack.activation_factor
    scores = score_bytes(work, layouts, stack)
    shards = np.where(layouts.sequence_parallel == 1, layouts.tp, 1)

    def priced(way: str) -> Floats:
        if way == "full":  # the layer's input alone
            return np.asarray(2 * rank_tokens(work, layouts) * work.hidden / shards)
        dropped = sum((share * kept[name] for name, share in WAYS[way].items() if name in kept), np.zeros(1))
        if "latent" in WAYS[way]:  # queries, keys and values of latent attention, in place of their latents
            latent = np.asarray(work.mla_kv_rank) > 0
            grown = kept["queries"] + kept["keys"] + kept["values"]
            small = 2 * rank_tokens(work, layouts) * (work.mla_q_rank + work.mla_kv_rank)
            dropped = dropped + np.where(latent, np.maximum(grown - small, 0.0), 0.0)
        left = everything - dropped * stack.activation_factor
        return np.asarray(left if "attention" in WAYS[way] or way == "products" else left + scores)

    return by_way(layouts, stack, everything + scores, priced)


def score_bytes(work: Workload, layouts: Layouts, stack: Stack) -> Floats:
    """Score matrices that one layer keeps where the stack does not fuse attention.

    Formula  5·heads/tp·s² bytes a sequence
    Source   Korthikanti et al. 2022.
    """
    unfused = np.asarray(stack.softmax_passes_factor) > 0
    scores = 5 * work.heads / layouts.tp * rank_tokens(work, layouts) * work.sequence_tokens
    return np.where(unfused, scores, 0.0)


def repeated_s(work: Workload, layouts: Layouts, layer: LayerCompute, stack: Stack) -> Floats:
    """Seconds of forward work that the backward pass of one layer repeats, by way to recompute."""

    def priced(way: str) -> Floats:
        dense, experts, attention = repeated_shares(work, way)
        return np.asarray(
            dense * layer.gemm.forward_s
            + experts * layer.experts.forward_s
            + attention * layer.attention.forward_s
            + repeated_passes(work, layouts, way) * layer.elementwise.forward_s
        )

    return by_way(layouts, stack, np.zeros(1), priced)


def repeated_flops_per_token(work: Workload, layouts: Layouts, stack: Stack) -> Floats:
    """FLOPs per token that the backward pass repeats in all layers, by way to recompute.

    Source   Korthikanti et al. 2022, section 5: all of the layers' forward pass under full recomputation.
    """

    def priced(way: str) -> Floats:
        dense, experts, attention = repeated_shares(work, way)
        weights = dense * work.dense_parameters + experts * work.expert_parameters * work.expert_share
        attended = work.softmax_layers * work.attention_flops_per_token
        return np.asarray(2 * work.layers * weights + attention * attended)

    return by_way(layouts, stack, np.zeros(1), priced)


def repeated_shares(work: Workload, way: str) -> tuple[Floats, Floats, Floats]:
    """Of the forward pass of the average layer, the shares that a way repeats: of its dense products, of its
    experts' products, of its attention.

    Formula  weights of the products repeated over all weights
    """
    shares = WAYS[way]
    up, down = (work.ffn_matrices - 1) / work.ffn_matrices, 1 / work.ffn_matrices
    experts = shares.get("wide", 0.0) * up + shares.get("down", 0.0) * down
    if "rest" in shares:
        return 1.0, experts, 1.0
    dense_share, moe_share = work.dense_ffn_layers / work.layers, work.moe_layers / work.layers
    width = dense_share * work.ffn_hidden + moe_share * work.shared_ffn_hidden
    weights = work.ffn_matrices * work.hidden * width * experts
    weights = weights + shares.get("keys", 0.0) * work.hidden * work.full_kv_heads * work.qk_head_dim
    weights = weights + shares.get("out", 0.0) * work.hidden * work.heads * work.v_head_dim
    if "latent" in shares:
        from_keys = work.mla_kv_rank * work.heads * (work.qk_head_dim - work.mla_qk_rope + work.v_head_dim)
        weights = weights + from_keys + work.mla_q_rank * work.heads * work.qk_head_dim
    return np.minimum(weights / work.dense_parameters, 1.0), experts, shares.get("attention", 0.0)


def repeated_passes(work: Workload, layouts: Layouts, way: str) -> Floats:
    """The share of the passes between products that a way repeats: all, or those inside the FFN by bytes."""
    dense_share, moe_share = work.dense_ffn_layers / work.layers, work.moe_layers / work.layers
    width = dense_share * work.ffn_hidden + moe_share * work.shared_ffn_hidden
    width = width + moe_share * work.experts_topk * work.moe_ffn_hidden
    shards = np.where(layouts.sequence_parallel == 1, layouts.tp, 1)
    inside = (work.ffn_matrices + 1) * width / layouts.tp
    within = inside / (inside + NORM_PASSES * work.hidden / shards)
    return np.maximum(WAYS[way].get("passes", 0.0), WAYS[way].get("ffn_passes", 0.0) * within)
