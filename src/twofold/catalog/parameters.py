"""How many parameters a shape has, counted from its matrices: what the table's counts are checked against."""

from twofold.catalog.types import Model

CONV_WIDTH = 4  # of the short convolutions in front of linear attention and state-space mixers


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
    mixers = model.softmax_attention_layers * _attention(model) + model.linear_layers * _linear(model)
    norms = (2 * model.layers + 1) * model.hidden
    dense = dense_ffn_layers(model) * model.ffn_matrices * model.hidden * model.ffn_hidden
    routed = model.ffn_matrices * (model.moe_latent or model.hidden) * model.moe_ffn_hidden
    always = (
        model.ffn_matrices * model.hidden * model.shared_ffn_hidden
        + model.hidden * model.experts
        + 2 * model.hidden * model.moe_latent
    )
    rest = embeddings + mixers + norms + dense + model.moe_layers * always
    return (
        rest + model.moe_layers * model.experts * routed,
        rest + model.moe_layers * model.experts_topk * routed,
    )


def dense_ffn_layers(model: Model) -> int:
    """Layers with a dense MLP. Where mixers are fewer than layers, each block is a mixer or an MLP."""
    if not model.ffn_hidden:
        return 0
    mixers = model.softmax_attention_layers + model.linear_layers
    only_mixers = mixers if mixers < model.layers else 0
    return model.layers - model.moe_layers - only_mixers


def _attention(model: Model) -> int:
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


def _linear(model: Model) -> int:
    """Matrices of one linear-attention or state-space layer."""
    inner = model.linear_heads * model.linear_head_dim
    keys = model.linear_key_heads * model.linear_state
    match model.linear_kind:
        case "mamba1":
            rank = model.hidden // 16
            return inner * (3 * model.hidden + 2 * rank + 3 * model.linear_state + CONV_WIDTH)
        case "mamba2":
            convolved = inner + 2 * keys
            return model.hidden * (2 * inner + 2 * keys + model.linear_heads + inner) + CONV_WIDTH * convolved
        case "gated_delta":
            convolved = inner + 2 * keys
            gates = 2 * model.linear_heads
            return model.hidden * (3 * inner + 2 * keys + gates) + CONV_WIDTH * convolved
        case "lightning":
            return 5 * model.hidden * inner
        case "kda":
            return model.hidden * (3 * inner + 2 * keys + model.linear_heads) + CONV_WIDTH * (
                inner + 2 * keys
            )
        case _:
            return 0
