"""Seconds of one step of a serving engine for any mix of prefill and decode, by part.

Nothing here loops over candidates: every argument and every numeric field of the replica may be an array.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from twofold.core import record
from twofold.inference.replica import Replica, expert_shards, rank_experts
from twofold.perf import collectives, operators
from twofold.perf.attention import attention_decode_s, attention_prefill_s, mla_decode_s
from twofold.perf.formats import bytes_per_weight
from twofold.perf.shape import HALF_BYTES, ModelShape
from twofold.perf.software import engine_software
from twofold.perf.types import Floats, smooth_max

LEAST_PREFILL = 1e-3  # tokens of a step
FLOORS = ("kernel_floor_s", "attention_floor_s", "decode_floor_s", "grouped_floor_s")  # of Device
MOST_OF_BANDWIDTH = 0.92  # no kernel streams more of a memory's peak
EAGER_HALF_TOKENS = 256.0  # prefill in a step at which half of the eager slow-down shows


@dataclass(frozen=True, slots=True)
class Iteration:
    """Seconds of one step of the engine, by part; the parts sum to `total_s`."""

    gemm_s: Floats
    attention_s: Floats
    moe_s: Floats
    communication_s: Floats
    elementwise_s: Floats
    host_s: Floats

    def by_name(self) -> dict[str, Floats]:
        """The parts without their unit, in order."""
        return {part.name.removesuffix("_s"): getattr(self, part.name) for part in fields(self)}

    @property
    def total_s(self) -> Floats:
        """The whole step."""
        first, *others = self.by_name().values()
        return record.note("step_s", sum(others, first), "", *FORMULAS)


# Of `Iteration`: how a part follows, and the names of what it may follow from beside constants.
FORMULAS: Mapping[str, tuple[str, ...]] = {
    "gemm_s": ("weights read once, 2 FLOPs per weight and token", "sequences", "parameters_active"),
    "attention_s": ("cached keys and values read once per sequence", "sequences"),
    "moe_s": ("weights of the experts touched", "sequences", "parameters_active"),
    "communication_s": ("all-reduces of each layer", "sequences"),
    "elementwise_s": ("norms, rotary, activations", "sequences"),
    "host_s": (
        "scheduling, and launches that kernels do not hide",
        *("sequences", "layers", "gemm_s", "attention_s", "moe_s", "communication_s", "elementwise_s"),
    ),
}


@dataclass(frozen=True, slots=True)
class _Tokens:
    """One rank's share of a step: a pipeline has a micro-batch per stage, dp ranks split the sequences."""

    prefill_tokens: Floats
    decode_tokens: Floats  # positions computed, drafts included
    sequences: Floats  # decoding
    routed_tokens: Floats  # that meet in one group of experts: those of all ranks where they exchange
    prefill_context_tokens: Floats
    decode_context_tokens: Floats

    @property
    def total_tokens(self) -> Floats:
        return self.prefill_tokens + self.decode_tokens

    def over(self, parts: Floats) -> "_Tokens":
        """One of so many equal parts, each of the contexts that the whole has."""
        return replace(
            self,
            prefill_tokens=self.prefill_tokens / parts,
            decode_tokens=self.decode_tokens / parts,
            sequences=self.sequences / parts,
            routed_tokens=self.routed_tokens / parts,
        )


