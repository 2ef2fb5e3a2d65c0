"""What one device computes for one layer and one micro-batch, forward and backward, by kind of work."""

from dataclasses import dataclass, replace

import numpy as np

from twofold.perf import (
    ATTENTION_BACKWARD_RATIO,
    Device,
    Floats,
    attention_prefill_s,
    compute_format,
    elementwise_s,
    gemm_s,
    quantise_s,
)
from twofold.training.job import Dimension, Workload
from twofold.training.layouts import Layouts
from twofold.training.parameters import other_parameters
from twofold.training.stack import Stack

NORM_PASSES = 14  # reads and writes of the residual stream: two norms, two residual sums, rotary in and out
ELEMENTWISE_BACKWARD_RATIO = 1.6
SMALLEST_REST = 0.01  # of hidden²: unexplained weights below it do no work worth a product
LOSS_BYTES = 14  # per logit: read, fp32 softmax, gradient written and read


@dataclass(frozen=True, slots=True)
class Pass:
    """Seconds of one piece of work, forward and backward."""

    forward_s: Floats
    backward_s: Floats

    def __add__(self, other: "Pass") -> "Pass":
        return Pass(self.forward_s + other.forward_s, self.backward_s + other.backward_s)

    def scaled(self, forward: Floats, backward: Floats | None = None) -> "Pass":
        """The same work done `forward` and `backward` times (both `forward` when one is given)."""
        return Pass(self.forward_s * forward, self.backward_s * (forward if backward is None else backward))


@dataclass(frozen=True, slots=True)
class Kernels:
    """What runs the work: a device under a stack, the matrices in `fmt`, the rest in `half_fmt`."""

    device: Device
    stack: Stack
    fmt: str
    half_fmt: str
    trains_weights: Dimension  # 1, or 0 for weights frozen beside adapters


@dataclass(frozen=True, slots=True)
class LayerCompute:
    """The average layer on one device, one micro-batch."""

    gemm: Pass
    attention: Pass
    experts: Pass
    elementwise: Pass

    @property
    def forward_s(self) -> Floats:
        """The whole forward pass."""
        return (
            self.gemm.forward_s
            + self.attention.forward_s
            + self.experts.forward_s
            + self.elementwise.forward_s
        )

    @property
    def backward_s(self) -> Floats:
        """The whole backward pass, without recomputation."""
        parts = (self.gemm, self.attention, self.experts, self.elementwise)
        return sum((part.backward_s for part in parts[1:]), parts[0].backward_s)


def rank_tokens(work: Workload, layouts: Layouts) -> Dimension:
    """Tokens of one micro-batch on one context-parallel rank."""
    return layouts.micro_batch * work.sequence_tokens / layouts.cp


def kernels_for(work: Workload, device: Device, stack: Stack, precision: str) -> Kernels:
    """The kernels of a precision: a format that the device lacks falls back to what it has."""
    half_fmt = "fp32" if precision == "fp32" else compute_format(device, "bf16", "bf16").format
    fmt = compute_format(device, precision, precision).format
    return Kernels(device, stack, fmt, half_fmt, np.asarray(np.asarray(work.lora_rank) == 0, float))


def layer_compute(work: Workload, layouts: Layouts, kernels: Kernels) -> LayerCompute:
    """Time of the average layer."""
    gemm = _projections(work, layouts, kernels) + _feed_forward(work, layouts, kernels)
    slowed = kernels.stack.kernel_factor
    return LayerCompute(
        gemm=gemm.scaled(slowed),
        attention=_attention(work, layouts, kernels).scaled(slowed),
        experts=_experts(work, layouts, kernels).scaled(slowed),
        elementwise=_elementwise(work, layouts, kernels),
    )


def linear_s(kernels: Kernels, tokens: Dimension, inner: Dimension, outer: Dimension) -> Pass:
    """One linear layer on `tokens` rows: the product, and its two gradients.

    Formula  forward m×n×k; backward m×k×n for the input and k×n×m for the weight (none for frozen weights)
    Why      Each gradient is a product of the same FLOPs in another orientation; narrow formats quantise the
             input once forward and the gradient once backward, unless a neighbour's kernel does it.
    """
    device, fmt = kernels.device, kernels.fmt
    forward_s = gemm_s(device, tokens, outer, inner, fmt)
    input_gradient_s = gemm_s(device, tokens, inner, outer, fmt)
    weight_gradient_s = gemm_s(device, inner, outer, tokens, fmt) * kernels.trains_weights
    if fmt in ("fp8", "fp4"):
        forward_s = forward_s + kernels.stack.quantise_factor * quantise_s(device, tokens, inner)
        input_gradient_s = input_gradient_s + kernels.stack.quantise_factor * quantise_s(
            device, tokens, outer
        )
    return Pass(forward_s, input_gradient_s + weight_gradient_s)


