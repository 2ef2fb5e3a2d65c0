"""Serving rows as a user could state them: what is read, what is assumed for a blank, what is refused.

Measured columns, `source`, `notes`, `id` and `tier` are never looked at. What is assumed of drafts, shared
prefixes and lengths are constants `benchmark_…`; public data sets are `benchmark_data_sets.csv`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, expm1, log, log2, nan, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from twofold.catalog.catalog import Catalog
from twofold.catalog.model_config import model_called
from twofold.catalog.types import Accelerator, Model
from twofold.contracts.names import did_you_mean
from twofold.core.errors import InputError, UnknownNameError
from twofold.inference.latency import NORMAL_P99
from twofold.measure.benchmark_settings import SchedulerSettings, scheduler_settings
from twofold.measure.truth import Row, known_framework, number, read_each, read_rows, text
from twofold.perf.constants import Constants
from twofold.perf.formats import FORMAT_BYTES, bytes_per_weight
from twofold.perf.shape import model_kind
from twofold.perf.software import CONTAINERS, engine_software

Kind = Literal["static", "closed", "open", "burst", "saturated", "disaggregated"]
IN_BLOCKS = re.compile(r"^Qwen/.*-FP8$")
COUNTED = re.compile(r"\((\d+) requests\)")  # as in `ShareGPT lengths (300 requests)`

# What public data sets hold, for rows that name the set but not its lengths, and what the rules of MLPerf
# Inference ask by data set: the longest answers, and p99 TPOT in the server scenario and, where there is one,
# in the interactive one. Submitters report the highest rate that is valid.
DATA_SETS = Path(__file__).parent / "benchmark_data_sets.csv"
USUAL_TOKENS = 512.0
FORMATS = MappingProxyType(
    dict.fromkeys(("fp16", "half", "float16", "bfloat16"), "bf16")
    | {"float32": "fp32"}
    | dict.fromkeys(("fp4", "modelopt_fp4"), "nvfp4")
    | dict.fromkeys(("fp8_e4m3", "fp8_e5m2", "float8", "modelopt"), "fp8")
    | dict.fromkeys(("awq", "gptq", "w4a16", "awq_marlin", "gptq_marlin", "bitsandbytes"), "int4")
    | {"w8a8": "int8", "auto": ""}
)


@dataclass(frozen=True, slots=True)
class Case:
    """One row, read: everything that a prediction needs, and the names of what had to be assumed."""

    model: Model
    accelerator: Accelerator
    engine: str
    version: str
    weights_format: str
    kv_format: str
    kind: Kind
    accelerators: float  # in the whole deployment
    tp: float
    pp: float
    ep: float
    dp: float
    prefill_workers: float
    decode_workers: float
    input_tokens: float
    output_tokens: float
    length_spread: float  # of prompts
    answer_spread: float
    concurrency: float  # of the whole deployment; 0 where a rate or saturation sets it
    rate_per_s: float
    request_count: float  # of the whole run; NaN where nobody says
    server_limit_s: float  # on p99 TPOT, where the rate is the highest that meets it; 0 for none
    interactive_limit_s: float
    max_batch: float
    shared_prefix_fraction: float
    draft_tokens: float
    scheduler: SchedulerSettings
    fixed_batch: bool  # the concurrency is the running batch itself
    assumed: tuple[str, ...]  # for a blank of the row: its errors are those of rows with such blanks
    usual: tuple[str, ...]  # for what no row states: said too, but no row has it better

    @property
    def replicas(self) -> float:
        """Equal copies that share the load."""
        return max(1.0, self.accelerators / (self.tp * self.pp * self.dp))

    @property
    def is_moe(self) -> bool:
        """Whether it has routed experts."""
        return self.model.experts > 0

    @property
    def is_mla(self) -> bool:
        """Whether its cache holds a latent."""
        return self.model.mla_kv_rank > 0


def _has_blocks(called: str, model: Model, catalog: Catalog, is_own: bool) -> bool:
    """Whether fp8 of it is scaled by blocks: its own configuration says so, or it was published so, or its
    repository's name says so."""
    if is_own:
        return model.fp8_blocks
    return catalog.model(model.name).native_format.startswith("fp8") or bool(IN_BLOCKS.search(called))