def iteration_s(
    replica: Replica,
    prefill_tokens: Floats,
    prefill_context_tokens: Floats,
    decode_sequences: Floats,
    context_tokens: Floats,
) -> Iteration:
    """Seconds of one step that prefills and decodes together.

    Formula  Σ layers (GEMM + attention + experts + collectives + elementwise) + host, with
             host = h_0 + era·(h_L·L + h_M·L_moe + h_s·D/dp), and never below h_p·L when the step prefills
             or runs eagerly
    Why      Weights are read once for all tokens of the step; caches per sequence; prefill steps run without
             a captured graph, so that each layer costs at least its launches.
    Shapes   all arguments broadcast with the replica's numeric fields.
    Units    tokens and sequences of the whole replica. `prefill_context_tokens` is how many tokens a
             prefilled one attends to on average (half its prompt when nothing is cached);
             `context_tokens` is the mean cache length of the decoding sequences.
    Source   PHYSICS and SKETCHES, inference; kernels as fitted in `perf`, host times per engine and era.
    Limits   no tokens: the host's step. Compute-bound prefill and bandwidth-bound decode both emerge.
    """
    # Less than a token is none: a prompt that other workers computed leaves nothing to prefill.
    prefill_tokens = np.where(np.asarray(prefill_tokens) < LEAST_PREFILL, 0.0, prefill_tokens)
    tokens = _per_rank(replica, prefill_tokens, prefill_context_tokens, decode_sequences, context_tokens)
    times = _halves(replica, tokens)  # that the layers run: 2 for halves of the tokens
    halved = bool(np.any(np.asarray(times) > 1.0))
    tokens = tokens.over(times) if halved else tokens
    engine = replica.engine
    uncaptured = np.maximum(np.asarray(np.asarray(prefill_tokens) > 0, float), engine.eager_fraction)
    drafting = _drafting_s(replica, decode_sequences, context_tokens)
    replica = _as_captured(replica)
    # Gaps between eager launches grow with the prefill in a step and are gone from a captured decode step.
    eager = np.asarray(prefill_tokens) / (np.asarray(prefill_tokens) + EAGER_HALF_TOKENS)
    slower = engine.device_factor * (1.0 + (engine.prefill_factor - 1.0) * eager) * times
    gemm = _gemms_s(replica, tokens) * slower
    attention = _attention_s(replica, tokens) * engine.attention_factor * slower
    moe = _experts_s(replica, tokens) * engine.moe_factor * slower
    elementwise = _elementwise_s(replica, tokens) * slower
    summed, exchanged = _traffic_s(replica, tokens)
    sending = engine.communication_factor * times
    communication = (summed + exchanged) * sending
    if halved:
        hidden = _hidden_s(replica, tokens, gemm + attention + elementwise, moe, exchanged * sending)
        communication = communication - np.where(np.asarray(times) > 1.0, hidden, 0.0)
    gemm = gemm + drafting
    device = gemm + attention + moe + communication + elementwise
    floor = engine.prefill_layer_s * replica.shape.layers * uncaptured * times
    slowed = smooth_max(device, floor) - device
    layers = engine.host_layer_s * replica.shape.layers + engine.host_moe_layer_s * replica.shape.moe_layers
    host = engine.host_step_s + engine.host_factor * (
        layers * times + engine.host_sequence_s * np.asarray(decode_sequences) / replica.dp
    )
    parts = (gemm, attention, moe, communication, elementwise, host + slowed)
    for name, part in zip(FORMULAS, parts, strict=True):
        record.note(name, part, *FORMULAS[name])
    return Iteration(*parts)


def _drafting_s(replica: Replica, decode_sequences: Floats, context_tokens: Floats) -> Floats:
    """What a head takes that proposes tokens, one after the other, for every decoding sequence.

    Formula  γ · t(0, B) of a model that is the head alone: its layers as the model's, and the vocabulary
    Why      Each draft reads the head's layers and the output table once; the scheduler runs once per step.
    Source   DeepSeek-V3 report 2024, multi-token prediction; Li et al. 2024, EAGLE: one layer each.
    Limits   its cache, as of one layer more, is left out. No layers: drafts cost no time of their own.
    """
    layers = np.asarray(replica.draft_layers, float)
    if not np.any(layers > 0):
        return 0.0
    shape = replica.shape
    experts = np.asarray(np.asarray(shape.experts) > 0, float)
    head = replace(
        shape, layers=layers, softmax_layers=layers, moe_layers=layers * experts,
        dense_ffn_layers=layers * (1.0 - experts), sliding_layers=0.0, linear_layers=0.0, other_weights=0.0,
    )  # fmt: skip
    alone = replace(replica.engine, host_step_s=0.0, host_sequence_s=0.0)
    way = replace(replica, shape=head, engine=alone, pp=1.0, draft_tokens=0.0, draft_layers=0.0)
    once: Floats = iteration_s(way, 0.0, 0.0, decode_sequences, context_tokens).total_s
    return np.where(np.asarray(decode_sequences) > 0, replica.draft_tokens * once, 0.0)