def _projections(work: Workload, layouts: Layouts, kernels: Kernels) -> Pass:
    """Query, key, value and output products of a softmax layer, and what the shape does not describe."""
    tokens, tp = rank_tokens(work, layouts), layouts.tp
    heads = work.heads / tp
    kv_heads = np.maximum(work.kv_heads / tp, np.minimum(1, work.kv_heads))
    query_width, kv_width = heads * work.head_dim, kv_heads * (work.head_dim + work.v_head_dim)
    if np.any(np.asarray(work.mla_kv_rank) > 0):
        into = _latent_projections(work, kernels, tokens, heads)
    else:
        into = linear_s(kernels, tokens, work.hidden, query_width + kv_width)
    out = linear_s(kernels, tokens, heads * work.v_head_dim, work.hidden)
    projections = (into + out).scaled(work.softmax_layers / work.layers)
    rest = other_parameters(work) / work.hidden / tp
    worth_it = np.asarray(np.asarray(rest) >= SMALLEST_REST * np.asarray(work.hidden) / tp, float)
    if np.any(worth_it):
        projections = projections + linear_s(kernels, tokens, work.hidden, rest).scaled(worth_it)
    return projections


def _latent_projections(work: Workload, kernels: Kernels, tokens: Dimension, heads: Dimension) -> Pass:
    """Multi-head latent attention: down to the ranks on every tensor rank, up to this rank's heads."""
    query_rank = np.where(np.asarray(work.mla_q_rank) > 0, work.mla_q_rank, work.hidden)
    down_width = work.mla_q_rank + work.mla_kv_rank + work.mla_rope_dim
    down = linear_s(kernels, tokens, work.hidden, down_width)
    query = linear_s(kernels, tokens, query_rank, heads * work.head_dim)
    key_value_width = heads * (work.head_dim - work.mla_rope_dim + work.v_head_dim)
    return down + query + linear_s(kernels, tokens, work.mla_kv_rank, key_value_width)


def _feed_forward(work: Workload, layouts: Layouts, kernels: Kernels) -> Pass:
    """The dense FFN of dense layers and the shared experts of expert layers; gate and up are one product."""
    tokens, tp = rank_tokens(work, layouts), layouts.tp
    moe_share = np.asarray(work.moe_layers / work.layers)
    total = Pass(0.0, 0.0)
    dense_share = np.asarray(work.dense_ffn_layers / work.layers)
    for width, share in ((work.ffn_hidden, dense_share), (work.shared_ffn_hidden, moe_share)):
        if np.any(np.asarray(width) * share > 0):
            up = linear_s(kernels, tokens, work.hidden, (work.ffn_matrices - 1) * width / tp)
            down = linear_s(kernels, tokens, width / tp, work.hidden)
            total = total + (up + down).scaled(share * (np.asarray(width) > 0))
    return total


def _attention(work: Workload, layouts: Layouts, kernels: Kernels) -> Pass:
    """Scores and values of a softmax layer: flash kernels, or whole score matrices in old software.

    A context-parallel rank holds 1/cp of the queries in balanced chunks: on average each sees half of the
    sequence, which is what `context_tokens` makes of it.
    """
    queries = work.sequence_tokens / layouts.cp
    context = (work.sequence_tokens - queries) / 2
    heads = work.heads / layouts.tp
    kv_heads = np.maximum(work.kv_heads / layouts.tp, np.minimum(1, work.kv_heads))

    def attend(window: Dimension) -> Floats:
        return attention_prefill_s(
            kernels.device,
            layouts.micro_batch,
            queries,
            context,
            heads,
            kv_heads,
            work.head_dim,
            kernels.half_fmt,
            window,
            work.v_head_dim,
        )

    forward_s = attend(0.0)
    if np.any(np.asarray(work.sliding_layers) > 0):
        share = work.sliding_layers / np.maximum(work.softmax_layers, 1)
        forward_s = forward_s * (1 - share) + attend(work.sliding_window) * share
    misaligned = np.where(np.asarray(work.head_dim) % 8 == 0, 1.0, kernels.stack.misaligned_factor)
    score_bytes = 2 * layouts.micro_batch * heads * queries * work.sequence_tokens
    softmax_s = elementwise_s(kernels.device, kernels.stack.softmax_passes_factor * score_bytes, 0.0)
    forward_s = (
        (forward_s * kernels.stack.attention_factor + softmax_s)
        * misaligned
        * (work.softmax_layers / work.layers)
    )
    return Pass(forward_s, forward_s * ATTENTION_BACKWARD_RATIO)