def read_case(row: Row, catalog: Catalog, constants: Constants) -> Case:
    """Read one row; a model, accelerator or engine that is unknown or missing is an error."""
    for column in ("model", "gpu"):
        if not text(row, column):
            raise InputError(f"a row needs '{column}'", hint=f"name a {column} of the catalogue")
    called, accelerator = text(row, "model"), catalog.benchmark_accelerator(text(row, "gpu"))
    model, config = model_called(called, catalog)
    assumed, usual = ([] if text(row, "framework") else ["engine"]), list[str]()
    named = text(row, "framework").lower() or "vllm"
    engine = CONTAINERS.get(named, named)
    if engine_software(engine).newest_release is None:  # none of those that nearly all rows name
        engine = known_framework(engine, catalog)
    blocks = _has_blocks(called, model, catalog, config is not None)
    weights = _weights_format(row, model, blocks, accelerator, assumed)
    tp, pp, ep, dp, accelerators = _layout(row, model, weights, accelerator, assumed)
    inputs, outputs = _lengths(row, assumed)
    kind, concurrency, rate = _load(row, assumed)
    batch, limited = number(row, "max_batch") or 0.0, kind == "open" and is_tuned(row)
    server_limit_s, interactive_limit_s = (
        (limited and _of_data_set(row, f"{name}_limit_s")) or 0.0 for name in ("server", "interactive")
    )
    untold = kind == "disaggregated" and engine == "trtllm"
    scheduler = scheduler_settings(row, engine, model_kind(model), accelerator.family, weights, inputs)
    brought = "fp8" if is_tuned(row) else model.kv_format  # submitters quantise as NVIDIA's tools do
    stated = _format(text(row, "precision_kv"), blocks) or ("fp8" if scheduler.cache_bytes == 1.0 else "")
    kv = stated or engine_software(engine).cache_format(weights, brought)
    # Of the input, what the prefix cache holds: prompts that come again, or a prefix that is shared.
    found_fraction = 0.0
    if text(row, "prefix_cache") == "1" and "shared_prefix" in text(row, "isl_dist"):
        found_fraction = scheduler.found_fraction(rate, inputs)
        found_fraction = found_fraction or constants.get("benchmark_shared_prefix_fraction")
        usual.append(f"{found_fraction:.0%} of the input cached")
    draft_tokens = 0.0
    if text(row, "spec_decode") == "1":
        draft_tokens = constants.get("benchmark_draft_tokens_count")
        accepted = constants.get("benchmark_draft_accept_fraction")
        usual.append(f"{draft_tokens:.0f} tokens drafted, {accepted:.0%} of them accepted")
    spread = _length_spread(row, constants)
    return Case(
        model=model,
        accelerator=accelerator,
        engine=engine,
        version="" if named in CONTAINERS or untold else text(row, "framework_version"),
        weights_format=weights,
        kv_format=kv,
        kind=kind,
        accelerators=accelerators,
        tp=tp,
        pp=pp,
        ep=ep,
        dp=dp,
        prefill_workers=number(row, "prefill_workers") or 1.0,
        decode_workers=number(row, "decode_workers") or 1.0,
        input_tokens=inputs,
        output_tokens=outputs,
        length_spread=spread,
        answer_spread=_answer_spread(row, outputs, spread),
        concurrency=concurrency or (batch if kind == "static" else 0.0),
        rate_per_s=rate,
        request_count=_request_count(row),
        server_limit_s=server_limit_s,
        interactive_limit_s=interactive_limit_s,
        max_batch=batch,
        shared_prefix_fraction=found_fraction,
        draft_tokens=draft_tokens,
        scheduler=scheduler,
        fixed_batch=kind == "closed" and batch > 0,
        assumed=tuple(assumed),
        usual=tuple(usual),
    )


def read_cases(
    rows: Sequence[Row], catalog: Catalog, constants: Constants
) -> tuple[dict[int, Case], dict[int, str]]:
    """The cases of rows by place, and the coded reason of each row that is none."""
    return read_each(rows, lambda _, row: read_case(row, catalog, constants))


def layouts(case: Case) -> list[Case]:
    """The layouts to try where a row leaves it open: tensor parallelism over 1 to 8 of its accelerators.

    Where only the split of experts is open, data-parallel attention is tried too: over slow links, and by
    engines that offer it beside tensor parallelism.
    """
    if "layout" not in case.assumed:
        slow_links = case.accelerator.scaleup_bytes_per_s == 0
        # TensorRT-LLM has it in the back end that 1.0 made the default.
        offered = case.engine == "trtllm" and case.version.startswith(("1.", "2."))
        if "expert parallelism" in case.assumed and case.tp > 1 and (slow_links or offered):
            return [case, replace(case, tp=1.0, ep=case.tp, dp=case.tp)]
        return [case]
    sizes = [size for size in (1, 2, 4, 8) if size <= case.accelerators and case.accelerators % size == 0]
    if "accelerator count" in case.assumed and case.accelerators > 8:
        sizes.append(int(case.accelerators))  # as many as hold the weights: fewer of them do not
    found = [replace(case, tp=float(size), ep=1.0) for size in sizes if case.model.heads % size == 0]
    if case.is_mla:
        found += [replace(case, tp=1.0, ep=float(size), dp=float(size)) for size in sizes if size > 1]
    return found or [case]


@cache
def _data_sets() -> tuple[Row, ...]:
    return tuple(read_rows(DATA_SETS))


def _of_data_set(row: Row, column: str) -> float | None:
    """What the table says of the first data set that a row names and that has it."""
    named = text(row, "isl_dist").lower()
    found = (number(each, column) for each in _data_sets() if each["data_set"] in named)
    return next((value for value in found if value is not None), None)


