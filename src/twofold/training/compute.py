"""What one device computes for one layer and one micro-batch, forward and backward, by kind of work."""

from dataclasses import dataclass, replace

import numpy as np

from twofold.perf import operators
from twofold.perf.attention import attention_prefill_s
from twofold.perf.types import Device, Floats
from twofold.training.job import Dimension, Workload
from twofold.training.layouts import Layouts
from twofold.training.stack import Stack

NORM_PASSES = 14  # reads and writes of the residual stream: two norms, two residual sums, rotary in and out
ELEMENTWISE_BACKWARD_RATIO = 1.6
# Flash: five products backward, the scores' recomputation among them, to two forward.
ATTENTION_BACKWARD_RATIO = 2.5
SMALLEST_REST = 0.01  # of hidden²: unexplained weights below it do no work worth a product
NARROW = ("fp8", "fp4", "int8")
FEW_EXPERTS = 16
LOSS_BYTES = 14  # per logit: read, fp32 softmax, gradient written and read

Flag = Floats
"""1 where something holds, else 0; an array holds one per candidate."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Seconds of one piece of work, forward and backward."""

    forward_s: Floats
    backward_s: Floats

    def __add__(self, other: "Pass") -> "Pass":
        return Pass(self.forward_s + other.forward_s, self.backward_s + other.backward_s)

    def scaled(self, times: Floats) -> "Pass":
        """The same work done `times` times."""
        return Pass(self.forward_s * times, self.backward_s * times)


@dataclass(frozen=True, slots=True)
class Product:
    """Matrix products, and the passes that quantise their inputs to a narrow format; none in 16 bits."""

    product: Pass
    quantise: Pass

    def __add__(self, other: "Product") -> "Product":
        return Product(self.product + other.product, self.quantise + other.quantise)

    def scaled(self, times: Floats) -> "Product":
        """The same work done `times` times."""
        return Product(self.product.scaled(times), self.quantise.scaled(times))

    def under(self, stack: Stack, capped: Floats) -> Pass:
        """What a stack makes of it; `capped` is what the power limit costs the products."""
        quantised = self.quantise.scaled(stack.quantise_factor)
        return (self.product.scaled(capped) + quantised).scaled(stack.kernel_factor)


NO_PRODUCT = Product(Pass(0.0, 0.0), Pass(0.0, 0.0))


@dataclass(frozen=True, slots=True)
class Kernels:
    """What runs the work: a device, the matrices in `fmt`, the rest in `half_fmt`."""

    device: Device
    fmt: str
    half_fmt: str
    trains_weights: Dimension  # 1, or 0 for weights frozen beside adapters


@dataclass(frozen=True, slots=True)
class LayerKernels:
    """What the kernels of the average layer, and of the head, take alone: no stack has changed anything.

    Seconds of one micro-batch on one device; forward where one figure stands for both directions.
    """

    dense: Product
    experts: Product
    wide: Flag  # 1 where the products are of 16 bits or more, the head's aside
    attention_s: Floats  # flash, forward
    score_pass_s: Floats  # one pass over whole score matrices
    misaligned: Flag  # 1 where the head size is no multiple of 8
    fused_s: Floats  # passes over the residual stream and the FFN width
    scan_pass_s: Floats  # one pass over the channels of linear mixers
    head: Pass  # logits of one micro-batch, the vocabulary cut over tensor ranks
    loss_s: Floats  # of the logits, both directions


@dataclass(frozen=True, slots=True)
class LayerCompute:
    """The average layer on one device, one micro-batch."""

    gemm: Pass
    attention: Pass
    experts: Pass
    elementwise: Pass

    @property
    def whole(self) -> Pass:
        """All of it, without recomputation."""
        return self.gemm + self.attention + self.experts + self.elementwise


def rank_tokens(work: Workload, layouts: Layouts) -> Dimension:
    """Tokens of one micro-batch on one context-parallel rank."""
    return layouts.micro_batch * work.sequence_tokens / layouts.cp


def kernels_for(work: Workload, device: Device, precision: str) -> Kernels:
    """The kernels of a precision: a format that the device lacks falls back to what it has."""
    half_fmt = "fp32" if precision == "fp32" else device.compute_format("bf16", "bf16").format
    fmt = device.compute_format(precision, precision).format
    return Kernels(device, fmt, half_fmt, np.asarray(np.asarray(work.lora_rank) == 0, float))


def layer_kernels(work: Workload, layouts: Layouts, kernels: Kernels) -> LayerKernels:
    """Time of the average layer's kernels alone, and of the head's."""
    attention_s, score_pass_s = _attention(work, layouts, kernels)
    fused_s, scan_pass_s = _elementwise(work, layouts, kernels)
    tokens, vocab = rank_tokens(work, layouts), work.vocab / layouts.tp
    plain = replace(kernels, fmt=kernels.half_fmt)  # the head stays in 16 bits
    return LayerKernels(
        dense=_projections(work, layouts, kernels) + _feed_forward(work, layouts, kernels),
        experts=_experts(work, layouts, kernels),
        wide=np.asarray(float(kernels.fmt not in NARROW)),
        attention_s=attention_s,
        score_pass_s=score_pass_s,
        misaligned=np.asarray(np.asarray(work.qk_head_dim) % 8 != 0, float),
        fused_s=fused_s,
        scan_pass_s=scan_pass_s,
        head=linear_s(plain, tokens, work.hidden, vocab).product,
        loss_s=operators.elementwise_s(kernels.device, LOSS_BYTES * tokens * vocab, 4.0),
    )


