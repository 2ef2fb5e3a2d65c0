"""What one rank exchanges: per layer and micro-batch inside a stage, and per step between replicas."""

import numpy as np

from twofold.perf import collectives
from twofold.perf.types import Floats, Network
from twofold.training.compute import expert_tensor_ranks, rank_tokens
from twofold.training.job import Dimension, Workload
from twofold.training.layouts import Layouts, Recompute

# Ranks are laid out tensor first, then context, then data (experts among these), then pipeline.


def tensor_parallel_s(work: Workload, layouts: Layouts, network: Network) -> Floats:
    """Tensor-parallel traffic of one layer and micro-batch, forward and backward.

    Formula  4 all-reduces of T·h activations (two forward, two backward), two more under full recomputation
    Why      Attention and FFN each end in a sum over ranks; with sequence parallelism the same bytes move as
             a gather and a scatter.
    Source   Shoeybi et al. 2019; Korthikanti et al. 2022.
    """
    payload_bytes = work.weight_bytes * rank_tokens(work, layouts) * work.hidden
    times = np.where(layouts.recompute == Recompute.FULL, 6, 4)
    return times * collectives.all_reduce_s(network, payload_bytes, layouts.tp)


def context_parallel_s(work: Workload, layouts: Layouts, network: Network) -> Floats:
    """Keys and values that a softmax layer gathers from the other context ranks, and their gradients back.

    Formula  gather forward, gather and scatter backward, of 2·mb·s·kv_heads·d/tp values of 2 bytes, 4 in fp32
    Source   Llama 3 (all-gather context parallelism); a ring moves the same bytes.
    """
    kv_heads = np.maximum(work.full_kv_heads / layouts.tp, np.minimum(1, work.full_kv_heads))
    width = kv_heads * (work.qk_head_dim + work.v_head_dim)
    payload_bytes = work.weight_bytes * layouts.micro_batch * work.sequence_tokens * width
    share = work.softmax_layers / work.layers
    return 3 * share * collectives.all_gather_s(network, payload_bytes, layouts.cp, layouts.tp)


def expert_parallel_s(work: Workload, layouts: Layouts, network: Network, dispatch_bytes: Floats) -> Floats:
    """Tokens sent to their experts and back, forward and backward, averaged over all layers.

    Formula  4 all-to-alls of T/tp·topk·h values inside a domain and, where the group leaves it, of
             T/tp·r·(1−(1−1/r)^topk)·h values between domains, the longer; 6 under full recomputation.
             r of d domains may hold a token's experts: all, or those of its groups, min(d, groups·d/all)
    Why      A token that visits several experts of another domain crosses the fabric once and is handed on
             inside. Of each pair one way dispatches, in 8 bits where software does, and one combines.
    Units    bytes of a dispatched value in training of 8 bits; seconds out, nothing hidden yet.
    Source   Lepikhin et al. 2020 (GShard); DeepSeek-V3, sections 2.1.2, 3.2.2 and 3.3.2.
    """
    if not np.any(np.asarray(work.moe_layers) > 0):
        return 0.0
    inside = np.minimum(layouts.ep, network.domain_size)
    domains = np.maximum(layouts.ep / inside, 1)
    per_group = np.maximum(domains / np.maximum(work.expert_groups, 1), 1)
    limited = np.asarray(work.expert_groups) > 0
    reached = np.where(limited, np.minimum(domains, work.expert_groups_topk * per_group), domains)
    copies = reached * (1 - (1 - 1 / np.maximum(reached, 1)) ** work.experts_topk)
    narrow = np.asarray(work.input_bytes) < 2
    value_bytes = (np.where(narrow, dispatch_bytes, work.weight_bytes) + work.weight_bytes) / 2
    token_bytes = value_bytes * rank_tokens(work, layouts) / layouts.tp * work.expert_input
    handed_s = collectives.all_to_all_s(network, token_bytes * work.experts_topk, inside)
    crossing_s = collectives.all_to_all_s(network, token_bytes * copies, layouts.ep) * (domains > 1)
    times = np.where(layouts.recompute == Recompute.FULL, 6, 4)
    return times * work.moe_layers / work.layers * np.maximum(handed_s, crossing_s)


def handoff_s(work: Workload, layouts: Layouts, network: Network) -> Floats:
    """Activations to the next stage and gradients back, for one micro-batch and one chunk of layers."""
    shards = np.where(layouts.sequence_parallel == 1, layouts.tp, 1)
    payload_bytes = work.weight_bytes * rank_tokens(work, layouts) * work.hidden / shards
    stage_ranks = layouts.tp * layouts.cp * layouts.dp
    sent_s = 2 * collectives.point_to_point_s(network, payload_bytes, stage_ranks)
    return np.where(layouts.pp > 1, sent_s, 0.0)


def stage_dense_weights(work: Workload, layouts: Layouts) -> Dimension:
    """Weights of the fullest stage on one tensor rank without experts: layers and vocabulary tables."""
    tables = np.where(layouts.pp > 1, 1, work.embedding_count) * work.vocab * work.hidden
    return (np.ceil(work.layers / layouts.pp) * work.dense_parameters + tables) / layouts.tp


