"""The spec behind a `vllm serve` command line."""

import json
import re
import shlex
from collections.abc import Iterable
from math import prod

from twofold.catalog.names import checkpoint
from twofold.contracts.names import Names, did_you_mean, fold
from twofold.core import errors
from twofold.core.errors import Place

# What the command calls a weight format, and what a spec calls it.
_FORMATS = {
    "fp8": "fp8",
    "awq": "int4",
    "awq_marlin": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "bitsandbytes": "int4",
    "int8": "int8",
    "experts_int8": "int8",
    "modelopt": "fp8",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
}
_SHORT = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size"}
_FLAGS = {"enable-prefix-caching", "enable-chunked-prefill", "trust-remote-code", "enforce-eager"}
_SUFFIX = re.compile(r"[-_](instruct|chat|it|hf|base|fp8|awq|gptq|int4|int8|w4a16|w8a8|dynamic|bf16)$", re.I)

ASSUMED_MODEL = "llama-3.1-8b"
ASSUMED_TPOT_S = 0.040
ASSUMED_TTFT_S = 0.5
ASSUMED_INPUT_TOKENS, ASSUMED_INPUT_P95 = 1155, 4083
ASSUMED_OUTPUT_TOKENS, ASSUMED_OUTPUT_P95 = 211, 451
# What no YAML text holds.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
COMMENT = "\0"  # between a value and what is said about it
ASSUMED_SLO = f"      slo: {{ttft_p95: 500 ms, tpot_p95: 40 ms}}{COMMENT}assumed"


def spec_of_command(text: str, names: Names, file: str = "") -> str:
    """A service with the command's model, formats and GPUs per replica; traffic and promises are assumed."""
    place = Place(file, 1, 1) if file else None
    options = _options(text, place)
    model, model_note = catalog_model(options["model"], names)
    sizes = ("tensor-parallel-size", "pipeline-parallel-size")
    gpu_count = prod(_whole(options, key, 1, place) for key in sizes)
    served = options.get("served-model-name", "").split(" ")[0] or model.rsplit("/", 1)[-1]
    lines = [
        f"# Inferred from: {' '.join(text.split())[:160]}",
        f"name: {spec_name(served)}",
        f"model: {yaml_text(model)}{model_note}",
        "",
        "serving:",
        "  engine: vllm",
        f"  # on: {gpu_count}xH100-SXM{COMMENT}{gpu_count} per replica; name your accelerator to keep them",
        f"  availability: 99.9 %{COMMENT}assumed",
        *_formats(options),
        "  classes:",
        "    chat:",
        *_traffic(options, place),
        ASSUMED_SLO,
    ]
    return written(lines)


def written(lines: Iterable[str]) -> str:
    """The spec's text, with the comments behind values in one column."""
    texts = []
    for line in lines:
        value, mark, comment = line.partition(COMMENT)
        texts.append(_CONTROL.sub(" ", f"{value:<56}  # {comment}" if mark else value))
    return "\n".join(texts) + "\n"


def catalog_model(text: str, names: Names) -> tuple[str, str]:
    """The catalogue's spelling of a model, and a comment that says what was done to it."""
    if text.startswith((".", "/", "~")):
        return (text if text.endswith(".json") else f"{text.rstrip('/')}/config.json"), ""
    tail = text.rsplit("/", 1)[-1]
    candidates = [text, tail]
    while _SUFFIX.search(candidates[-1]):
        candidates.append(_SUFFIX.sub("", candidates[-1]))
    known = {fold(name): name for name in sorted(names.models, reverse=True)}
    for candidate in candidates:
        if fold(candidate) in known:
            name = known[fold(candidate)]
            return name, "" if name == text else f"{COMMENT}{text}"
    if not known:
        return candidates[-1].lower(), f"{COMMENT}{text}"
    guess = did_you_mean(candidates[-1], names.models, "`twofold catalog models` lists all")
    return ASSUMED_MODEL, f"{COMMENT}assumed: the catalogue has no {text!r}. {guess}"


def yaml_text(text: str) -> str:
    """A text that YAML reads back as it is."""
    return text if re.fullmatch(r"[A-Za-z0-9./~][A-Za-z0-9./_+-]*", text) else json.dumps(text)


