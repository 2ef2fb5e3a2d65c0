"""Parameters by where they live: what tensor, expert and pipeline ranks divide."""

import numpy as np

from twofold.training.job import Dimension, Workload


def attention_parameters(work: Workload) -> Dimension:
    """Weights of one layer's attention projections; the low-rank ones under multi-head latent attention.

    Formula  h·d·(heads + 2·kv) + heads·d_v·h; MLA: q through its rank, kv through the latent (DeepSeek-V2).
    """
    hidden, heads, rank = work.hidden, work.heads, work.mla_kv_rank
    output = heads * work.v_head_dim * hidden
    plain = hidden * (heads * work.head_dim + work.kv_heads * (work.head_dim + work.v_head_dim)) + output
    query_width = heads * work.head_dim
    query = np.where(
        np.asarray(work.mla_q_rank) > 0, work.mla_q_rank * (hidden + query_width), hidden * query_width
    )
    up_width = heads * (work.head_dim - work.mla_rope_dim + work.v_head_dim)
    latent = query + hidden * (rank + work.mla_rope_dim) + rank * up_width + output
    return np.where(np.asarray(rank) > 0, latent, plain)


def dense_parameters(work: Workload) -> Dimension:
    """Weights of the average layer that every tensor-parallel group holds whole: attention, dense FFN, shared
    experts, router, and whatever else the published total holds (linear mixers, biases, norms)."""
    return described_dense_parameters(work) + other_parameters(work)


def described_dense_parameters(work: Workload) -> Dimension:
    """As `dense_parameters`, without what the shape does not explain."""
    moe_share = work.moe_layers / work.layers
    dense = work.dense_ffn_layers / work.layers * work.ffn_matrices * work.hidden * work.ffn_hidden
    shared = moe_share * work.hidden * (work.ffn_matrices * work.shared_ffn_hidden + work.experts)
    return work.softmax_layers / work.layers * attention_parameters(work) + dense + shared


def expert_parameters(work: Workload) -> Dimension:
    """Weights of the average layer's routed experts, all of them."""
    experts = work.experts * work.ffn_matrices * work.expert_input * work.moe_ffn_hidden
    return work.moe_layers / work.layers * experts


def other_parameters(work: Workload) -> Dimension:
    """Weights per layer that the shape does not describe: the published total less the described."""
    described = work.layers * (described_dense_parameters(work) + expert_parameters(work))
    rest = (work.parameters - described - work.embedding_copies * work.vocab * work.hidden) / work.layers
    return np.maximum(rest, 0.0)


def lora_parameters(work: Workload) -> Dimension:
    """Adapter weights of the average layer: rank × (inputs + outputs) of attention and FFN matrices.

    Source   Hu et al. 2021. Experts are left without adapters.
    """
    hidden, heads = work.hidden, work.heads
    kv_width = work.kv_heads * (work.head_dim + work.v_head_dim)
    attention = 4 * hidden + 2 * heads * work.head_dim + kv_width
    return work.lora_rank * (attention + work.ffn_matrices * (hidden + work.ffn_hidden))


def trained_parameters(work: Workload) -> Dimension:
    """Parameters that have a gradient: all, or the adapters alone."""
    everything = work.layers * (dense_parameters(work) + expert_parameters(work))
    everything = everything + work.embedding_copies * work.vocab * work.hidden
    return np.where(np.asarray(work.lora_rank) > 0, work.layers * lora_parameters(work), everything)


def model_flops_per_token(work: Workload) -> Dimension:
    """FLOPs that one token needs forward and backward, recomputation not counted.

    Formula  6 × (active matrix weights) + 3 × attention; causal: on average half of the sequence is seen
    Why      Two FLOPs per weight forward, twice that backward; a table lookup costs none, the head does.
             Weights frozen beside adapters need no gradient of their own: 4 instead of 6.
    Units    FLOP per token.
    Source   Narayanan et al. 2021, section 5.1, with causal attention.
    """
    active = dense_parameters(work) + expert_parameters(work) * expert_share(work)
    matrices = work.layers * active + work.vocab * work.hidden
    per_weight = np.where(np.asarray(work.lora_rank) > 0, 4, 6)
    return per_weight * matrices + 3 * work.softmax_layers * attention_flops_per_token(work)


def attention_flops_per_token(work: Workload) -> Dimension:
    """Forward FLOPs of one softmax layer's scores and values for one token, windows counted."""
    seen = work.sequence_tokens / 2
    slid = np.minimum(work.sliding_window, seen)
    share = work.sliding_layers / np.maximum(work.softmax_layers, 1)
    return 2 * work.heads * (work.head_dim + work.v_head_dim) * (seen * (1 - share) + slid * share)


def expert_share(work: Workload) -> Dimension:
    """Share of the routed experts that one token passes."""
    return work.experts_topk / np.maximum(work.experts, 1)
