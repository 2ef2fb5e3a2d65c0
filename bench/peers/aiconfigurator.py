"""Serving rows as AIConfigurator's questions: a model and system it ships, a stated layout, a stated load.

Rows are read as ours are (`twofold.measure.inference_rows`), blanks filled alike, so both see the same
lengths, formats and layout.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from bench.peers.ask import ask
from bench.peers.compare import Answer, sample
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.catalog.types import Model
from twofold.core.errors import InputError, TwofoldError, UnknownNameError
from twofold.measure.inference_rows import Case, read_case
from twofold.measure.truth import Row
from twofold.perf.constants import Constants

HALF = "inference"
SYSTEMS = {
    "A100-SXM4-80GB": "a100_sxm",
    "H100-SXM5-80GB": "h100_sxm",
    "H200-SXM5-141GB": "h200_sxm",
    "B200-SXM-180GB": "b200_sxm",
    "GB200-186GB": "gb200",
    "RTX-PRO-6000-SE": "rtx_pro_6000_server",
}
MODELS = (  # that the peer ships a configuration of; a row's model counts when its shape is the same
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-235B-A22B",
    "Qwen/Qwen3-Coder-480B-A35B-Instruct",
    "deepseek-ai/DeepSeek-R1",
    "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Meta-Llama-3.1-405B",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "mistralai/Mixtral-8x7B-v0.1",
    "mistralai/Mixtral-8x22B-v0.1",
    "openai/gpt-oss-120b",
)
FORMATS = {"bf16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
MODES = {"static": "static", "closed": "agg"}
REFUSED = {
    "open": "no load by rate",
    "saturated": "no load without a concurrency",
    "disaggregated": "the row does not state the prefill workers' layout and batch",
}


def shape(model: Model) -> tuple[object, ...]:
    """What makes two models the same to a predictor."""
    attention = (model.heads, model.kv_heads, model.head_dim, model.mla_kv_rank, model.linear_layers)
    experts = (model.experts, model.experts_topk, model.moe_layers, model.moe_ffn_hidden)
    return model.layers, model.hidden, model.vocab, model.ffn_hidden, *attention, *experts


@cache
def peer_models() -> dict[tuple[object, ...], str]:
    """The peer's models by shape."""
    catalog = load_catalog()
    return {shape(catalog.model(name)): name for name in MODELS}


def question(row: Row, catalog: Catalog, constants: Constants) -> dict[str, object]:
    """Arguments of the peer's estimate. Raises InputError with the reason where it cannot express the row."""
    case = read_case(row, catalog, constants)
    if case.kind in REFUSED:
        raise InputError(REFUSED[case.kind])
    if case.accelerator.name not in SYSTEMS:
        raise InputError(f"no data for {case.accelerator.name}")
    if case.engine not in ("trtllm", "vllm", "sglang"):
        raise InputError(f"no engine {case.engine}")
    name = peer_models().get(shape(case.model))
    if name is None:
        raise UnknownNameError("no configuration of this model")
    if "layout" in case.assumed or "expert parallelism" in case.assumed:
        raise InputError("the row leaves the layout open")
    if case.draft_tokens:
        raise InputError("the row does not state how many drafts were accepted")
    return _arguments(case, name)


def _arguments(case: Case, name: str) -> dict[str, object]:
    per_rank = max(1, round(case.concurrency / (case.replicas * case.dp)))
    told: dict[str, object] = {
        "model_path": name,
        "system_name": SYSTEMS[case.accelerator.name],
        "backend_name": case.engine,
        "mode": MODES[case.kind],
        "isl": round(case.input_tokens),
        "osl": max(2, round(case.output_tokens)),
        "batch_size": per_rank,
        "tp_size": round(case.tp),
        "pp_size": round(case.pp),
        "attention_dp_size": round(case.dp),
        "kvcache_quant_mode": "fp8" if case.kv_format.startswith("fp8") else "bfloat16",
    }
    if case.weights_format in FORMATS:  # else as the checkpoint says: MXFP4 of gpt-oss
        told["gemm_quant_mode"] = FORMATS[case.weights_format]
    if case.is_moe:
        told["moe_ep_size"] = round(case.ep)
        told["moe_tp_size"] = max(1, round(case.tp * case.dp / case.ep))
        if case.weights_format in FORMATS:
            told["moe_quant_mode"] = FORMATS[case.weights_format]
    return told


def predict(
    rows: Sequence[Row], catalog: Catalog, constants: Constants, python: str, most: int
) -> tuple[str, list[Answer]]:
    """The peer's version and its answer to every row: asked of at most `most` rows a source."""
    answers: list[Answer] = ["not in the sample"] * len(rows)
    asked: dict[int, dict[str, object]] = {}
    for place, row in enumerate(rows):
        try:
            asked[place] = question(row, catalog, constants)
        except TwofoldError as error:
            answers[place] = error.message
    chosen = sample(rows, asked, most)
    version, told = ask(python, "ask_aiconfigurator.py", [], [asked[place] for place in chosen])
    for place, each in zip(chosen, told, strict=True):
        copies = read_case(rows[place], catalog, constants).replicas
        answers[place] = figures(each, copies)
    return version, answers


def figures(told: Mapping[str, object], copies: float) -> Answer:
    """One answer by title of the figure, the throughput of all copies together; or why there is none."""
    if "error" in told:
        return str(told["error"])
    numbers = {name: float(str(value)) for name, value in told.items()}
    return {
        "TTFT": numbers["ttft_ms"],
        "TPOT": numbers["tpot_ms"],
        "Output tokens/s": numbers["tokens_per_s"] * copies,
    }
