"""What cannot be, and what rarely is, in serving measurements: rooflines, conservation, order, layouts.

Bounds are kind: weights are read once a step at the full bandwidth of all that can share the reading, experts
only as many as one token visits, what fits the L2 caches not at all; FLOPs run at the peak of the narrowest
format that the weights allow. Little's law holds for every queue in steady state: requests in flight = rate ×
time. The rest is arithmetic: tokens/s per GPU and in all, requests/s × answer, energy × rate = power.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Model
from twofold.measure.inference_rows import Case, read_cases
from twofold.measure.lint_table import Mask, Table, Values, first_known, lint_rules
from twofold.measure.lint_units import Slip, disagreements, fastest_flops_per_s, slips, surprises
from twofold.measure.results import RowFinding
from twofold.measure.truth import Row, text
from twofold.perf.attention import attended_pairs
from twofold.perf.constants import Constants
from twofold.perf.formats import bytes_per_weight
from twofold.perf.shape import HALF_BYTES, ModelShape

SERVED_IN = ("bf16", "fp16", "fp8", "int8", "fp4")
RESTED_ON = ("layout", "accelerator count", "weights format", "expert parallelism")  # unless a row states it
TTFT, TPOT = ("ttft_mean_ms", "ttft_p50_ms"), ("tpot_mean_ms", "tpot_p50_ms")  # the mean where it is known
# What percentiles, ramps and queues may take from a sum of means where lengths are alike, and where not.
ALIKE, MIXED = 1.25, 2.5


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


def lint_inference(
    table: Table, predicted: Sequence[Row], catalog: Catalog, constants: Constants
) -> list[RowFinding]:
    """Every finding of bounds, order, layout, rates, sums and units of serving rows."""
    bounds = read_bounds(table, catalog, constants)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return [
            *beyond_bounds(table, bounds),
            *_told_twice(table, bounds),
            *_surprises(table, bounds, predicted),
        ]


def beyond_bounds(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """Every finding of bounds, order and layout."""
    return [
        *_token_roofline(table, bounds),
        *_prompt_roofline(table, bounds),
        *_throughput_roofline(table, bounds),
        *_order(table),
        *_memory(table, bounds),
        *_power(table, bounds),
        *layout_findings(table),
    ]


def read_bounds(table: Table, catalog: Catalog, constants: Constants) -> ServingBounds:
    """Bounds of every row that can be read."""
    figures = {f.name: np.full(len(table.rows), np.nan) for f in fields(ServingBounds)}
    cases, _ = read_cases(table.rows, catalog, constants)  # `predict` says why another is none
    if cases:
        index = np.array([*cases])
        for name, values in _figures([*cases.values()], [table.rows[i] for i in index]).items():
            figures[name][index] = values
    named = table.words("isl_dist")
    flags = {
        "firm": figures["firm"] == 1,
        "exact_lengths": np.array(["fixed" in each and "near" not in each for each in named], bool),
    }
    return ServingBounds(**{**figures, **flags})


def _figures(cases: Sequence[Case], rows: Sequence[Row]) -> dict[str, Values]:
    """The figures of `ServingBounds` that follow from what a row states; an assumed length counts as none."""

    def column(name: str) -> Values:
        return np.array([getattr(case, name) for case in cases], float)

    def device(name: str) -> Values:
        return np.array([getattr(case.accelerator, name) or np.nan for case in cases], float)

    shape = ModelShape.stacked([_shape(case.model) for case in cases])
    work = ModelWork(*np.array([_model_work(case.model, case.weights_format) for case in cases]).T)
    guessed = np.array([any(" length " in each for each in case.assumed) for case in cases])
    inputs, outputs = np.where(guessed, 0.0, column("input_tokens")), column("output_tokens")
    loaded = np.array([not any(each.startswith("concurrency") for each in case.assumed) for case in cases])
    peaks = np.array(
        [
            fastest_flops_per_s(case.accelerator, bytes_per_weight(case.weights_format), SERVED_IN)
            for case in cases
        ]
    )
    # Whoever left the layout open may have used every accelerator for one replica.
    open_choices = [[each for each in case.assumed if each.startswith(RESTED_ON)] for case in cases]
    layout = np.array(["layout" in each for each in open_choices])
    experts = layout | np.array(["expert parallelism" in each for each in open_choices])
    counted = np.array(["accelerator count" not in each for each in open_choices])
    accelerators, tp = np.where(counted, column("accelerators"), np.nan), column("tp")
    readers = np.where(layout, accelerators, tp)  # that share the weights which every token passes
    together = tp * np.maximum(column("dp"), np.ceil(column("ep") / tp))
    all_readers = np.where(experts, accelerators, together)  # that share the experts
    # The cache has 8 bits unless the row states 16.
    context_tokens = inputs + np.where(guessed, 0.0, outputs / 2)
    wide = [text(row, "precision_kv").lower() in ("bf16", "fp16") for row in rows]
    caches = np.where(wide, *(shape.kv_bytes(word, context_tokens) for word in ("bf16", "fp8")))
    # FLOPs at least: matrices, and attention where no window cuts it.
    pair_flops, later = _pair_flops(shape), np.maximum(outputs - 1, 0)
    prefill = work.token_flops * inputs + work.head_flops + pair_flops * attended_pairs(inputs, 0.0)
    decode = (work.token_flops + work.head_flops) * later + pair_flops * attended_pairs(later, inputs)
    bandwidth, l2_bytes = device("memory_bytes_per_s"), np.nan_to_num(device("l2_bytes"))
    reads_s = [
        np.maximum(0.0, read_bytes / by - l2_bytes) / bandwidth
        for read_bytes, by in ((work.dense_bytes, readers), (work.expert_bytes, all_readers))
    ]
    return {
        "accelerators": accelerators,
        "replicas": column("replicas"),
        "input_tokens": column("input_tokens"),
        "output_tokens": outputs,
        "concurrency": np.where(loaded & (column("concurrency") > 0), column("concurrency"), np.nan),
        "weights_s": reads_s[0] + reads_s[1],
        "kv_s": caches / readers / bandwidth,
        "kv_bytes": np.where(caches > 0, caches, np.nan),
        "memory_bytes_per_s": bandwidth,
        "prefill_s": prefill / (np.maximum(readers * column("pp"), all_readers) * peaks),
        "request_flops": prefill + decode,
        "peak_flops_per_s": peaks,
        "weights_bytes": work.all_bytes,
        "memory_bytes": np.fmax(device("memory_bytes"), device("memory_nominal_bytes")),
        "tdp_w": device("tdp_w"),
        "idle_w": device("idle_w"),
        "firm": np.array([not each for each in open_choices], float),
    }


@cache
def _shape(model: Model) -> ModelShape:
    return ModelShape.of(model)


class ModelWork(NamedTuple):
    """Bytes and FLOPs of one model in one format."""

    dense_bytes: float  # read in every step, whatever the batch
    expert_bytes: float  # of the experts that one token visits
    all_bytes: float
    token_flops: float  # of one token's matrices, head not counted
    head_flops: float


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
    everything = dense + visited / max(share, 1e-30) + float(shape.embedding_weights)
    flops = 2.0 * (dense + visited), 2.0 * head
    return ModelWork((dense + head) * width, visited * width, everything * width, *flops)


def _pair_flops(shape: ModelShape) -> Values:
    """FLOPs of one query and one key in all layers whose attention sees everything."""
    layers = np.asarray(shape.softmax_layers) - shape.sliding_layers
    latent = np.asarray(shape.mla_qk_nope) + shape.mla_qk_rope + shape.mla_v_head_dim
    width = np.where(np.asarray(shape.mla_kv_rank) > 0, latent, 2.0 * np.asarray(shape.head_dim))
    return 2.0 * layers * shape.heads * width


def _token_roofline(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """Tokens faster than their weights (and one sequence's cache) can be read; TPOT, or rate per user."""
    tpot_s = table.first("tpot_mean_ms", "tpot_p50_ms", "tpot_p99_ms") / 1e3
    undrafted = table["spec_decode"] == 0
    with np.errstate(invalid="ignore", divide="ignore"):
        alone = table["output_tok_s"] / bounds.concurrency  # each client's rate, its prompt's wait included
        seconds = first_known(tpot_s, 1 / alone)
        floor = bounds.weights_s + bounds.kv_s
        # Sequences that decode at once on one rank of attention; 1 where unknown.
        at_once = table["output_tok_s"] * seconds / (bounds.replicas * np.fmax(table["dp"], 1.0))
        crowd = bounds.weights_s + bounds.kv_s * np.fmax(1.0, np.nan_to_num(at_once, nan=1.0))
        below = seconds < floor
        fast = (below | (seconds < crowd)) & ~(table["spec_decode"] > 0)
    key = np.where(undrafted, "fast token", "fast or drafted token")
    sure = below & bounds.firm & undrafted
    return table.find(key, fast, sure, took=seconds * 1e3, limit=np.where(below, floor, crowd) * 1e3)


def _prompt_roofline(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """First tokens faster than the prompt's FLOPs at peak."""
    seconds = table.first("ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms") / 1e3
    certain = bounds.exact_lengths | (table["spec_decode"] == 0)
    sure = bounds.firm & certain & (table["prefix_cache"] == 0)
    took, least = seconds * 1e3, bounds.prefill_s * 1e3
    below = seconds < bounds.prefill_s
    return table.find("fast prompt", below, sure, took=took, prompt=bounds.input_tokens, least=least)


def _throughput_roofline(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """More output tokens of the whole deployment than it can compute, or whose caches it can read."""
    per_gpu = table["output_tok_s_per_gpu"] * bounds.accelerators
    requests = table["requests_per_s"] * bounds.output_tokens
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = first_known(table["output_tok_s"], per_gpu, requests)
        per_token = bounds.request_flops / np.maximum(bounds.output_tokens, 1.0)
        most = bounds.accelerators * bounds.peak_flops_per_s / per_token
        read = bounds.accelerators * bounds.memory_bytes_per_s / bounds.kv_bytes
    sure = bounds.firm & (table["spec_decode"] == 0) & (table["prefix_cache"] == 0)
    undrafted = ~(table["spec_decode"] > 0)
    return [
        *table.find("rate beyond flops", rate > most, sure, rate=rate, limit=most),
        *table.find("rate beyond cache", (rate > read) & undrafted, sure, rate=rate, limit=read),
    ]


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


def layout_findings(table: Table) -> list[RowFinding]:
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


def _told_twice(table: Table, bounds: ServingBounds) -> list[RowFinding]:
    """What is equal by definition, but for rounding; latency against its parts; Little's law.

    Percentiles of parts add up only where requests are alike. Requests in flight = rate × latency: clients
    start late and end early, so fewer may fly, never more.
    """
    outputs, lengths = table["osl_mean"], table["isl_mean"] + table["osl_mean"]
    tokens, tpot_ms, clients = table["output_tok_s"], table.first(*TPOT), table["concurrency"]
    implied = {
        "output rate": table["output_tok_s_per_gpu"] * table["gpus_total"],
        "total rate": tokens * lengths / outputs,
        "request rate": tokens / outputs,
        "user rate": 1e3 / tpot_ms,
        "power": table["joules_per_token"] * tokens / bounds.accelerators,
    }
    figures = table.numbers | {"lengths": lengths}
    found = [each for key, value in implied.items() for each in disagreements(table, key, value, figures)]
    parts_ms = table.first(*TTFT) + np.maximum(outputs - 1, 0) * tpot_ms
    spread = np.where(bounds.exact_lengths, ALIKE, MIXED)
    found += disagreements(table, "latency", parts_ms, figures, limits=(1 / spread, spread))
    rate = first_known(tokens, table["requests_per_s"] * outputs)
    flying = rate / outputs * first_known(parts_ms, table["e2e_p50_ms"]) / 1e3
    limited = np.where(np.isnan(table["request_rate_rps"]), clients, np.nan)  # a rate need not fill the limit
    for key, stated, most in (
        ("flight", flying, clients),
        ("full flight", flying, limited),
        ("decoding", rate * tpot_ms / 1e3, clients),
    ):
        found += disagreements(table, key, most, figures, stated=stated)
    return found + disagreements(table, "served", table["request_rate_rps"], figures)


def _surprises(table: Table, bounds: ServingBounds, predicted: Sequence[Row]) -> list[RowFinding]:
    """The measured columns that the models answer; a median or a mean of TTFT lies in either's range."""
    figures = {
        "answer": bounds.output_tokens,
        "request": bounds.input_tokens + bounds.output_tokens,
        "accelerators": bounds.accelerators,
    }
    # A first token that came within one generation may have waited for another request's place.
    waited = table.first(*TTFT) <= bounds.output_tokens * table.first(*TPOT)
    found = []
    for like in (TTFT[::-1], TTFT):
        times = [
            Slip(np.where(waited & (each.factor > 1), np.nan, each.factor), each.cause)
            for each in slips("time in ms", like[0], figures)
        ]
        found += surprises(table, predicted, like, table[like[0]], "ms", times)
    for column, unit, groups in (
        ("tpot_p50_ms", "ms", "time in ms;time of an answer"),
        ("tpot_mean_ms", "ms", "time in ms;time of an answer"),
        ("output_tok_s", "tokens/s", "served tokens"),
    ):
        possible = slips(groups, column, figures)
        found += surprises(table, predicted, (column,), table[column], unit, possible)
    return found