def known_format(name: str) -> str:
    """A number format by any name that rows have for it; "" for one that says nothing.

    Raises UnknownNameError.
    """
    found = FORMATS.get(name.lower(), name.lower())
    if found and found not in FORMAT_BYTES:
        known = sorted({*FORMAT_BYTES, *FORMATS})
        hint = did_you_mean(name, known, f"formats: {', '.join(sorted(FORMAT_BYTES))}")
        raise UnknownNameError(f"`{name[:64]}` is not a known number format", hint=hint)
    return found


def _format(name: str, blocks: bool) -> str:
    name = known_format(name)
    return "fp8_block" if name == "fp8" and blocks else name


def _weights_format(
    row: Row, model: Model, blocks: bool, accelerator: Accelerator, assumed: list[str]
) -> str:
    named = _format(text(row, "precision_weights"), blocks)
    if is_tuned(row) and named in ("", "bf16", "fp32"):
        # Tables of MLPerf name the checkpoint that was quantised from, or nothing: 140 GB on one 96 GB part.
        narrowest = "nvfp4" if accelerator.fp4_flops_per_s else "fp8" if accelerator.fp8_flops_per_s else ""
        if narrowest:
            assumed.append(f"weights format {narrowest}")
            return narrowest
    if not named:
        named = _format(model.served_format.split(" ")[0], blocks)
        assumed.append(f"weights format {named}")
    return named


def is_tuned(row: Row) -> bool:
    """Whether a row is a submission to MLPerf: quantised where the part can, at the highest valid rate."""
    return "mlperf" in text(row, "isl_dist").lower()


def _layout(
    row: Row, model: Model, weights: str, accelerator: Accelerator, assumed: list[str]
) -> tuple[float, float, float, float, float]:
    tp, dp = number(row, "tp"), number(row, "dp") or 1.0
    pp, ep = number(row, "pp") or 1.0, number(row, "ep") or 1.0
    accelerators = number(row, "gpus_total")
    if accelerators is None:
        # The smallest power of two of accelerators whose memory is a third larger than the weights.
        needed = 4 / 3 * model.parameters * bytes_per_weight(weights) / accelerator.memory_bytes
        accelerators = (tp or float(2 ** max(0, ceil(log2(needed))))) * pp * dp
        assumed.append("accelerator count")
    if tp is None:
        assumed.append("layout")
        tp, pp, ep, dp = min(8.0, accelerators), 1.0, 1.0, 1.0
    elif model.experts and number(row, "ep") is None:
        assumed.append("expert parallelism")
    return tp, pp, min(ep, tp * dp), dp, accelerators


def _request_count(row: Row) -> float:
    counted = COUNTED.search(text(row, "isl_dist"))
    return float(counted.group(1)) if counted else nan


def _length_spread(row: Row, constants: Constants) -> float:
    """Deviation over mean. Uniform prompts of public harnesses are 80–100 % of the longest: 0.2/√12/0.9."""
    named = text(row, "isl_dist").lower()
    if "uniform" in named:
        return 0.06
    return 0.0 if "fixed" in named else constants.get("benchmark_length_spread_ratio")


def _answer_spread(row: Row, mean_tokens: float, usual: float) -> float:
    """The usual spread, or the largest of which one answer in a hundred reaches the benchmark's limit.

    Formula  exp(2.326·σ − σ²/2) = limit/mean for σ, the smaller root; spread √(exp(σ²) − 1)
    """
    limit = _of_data_set(row, "answer_limit_tokens")
    if not is_tuned(row) or limit is None:
        return usual
    excess = log(max(limit / mean_tokens, 1.0))
    under_root = NORMAL_P99**2 - 2.0 * excess
    if under_root <= 0.0:
        return usual
    return min(usual, sqrt(expm1((NORMAL_P99 - sqrt(under_root)) ** 2)))


def _lengths(row: Row, assumed: list[str]) -> tuple[float, float]:
    inputs, outputs = number(row, "isl_mean"), number(row, "osl_mean")
    if inputs is None:
        known = _of_data_set(row, "prompt_tokens")
        inputs = known or USUAL_TOKENS
        assumed.append(f"input length {inputs:.0f}" + (" as usual for the data set" if known else ""))
    if outputs is None:
        known = _of_data_set(row, "answer_tokens")
        outputs = known or USUAL_TOKENS / 2.0
        assumed.append(f"output length {outputs:.0f}")
    return inputs, outputs


def _load(row: Row, assumed: list[str]) -> tuple[Kind, float, float]:
    mode = text(row, "mode").lower()
    concurrency, rate = number(row, "concurrency"), number(row, "request_rate_rps")
    if mode == "disaggregated":
        if concurrency is None:
            assumed.append("concurrency 64")
        return "disaggregated", concurrency or 64.0, 0.0
    if mode == "offline":
        given = concurrency or number(row, "max_batch")
        return ("static", given, 0.0) if given else ("saturated", 0.0, 0.0)
    if rate is not None and concurrency is None:
        return "open", 0.0, rate
    if mode == "burst" and concurrency is not None:
        return "burst", concurrency, 0.0
    if concurrency is None:
        assumed.append("load: all requests at once")
        return "saturated", 0.0, 0.0
    return "closed", concurrency, 0.0