def tokens_per_step(replica: Replica) -> Floats:
    """Tokens that a decoding sequence gains per step: 1, or with drafts the expected accepted run plus one.

    Formula  (1 − a^(γ+1)) / (1 − a) = 1 + a + … + a^γ for γ drafts, each accepted with probability a
    Source   Leviathan, Kalman & Matias 2023, equation 1.
    """
    accept = np.minimum(np.asarray(replica.draft_accept_fraction, float), 1.0 - 1e-9)
    gained: Floats = (1.0 - accept ** (np.asarray(replica.draft_tokens) + 1.0)) / (1.0 - accept)
    return gained


def _per_rank(
    replica: Replica, prefill: Floats, prefill_context: Floats, sequences: Floats, context: Floats
) -> _Tokens:
    ways = replica.pp * replica.dp
    drafted = 1.0 + replica.draft_tokens
    # A sequence, and the prompt or chunk that it prefills, is never split over ranks or stages.
    own = np.minimum(sequences, np.maximum(np.minimum(sequences, 1.0), np.asarray(sequences) / ways))
    prompt = np.maximum(np.asarray(prefill) / ways, np.minimum(prefill, 2.0 * np.asarray(prefill_context)))
    exchanged = np.asarray(replica.ep) > replica.tp
    everywhere = (np.asarray(prefill) + np.asarray(sequences) * drafted) / replica.pp
    routed = np.where(exchanged, np.maximum(everywhere, own), prompt + own * drafted)
    return _Tokens(prompt, own * drafted, own, routed, prefill_context, context)


def _halves(replica: Replica, tokens: _Tokens) -> Floats:
    """2 where a step runs as two halves, else 1: only where experts exchange, and from the engine's least."""
    least = engine_software(replica.engine.name).halves_tokens
    if least is None or not np.any(np.asarray(replica.halved_fraction) > 0):
        return 1.0
    decoding, prefilling = least
    enough = tokens.total_tokens >= np.where(np.asarray(tokens.prefill_tokens) > 0, prefilling, decoding)
    exchanges = (np.asarray(replica.ep) > replica.tp) & (np.asarray(replica.shape.experts) > 0)
    return 1.0 + np.asarray((np.asarray(replica.halved_fraction) > 0) & exchanges & enough, float)


def _hidden_s(replica: Replica, tokens: _Tokens, dense: Floats, experts: Floats, exchanged: Floats) -> Floats:
    """Of the experts' traffic, what runs beside the other half's work.

    Formula  L·Σ min(work, (1−p)·traffic) over (dense, dispatch), (experts, dispatch), (experts, combine) and
             (dense, combine) of one half and layer, less the last pair once
    Why      Work runs as dense A, dense B, experts A, experts B; dispatch of A beside dense B, of B beside
             experts A, and so on round: a period is the sum of the four pairs' longer ones, as any chain of
             work and traffic closes. The first dense half and the last combine have no company. Kernels that
             send a prompt's tokens take a share p of the processors; those of decode leave them all to work.
    Units    s of both halves and all layers in, and out.
    Source   vLLM's design of dual batch overlap; SGLang, two-batch overlap; DeepSeek-V3 report, 3.2 and 3.4.
    Limits   no traffic or no work: 0. Never more than either.
    """
    layers = np.maximum(np.asarray(replica.shape.moe_layers, float), 1.0)
    dense, experts = dense / (2.0 * replica.shape.layers), experts / (2.0 * layers)
    sent = bytes_per_weight(replica.activation_format)
    prefills = np.asarray(np.asarray(tokens.prefill_tokens) > 0, float)
    traffic = exchanged / (2.0 * layers) * (1.0 - prefills * replica.engine.exchange_processor_fraction)
    dispatch, combine = traffic * sent / (sent + HALF_BYTES), traffic * HALF_BYTES / (sent + HALF_BYTES)
    beside = np.minimum(dense, combine)
    pairs = (
        np.minimum(dense, dispatch) + np.minimum(experts, dispatch) + np.minimum(experts, combine) + beside
    )
    hidden: Floats = layers * pairs - beside
    return hidden


