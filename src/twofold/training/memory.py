"""Bytes on the fullest device, by part; the parts sum to the total."""

from dataclasses import dataclass, fields

import numpy as np

from twofold.perf import Floats
from twofold.training.communication import (
    expert_replicas,
    stage_dense_weights,
    stage_expert_weights,
    trained_dense_weights,
    trained_expert_weights,
)
from twofold.training.compute import rank_tokens
from twofold.training.job import Dimension, TrainingJob, Workload, workload
from twofold.training.layouts import Layouts, Recompute
from twofold.training.stack import Stack

GATHERED_LAYERS = 2  # layers whose weights ZeRO-3 holds whole at once: one computes, one is fetched


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per device on the worst pipeline stage; arrays over candidates."""

    weights_bytes: Floats
    gradients_bytes: Floats
    optimizer_bytes: Floats
    activations_bytes: Floats
    logits_bytes: Floats
    buffers_bytes: Floats
    spread_factor: Floats  # the 80 % range is total / spread to total × spread

    @property
    def total_bytes(self) -> Floats:
        """All parts; the unbiased middle."""
        parts: list[Floats] = [getattr(self, f.name) for f in fields(self)[:-1]]
        return sum(parts[1:], parts[0])

    @property
    def low_bytes(self) -> Floats:
        """Lower end of the 80 % range."""
        return self.total_bytes / self.spread_factor

    @property
    def high_bytes(self) -> Floats:
        """Upper end of the 80 % range: what decides whether a layout fits."""
        return self.total_bytes * self.spread_factor


def memory(job: TrainingJob, layouts: Layouts, stack: Stack) -> Memory:
    """Bytes of `job` on the fullest device, for every layout."""
    return workload_memory(workload(job), layouts, stack)


def workload_memory(work: Workload, layouts: Layouts, stack: Stack) -> Memory:
    """Bytes by part on the fullest device.

    Formula  first stage: embedding, layers, activations of every micro-batch in flight; last stage: head,
             layers, one micro-batch's activations, logits; the worse of the two
    Why      1F1B keeps p micro-batches on the first stage, one on the last, which alone has the logits.
    Shapes   layouts are (N,); dimensions and constants broadcast.
    Units    bytes.
    Source   Korthikanti et al. 2022 (activations), Rajbhandari et al. 2020 (shards).
    Limits   ZeRO-0 and one stage: everything; ZeRO-3: states fall as 1/replicas, activations do not.
    """
    weights, gradients, optimizer = _states(work, layouts, stack)
    first, last = _activations(work, layouts, stack)
    logits = stack.logits_bytes * rank_tokens(work, layouts) * work.vocab / layouts.tp
    head_is_worse = (last + logits > first) | (layouts.pp == 1)
    activations = np.where(head_is_worse, last, first)
    logits = np.where(head_is_worse, logits, 0.0)
    held = weights + gradients + optimizer + activations + logits
    buffers = stack.workspace_bytes + stack.fragmentation_fraction * held + _gathered(work, layouts)
    parts = (weights, gradients, optimizer, activations, logits, buffers, stack.memory_spread_factor)
    shape = np.broadcast(*parts, layouts.tp).shape
    return Memory(*(np.broadcast_to(part, shape) for part in parts))


def _states(work: Workload, layouts: Layouts, stack: Stack) -> tuple[Floats, Floats, Floats]:
    """Weights, gradients and optimiser states, each divided by the replicas from its ZeRO stage on."""
    stage, replicas, copies = layouts.zero_stage, layouts.dp * layouts.cp, expert_replicas(work, layouts)

    def shared(dense: Dimension, experts: Dimension, from_stage: int) -> Dimension:
        sharded = stage >= from_stage
        return dense / np.where(sharded, replicas, 1) + experts / np.where(sharded, copies, 1)

    trained = trained_dense_weights(work, layouts), trained_expert_weights(work, layouts)
    weights = shared(stage_dense_weights(work, layouts), stage_expert_weights(work, layouts), 3)
    states = shared(*trained, 1) * work.optimizer_bytes * (1 - np.asarray(work.optimizer_on_host))
    return weights * work.weight_bytes, shared(*trained, 2) * stack.gradient_memory_bytes, states


def _gathered(work: Workload, layouts: Layouts) -> Floats:
    """Whole layers that ZeRO-3 holds while one computes and the next is fetched."""
    layer = (stage_dense_weights(work, layouts) + stage_expert_weights(work, layouts)) / np.ceil(
        work.layers / layouts.pp
    )
    return np.where(layouts.zero_stage == 3, GATHERED_LAYERS * layer * work.weight_bytes, 0.0)


def _activations(work: Workload, layouts: Layouts, stack: Stack) -> tuple[Floats, Floats]:
    """Activations of the first and of the last stage.

    Formula  first: layers·min(m/p, 1 + (p−1)/(p·v)), last: layers/p; each × bytes per layer; under full
             recomputation plus one layer's whole working set
    Source   Korthikanti et al. 2022, section 4.2.3 (interleaving factor).
    """
    kept = kept_activation_bytes(work, layouts, stack)
    micro_batches = work.batch_sequences / (layouts.dp * layouts.micro_batch)
    pp, vpp = layouts.pp, layouts.vpp
    # Without interleaving p micro-batches are in flight on the first stage, each of layers / p.
    ramp = np.where(vpp > 1, 1 + (pp - 1) / (pp * vpp), 1.0)
    working = np.where(layouts.recompute == Recompute.FULL, layer_activation_bytes(work, layouts), 0.0)
    first = work.layers * np.minimum(ramp, micro_batches / pp) * kept + working
    return first, np.ceil(work.layers / pp) * kept + working


def kept_activation_bytes(work: Workload, layouts: Layouts, stack: Stack) -> Floats:
    """Bytes that one layer keeps of one micro-batch from forward to backward, by recompute mode."""
    everything = layer_activation_bytes(work, layouts) * stack.activation_factor
    scores = unfused_score_bytes(work, layouts) * (np.asarray(stack.softmax_passes_factor) > 0)
    shards = np.where(layouts.sequence_parallel == 1, layouts.tp, 1)
    inputs = 2 * rank_tokens(work, layouts) * work.hidden / shards
    selective = everything * (1 - stack.selective_memory_fraction)
    modes = [layouts.recompute == Recompute.FULL, layouts.recompute == Recompute.SELECTIVE]
    return np.select(modes, [inputs, selective], everything + scores)


def layer_activation_bytes(work: Workload, layouts: Layouts) -> Dimension:
    """Bytes of the average layer's saved tensors for one micro-batch, scores not counted.

    Formula  T·(10·h/sp + (2·(q + k + v) + 2·heads·d_v + FFN)/tp), FFN: ungated 4·width, gated 6·width bytes,
             without dropout 8·h; MoE: routed copies of input and FFN
    Why      Kept in 16 bits: both norms' inputs and outputs, Q, K, V, the attention's output, the inputs of
             each FFN product. Sequence parallelism divides what tensor parallelism copies.
    Shapes   broadcasts over layouts.
    Units    bytes.
    Source   Korthikanti et al. 2022, equations 1-4: 34·s·b·h for multi-head attention and 4·h ungated FFN,
             of which 10 are not divided by tp without sequence parallelism.
    Limits   flash attention: the 5·a·s/h term is `unfused_score_bytes`.

    """
    tokens = rank_tokens(work, layouts)
    shards = np.where(layouts.sequence_parallel == 1, layouts.tp, 1)
    dropout = np.asarray(work.ffn_matrices) == 2  # gated models are trained without
    copied = np.where(dropout, 10, 8) * work.hidden
    kv_width = np.maximum(work.kv_heads, np.minimum(layouts.tp, work.heads)) * (
        work.head_dim + work.v_head_dim
    )
    attention = 2 * (work.heads * (work.head_dim + work.v_head_dim) + kv_width)
    moe_share = work.moe_layers / work.layers
    per_width = np.where(dropout, 4, 6)
    dense_share = work.dense_ffn_layers / work.layers
    dense = per_width * (dense_share * work.ffn_hidden + moe_share * work.shared_ffn_hidden)
    routed = moe_share * work.experts_topk * (per_width * work.moe_ffn_hidden + 4 * work.expert_input)
    return tokens * (copied / shards + (attention + dense + routed) / layouts.tp)


def unfused_score_bytes(work: Workload, layouts: Layouts) -> Dimension:
    """Score matrices that unfused attention keeps: 5·heads/tp·s² bytes a sequence (Korthikanti 2022)."""
    return 5 * work.heads / layouts.tp * rank_tokens(work, layouts) * work.sequence_tokens