def spec_name(text: str) -> str:
    """Letters, digits, `-` and `_`: what a spec allows for a name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")[:64] or "inferred"


def _options(text: str, place: Place | None) -> dict[str, str]:
    """Options by their long names; the model too, wherever it stands."""
    try:
        words = shlex.split(text.replace("\\\n", " ").replace("\\\r\n", " "), comments=True)
    except ValueError as error:
        raise errors.InferenceSourceError(f"the command ends in the middle: {error}", place=place) from error
    start = next(i for i, word in enumerate(words) if word.endswith("vllm") or "vllm.entrypoints" in word)
    words = words[start + 2 :] if words[start + 1 : start + 2] == ["serve"] else words[start + 1 :]
    options: dict[str, str] = {}
    while words:
        word = words.pop(0)
        key, equals, value = word.partition("=")
        if word.startswith("-"):
            key = _SHORT.get(key, key.lstrip("-")).replace("_", "-")
            takes_value = not equals and key not in _FLAGS and words and not words[0].startswith("--")
            options[key] = words.pop(0) if takes_value else value
        else:
            options.setdefault("model", word)
    if not options.get("model"):
        hint = "vllm serve MODEL --tensor-parallel-size 4"
        raise errors.InferenceSourceError("the command names no model", place=place, hint=hint)
    return options


def _whole(options: dict[str, str], key: str, default: int, place: Place | None) -> int:
    text = options.get(key, str(default)).lower().replace("_", "")
    match = re.fullmatch(r"(\d{1,9})([km]?)", text)
    if not match:
        raise errors.InferenceSourceError(f"`--{key} {options[key][:32]}` is not a whole number", place=place)
    return int(match[1]) * {"": 1, "k": 1000, "m": 1_000_000}[match[2]]


def _formats(options: dict[str, str]) -> list[str]:
    """The formats that the command or the checkpoint's name tells; the others are as published."""
    cache, lines = options.get("kv-cache-dtype", "auto"), []
    # `--dtype` says what is computed in; narrow weights stay as they are.
    told = ("--quantization", options.get("quantization", "")), ("--dtype", options.get("dtype", ""))
    named = checkpoint(options["model"]).weights_format
    formats = [(_FORMATS[value], f"{key} {value}") for key, value in told if value in _FORMATS]
    if named and "quantization" not in options:
        formats.insert(0, (named, "by the model's name"))
    if formats:
        weights, note = formats[0]
        lines.append(f"  quantisation: [{weights}]{COMMENT}{note}")
    if cache != "auto":
        cache_format = "fp8" if cache.startswith("fp8") else "bf16"
        lines.append(f"  kv_quantisation: [{cache_format}]{COMMENT}--kv-cache-dtype {cache}")
    return lines


def _traffic(options: dict[str, str], place: Place | None) -> list[str]:
    """Lengths that fit the context; the rate that keeps the permitted sequences in flight (Little's law)."""
    longest = _whole(options, "max-model-len", 0, place)
    fit = min(1.0, longest / (ASSUMED_INPUT_P95 + ASSUMED_OUTPUT_P95)) if longest else 1.0
    input_tokens, input_p95 = (max(1, int(n * fit)) for n in (ASSUMED_INPUT_TOKENS, ASSUMED_INPUT_P95))
    output_tokens, output_p95 = (max(1, int(n * fit)) for n in (ASSUMED_OUTPUT_TOKENS, ASSUMED_OUTPUT_P95))
    sequences = _whole(options, "max-num-seqs", 256, place)
    rate_per_s = sequences / (ASSUMED_TTFT_S + output_tokens * ASSUMED_TPOT_S) / 2
    why = f"{sequences} sequences in flight at the peak, {ASSUMED_TPOT_S * 1e3:g} ms per token"
    within = f"; within --max-model-len {longest}" if longest else ""
    lines = [
        "      traffic:",
        f"        rate: {rate_per_s:.3g} /s{COMMENT}assumed: {why}",
        f"        peak: 2x{COMMENT}assumed",
        f"        input: {{mean: {input_tokens} tok, p95: {input_p95} tok}}{COMMENT}assumed{within}",
        f"        output: {{mean: {output_tokens} tok, p95: {output_p95} tok}}{COMMENT}assumed{within}",
    ]
    if "enable-prefix-caching" in options:
        lines.append(f"        shared_prefix: 30 %{COMMENT}assumed: --enable-prefix-caching")
    return lines