def _gemms_s(replica: Replica, tokens: _Tokens) -> Floats:
    """Projections, dense and shared FFNs of all layers, other matrices, and the head over sampled rows."""
    shape, tp = replica.shape, replica.tp
    weights = shape.dense_format(replica.weights_format)
    activation = replica.activation_format if weights == replica.weights_format else "bf16"
    fmt = replica.cluster.device.compute_format(weights, activation).format  # that the maths runs in
    m = tokens.total_tokens

    def product(n: Floats, k: Floats) -> Floats:
        return operators.gemm_s(replica.cluster.device, m, n, k, fmt, "bf16", weights)

    def plain_s() -> Floats:
        # Past the number of KV heads, tensor parallelism copies them.
        kv = shape.kv_heads / np.minimum(tp, np.maximum(shape.kv_heads, 1.0))
        qkv = product((shape.heads / tp + 2.0 * kv) * shape.head_dim, shape.hidden)
        return qkv + product(shape.hidden, shape.heads * shape.head_dim / tp)

    def latent_s() -> Floats:
        latent = shape.mla_q_rank + shape.mla_kv_rank + shape.mla_qk_rope  # copied on every rank of TP
        query = shape.heads * (shape.mla_qk_nope + shape.mla_qk_rope) / tp
        expand = shape.heads * (shape.mla_qk_nope + shape.mla_v_head_dim) / tp
        query_k = np.where(np.asarray(shape.mla_q_rank) > 0, shape.mla_q_rank, shape.hidden)
        into = product(latent, shape.hidden) + product(query, query_k) + product(expand, shape.mla_kv_rank)
        return into + product(shape.hidden, shape.heads * shape.mla_v_head_dim / tp)

    seconds = shape.softmax_layers * _by_attention(shape, plain_s, latent_s)
    up = shape.ffn_matrices - 1
    ffns = (shape.dense_ffn_layers, shape.ffn_hidden), (shape.moe_layers, shape.shared_ffn_hidden)
    for layers, width in ffns:
        if np.any(np.asarray(layers * np.asarray(width)) > 0):
            one = product(up * width / tp, shape.hidden) + product(shape.hidden, width / tp)
            seconds = seconds + np.where(np.asarray(width) > 0, layers * one, 0.0)
    other = product(shape.other_weights / (shape.layers * shape.hidden) / tp, shape.hidden)
    seconds = seconds + np.where(np.asarray(shape.linear_layers) > 0, shape.layers * other, 0.0)
    if bytes_per_weight(fmt) < 2.0:
        passes = shape.softmax_layers * 2.0 + shape.dense_ffn_layers * 2.0
        seconds = seconds + passes * operators.quantise_s(replica.cluster.device, m, shape.hidden, fmt)
    sampled = tokens.decode_tokens + np.minimum(tokens.prefill_tokens, 1.0)
    # The head stays in 16 bits when the rest is narrower, and in 32 where the rest is.
    wide = weights if weights == "fp32" else "bf16"
    half = replica.cluster.device.compute_format(wide, wide).format
    head = operators.gemm_s(
        replica.cluster.device, sampled, shape.vocab / tp, shape.hidden, half, "fp32", wide
    )
    return seconds + head


def _as_captured(replica: Replica) -> Replica:
    """The replica's hardware under captured graphs: shorter launches, faster streaming of narrow weights.

    Kernels that a stack did not tune stream as well as others; it is their arithmetic that is slow.
    """
    device, engine = replica.cluster.device, replica.engine

    def gained(fractions: Mapping[str, Floats], gain: Floats) -> Mapping[str, Floats]:
        return {fmt: np.minimum(MOST_OF_BANDWIDTH, each * gain) for fmt, each in fractions.items()}

    dense = gained(device.gemm_memory_efficiency_fraction, engine.weight_read_gain)
    experts = gained(device.grouped_memory_efficiency_fraction, engine.expert_read_gain)
    computed = device.gemm_efficiency_fraction
    device = replace(
        device,
        gemm_efficiency_fraction={fmt: each / engine.arithmetic_factor for fmt, each in computed.items()},
        gemm_memory_efficiency_fraction=dense,
        grouped_memory_efficiency_fraction=experts,
        **{name: getattr(device, name) * engine.launch_factor for name in FLOORS},
        grouped_pad_tokens=device.grouped_pad_tokens * engine.expert_pad_factor,
    )
    return replace(replica, cluster=replace(replica.cluster, device=device))


