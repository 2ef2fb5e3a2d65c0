"""Seconds of one optimiser step, by part; the parts sum to the total."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from twofold.core import record
from twofold.perf import collectives, operators
from twofold.perf.types import Cluster, Device, Floats, Network, smooth_max
from twofold.training.communication import (
    context_parallel_s,
    data_parallel_s,
    edge_bucket_s,
    expert_parallel_s,
    expert_replicas,
    handoff_s,
    tensor_parallel_s,
    trained_dense_weights,
    trained_expert_weights,
)
from twofold.training.compute import Flag, LayerKernels, head_s, kernels_for, layer_compute, layer_kernels
from twofold.training.job import Workload
from twofold.training.layouts import Layouts, Recompute
from twofold.training.recompute import repeated_s
from twofold.training.stack import Stack

ACCUMULATE_BYTES = 8.0  # per gradient: a 32-bit sum, read and written
HOST_NORM = 4.0  # the launch time of a layer hides behind its kernels but for their 4-norm
BACKWARD_SHARE = 2 / 3  # of a micro-batch's compute that gradient traffic can hide behind


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds per optimiser step on the critical path, each an array over candidates (draws first)."""

    gemm_s: Floats
    attention_s: Floats
    experts_s: Floats
    elementwise_s: Floats
    recompute_s: Floats
    tp_s: Floats  # exposed, as are the next four
    cp_s: Floats
    ep_s: Floats
    pp_s: Floats
    dp_s: Floats
    host_s: Floats  # launches that kernels do not hide
    head_s: Floats  # logits and loss, and stages that wait for a longer one
    bubble_s: Floats
    optimizer_s: Floats
    data_s: Floats
    jitter_s: Floats

    @property
    def total_s(self) -> Floats:
        """The whole step."""
        parts: list[Floats] = [getattr(self, f.name) for f in fields(self)]
        total = sum(parts[1:], parts[0])
        return record.note(
            "step_s", total, "", "compute_s", *WITHIN, *AROUND, "data_s", "jitter_s", "step_spread"
        )

    @property
    def compute_s(self) -> Floats:
        """Arithmetic that the model asks for, recomputation apart."""
        whole = self.gemm_s + self.attention_s + self.experts_s + self.elementwise_s
        return record.note("compute_s", whole, "", "gemm_s", "attention_s", "experts_s", "elementwise_s")

    @property
    def communication_s(self) -> Floats:
        """Exposed communication of all kinds."""
        return self.tp_s + self.cp_s + self.ep_s + self.pp_s + self.dp_s


TIMES = "micro-batches × layers × "
WITHIN = ("recompute_s", "tp_s", "cp_s", "ep_s")  # a layer, beside its compute
AROUND = ("pp_s", "dp_s", "host_s", "head_s", "bubble_s", "optimizer_s")
# Of `StepTime`: how a part follows, and the names of what it may follow from beside constants.
FORMULAS: Mapping[str, tuple[str, ...]] = {
    "gemm_s": (
        f"{TIMES}FLOPs / (peak × efficiency), not below bytes / bandwidth, forward and backward",
        *("micro_batches", "layers", "parameters_active"),
    ),
    "attention_s": (
        f"{TIMES}causal FLOPs / (peak × efficiency), backward 2.5 times forward",
        *("micro_batches", "layers", "heads"),
    ),
    "experts_s": (
        f"{TIMES}grouped products of the busiest expert rank",
        *("micro_batches", "layers", "parameters_active"),
    ),
    "elementwise_s": (
        f"{TIMES}bytes of unfused passes / (bandwidth × efficiency)",
        *("micro_batches", "layers"),
    ),
    "recompute_s": ("forward work that the backward pass repeats", "layout", "compute_s"),
    "tp_s": ("all-reduces of each layer that compute does not hide", "layout"),
    "cp_s": ("keys and values gathered over context ranks, exposed", "layout"),
    "ep_s": (
        "tokens sent to their experts and back, less what hides behind arithmetic",
        "layout",
        "compute_s",
    ),
    "pp_s": ("activations handed to the next stage", "layout"),
    "dp_s": ("gradients summed and weights spread, exposed", "layout", "compute_s", *WITHIN),
    "host_s": ("launches that kernels do not hide", "layout", "compute_s", *WITHIN),
    "head_s": (
        "logits and loss, and stages that wait for a longer one",
        *("layout", "compute_s", *WITHIN),
    ),
    "bubble_s": (
        "(PP − 1) / interleaving × stage",
        *("layout", "compute_s", *WITHIN, "pp_s", "head_s"),
    ),
    "optimizer_s": ("states, gradients and weights read and written once", "layout"),
    "data_s": ("waits for the input pipeline, a share of the rest", "compute_s", *WITHIN, *AROUND),
    "jitter_s": ("the slowest of all ranks, sigma · √(2 ln N)", "layout", "compute_s", *WITHIN, *AROUND),
}


