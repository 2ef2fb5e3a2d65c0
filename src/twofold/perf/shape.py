"""The shape of a model as numbers that broadcast: one model, or one per candidate; what it weighs and caches.

Both halves run on it: serving as it stands, training with a batch on top.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np

from twofold.catalog.types import Model
from twofold.perf.formats import bytes_per_weight
from twofold.perf.types import Floats

HALF_BYTES = 2.0  # embeddings, head and norms stay 16-bit in every published checkpoint


@dataclass(frozen=True, slots=True)
class WeightsBytes:
    """Weights of the whole model by part, scales included."""

    embedding_bytes: Floats
    attention_bytes: Floats
    ffn_bytes: Floats  # dense and shared FFNs, routers
    experts_bytes: Floats
    other_bytes: Floats

    @property
    def total_bytes(self) -> Floats:
        """All parts."""
        tables = self.embedding_bytes + self.attention_bytes
        return tables + self.ffn_bytes + self.experts_bytes + self.other_bytes


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What both halves need of a model. Fields are floats, or arrays over candidates; absent parts are 0."""

    layers: Floats
    dense_ffn_layers: Floats  # layer equivalents: what a hybrid's block count leaves
    moe_layers: Floats
    softmax_layers: Floats  # attend over the context
    sliding_layers: Floats  # of these, see at most `sliding_window` tokens
    sliding_window: Floats
    linear_layers: Floats  # linear-attention and state-space mixers: a fixed state instead of a cache
    linear_hidden: Floats  # channels of one of them
    linear_state: Floats  # numbers that one of them keeps of a sequence
    hidden: Floats
    heads: Floats
    kv_heads: Floats
    head_dim: Floats
    ffn_hidden: Floats
    ffn_matrices: Floats
    experts: Floats
    experts_topk: Floats
    expert_groups: Floats  # of which one token's experts are in `expert_groups_topk`; 0: in any
    expert_groups_topk: Floats
    moe_ffn_hidden: Floats
    expert_input: Floats  # what routed experts read and write: the hidden size, or a narrower latent
    shared_ffn_hidden: Floats
    vocab: Floats
    embedding_count: Floats  # 1 when input and output tables are tied
    other_weights: Floats  # in matrices that the other fields do not describe: linear mixers, towers, biases
    parameters_count: Floats
    mla_kv_rank: Floats
    mla_q_rank: Floats
    mla_qk_nope: Floats
    mla_qk_rope: Floats
    mla_v_head_dim: Floats
    max_context_tokens: Floats

    @classmethod
    def of(cls, model: Model) -> Self:
        """Read a catalogue row; parameters that its fields do not explain become `other_weights`."""
        ffn_layers = float(model.layers - model.moe_layers) if model.ffn_hidden else 0.0
        derived = {
            "dense_ffn_layers": ffn_layers,
            "softmax_layers": model.softmax_attention_layers,
            "sliding_layers": model.sliding_layers if model.sliding_window else 0,
            "linear_hidden": model.linear_heads * model.linear_head_dim,
            "linear_state": model.linear_heads * model.linear_head_dim * model.linear_state,
            "expert_input": model.moe_latent or model.hidden,
            "embedding_count": 1 if model.tied_embeddings else 2,
            "other_weights": 0.0,
            "parameters_count": model.parameters,
        }
        plain = {f.name: getattr(model, f.name) for f in fields(cls) if f.name not in derived}
        described = cls(**{name: float(value) for name, value in (plain | derived).items()})
        rest = float(model.parameters) - float(described.total_weights)
        if rest < 0 and ffn_layers:
            # A hybrid's `layers` counts blocks that hold a mixer or an FFN, not both, and a pruned model has
            # lost or narrowed some: fewer whole FFNs than layers.
            per_layer = model.ffn_matrices * model.hidden * model.ffn_hidden
            return replace(described, dense_ffn_layers=max(0.0, ffn_layers + rest / per_layer))
        return replace(described, other_weights=max(0.0, rest))

    @classmethod
    def stacked(cls, shapes: Sequence[Self]) -> Self:
        """One shape whose fields are arrays over `shapes`, so that a sweep over models is one call."""
        columns = {f.name: [getattr(shape, f.name) for shape in shapes] for f in fields(cls)}
        return cls(**{name: np.array(column, float) for name, column in columns.items()})

    @property
    def is_mla(self) -> Floats:
        """1 where the cache holds a latent (multi-head latent attention), else 0."""
        return np.asarray(np.asarray(self.mla_kv_rank) > 0, float)

    @property
    def qk_head_dim(self) -> Floats:
        """Width of one head's queries and keys where attention is computed in full."""
        return np.where(self.is_mla > 0, self.mla_qk_nope + self.mla_qk_rope, self.head_dim)

    @property
    def v_head_dim(self) -> Floats:
        """Width of one head's values where attention is computed in full."""
        return np.where(self.is_mla > 0, self.mla_v_head_dim, self.head_dim)

    @property
    def full_kv_heads(self) -> Floats:
        """Heads of keys and values where attention is computed in full: a latent widens to all."""
        return np.where(self.is_mla > 0, self.heads, self.kv_heads)

    @property
    def embedding_weights(self) -> Floats:
        """Weights of the vocabulary's tables; once when tied."""
        return self.embedding_count * self.vocab * self.hidden

    @property
    def layer_attention_weights(self) -> Floats:
        """Weights of one layer's attention projections; the low-rank ones under multi-head latent attention.

        Formula  h·d·(heads + 2·kv) + heads·d_v·h; MLA: q through its rank, kv through the latent
        Source   DeepSeek-AI 2024, DeepSeek-V2.
        """
        hidden, heads, rank = self.hidden, self.heads, self.mla_kv_rank
        plain = hidden * self.head_dim * (2 * heads + 2 * self.kv_heads)
        query_width = heads * (self.mla_qk_nope + self.mla_qk_rope)
        query = np.where(
            np.asarray(self.mla_q_rank) > 0, self.mla_q_rank * (hidden + query_width), hidden * query_width
        )
        latent = hidden * (rank + self.mla_qk_rope)
        expand = rank * heads * (self.mla_qk_nope + self.mla_v_head_dim)
        mla = query + latent + expand + heads * self.mla_v_head_dim * hidden
        return np.where(self.is_mla > 0, mla, plain)

    @property
    def layer_expert_weights(self) -> Floats:
        """Weights of one expert layer's routed experts, all of them."""
        return self.experts * self.ffn_matrices * self.expert_input * self.moe_ffn_hidden

    @property
    def attention_weights(self) -> Floats:
        """Weights of the softmax-attention projections of all layers."""
        return self.softmax_layers * self.layer_attention_weights

    @property
    def expert_weights(self) -> Floats:
        """Weights of all routed experts of all layers."""
        return self.moe_layers * self.layer_expert_weights

    @property
    def ffn_weights(self) -> Floats:
        """Weights of the dense and shared FFNs and the routers of all layers."""
        dense = self.dense_ffn_layers * self.ffn_matrices * self.hidden * self.ffn_hidden
        shared = self.moe_layers * self.ffn_matrices * self.hidden * self.shared_ffn_hidden
        return dense + shared + self.moe_layers * self.hidden * self.experts

    @property
    def total_weights(self) -> Floats:
        """All weights, parts summed."""
        described = self.embedding_weights + self.attention_weights + self.expert_weights + self.ffn_weights
        return described + self.other_weights

    def dense_format(self, weights_format: str) -> str:
        """The format of matrices outside the experts: 4-bit MoE checkpoints keep them in 16 bits."""
        has_experts = bool(np.all(np.asarray(self.experts) > 0))
        return "bf16" if has_experts and bytes_per_weight(weights_format) < 1.0 else weights_format

    def weights_bytes(self, weights_format: str) -> WeightsBytes:
        """Bytes of the weights in a number format, by part.

        Formula  weights of a part × bytes per weight of its format, scales included
        Why      quantised checkpoints keep embeddings and head in 16 bits, and 4-bit MoE ones also the
                 attention; one of 32 bits has them in 32.
        Units    B. Broadcasts over the shape.
        Source   published quantised checkpoints; gpt-oss and DeepSeek NVFP4 model cards.
        Limits   a format that mixes widths in another way is off by the part concerned.
        """
        inner = bytes_per_weight(self.dense_format(weights_format))
        return WeightsBytes(
            embedding_bytes=self.embedding_weights * max(HALF_BYTES, inner),
            attention_bytes=self.attention_weights * inner,
            ffn_bytes=self.ffn_weights * inner,
            experts_bytes=self.expert_weights * bytes_per_weight(weights_format),
            other_bytes=self.other_weights * inner,
        )

    def kv_bytes_per_layer_token(self, kv_format: str) -> Floats:
        """Cache bytes of one token in one attention layer: keys and values, or MLA's one latent."""
        plain = 2.0 * self.kv_heads * self.head_dim
        numbers = np.where(self.is_mla > 0, self.mla_kv_rank + self.mla_qk_rope, plain)
        return numbers * bytes_per_weight(kv_format)

    def kv_bytes_per_token(self, kv_format: str) -> Floats:
        """Cache bytes of one token in all attention layers, as long as no window is full: 327,680 of
        Llama-3.1-70B in 16 bits."""
        return self.softmax_layers * self.kv_bytes_per_layer_token(kv_format)

    def kv_bytes(self, kv_format: str, context_tokens: Floats) -> Floats:
        """Cache bytes of one sequence of `context_tokens`: windows cap layers, linear layers keep a state.

        Formula  layer-token bytes × ((softmax − sliding)·c + sliding·min(c, window)) + state
        Units    B per sequence, all accelerators together.
        Limits   a linear layer's state is taken in 16 bits, without its convolution's few inputs.
        """
        window = np.where(np.asarray(self.sliding_window) > 0, self.sliding_window, np.inf)
        windowed = np.minimum(context_tokens, window)
        tokens = (self.softmax_layers - self.sliding_layers) * context_tokens + self.sliding_layers * windowed
        state = self.linear_layers * self.linear_state * HALF_BYTES
        return self.kv_bytes_per_layer_token(kv_format) * tokens + state

    def exchange_bytes_per_token(self, ranks: Floats, activation_bytes: Floats) -> Floats:
        """Bytes that one token sends in one expert layer under expert parallelism: dispatch plus combine.

        Formula  min(topk, ranks)·(hidden or latent)·(activation bytes + 2)
        Why      A token goes once to each rank that holds one of its experts; results come back in 16 bits.
        Source   DeepSeek-V3 report, section 3.4; R-053.
        """
        copies: Floats = np.minimum(self.experts_topk, ranks)
        return copies * self.expert_input * (activation_bytes + HALF_BYTES)


def model_kind(model: Model) -> str:
    """How engines treat it: `mla` with a latent cache, `moe` with routed experts, else `dense`."""
    return "mla" if model.mla_kv_rank else "moe" if model.experts else "dense"
