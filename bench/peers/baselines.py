"""Two predictors that anybody can write in an hour: the pure roofline, and a constant fraction of it.

The roofline takes the peak FLOP/s and bytes/s of the data sheet and no constant at all: no latency, no
communication, no host. The constant fraction divides it by one number for each family of accelerators and
number format, fitted on the other sources: for training that number is the usual constant MFU (with the work
of a stated full recompute counted, which flatters the baseline).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.peers.compare import FIGURES, Answer, Figure, measured
from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Accelerator, Model
from twofold.core.errors import InputError, TwofoldError
from twofold.measure.inference_rows import Case, read_case
from twofold.measure.training_rows import row_model
from twofold.measure.truth import Row, count, number, text
from twofold.perf.constants import Constants
from twofold.perf.formats import bytes_per_weight

LITTLE_ROUNDS = 50
PEAK_OF = {"fp8_block": "fp8", "mxfp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}
OPTIMISER_BYTES = 28.0  # per weight: three fp32 states read and written, a 16-bit gradient and weight


@dataclass(frozen=True, slots=True)
class Bound:
    """A row's roofline by title of the figure, and what its constant fraction is shared by."""

    values: Mapping[str, float]
    family: str
    number_format: str


def roofline(half: str, rows: Sequence[Row], catalog: Catalog, constants: Constants) -> list[Bound | str]:
    """The roofline of every row, or why it has none. `constants` only fill what a serving row leaves open."""
    bound: Callable[[Row], Bound] = (
        (lambda row: training_bound(row, catalog))
        if half == "training"
        else (lambda row: serving_bound(read_case(row, catalog, constants)))
    )
    found: list[Bound | str] = []
    for row in rows:
        try:
            found.append(bound(row))
        except TwofoldError as error:
            found.append(error.message)
    return found


def constant_fraction(half: str, rows: Sequence[Row], bounds: Sequence[Bound | str]) -> list[Answer]:
    """The roofline divided by the fraction of it that other sources reach.

    One fraction per figure, family of accelerators and number format; where no other source has that pair,
    that of the format, then that of all. Each source weighs the same: its median, then their mean, in logs.
    """
    answers: list[Answer] = []
    ratios = {figure.title: _ratios(rows, bounds, figure) for figure in FIGURES[half]}
    for row, bound in zip(rows, bounds, strict=True):
        if isinstance(bound, str):
            answers.append(bound)
            continue
        values = {}
        for title, value in bound.values.items():
            ratio = _others(ratios[title], text(row, "source"), bound)
            if ratio is not None:
                values[title] = value * ratio
        answers.append(values or "no other source measured this")
    return answers


Ratios = dict[tuple[str, str, str], list[float]]  # by source, family and format: log(measured / roofline)


def _ratios(rows: Sequence[Row], bounds: Sequence[Bound | str], figure: Figure) -> Ratios:
    found: Ratios = {}
    for row, bound in zip(rows, bounds, strict=True):
        truth = measured(row, figure)
        if truth is None or isinstance(bound, str) or figure.title not in bound.values:
            continue
        key = (text(row, "source"), bound.family, bound.number_format)
        found.setdefault(key, []).append(float(np.log(truth[1] / bound.values[figure.title])))
    return found


def _others(ratios: Ratios, source: str, bound: Bound) -> float | None:
    """Measured over roofline in the other sources, from the narrowest group that has any."""
    for same in (
        lambda family, form: (family, form) == (bound.family, bound.number_format),
        lambda _family, form: form == bound.number_format,
        lambda _family, _form: True,
    ):
        by_source: dict[str, list[float]] = {}
        for (other, family, form), values in ratios.items():
            if other != source and same(family, form):
                by_source.setdefault(other, []).extend(values)
        if by_source:
            return float(np.exp(np.mean([np.median(values) for values in by_source.values()])))
    return None


def training_bound(row: Row, catalog: Catalog) -> Bound:
    """Seconds of a step at peak.

    Formula  max(F / (gpus · peak), bytes / bandwidth); F = 3 forward passes, 4 with full recompute;
             a forward pass is 2 · (active weights without the input table) + 4 · visible tokens · width of
             the attention, per token; bytes: a device's weights twice a micro-batch, its optimiser once.
    """
    accelerator, model = catalog.benchmark_accelerator(text(row, "gpu")), row_model(row, catalog)
    sequence, batch, gpus = (number(row, name) for name in ("seq_len", "global_batch_seqs", "gpus"))
    if not sequence or not batch or not gpus:
        raise InputError("length, batch or accelerator count is blank")
    stated = text(row, "precision").lower() or "bf16"
    active = number(row, "params_active") or float(model.parameters_active)
    per_token = 2.0 * (active - _input_table(model)) + attention_flops(model, sequence / 2.0)
    passes = 4.0 if text(row, "recompute") == "full" else 3.0
    compute_s = passes * per_token * sequence * batch / (gpus * peak_flops_per_s(accelerator, stated))
    total = number(row, "params_total") or float(model.parameters)
    shard = count(row, "tp", 1) * count(row, "pp", 1) * count(row, "ep", 1) if number(row, "tp") else gpus
    micro_batches = batch / (count(row, "dp", 1) * count(row, "micro_batch", 1)) if number(row, "dp") else 1.0
    moved = total / shard * 4.0 * max(1.0, micro_batches) + total / gpus * OPTIMISER_BYTES
    memory_s = moved / accelerator.memory_bytes_per_s
    return Bound({"Step time": max(compute_s, memory_s)}, accelerator.family, stated)