def step_time(work: Workload, precision: str, layouts: Layouts, cluster: Cluster, stack: Stack) -> StepTime:
    """Seconds of one step for every layout."""
    return bare_step_time(work, layouts, bare_step(work, precision, layouts, cluster, stack), stack)


def bare_step(work: Workload, precision: str, layouts: Layouts, cluster: Cluster, stack: Stack) -> "BareStep":
    """What hardware takes for the pieces; of the stack only how wide gradients are."""
    kernels = layer_kernels(work, layouts, kernels_for(work, cluster.device, precision))
    processor = np.asarray(float(cluster.device.family == "cpu"))
    update_s = _optimizer_s(work, layouts, cluster, stack)
    traffic = step_traffic(work, layouts, cluster.network, stack)
    return BareStep(kernels, traffic, _accumulate_s(work, layouts, cluster.device), update_s, processor)


def bare_step_time(work: Workload, layouts: Layouts, bare: "BareStep", stack: Stack) -> StepTime:
    """Seconds of one step, by part, from what hardware takes for the pieces.

    Formula  (m + (p−1)/v)·(stage + hand-offs) + exposed DP + optimiser + stalls, with
             stage = layers/p × 4-norm(compute + recompute + exposed traffic; host)
    Why      1F1B runs m micro-batches through a stage; its ramp costs (p−1)/v more. Launch time is a floor,
             but adds to the rest on a processor, which does both.
    Shapes   layouts are (N,); any constant or dimension may be (N,) or carry leading axes that broadcast.
    Units    seconds.
    Source   Narayanan et al. 2021 (schedule, bubble); PHYSICS and SKETCHES (floor, overlap).
    Limits   one device: compute, head, optimiser and host alone; p = 1: no bubble, no hand-off.
    """
    traffic = bare.traffic
    layer = layer_compute(bare.kernels, stack)
    whole = layer.whole
    recompute_s = repeated_s(work, layouts, layer, stack)
    micro_batches = work.batch_sequences / (layouts.dp * layouts.micro_batch)
    # What hides a sum inside the fast domain is too short for one that leaves it.
    tp_s = np.where(traffic.tensor_near > 0, stack.tp_exposed_fraction, 1.0) * traffic.tensor_s
    cp_s = stack.cp_exposed_fraction * traffic.context_s
    # Experts' traffic hides behind a micro-batch's arithmetic, where there is another to compute meanwhile.
    behind_s = np.where(micro_batches > 1, whole.forward_s + whole.backward_s, 0.0)
    hidden_share = 1 - stack.ep_exposed_fraction
    ep_s = traffic.expert_s - hidden_share * np.minimum(traffic.expert_s, behind_s)
    busy_s = whole.forward_s + whole.backward_s + recompute_s + tp_s + cp_s + ep_s + bare.accumulate_s
    host_s = _host_layer_s(work, layouts, traffic, stack)
    # Launches hide behind a layer's kernels, unless both need the same cores.
    hidden_s = smooth_max(busy_s, host_s, HOST_NORM)
    launched_s = np.where(bare.on_processor > 0, busy_s + host_s, hidden_s)

    times = micro_batches * (work.layers / layouts.pp)  # of the average layer, per step and stage
    head = head_s(bare.kernels, stack)
    slowest_s, uneven_s = _stages(work, layouts, launched_s, head.forward_s + head.backward_s, stack)
    # An interleaved schedule sends while it computes other chunks; launching the hand-off stays.
    wire_s = np.where(layouts.vpp > 1, 0.0, traffic.handoff_s)
    hop_s = (wire_s + np.where(layouts.pp > 1, stack.handoff_s, 0.0)) * layouts.vpp
    stage_s = slowest_s + hop_s
    window_s = times * launched_s
    parts = {
        "gemm_s": times * (layer.gemm.forward_s + layer.gemm.backward_s),
        "attention_s": times * (layer.attention.forward_s + layer.attention.backward_s),
        "experts_s": times * (layer.experts.forward_s + layer.experts.backward_s),
        "elementwise_s": times
        * (layer.elementwise.forward_s + layer.elementwise.backward_s + bare.accumulate_s),
        "recompute_s": times * recompute_s,
        "tp_s": times * tp_s,
        "cp_s": times * cp_s,
        "ep_s": times * ep_s,
        "pp_s": micro_batches * hop_s,
        "dp_s": _exposed_dp_s(layouts, traffic, stack, window_s, micro_batches),
        "host_s": times * (launched_s - busy_s) + stack.host_step_s,
        "head_s": micro_batches * uneven_s,
        "bubble_s": stack.bubble_fraction * (layouts.pp - 1) / layouts.vpp * stage_s,
        "optimizer_s": np.where(
            np.asarray(work.optimizer_on_host) > 0,
            bare.update_s / stack.host_optimizer_bytes_per_s,
            bare.update_s * stack.optimizer_bytes_factor,
        ),
    }
    done_s = sum(parts.values(), np.zeros(1))
    slow = collectives.straggler_factor(stack.straggler_sigma, cluster_ranks(layouts)) - 1
    exposed_s = parts["tp_s"] + parts["cp_s"] + parts["ep_s"] + parts["pp_s"] + parts["dp_s"]
    shape = np.broadcast(done_s, slow).shape
    parts["data_s"] = done_s * stack.data_stall_fraction
    parts["jitter_s"] = done_s * slow + exposed_s * traffic.waiting_fraction
    wide = {name: np.broadcast_to(part, shape) for name, part in parts.items()}
    return StepTime(**{name: record.note(name, part, *FORMULAS[name]) for name, part in wide.items()})


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the links take, nothing hidden: per layer and micro-batch, per hand-off, per step; and which
    groups leave their domain or node."""

    tensor_s: Floats
    context_s: Floats
    expert_s: Floats
    handoff_s: Floats
    replica_s: Floats  # data-parallel, per step
    edge_s: Floats  # of it, the last bucket of gradients and the first of weights
    waiting_fraction: Floats  # of exposed traffic: what jitter adds
    tensor_near: Flag  # 1 where a tensor group stays in its domain
    tensor_spread: Flag  # 1 where it leaves domain and node
    pipeline_across: Flag  # 1 where tensor groups and a pipeline share more than a node


@dataclass(frozen=True, slots=True)
class BareStep:
    """What hardware takes for the pieces of a step, before software hides or slows any of them."""

    kernels: LayerKernels
    traffic: Traffic
    accumulate_s: Floats  # one layer's gradients added to those of earlier micro-batches
    update_s: Floats  # the optimiser's; bytes instead where its states live in host memory
    on_processor: Flag  # 1 where launches and arithmetic share cores


def step_traffic(work: Workload, layouts: Layouts, network: Network, stack: Stack) -> Traffic:
    """All traffic of a step on a network."""
    ranks = cluster_ranks(layouts)
    across = (layouts.pp > 1) & (layouts.tp > 1) & (ranks > network.node_size)
    reach = np.maximum(network.domain_size, network.node_size)
    return Traffic(
        tensor_s=tensor_parallel_s(work, layouts, network),
        context_s=context_parallel_s(work, layouts, network),
        expert_s=expert_parallel_s(work, layouts, network, stack.dispatch_bytes),
        handoff_s=handoff_s(work, layouts, network),
        replica_s=data_parallel_s(work, layouts, network, stack.gradient_bytes, stack.bucket_bytes),
        edge_s=edge_bucket_s(work, layouts, network, stack.gradient_bytes, stack.bucket_bytes),
        waiting_fraction=collectives.straggler_factor(network.jitter_fraction, ranks) - 1,
        tensor_near=np.asarray(layouts.tp <= np.maximum(network.domain_size, 1), float),
        tensor_spread=np.asarray((layouts.tp > reach) & ~across, float),
        pipeline_across=np.asarray(across, float),
    )


def _accumulate_s(work: Workload, layouts: Layouts, device: Device) -> Floats:
    """Adding one micro-batch's expert gradients of the average layer to the sum of those before it.

    Formula  8 bytes per trained expert weight of the layer on a rank: the sum is in 32 bits, read and written
    Why      An expert sees few tokens, so nothing hides its weights' traffic; dense products do hide it.
    Limits   one micro-batch, or gradients that are sharded at once (ZeRO-2, 3): nothing
    """
    weights = trained_expert_weights(work, layouts) / np.ceil(work.layers / layouts.pp)
    micro_batches = work.batch_sequences / (layouts.dp * layouts.micro_batch)
    repeated = (micro_batches > 1) & (layouts.zero_stage < 2)
    return np.asarray(operators.elementwise_s(device, ACCUMULATE_BYTES * weights, 0.0) * repeated)


def cluster_ranks(layouts: Layouts) -> Floats:
    """Accelerators that a layout uses."""
    return np.asarray(layouts.tp * layouts.cp * layouts.pp * layouts.dp, float)


def _host_layer_s(work: Workload, layouts: Layouts, traffic: Traffic, stack: Stack) -> Floats:
    """Host time of one layer and micro-batch: launches, a third more under full recomputation."""
    launches_s = stack.host_layer_s + work.moe_layers / work.layers * stack.host_moe_layer_s
    repeated = np.where(layouts.recompute == Recompute.FULL, 4 / 3, 1.0)
    waiting_s = traffic.pipeline_across * stack.pipeline_tensor_host_s
    waiting_s = waiting_s + traffic.tensor_spread * stack.spread_tensor_host_s
    host_s: Floats = launches_s * repeated + layouts.tp * waiting_s
    return host_s


def _stages(
    work: Workload, layouts: Layouts, layer_s: Floats, head_total_s: Floats, stack: Stack
) -> tuple[Floats, Floats]:
    """Time of the slowest stage for one micro-batch, and its excess over an equal share of the layers.

    The last stage computes the logits. Without a pipeline all of it counts; with one, what the last stage has
    left over after holding fewer layers, less what an even split of the layers hides.
    """
    equal = work.layers / layouts.pp
    longest = np.where(layouts.vpp > 1, equal, np.ceil(equal))
    last = work.layers - (layouts.pp - 1) * longest
    exposed = np.where(layouts.pp > 1, stack.head_exposed_fraction, 1.0)
    slowest_s = np.maximum(longest * layer_s, last * layer_s + exposed * head_total_s)
    return slowest_s, slowest_s - equal * layer_s


def _exposed_dp_s(
    layouts: Layouts, traffic: Traffic, stack: Stack, window_s: Floats, micro_batches: Floats
) -> Floats:
    """Data-parallel traffic that nothing hides.

    Formula  t − overlap·min(t − edge, window); window: one micro-batch's backward, interleaved that of the
             last min(m, p) in all chunks but one, or the whole step under ZeRO-3
    Why      Gradients are complete only in the last micro-batch of a chunk, and an interleaved stage finishes
             its chunks one after another; sharded weights are fetched ahead in all micro-batches.
    """
    sharded = layouts.zero_stage == 3
    slower = np.where(sharded, stack.sharded_dp_factor, 1.0)
    traffic_s, edge_s = traffic.replica_s * slower, traffic.edge_s * slower
    in_turn = np.minimum(micro_batches, layouts.pp) * (layouts.vpp - 1) / layouts.vpp
    last = np.where(layouts.pp > 1, np.maximum(in_turn, 1.0), 1.0)
    hidden_s = np.where(sharded, window_s, BACKWARD_SHARE * last * window_s / micro_batches)
    return traffic_s - stack.dp_overlap_fraction * np.minimum(np.maximum(traffic_s - edge_s, 0.0), hidden_s)


def _optimizer_s(work: Workload, layouts: Layouts, cluster: Cluster, stack: Stack) -> Floats:
    """The update: states, gradient and weight of each parameter that a rank owns, read and written.

    Formula  2·(states + gradient) bytes / bandwidth; the bytes alone for states in host memory
    """
    sharded = layouts.zero_stage >= 1
    dense = trained_dense_weights(work, layouts) / np.where(sharded, layouts.dp * layouts.cp, 1)
    experts = trained_expert_weights(work, layouts) / np.where(sharded, expert_replicas(work, layouts), 1)
    gradient_bytes = np.maximum(stack.gradient_bytes, work.weight_bytes)
    moved_bytes = 2 * (dense + experts) * (work.optimizer_bytes + gradient_bytes)
    on_device_s = operators.elementwise_s(cluster.device, moved_bytes, 1.0)
    return np.where(np.asarray(work.optimizer_on_host) > 0, moved_bytes, on_device_s)


def model_flops_utilisation(work: Workload, layouts: Layouts, cluster: Cluster, step_s: Floats) -> Floats:
    """Share of the 16-bit peak that the model's own FLOPs use (MFU), recomputation not counted."""
    tokens = work.sequence_tokens * work.batch_sequences
    peak = cluster.device.peak_flops_per_s.get("bf16", cluster.device.peak_flops_per_s.get("fp16", np.nan))
    return work.model_flops_per_token * tokens / (step_s * cluster_ranks(layouts) * peak)