def _by_attention(shape: ModelShape, plain: Callable[[], Floats], mla: Callable[[], Floats]) -> Floats:
    """Evaluate what the shapes need: one kind of attention, or both where a sweep mixes models."""
    latent = shape.is_mla > 0
    if np.all(latent):
        return mla()
    return np.where(latent, mla(), plain()) if np.any(latent) else plain()


def _attention_s(replica: Replica, tokens: _Tokens) -> Floats:
    shape = replica.shape
    windowless = shape.softmax_layers - shape.sliding_layers
    seconds = windowless * _attention_layer_s(replica, tokens, 0.0)
    if np.any(np.asarray(shape.sliding_layers) > 0):
        seconds = seconds + shape.sliding_layers * _attention_layer_s(replica, tokens, shape.sliding_window)
    # A linear layer reads and writes its state once per sequence, and its inputs like any elementwise pass.
    state = 2.0 * shape.linear_state * HALF_BYTES / replica.tp * tokens.sequences
    return seconds + shape.linear_layers * operators.elementwise_s(replica.cluster.device, state, 6.0)


def _attention_layer_s(replica: Replica, tokens: _Tokens, window: Floats) -> Floats:
    """One layer: prefill where there is any, decode where there is any."""
    shape, device, tp = replica.shape, replica.cluster.device, replica.tp
    heads = shape.heads / tp
    kv_heads = shape.kv_heads / np.minimum(tp, np.maximum(shape.kv_heads, 1.0))
    if packs_prompts(replica):
        return _packed_attention_s(replica, tokens, heads, kv_heads)
    # A prompt of 2c tokens attends to c on average; a chunk of a longer one starts behind cached tokens.
    query = np.maximum(np.minimum(tokens.prefill_tokens, 2.0 * tokens.prefill_context_tokens), 1e-9)
    batch = tokens.prefill_tokens / query
    before = np.maximum(tokens.prefill_context_tokens - query / 2.0, 0.0)

    def prefill(query_heads: Floats, keys: Floats, width: Floats, v_width: Floats) -> Floats:
        return attention_prefill_s(
            device, batch, query, before, query_heads, keys, width, "bf16", window, v_width
        )

    def decode_plain() -> Floats:
        # Kernels that do not share it read a KV head's cache once for each of its query heads, often from L2.
        read_heads = kv_heads + replica.engine.unshared_kv_fraction * np.maximum(heads - kv_heads, 0.0)
        return attention_decode_s(
            device, tokens.sequences, tokens.decode_context_tokens, heads, read_heads, shape.head_dim,
            replica.kv_format, window,
        )  # fmt: skip

    def decode_mla() -> Floats:
        return mla_decode_s(
            device, tokens.sequences * (1.0 + replica.draft_tokens), tokens.decode_context_tokens, heads,
            shape.mla_kv_rank, shape.mla_qk_rope, replica.kv_format,
        )  # fmt: skip

    seconds: Floats = 0.0
    if np.any(np.asarray(tokens.prefill_tokens) > 0):
        prefilled = _by_attention(
            shape,
            lambda: prefill(heads, kv_heads, shape.head_dim, shape.head_dim),
            lambda: prefill(heads, heads, shape.mla_qk_nope + shape.mla_qk_rope, shape.mla_v_head_dim),
        )
        seconds = np.where(np.asarray(tokens.prefill_tokens) > 0, prefilled, 0.0)
    if np.any(np.asarray(tokens.sequences) > 0):
        decoded = _by_attention(shape, decode_plain, decode_mla)
        seconds = seconds + np.where(np.asarray(tokens.sequences) > 0, decoded, 0.0)
    return seconds


def packs_prompts(replica: Replica) -> bool:
    """Whether a step attends over all of its sequences at once, so that it costs the square of them."""
    return engine_software(replica.engine.name).packs_prompts and not np.any(replica.shape.is_mla > 0)