def layer_compute(alone: LayerKernels, stack: Stack) -> LayerCompute:
    """Time of the average layer under a stack, without recomputation."""
    scores_s = stack.softmax_passes_factor * alone.score_pass_s
    misaligned = np.where(alone.misaligned > 0, stack.misaligned_factor, 1.0)
    attended_s = (alone.attention_s * stack.attention_factor + scores_s) * misaligned * stack.kernel_factor
    capped = np.where(alone.wide > 0, stack.wide_factor, 1.0)
    imbalanced = stack.routing_imbalance_ratio * stack.expert_factor
    passes_s = alone.fused_s * stack.elementwise_factor + alone.scan_pass_s * stack.scan_passes_factor
    return LayerCompute(
        gemm=alone.dense.under(stack, capped),
        attention=Pass(attended_s, attended_s * ATTENTION_BACKWARD_RATIO),
        experts=alone.experts.under(stack, capped).scaled(imbalanced),
        elementwise=Pass(passes_s, passes_s * ELEMENTWISE_BACKWARD_RATIO),
    )


def head_s(alone: LayerKernels, stack: Stack) -> Pass:
    """Logits and loss of one micro-batch on the last stage."""
    loss = Pass(alone.loss_s / 2, alone.loss_s / 2)
    return alone.head.scaled(stack.kernel_factor * stack.wide_factor) + loss


def linear_s(kernels: Kernels, tokens: Dimension, inner: Dimension, outer: Dimension) -> Product:
    """One linear layer on `tokens` rows: the product, and its two gradients.

    Formula  forward m×n×k; backward m×k×n for the input and k×n×m for the weight (none for frozen weights)
    Why      Each gradient is a product of the same FLOPs in another orientation; narrow formats quantise the
             input once forward and the gradient once backward, unless a neighbour's kernel does it.
    """
    device, fmt = kernels.device, kernels.fmt
    forward_s = operators.gemm_s(device, tokens, outer, inner, fmt)
    input_gradient_s = operators.gemm_s(device, tokens, inner, outer, fmt)
    weight_gradient_s = operators.gemm_s(device, inner, outer, tokens, fmt) * kernels.trains_weights
    product = Pass(forward_s, input_gradient_s + weight_gradient_s)
    if fmt not in NARROW:
        return Product(product, Pass(0.0, 0.0))
    return Product(
        product,
        Pass(operators.quantise_s(device, tokens, inner), operators.quantise_s(device, tokens, outer)),
    )


def _projections(work: Workload, layouts: Layouts, kernels: Kernels) -> Product:
    """Query, key, value and output products of a softmax layer, and what the shape does not describe."""
    tokens, tp = rank_tokens(work, layouts), layouts.tp
    heads = work.heads / tp
    kv_heads = np.maximum(work.full_kv_heads / tp, np.minimum(1, work.full_kv_heads))
    query_width, kv_width = heads * work.qk_head_dim, kv_heads * (work.qk_head_dim + work.v_head_dim)
    if np.any(np.asarray(work.mla_kv_rank) > 0):
        # Multi-head latent attention: down to the ranks on every tensor rank, up to this rank's heads.
        query_rank = np.where(np.asarray(work.mla_q_rank) > 0, work.mla_q_rank, work.hidden)
        down_width = work.mla_q_rank + work.mla_kv_rank + work.mla_qk_rope
        up_width = heads * (work.qk_head_dim - work.mla_qk_rope + work.v_head_dim)
        into = linear_s(kernels, tokens, work.hidden, down_width)
        into = into + linear_s(kernels, tokens, query_rank, heads * work.qk_head_dim)
        into = into + linear_s(kernels, tokens, work.mla_kv_rank, up_width)
    else:
        into = linear_s(kernels, tokens, work.hidden, query_width + kv_width)
    out = linear_s(kernels, tokens, heads * work.v_head_dim, work.hidden)
    projections = (into + out).scaled(work.softmax_layers / work.layers)
    rest = work.other_parameters / work.hidden / tp
    worth_it = np.asarray(np.asarray(rest) >= SMALLEST_REST * np.asarray(work.hidden) / tp, float)
    if np.any(worth_it):
        projections = projections + linear_s(kernels, tokens, work.hidden, rest).scaled(worth_it)
    return projections