def peak_flops_per_s(accelerator: Accelerator, number_format: str) -> float:
    """The data sheet's dense peak of the format, or of 16 bits where the part lacks it."""
    name = f"{PEAK_OF.get(number_format, number_format)}_flops_per_s"
    usual = accelerator.bf16_flops_per_s or accelerator.fp16_flops_per_s
    found = getattr(accelerator, name, None) or usual
    if not found:
        raise InputError(f"{accelerator.name} has no stated peak")
    return float(found)


def attention_flops(model: Model, visible: float) -> float:
    """FLOPs of one token's scores and values over `visible` earlier tokens, all layers."""
    sliding = model.sliding_layers
    spans = (model.softmax_attention_layers - sliding) * visible
    spans += sliding * min(visible, float(model.sliding_window or visible))
    if model.mla_kv_rank:
        return 2.0 * spans * model.heads * (model.mla_qk_nope + model.mla_qk_rope + model.mla_v_head_dim)
    return 4.0 * spans * model.heads * model.head_dim


def _input_table(model: Model) -> float:
    """Weights that are looked up, not multiplied; a tied table is the output's too."""
    return 0.0 if model.tied_embeddings else float(model.vocab * model.hidden)


def serving_bound(case: Case) -> Bound:
    """First token, token time and throughput of a deployment at peak; milliseconds and tokens/s.

    Formula  step = max(bytes / bandwidth, FLOPs / peak) of the weights touched and the cache read;
             a prompt alike; in a loop of batch B each output token also waits for the (B − 1) / output share
             of the others' prompts. An open load's batch follows from Little's law, a saturated one's from
             the memory left over.
    """
    if "layout" in case.assumed:
        raise InputError("the row leaves the layout open")
    width = case.tp * case.pp * case.dp
    copies = case.decode_workers if case.kind == "disaggregated" else case.replicas
    fitting = _fitting(case, width)
    batch = {"open": 1.0, "saturated": fitting}.get(case.kind, max(1.0, case.concurrency / copies))
    for _ in range(LITTLE_ROUNDS if case.kind == "open" else 1):
        prompt_s, token_s = _at_peak(case, batch)
        if case.kind == "open":
            waiting_s = prompt_s + case.output_tokens * token_s
            batch = min(fitting, max(1.0, case.rate_per_s / copies * waiting_s))
    first_s = prompt_s * batch if case.kind == "static" else prompt_s
    request_s = first_s + max(1.0, case.output_tokens - 1.0) * token_s
    rate = copies * batch * case.output_tokens / request_s
    if case.kind == "open":
        rate = case.rate_per_s * case.output_tokens
    values = {"TTFT": first_s * 1e3, "TPOT": token_s * 1e3, "Output tokens/s": rate}
    return Bound(values, case.accelerator.family, case.weights_format)


def _fitting(case: Case, width: float) -> float:
    """Sequences that fit beside the weights of one copy, or the stated limit."""
    weights = case.model.parameters * bytes_per_weight(case.weights_format)
    left = case.accelerator.memory_bytes * width - weights
    fitting = left / max(1.0, cache_bytes(case) * (case.input_tokens + case.output_tokens))
    return max(1.0, min(fitting, case.max_batch or np.inf))


def _at_peak(case: Case, batch: float) -> tuple[float, float]:
    """Seconds of one prompt, and of one output token."""
    group = case.tp * case.dp  # a token passes the stages of a pipeline one after the other
    width_bytes = bytes_per_weight(case.weights_format)
    bytes_per_s = case.accelerator.memory_bytes_per_s
    flops_per_s = peak_flops_per_s(case.accelerator, case.weights_format) * group
    context = case.input_tokens + case.output_tokens / 2.0
    running = max(1.0, batch / case.pp)
    shared, experts = _weights(case.model)
    touched = experts * _touched_fraction(case.model, running)
    multiplied = 2.0 * (case.model.parameters_active - _input_table(case.model))
    read = (shared / case.tp + touched / group) * width_bytes + running * context * cache_bytes(case) / group
    step_flops = running * (multiplied + attention_flops(case.model, context))
    step_s = max(read / bytes_per_s, step_flops / flops_per_s)
    fresh = case.input_tokens * (1.0 - case.shared_prefix_fraction)
    # Only the last token of a prompt meets the output table.
    body = multiplied - 2.0 * case.model.vocab * case.model.hidden
    prompt_flops = fresh * (body + attention_flops(case.model, case.input_tokens / 2.0))
    touched = experts * _touched_fraction(case.model, fresh)
    prompt_read = (shared / case.tp + touched / group) * width_bytes
    prompt_s = max(prompt_flops / flops_per_s, prompt_read / bytes_per_s)
    waiting = (batch - 1.0) / case.output_tokens if case.kind in ("closed", "open", "saturated") else 0.0
    return prompt_s, step_s + waiting * prompt_flops / (flops_per_s * case.pp)


def cache_bytes(case: Case) -> float:
    """Bytes of cache that one token holds."""
    model = case.model
    width = 2.0 * model.kv_heads * model.head_dim
    if model.mla_kv_rank:
        width = float(model.mla_kv_rank + model.mla_qk_rope)
    return width * model.softmax_attention_layers * bytes_per_weight(case.kv_format)


def _weights(model: Model) -> tuple[float, float]:
    """Weights that every token meets, the input table apart, and those of the routed experts."""
    width = model.moe_latent or model.hidden
    experts = float(model.ffn_matrices * width * model.moe_ffn_hidden * model.experts * model.moe_layers)
    return model.parameters - experts - _input_table(model), experts


def _touched_fraction(model: Model, tokens: float) -> float:
    """Share of the experts that a batch of tokens meets under even routing."""
    return float(1.0 - (1.0 - model.experts_topk / model.experts) ** tokens) if model.experts else 0.0