def _experts(work: Workload, layouts: Layouts, kernels: Kernels) -> Pass:
    """Routed experts on one rank: E/ep experts whole, or all of them cut by tp where ep is 1.

    Formula  (E/ep) × FFN of T·topk·ep·shards/(tp·E) rows, times the busiest rank's load over the mean
    Why      Training routes thousands of rows to each expert, and grouped kernels run one product per expert.
    """
    if not np.any(np.asarray(work.moe_layers) > 0):
        return Pass(0.0, 0.0)
    experts = np.maximum(work.experts, 1)
    shards = expert_tensor_ranks(layouts)
    rows = rank_tokens(work, layouts) * work.experts_topk * layouts.ep * shards / (layouts.tp * experts)
    width = np.maximum(work.moe_ffn_hidden, 1) / shards
    up = linear_s(kernels, rows, work.expert_input, (work.ffn_matrices - 1) * width)
    down = linear_s(kernels, rows, width, work.expert_input)
    here = experts / layouts.ep * (work.moe_layers / work.layers)
    return (up + down).scaled(here * kernels.stack.routing_imbalance_ratio * kernels.stack.expert_factor)


def expert_tensor_ranks(layouts: Layouts) -> Dimension:
    """Ranks that cut one expert's width: none once experts are spread, the tensor group otherwise."""
    return np.where(layouts.ep > 1, 1, layouts.tp)


def _elementwise(work: Workload, layouts: Layouts, kernels: Kernels) -> Pass:
    """Norms, residual sums, rotary and activation: passes over the residual stream and over the FFN width;
    scans of linear mixers: passes over their channels.

    Formula  b·T·(14·h/sp + (matrices + 1)·width/tp) bytes; sp = tp with sequence parallelism, else 1;
             b·T·passes·channels/tp bytes for the average layer's linear mixer
    Why      Each pass reads or writes values of b = 2 bytes, 4 in fp32, once; what a framework fuses is its
             `elementwise_factor`.
    """
    tokens = rank_tokens(work, layouts)
    sequence_shards = np.where(layouts.sequence_parallel == 1, layouts.tp, 1)
    moe_share = work.moe_layers / work.layers
    routed = work.experts_topk * (work.moe_ffn_hidden + 2 * work.expert_input) + work.shared_ffn_hidden
    width = work.dense_ffn_layers / work.layers * work.ffn_hidden + moe_share * routed
    scanned = kernels.stack.scan_passes_factor * work.linear_layers / work.layers * work.linear_width
    moved = NORM_PASSES * work.hidden / sequence_shards + (work.ffn_matrices + 1) * width / layouts.tp
    each_bytes = work.weight_bytes * tokens
    fused_s = elementwise_s(kernels.device, each_bytes * moved, 0.0) * kernels.stack.elementwise_factor
    forward_s = fused_s + elementwise_s(kernels.device, each_bytes * scanned / layouts.tp, 0.0)
    return Pass(forward_s, forward_s * ELEMENTWISE_BACKWARD_RATIO)


def head_s(work: Workload, layouts: Layouts, kernels: Kernels) -> Pass:
    """Logits and loss of one micro-batch on the last stage, the vocabulary cut over tensor ranks."""
    tokens = rank_tokens(work, layouts)
    vocab = work.vocab / layouts.tp
    plain = replace(kernels, fmt=kernels.half_fmt)  # the head stays in 16 bits
    product = linear_s(plain, tokens, work.hidden, vocab).scaled(kernels.stack.kernel_factor)
    loss_s = elementwise_s(kernels.device, LOSS_BYTES * tokens * vocab, 4.0)
    return product + Pass(loss_s / 2, loss_s / 2)