def _feed_forward(work: Workload, layouts: Layouts, kernels: Kernels) -> Product:
    """The dense FFN of dense layers and the shared experts of expert layers; gate and up are one product."""
    tokens, tp = rank_tokens(work, layouts), layouts.tp
    moe_share = np.asarray(work.moe_layers / work.layers)
    total = NO_PRODUCT
    dense_share = np.asarray(work.dense_ffn_layers / work.layers)
    for width, share in ((work.ffn_hidden, dense_share), (work.shared_ffn_hidden, moe_share)):
        if np.any(np.asarray(width) * share > 0):
            up = linear_s(kernels, tokens, work.hidden, (work.ffn_matrices - 1) * width / tp)
            down = linear_s(kernels, tokens, width / tp, work.hidden)
            total = total + (up + down).scaled(share * (np.asarray(width) > 0))
    return total


def _attention(work: Workload, layouts: Layouts, kernels: Kernels) -> tuple[Floats, Floats]:
    """Forward seconds of flash kernels, and of one pass over whole score matrices, which old software keeps.

    A context-parallel rank holds 1/cp of the queries in balanced chunks: on average each sees half of the
    sequence, which is what `context_tokens` makes of it.
    """
    queries = work.sequence_tokens / layouts.cp
    context = (work.sequence_tokens - queries) / 2
    heads = work.heads / layouts.tp
    kv_heads = np.maximum(work.full_kv_heads / layouts.tp, np.minimum(1, work.full_kv_heads))

    def attend(window: Dimension) -> Floats:
        return attention_prefill_s(
            kernels.device,
            layouts.micro_batch,
            queries,
            context,
            heads,
            kv_heads,
            work.qk_head_dim,
            kernels.half_fmt,
            window,
            work.v_head_dim,
        )

    forward_s = attend(0.0)
    if np.any(np.asarray(work.sliding_layers) > 0):
        share = work.sliding_layers / np.maximum(work.softmax_layers, 1)
        forward_s = forward_s * (1 - share) + attend(work.sliding_window) * share
    score_bytes = 2 * layouts.micro_batch * heads * queries * work.sequence_tokens
    share = work.softmax_layers / work.layers
    return forward_s * share, operators.elementwise_s(kernels.device, score_bytes, 0.0) * share


def _experts(work: Workload, layouts: Layouts, kernels: Kernels) -> Product:
    """Routed experts on one rank: E/ep of them, whole or cut by tensor ranks.

    Formula  (E/ep) × FFN of T·topk·ep·shards/(tp·E) rows, times the busiest rank's load over the mean
    Why      Training routes thousands of rows to each expert, and grouped kernels run one product per expert.
    """
    if not np.any(np.asarray(work.moe_layers) > 0):
        return NO_PRODUCT
    experts = np.maximum(work.experts, 1)
    shards = expert_tensor_ranks(work, layouts)
    rows = rank_tokens(work, layouts) * work.experts_topk * layouts.ep * shards / (layouts.tp * experts)
    width = np.maximum(work.moe_ffn_hidden, 1) / shards
    up = linear_s(kernels, rows, work.expert_input, (work.ffn_matrices - 1) * width)
    down = linear_s(kernels, rows, width, work.expert_input)
    here = experts / layouts.ep * (work.moe_layers / work.layers)
    return (up + down).scaled(here)


def expert_tensor_ranks(work: Workload, layouts: Layouts) -> Dimension:
    """Ranks that cut one expert's width: the tensor group, unless many small experts are spread instead.

    Formula  1 where ep > 1 and the model has more than 16 experts, or where ep leaves no rank for it; else tp
    Why      Megatron cuts experts like everything else; recipes of fine-grained models keep them whole, as
             a narrow expert cut again makes poor products.
    """
    ranks = layouts.tp * layouts.cp * layouts.dp
    whole = (layouts.ep > 1) & ((np.asarray(work.experts) > FEW_EXPERTS) | (layouts.ep * layouts.tp > ranks))
    return np.where(whole, 1, layouts.tp)


def _elementwise(work: Workload, layouts: Layouts, kernels: Kernels) -> tuple[Floats, Floats]:
    """Norms, residual sums, rotary and activation: passes over the residual stream and over the FFN width;
    and one pass over the channels of linear mixers, whose scans make many. Forward seconds of both.

    Formula  b·T·(14·h/sp + (matrices + 1)·width/tp) bytes; sp = tp with sequence parallelism, else 1;
             b·T·channels/tp bytes for the average layer's linear mixer
    Why      Each pass reads or writes values of b = 2 bytes, 4 in fp32, once; what a framework fuses is its
             `elementwise_factor`.
    """
    tokens = rank_tokens(work, layouts)
    sequence_shards = np.where(layouts.sequence_parallel == 1, layouts.tp, 1)
    moe_share = work.moe_layers / work.layers
    routed = work.experts_topk * (work.moe_ffn_hidden + 2 * work.expert_input) + work.shared_ffn_hidden
    width = work.dense_ffn_layers / work.layers * work.ffn_hidden + moe_share * routed
    scanned = work.linear_layers / work.layers * work.linear_hidden / layouts.tp
    moved = NORM_PASSES * work.hidden / sequence_shards + (work.ffn_matrices + 1) * width / layouts.tp
    each_bytes = work.weight_bytes * tokens
    fused_s, scan_pass_s = (
        operators.elementwise_s(kernels.device, each_bytes * n, 0.0) for n in (moved, scanned)
    )
    return fused_s, scan_pass_s