def stage_expert_weights(work: Workload, layouts: Layouts) -> Dimension:
    """Weights of the fullest stage's experts on one rank."""
    experts = np.ceil(work.layers / layouts.pp) * work.expert_parameters
    return experts / (layouts.ep * expert_tensor_ranks(work, layouts))


def trained_dense_weights(work: Workload, layouts: Layouts) -> Dimension:
    """Of `stage_dense_weights`, those that have a gradient: all, or the adapters alone."""
    adapters = np.ceil(work.layers / layouts.pp) * work.lora_parameters / layouts.tp
    return np.where(np.asarray(work.lora_rank) > 0, adapters, stage_dense_weights(work, layouts))


def trained_expert_weights(work: Workload, layouts: Layouts) -> Dimension:
    """Of `stage_expert_weights`, those that have a gradient: all, or none beside adapters."""
    return np.where(np.asarray(work.lora_rank) > 0, 0.0, stage_expert_weights(work, layouts))


def expert_replicas(work: Workload, layouts: Layouts) -> Dimension:
    """Copies of each expert among the ranks of a stage."""
    ranks = layouts.tp * layouts.cp * layouts.dp
    return np.maximum(ranks / (layouts.ep * expert_tensor_ranks(work, layouts)), 1)


def data_parallel_s(
    work: Workload, layouts: Layouts, network: Network, gradient_bytes: Floats, bucket_bytes: Floats
) -> Floats:
    """Gradients summed and weights spread again: once per step, or per micro-batch under ZeRO-3.

    Formula  ZeRO-0: all-reduce of the gradients; 1, 2: scatter them, gather the weights;
             3: per micro-batch gather the weights twice and scatter the gradients; each in as many
             collectives as there are buckets, under ZeRO-3 one per layer
    Why      Dense weights are copied over data and context ranks; experts over those that do not split them.
             Each bucket pays the way round all nodes again, which is what grows with their number.
    Units    bytes per trained parameter, and no fewer than a weight has; bytes of one collective; seconds
             out, nothing hidden yet.
    Source   Rajbhandari et al. 2020 (ZeRO); Zhao et al. 2023 (FSDP).
    """
    dense = stage_dense_weights(work, layouts), trained_dense_weights(work, layouts)
    kinds: list[tuple[Dimension, ...]] = [(*dense, layouts.dp * layouts.cp, layouts.tp)]
    if np.any(np.asarray(work.moe_layers) > 0):
        experts = stage_expert_weights(work, layouts), trained_expert_weights(work, layouts)
        apart = layouts.ep * expert_tensor_ranks(work, layouts)
        kinds.append((*experts, expert_replicas(work, layouts), apart))
    micro_batches = work.batch_sequences / (layouts.dp * layouts.micro_batch)
    sharded = layouts.zero_stage == 3
    layers = np.ceil(work.layers / layouts.pp)

    def in_buckets_s(payload_bytes: Dimension, replicas: Dimension, stride: Dimension) -> Floats:
        count = np.where(sharded, layers, np.maximum(payload_bytes / bucket_bytes, 1.0))
        return count * collectives.all_gather_s(network, payload_bytes / count, replicas, stride)

    seconds: Floats = 0.0
    for held, trained, replicas, stride in kinds:
        sent_bytes = trained * np.maximum(gradient_bytes, work.weight_bytes)
        scatter_s = in_buckets_s(sent_bytes, replicas, stride)
        gather_s = in_buckets_s(np.where(sharded, held, trained) * work.weight_bytes, replicas, stride)
        once_s = np.where(layouts.zero_stage == 0, 2 * scatter_s, scatter_s + gather_s)
        seconds = seconds + np.where(sharded, micro_batches * (2 * gather_s + scatter_s), once_s)
    return seconds


def edge_bucket_s(
    work: Workload, layouts: Layouts, network: Network, gradient_bytes: Floats, bucket_bytes: Floats
) -> Floats:
    """What of `data_parallel_s` no schedule hides: the last bucket of gradients and the first of weights.

    Formula  scatter and gather of one bucket of the dense weights, under ZeRO-3 of one layer's
    Why      The last gradients are complete when nothing is left to compute, and nothing computes before the
             first weights are there.
    Limits   one replica: nothing; fewer bytes than a bucket: all of them.
    """
    sharded, layers = layouts.zero_stage == 3, np.ceil(work.layers / layouts.pp)
    sent_bytes = trained_dense_weights(work, layouts) * np.maximum(gradient_bytes, work.weight_bytes)
    held_bytes = stage_dense_weights(work, layouts) * work.weight_bytes
    last_bytes = np.where(sharded, sent_bytes / layers, np.minimum(sent_bytes, bucket_bytes))
    first_bytes = np.where(sharded, held_bytes / layers, np.minimum(sent_bytes, bucket_bytes))
    replicas = layouts.dp * layouts.cp
    return collectives.all_gather_s(network, last_bytes, replicas, layouts.tp) + collectives.all_gather_s(
        network, first_bytes, replicas, layouts.tp
    )
