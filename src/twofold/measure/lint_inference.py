"""What cannot be, and what rarely is, in serving measurements: rooflines, conservation, order, layouts.

Bounds are kind: weights are read once a step at the full bandwidth of all that can share the reading, experts
only as many as one token visits, what fits the L2 caches not at all; FLOPs run at the peak of the narrowest
format that the weights allow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np

from twofold.catalog import Catalog, Model
from twofold.measure.inference_rows import Case, read_cases
from twofold.measure.lint_table import Mask, RowFinding, Table, Values, lint_rules
from twofold.measure.lint_units import fastest_flops_per_s
from twofold.measure.truth import Row, text
from twofold.perf import HALF_BYTES, Constants, ModelShape, attended_pairs, bytes_per_weight

SERVED_IN = ("bf16", "fp16", "fp8", "int8", "fp4")


@dataclass(frozen=True, slots=True)
class ServingBounds:
    """What bounds each row; NaN where it cannot be read. Rates are of the whole deployment."""

    accelerators: Values
    replicas: Values
    input_tokens: Values
    output_tokens: Values
    exact_lengths: Mask  # all requests are alike
    concurrency: Values
    weights_s: Values  # to read once what a step of one sequence needs
    kv_s: Values  # to read one sequence's cache at its mean length
    kv_bytes: Values  # of that cache
    memory_bytes_per_s: Values  # of one accelerator
    prefill_s: Values  # of one prompt on one replica, at peak
    request_flops: Values  # prompt and answer
    peak_flops_per_s: Values  # of one accelerator
    weights_bytes: Values
    memory_bytes: Values  # of one accelerator
    tdp_w: Values
    idle_w: Values
    firm: Mask  # layout and formats are stated
    plain: Mask  # stated: neither drafts nor a cache of prefixes
    undrafted: Mask  # stated: no drafts


@dataclass(frozen=True, slots=True)
class ModelWork:
    """Bytes and FLOPs of one model in one format."""

    dense_bytes: float  # read in every step, whatever the batch
    expert_bytes: float  # of the experts that one token visits
    all_bytes: float
    token_flops: float  # of one token's matrices, head not counted
    head_flops: float


def lint_inference(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """Every finding of bounds, order and layout of serving rows."""
    return [
        *_token_roofline(table, bounds),
        *_prompt_roofline(table, bounds),
        *_throughput_roofline(table, bounds),
        *_order(table),
        *_memory(table, bounds),
        *_power(table, bounds),
        *_layout(table),
    ]


def read_bounds(table: Table, catalog: Catalog, constants: Constants) -> ServingBounds:
    """Bounds of every row that can be read."""
    figures = {f.name: np.full(len(table.rows), np.nan) for f in fields(ServingBounds)}
    cases, _ = read_cases(table.rows, catalog, constants)  # `predict` says why another is none
    if cases:
        index = np.array([*cases])
        for name, values in _figures([*cases.values()], [table.rows[i] for i in index]).items():
            figures[name][index] = values
    drafts, prefixes = table["spec_decode"] == 0, table["prefix_cache"] == 0
    named = table.words("isl_dist")
    flags = {
        "firm": figures["firm"] == 1,
        "exact_lengths": np.array(["fixed" in each and "near" not in each for each in named], bool),
        "undrafted": drafts,
        "plain": drafts & prefixes,
    }
    return ServingBounds(**{**figures, **flags})


def _figures(cases: Sequence[Case], rows: Sequence[Row]) -> dict[str, Values]:
    """The figures of `ServingBounds` that follow from what a row states; an assumed length counts as none."""

    def column(name: str) -> Values:
        return np.array([getattr(case, name) for case in cases], float)

    def device(name: str) -> Values:
        return np.array([getattr(case.accelerator, name) or np.nan for case in cases], float)

    work = [_model_work(case.model, case.weights_format) for case in cases]
    shape = ModelShape.stacked([_shape(case.model) for case in cases])
    guessed = np.array([any(" length " in each for each in case.assumed) for case in cases])
    inputs, outputs = np.where(guessed, 0.0, column("input_tokens")), column("output_tokens")
    loaded = np.array([not any(each.startswith("concurrency") for each in case.assumed) for case in cases])
    accelerators, readers, all_readers = _readers(cases)
    peaks = np.array(
        [
            fastest_flops_per_s(case.accelerator, bytes_per_weight(case.weights_format), SERVED_IN)
            for case in cases
        ]
    )
    caches = _cache_bytes(rows, shape, inputs + np.where(guessed, 0.0, outputs / 2))
    prefill, decode = _request_flops(shape, work, inputs, outputs)
    bandwidth, memory = device("memory_bytes_per_s"), device("memory_bytes")

    def read_s(name: str, by: Values) -> Values:
        share_bytes = np.array([getattr(each, name) for each in work]) / by
        return np.maximum(0.0, share_bytes - np.nan_to_num(device("l2_bytes"))) / bandwidth

    return {
        "accelerators": accelerators,
        "replicas": column("replicas"),
        "input_tokens": column("input_tokens"),
        "output_tokens": outputs,
        "concurrency": np.where(loaded & (column("concurrency") > 0), column("concurrency"), np.nan),
        "weights_s": read_s("dense_bytes", readers) + read_s("expert_bytes", all_readers),
        "kv_s": caches / readers / bandwidth,
        "kv_bytes": np.where(caches > 0, caches, np.nan),
        "memory_bytes_per_s": bandwidth,
        "prefill_s": prefill / (np.maximum(readers * column("pp"), all_readers) * peaks),
        "request_flops": prefill + decode,
        "peak_flops_per_s": peaks,
        "weights_bytes": np.array([each.all_bytes for each in work]),
        "memory_bytes": np.fmax(memory, device("memory_nominal_bytes")),
        "tdp_w": device("tdp_w"),
        "idle_w": device("idle_w"),
        "firm": np.array([not _open_choices(case) for case in cases], float),
    }


def _open_choices(case: Case) -> list[str]:
    """What bounds rest on that the row does not state."""
    names = ("layout", "accelerator count", "weights format", "expert parallelism")
    return [each for each in case.assumed if each.startswith(names)]


def _readers(cases: Sequence[Case]) -> tuple[Values, Values, Values]:
    """All accelerators; those that share the weights which every token passes; those that share the experts.

    Whoever left the layout open may have used every accelerator for one replica.
    """
    tp, dp, ep, accelerators = (
        np.array([getattr(case, name) for case in cases], float)
        for name in ("tp", "dp", "ep", "accelerators")
    )
    assumed = [_open_choices(case) for case in cases]
    accelerators = np.where(["accelerator count" in each for each in assumed], np.nan, accelerators)
    layout = np.array(["layout" in each for each in assumed])
    experts = layout | np.array(["expert parallelism" in each for each in assumed])
    together = tp * np.maximum(dp, np.ceil(ep / tp))
    return accelerators, np.where(layout, accelerators, tp), np.where(experts, accelerators, together)


@cache
def _shape(model: Model) -> ModelShape:
    return ModelShape.of(model)


@cache
def _model_work(model: Model, weights_format: str) -> ModelWork:
    """What one step and one token of a model need at least.

    Kind: every matrix is in the narrow format, though embeddings and 4-bit models' attention seldom are.
    Towers and the table of input embeddings are left out: a text token does not pass them. So is what the
    shape does not describe, but for hybrids, whose linear mixers it holds.
    """
    shape = _shape(model)
    if not model.linear_layers:
        shape = replace(shape, other_weights=0.0)
    counted = shape.weights_bytes("bf16")
    dense = float(counted.attention_bytes + counted.ffn_bytes + counted.other_bytes) / HALF_BYTES
    share = float(shape.experts_topk) / max(float(shape.experts), 1.0)
    visited = float(counted.experts_bytes) / HALF_BYTES * share
    head = float(shape.vocab * shape.hidden)
    width = bytes_per_weight(weights_format)
    return ModelWork(
        dense_bytes=(dense + head) * width,
        expert_bytes=visited * width,
        all_bytes=(dense + visited / max(share, 1e-30) + float(shape.embedding_weights)) * width,
        token_flops=2.0 * (dense + visited),
        head_flops=2.0 * head,
    )


def _cache_bytes(rows: Sequence[Row], shape: ModelShape, context_tokens: Values) -> Values:
    """Cache bytes of one sequence of each row: of 8 bits unless the row states 16."""
    half = np.broadcast_to(shape.kv_bytes("bf16", context_tokens), context_tokens.shape)
    narrow = np.broadcast_to(shape.kv_bytes("fp8", context_tokens), context_tokens.shape)
    return np.where([text(row, "precision_kv").lower() in ("bf16", "fp16") for row in rows], half, narrow)


def _request_flops(
    shape: ModelShape, work: Sequence[ModelWork], inputs: Values, outputs: Values
) -> tuple[Values, Values]:
    """FLOPs of a prompt and of its answer at least: matrices, and attention where no window cuts it."""
    per_token = np.array([each.token_flops for each in work])
    head = np.array([each.head_flops for each in work])
    layers = np.asarray(shape.softmax_layers) - shape.sliding_layers
    latent = np.asarray(shape.mla_kv_rank) > 0
    width = np.where(
        latent,
        np.asarray(shape.mla_qk_nope) + shape.mla_qk_rope + shape.mla_v_head_dim,
        2.0 * np.asarray(shape.head_dim),
    )
    pair_flops = 2.0 * layers * shape.heads * width
    prompt = per_token * inputs + head + pair_flops * attended_pairs(inputs, 0.0)
    answer = (per_token + head) * np.maximum(outputs - 1, 0) + pair_flops * attended_pairs(
        np.maximum(outputs - 1, 0), inputs
    )
    return prompt, answer


def _token_roofline(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """Tokens faster than their weights (and one sequence's cache) can be read; TPOT, or rate per user."""
    tpot_s = table.first("tpot_mean_ms", "tpot_p50_ms", "tpot_p99_ms") / 1e3
    alone = table["output_tok_s"] / bounds.concurrency  # each client's rate, its prompt's wait included
    with np.errstate(invalid="ignore", divide="ignore"):
        seconds = np.where(np.isnan(tpot_s), 1 / alone, tpot_s)
        floor = bounds.weights_s + bounds.kv_s
        running = _running(table, bounds, seconds)
        crowd = bounds.weights_s + bounds.kv_s * running
        below = seconds < floor
        fast = (below | (seconds < crowd)) & ~(table["spec_decode"] > 0)
    key = np.where(bounds.undrafted, "fast token", "fast or drafted token")
    sure = below & bounds.firm & bounds.undrafted
    return table.find(key, fast, sure, took=seconds * 1e3, limit=np.where(below, floor, crowd) * 1e3)


def _running(table: Table, bounds: ServingBounds, seconds: Values) -> Values:
    """Sequences that decode at once on one rank of attention, as output rate × TPOT says; 1 where unknown."""
    copies = bounds.replicas * np.fmax(table["dp"], 1.0)
    return np.fmax(1.0, np.nan_to_num(table["output_tok_s"] * seconds / copies, nan=1.0))


def _prompt_roofline(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """First tokens faster than the prompt's FLOPs at peak."""
    seconds = table.first("ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms") / 1e3
    sure = bounds.firm & (bounds.plain | (bounds.exact_lengths & (table["prefix_cache"] == 0)))
    took, least = seconds * 1e3, bounds.prefill_s * 1e3
    below = seconds < bounds.prefill_s
    return table.find("fast prompt", below, sure, took=took, prompt=bounds.input_tokens, least=least)


def _throughput_roofline(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """More tokens than the accelerators can compute, or whose caches they can read."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = _output_rate(table, bounds)
        per_token = bounds.request_flops / np.maximum(bounds.output_tokens, 1.0)
        most = bounds.accelerators * bounds.peak_flops_per_s / per_token
        read = bounds.accelerators * bounds.memory_bytes_per_s / bounds.kv_bytes
    sure, undrafted = bounds.firm & bounds.plain, ~(table["spec_decode"] > 0)
    return [
        *table.find("rate beyond flops", rate > most, sure, rate=rate, limit=most),
        *table.find("rate beyond cache", (rate > read) & undrafted, sure, rate=rate, limit=read),
    ]


def _output_rate(table: Table, bounds: ServingBounds) -> Values:
    """Output tokens/s of the whole deployment: stated, per GPU times GPUs, or requests times answer."""
    per_gpu = table["output_tok_s_per_gpu"] * bounds.accelerators
    requests = table["requests_per_s"] * bounds.output_tokens
    rate = np.where(np.isnan(table["output_tok_s"]), per_gpu, table["output_tok_s"])
    return np.where(np.isnan(rate), requests, rate)


def _order(table: Table) -> list[RowFinding]:
    """Percentiles in order, means that some sample could have, ends after beginnings.

    Half of the samples are at least the median, one in a hundred at least the 99th percentile.
    """
    found: list[RowFinding] = []
    for key, rule in lint_rules().items():
        if rule.least_ratio is not None:
            smaller, larger = (table[column] for column in rule.finding.columns)
            found += table.find(key, larger < rule.least_ratio * smaller)
    return found


def _memory(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """Weights that do not fit the accelerators, or memory in use beyond what there is."""
    room, held = bounds.accelerators * bounds.memory_bytes, bounds.weights_bytes
    in_use = table["mem_gib"] * 2**30
    short = held * np.fmax(1.0, bounds.replicas) > room
    sure = bounds.firm & (bounds.replicas <= 1)
    unfit = np.where(sure, short, held > room)
    as_gb = table["mem_gib"] * 1e9 <= bounds.memory_bytes * 1.005
    used = np.where(as_gb, "in use in gb", "in use beyond")
    return [
        *table.find("weights beyond memory", unfit, sure, held=held / 1e9, room=room / 1e9),
        *table.find(used, in_use > bounds.memory_bytes, most=bounds.memory_bytes / 2**30),
    ]


def _power(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """Power beyond what the part may draw, or below what it draws idle."""
    watts, idle, most = table["watts_per_gpu"], bounds.idle_w, bounds.tdp_w
    return [
        *table.find("power beyond", watts > 1.1 * most, watts > 1.5 * most, idle=idle, most=most),
        *table.find("power below idle", watts < 0.7 * idle, idle=idle, most=most),
    ]


def _layout(table: Table) -> list[RowFinding]:
    """A deployment is whole replicas; a disaggregated one has its decode workers inside."""
    gpus, size = table["gpus_total"], table["tp"] * np.fmax(table["pp"], 1.0) * np.fmax(table["dp"], 1.0)
    workers = np.fmax(table["decode_workers"], 1.0)
    apart = np.array([mode == "disaggregated" for mode in table.words("mode")], bool)
    used = size * np.where(apart, workers, 1.0)
    ep, ranks = table["ep"], table["tp"] * np.fmax(table["dp"], 1.0)

    with np.errstate(invalid="ignore", divide="ignore"):
        uneven = (gpus > used) & ~apart & (np.mod(gpus, used) != 0)
    return [
        *table.find(np.where(apart, "decode workers", "replica"), used > gpus, used=used),
        *table.find("idle gpus", uneven, used=used),
        *table.find("expert ranks in serving", ep > ranks, ranks=ranks),
    ]
