"""Bytes on the fullest device, by part; the parts sum to the total."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from twofold.core import record
from twofold.perf.types import Floats
from twofold.training.communication import (
    expert_replicas,
    stage_dense_weights,
    stage_expert_weights,
    trained_dense_weights,
    trained_expert_weights,
)
from twofold.training.compute import expert_tensor_ranks, rank_tokens
from twofold.training.job import Dimension, Workload
from twofold.training.layouts import Layouts, Recompute
from twofold.training.recompute import kept_activation_bytes, kept_bytes, score_bytes
from twofold.training.stack import Stack

GATHERED_LAYERS = 2  # layers whose weights ZeRO-3 holds whole at once: one computes, one is fetched
FP32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per device on the worst pipeline stage; arrays over candidates."""

    weights_bytes: Floats
    gradients_bytes: Floats
    optimizer_bytes: Floats
    activations_bytes: Floats
    logits_bytes: Floats
    beside_bytes: Floats  # gathered layers, copies of gradients, what passes while one layer runs backward
    cached_bytes: Floats  # rounding and gaps: held by the allocator, in no tensor
    outside_bytes: Floats  # context and communication buffers, not the allocator's
    reclaimable_bytes: Floats  # no part: freed blocks that the allocator keeps until it runs short
    spread_factor: Floats  # of what is no state: its upper end over its middle

    @property
    def total_bytes(self) -> Floats:
        """All parts: what the device must have; the unbiased middle."""
        parts: list[Floats] = [getattr(self, f.name) for f in fields(self)[:-2]]
        return record.note(
            "memory_bytes", sum(parts[1:], parts[0]), "", *COUNTED, "buffers_bytes", "memory_spread"
        )

    @property
    def buffers_bytes(self) -> Floats:
        """What is neither of the model nor of a batch."""
        whole = self.beside_bytes + self.cached_bytes + self.outside_bytes
        return record.note("buffers_bytes", whole, BUFFERS, "layout", *COUNTED)

    @property
    def device_bytes(self) -> Floats:
        """What the device counts as taken."""
        return self.total_bytes + self.reclaimable_bytes

    @property
    def reserved_bytes(self) -> Floats:
        """What the allocator took from the device (`max_memory_reserved`)."""
        return self.device_bytes - self.outside_bytes

    @property
    def allocated_bytes(self) -> Floats:
        """What tensors hold (`max_memory_allocated`)."""
        return self.total_bytes - self.outside_bytes - self.cached_bytes

    @property
    def states_bytes(self) -> Floats:
        """Weights, gradients and optimiser: counted, not estimated."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def low_bytes(self) -> Floats:
        """Lower end of the 80 % range."""
        return self.states_bytes + (self.total_bytes - self.states_bytes) / self.spread_factor

    @property
    def high_bytes(self) -> Floats:
        """Upper end of the 80 % range: what decides whether a layout fits."""
        return self.states_bytes + (self.total_bytes - self.states_bytes) * self.spread_factor


COUNTED = ("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "logits_bytes")
BUFFERS = (
    "context, communication and kernel scratch, copies of gradients beside them, and fragmentation of all"
)
FORMULAS: Mapping[str, str] = {  # of `Memory`: how a part follows from layout and parameters
    "weights_bytes": "parameters of the fullest stage × bytes of the format",
    "gradients_bytes": "trained parameters × bytes of the format",
    "optimizer_bytes": "trained parameters × (master copy + moments), over the ranks that share them",
    "activations_bytes": "micro-batches in flight × layers × bytes kept per layer",
    "logits_bytes": "tokens of a micro-batch × vocabulary / TP",
}


def memory(work: Workload, layouts: Layouts, stack: Stack) -> Memory:
    """Bytes by part on the fullest device.

    Formula  first stage: embedding, layers, activations of every micro-batch in flight; second: as the first,
             one micro-batch less; last stage: head, layers, one micro-batch's activations, logits; the worst
    Why      1F1B keeps p micro-batches on the first stage, one on the last, which alone has the logits. Where
             a model begins with dense layers, later stages hold more experts than the first.
    Shapes   layouts are (N,); dimensions and constants broadcast.
    Units    bytes.
    Source   Korthikanti et al. 2022 (activations), Rajbhandari et al. 2020 (shards).
    Limits   ZeRO-0 and one stage: everything; ZeRO-3: states fall as 1/replicas, activations do not.
    """
    first_layers, last_layers = _stage_layers(work, layouts, stack)
    in_first, in_last = _layers_in_flight(work, layouts, first_layers, last_layers)
    in_second = np.maximum(in_first - first_layers / layouts.vpp, 0.0)
    loss = stack.logits_bytes * rank_tokens(work, layouts) * work.vocab / layouts.tp
    alone = np.where(layouts.pp == 1, loss, 0.0)
    leading = _leading(work, first_layers)
    first = _stage_bytes(work, layouts, stack, first_layers, in_first, alone, leading)
    at_end = np.where(layouts.pp > 1, 0.0, leading)
    last = _stage_bytes(work, layouts, stack, last_layers, in_last, loss, at_end)
    second = _stage_bytes(work, layouts, stack, first_layers, in_second, alone, 0.0)
    middle = layouts.pp > 2
    for other, there in ((second, middle), (last, True)):
        worse = there & (sum(other[1:], other[0]) > sum(first[1:], first[0]))
        first = tuple(np.where(worse, theirs, ours) for theirs, ours in zip(other, first, strict=True))
    weights, gradients, optimizer, activations, logits, passing, beside, at_step = first
    # What the step copies finds free memory, but in blocks that are too small for it.
    freed = np.minimum(at_step, activations + logits + passing)
    beside = beside + passing + at_step - freed
    held = weights + gradients + optimizer + activations + logits + beside
    cached = stack.fragmentation_fraction * held
    parts = (weights, gradients, optimizer, activations, logits, beside, cached)
    ends = (stack.workspace_bytes, freed, stack.memory_spread_factor)
    shape = np.broadcast(*parts, *ends, layouts.tp).shape
    held = Memory(*(np.broadcast_to(part, shape) for part in (*parts, *ends)))
    for name, formula in FORMULAS.items():
        record.note(name, getattr(held, name), formula, "layout", "parameters")
    return held


def _stage_layers(work: Workload, layouts: Layouts, stack: Stack) -> tuple[Floats, Floats]:
    """Layers of the first and of the last stage.

    Formula  even: L/p, rounded up. By cost: a stage is full with the layer that crosses its share of
             L + head, the head counted as the layers that have its weights
    Source   nanotron's `build_model` fills stages by cost; Megatron-Core divides layers evenly.
    """
    even = np.ceil(work.layers / layouts.pp)
    head = work.vocab * work.hidden / work.dense_parameters
    share = (work.layers + head) / layouts.pp
    first = np.minimum(np.floor(share) + 1, work.layers)
    last = np.maximum(work.layers - np.floor(share * (layouts.pp - 1)) - 1, 0)
    by_cost = (layouts.pp > 1) & (np.asarray(stack.stage_cost_factor) > 0)
    return np.where(by_cost, first, even), np.where(by_cost, last, even)


def _layers_in_flight(
    work: Workload, layouts: Layouts, first_layers: Floats, last_layers: Floats
) -> tuple[Floats, Floats]:
    """Layers × micro-batches whose activations the first and the last stage hold.

    Formula  first: p·layers of a stage, interleaved L·(1 + (p−1)/(p·v)); last: one micro-batch's, interleaved
             L·(1 − (p−1)/(p·v)); no more than there are micro-batches
    Source   Korthikanti et al. 2022, section 4.2.3; Narayanan et al. 2021, section 2.2.
    """
    pp, vpp = layouts.pp, layouts.vpp
    micro_batches = work.batch_sequences / (layouts.dp * layouts.micro_batch)
    most = np.where(vpp > 1, work.layers * (1 + (pp - 1) / (pp * vpp)), first_layers * pp)
    least = np.where(vpp > 1, work.layers * (1 - (pp - 1) / (pp * vpp)), last_layers)
    return np.minimum(most, first_layers * micro_batches), np.minimum(least, last_layers * micro_batches)


def _leading(work: Workload, layers: Floats) -> Floats:
    """Layers of the first stage without experts, where a model begins with dense layers."""
    begins = (work.dense_ffn_layers < work.moe_layers) & (np.asarray(work.linear_layers) == 0)
    return np.where(begins, np.minimum(work.dense_ffn_layers, layers), 0.0)


def _stage_bytes(
    work: Workload,
    layouts: Layouts,
    stack: Stack,
    layers: Floats,
    in_flight: Floats,
    loss: Floats,
    leading: Floats,
) -> tuple[Floats, ...]:
    """One stage: weights, gradients, optimiser, activations, logits, what passes in one layer's backward,
    what lies beside all along, and what the step copies. `leading` layers of it have no experts.

    Why      The loss is over when the last layer runs backward: the larger of the two counts.
    """
    more = (layers - np.ceil(work.layers / layouts.pp)) * work.dense_parameters / layouts.tp
    lora = np.asarray(work.lora_rank) > 0
    # Experts are counted per average layer: a stage of expert layers alone holds more.
    begins = _leading(work, layers) > 0
    mean_share = np.maximum(work.moe_layers, 1) / work.layers
    fuller = np.where(begins, (layers - leading) / np.maximum(layers, 1) / mean_share, 1.0)
    whole = stage_dense_weights(work, layouts) + more, stage_expert_weights(work, layouts) * fuller
    trained_dense = trained_dense_weights(work, layouts) + np.where(lora, 0.0, more)
    trained = trained_dense, trained_expert_weights(work, layouts) * fuller
    states = _shared(work, layouts, trained, 1)
    beside = np.maximum(stack.gradient_memory_bytes - work.weight_bytes, 0.0)
    narrow = (beside == 0) & (np.asarray(work.weight_bytes) < FP32_BYTES)
    copied = narrow & (work.optimizer_on_host == 0) & (layouts.zero_stage < 3)  # FSDP's shards are fp32
    # ZeRO-3 holds whole tables, and whole layers while one computes and the next is fetched.
    expert_ranks = layouts.ep * expert_tensor_ranks(work, layouts)
    layer = work.dense_parameters / layouts.tp + work.expert_parameters / expert_ranks
    gathered = (GATHERED_LAYERS * layer + work.embedding_weights / layouts.tp) * work.weight_bytes
    passing = _passing_bytes(work, layouts, stack)
    logits = np.where(loss > passing, loss, 0.0)
    copies = np.where(layouts.pp > 1, stack.stage_copies_count, 1.0)
    kept_gradients = _shared(work, layouts, trained, 2) * copies
    return (
        _shared(work, layouts, whole, 3) * work.weight_bytes * copies,
        kept_gradients * work.weight_bytes,
        stack.optimizer_fraction * states * work.optimizer_bytes * (1 - np.asarray(work.optimizer_on_host)),
        in_flight * kept_activation_bytes(work, layouts, stack),
        logits,
        np.where(logits > 0, 0.0, passing),
        np.where(layouts.zero_stage == 3, gathered, 0.0) + kept_gradients * beside,
        np.where(copied, states * FP32_BYTES, 0.0),
    )


def _shared(
    work: Workload, layouts: Layouts, weights: tuple[Dimension, Dimension], from_stage: int
) -> Floats:
    """Dense and expert weights on one rank, divided by their replicas from a ZeRO stage on."""
    sharded = layouts.zero_stage >= from_stage
    replicas = np.where(sharded, layouts.dp * layouts.cp, 1)
    copies = np.where(sharded, expert_replicas(work, layouts), 1)
    return np.asarray(weights[0] / replicas + weights[1] / copies)


def _passing_bytes(work: Workload, layouts: Layouts, stack: Stack) -> Floats:
    """What is alive while one layer runs backward: its widest gradients, gathered inputs, and under full
    recomputation the layer's saved tensors again.

    Formula  T·(2·matrices·width/tp + 4·h), 2·h of it gathered over tensor ranks
    """
    width = np.maximum(work.ffn_hidden, work.experts_topk * work.moe_ffn_hidden + work.shared_ffn_hidden)
    wide = rank_tokens(work, layouts) * (2 * work.ffn_matrices * width / layouts.tp + 4 * work.hidden)
    again = sum(kept_bytes(work, layouts).values(), np.zeros(1)) * stack.activation_factor
    again = again + score_bytes(work, layouts, stack)
    return wide + np.where(layouts.recompute == Recompute.FULL, again, 0.0)