def _packed_attention_s(replica: Replica, tokens: _Tokens, heads: Floats, kv_heads: Floats) -> Floats:
    """One layer of an engine that attends over all of a step's sequences at once, under a mask.

    Formula  attention of Q = prefill + decode queries over K = prefill's and all sequences' caches, all pairs
    Why      The caches of all sequences are gathered into one; what a mask hides is computed all the same, so
             that a step's pairs grow with the square of its sequences.
    Source   transformers 5.23, continuous batching with scaled dot-product attention.
    """
    queries = tokens.prefill_tokens + tokens.decode_tokens
    before = np.maximum(2.0 * np.asarray(tokens.prefill_context_tokens) - tokens.prefill_tokens, 0.0)
    has_prefill = np.asarray(np.asarray(tokens.prefill_tokens) > 0, float)
    cached = tokens.sequences * np.asarray(tokens.decode_context_tokens) + has_prefill * before
    # The operator counts q·c + q·(q+1)/2 causal pairs; here all q·(cached + prefill) are computed.
    unmasked = np.maximum(cached + tokens.prefill_tokens - (queries + 1.0) / 2.0, 0.0)
    seconds: Floats = attention_prefill_s(
        replica.cluster.device, 1.0, np.maximum(queries, 1e-9), unmasked, heads, kv_heads,
        replica.shape.head_dim, replica.kv_format,
    )  # fmt: skip
    return np.where(np.asarray(queries) > 0, seconds, 0.0)


def _experts_s(replica: Replica, tokens: _Tokens) -> Floats:
    shape, device = replica.shape, replica.cluster.device
    if not np.any(np.asarray(shape.experts) > 0):
        return np.zeros(np.shape(tokens.total_tokens))
    fmt = device.compute_format(replica.weights_format, replica.activation_format).format
    slices = expert_shards(replica) / replica.ep
    each = rank_experts(replica)  # copies among them share the tokens of their expert
    one = operators.grouped_gemm_s(
        device,
        tokens.routed_tokens,
        each * replica.ep,
        shape.experts_topk,
        each,
        shape.expert_input,
        shape.moe_ffn_hidden / slices,
        fmt,
        replica.weights_format,
        shape.ffn_matrices,
    )
    return np.where(np.asarray(shape.experts) > 0, shape.moe_layers * one, 0.0)


def _traffic_s(replica: Replica, tokens: _Tokens) -> tuple[Floats, Floats]:
    """All-reduces and hand-offs of a step, and what experts exchange: dispatch and combine of all layers."""
    shape, network, tp = replica.shape, replica.cluster.network, replica.tp
    spread = np.asarray(replica.ep > np.asarray(tp), float) * np.asarray(np.asarray(shape.experts) > 0, float)
    payload = tokens.total_tokens * shape.hidden * HALF_BYTES
    reduces = 2.0 * shape.layers - spread * shape.moe_layers
    seconds = reduces * collectives.serving_all_reduce_s(network, payload, tp)
    if np.any(np.asarray(replica.pp) > 1):
        hops = (replica.pp - 1.0) * collectives.point_to_point_s(network, payload / tp, tp * replica.dp)
        seconds = seconds + np.where(np.asarray(replica.pp) > 1, hops, 0.0)
    if not np.any(spread > 0):
        return seconds, 0.0
    # Dispatch and combine of one expert layer among the `ep` ranks of one pipeline stage.
    fmt = replica.cluster.device.compute_format(replica.weights_format, replica.activation_format).format
    per_token = shape.exchange_bytes_per_token(replica.ep, bytes_per_weight(fmt))
    one_way = tokens.total_tokens / tp * per_token / 2.0
    exchange_s = 2.0 * collectives.all_to_all_s(network, one_way, replica.ep)
    return seconds, spread * shape.moe_layers * exchange_s


def _elementwise_s(replica: Replica, tokens: _Tokens) -> Floats:
    """Norms, rotary, residuals, activations: ten passes over the residual, three over the inner width."""
    shape = replica.shape
    inner = np.maximum(shape.ffn_hidden, shape.experts_topk * shape.moe_ffn_hidden)
    each_bytes = np.maximum(HALF_BYTES, bytes_per_weight(replica.activation_format))
    moved = tokens.total_tokens * (10.0 * shape.hidden + 3.0 * inner / replica.tp) * each_bytes
    return shape.layers * operators.elementwise_s(replica.cluster.device, moved, 0.0)
