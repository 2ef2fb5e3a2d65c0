"""What the datasheet leaves possible: bytes really read over the whole bandwidth, FLOPs over the whole peak.

No kernel is in it, no launch and no network: what a range may not cross, however wide it is.
"""

import numpy as np

from twofold.inference.replica import Replica, expert_shards
from twofold.inference.steady import Lengths, batch_limit, own_input_tokens
from twofold.perf.formats import peak_format
from twofold.perf.types import Floats


def least_step_s(replica: Replica, sequences: Floats, context_tokens: Floats) -> Floats:
    """Seconds that no step decoding `sequences` of `context_tokens` stays below.

    Formula  max(bytes / bandwidth, 2 · active weights · tokens / (peak · accelerators)); bytes of one rank,
             all stages: (attention, FFNs, head) / TP + experts touched / shards + own caches / KV shards
    Why      A token passes all stages; what a rank reads it reads once for all of its sequences.
    Shapes   arguments broadcast with the replica's numeric fields.
    Units    sequences of the whole replica; seconds.
    Limits   routing is taken as even: skewed routing touches fewer experts. Weights that the shape does not
             describe count where layers are linear mixers, not where they may be towers that decoding skips.
    """
    shape, device, drafted = replica.shape, replica.cluster.device, 1.0 + replica.draft_tokens
    held = shape.weights_bytes(replica.weights_format)
    mixers = np.where(np.asarray(shape.linear_layers) > 0, held.other_bytes, 0.0)
    head = held.embedding_bytes / shape.embedding_count
    dense = (held.attention_bytes + held.ffn_bytes + mixers + head) / replica.tp
    own = np.minimum(sequences, np.maximum(1.0, np.asarray(sequences) / (replica.dp * replica.pp)))
    exchanged = np.asarray(replica.ep) > replica.tp
    routed = drafted * np.where(exchanged, np.maximum(np.asarray(sequences) / replica.pp, own), own)
    missed = 1.0 - np.minimum(shape.experts_topk / np.maximum(shape.experts, 1.0), 1.0)  # by one token
    experts = held.experts_bytes * (1.0 - missed**routed) / expert_shards(replica)
    kv_heads = np.where(shape.is_mla > 0, 1.0, np.maximum(shape.kv_heads, 1.0))
    cache = own * shape.kv_bytes(replica.kv_format, context_tokens) / np.minimum(replica.tp, kv_heads)
    read_bytes = dense + experts + cache
    flops = 2.0 * active_weights(replica) * np.asarray(sequences) * drafted
    return np.maximum(read_bytes / device.memory_bytes_per_s, flops / peak_flops_per_s(replica))


def active_weights(replica: Replica) -> Floats:
    """Weights that one token is multiplied by, the head apart."""
    shape = replica.shape
    routed = shape.expert_weights * np.minimum(shape.experts_topk / np.maximum(shape.experts, 1.0), 1.0)
    return shape.attention_weights + shape.ffn_weights + routed


def peak_flops_per_s(replica: Replica) -> Floats:
    """What all accelerators of the replica compute at most, in the format that its products run in."""
    device = replica.cluster.device
    runs_in = device.compute_format(replica.weights_format, replica.activation_format).format
    return device.peak_flops_per_s[peak_format(runs_in)] * replica.accelerator_count


def bounds_of(
    replica: Replica, lengths: Lengths, batch: Floats, client_count: Floats = np.inf
) -> dict[str, Floats]:
    """The least `ttft`, `tpot` and `e2e` in seconds at a batch, and the most `output` tokens/s of a replica.

    Formula  ttft: max(a step of one sequence, 2 · active weights · own prompt / peak); tpot: step / tokens
             that it emits; e2e: ttft + (answer − 1) · tpot; output: of the most sequences that it may hold,
             no more than FLOPs of prompts and answers leave
    Why      Where drafts are made all may be accepted; shared prefixes are neither computed nor read again.
    """
    emitted, answer = 1.0 + replica.draft_tokens, np.asarray(lengths.output_tokens)
    own, peak = own_input_tokens(replica, lengths), peak_flops_per_s(replica)
    shared = replica.cache.shared_prefix_fraction * lengths.input_tokens
    held = np.maximum(lengths.mean_context_tokens - shared, 1.0)
    most = np.maximum(batch, np.minimum(batch_limit(replica, lengths), client_count))
    tpot = least_step_s(replica, batch, held) / emitted
    each = 2.0 * active_weights(replica)  # FLOPs of a token
    ttft = np.maximum(least_step_s(replica, 1.0, 0.0), each * own / peak)
    computed = peak / (each * (own / answer + 1.0))
    return {
        "ttft": ttft,
        "tpot": tpot,
        "e2e": ttft + np.maximum(answer - 1.0, 0.0) * tpot,
        "output": np.minimum(most * emitted / least_step_s(replica, most, held), computed),
    }
