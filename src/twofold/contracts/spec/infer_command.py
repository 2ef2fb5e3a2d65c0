"""The spec behind the command line of a serving engine."""

import json
import re
from collections.abc import Iterable, Mapping

from twofold.catalog.names import checkpoint
from twofold.contracts.names import Names, did_you_mean, fold
from twofold.contracts.spec.command_line import EngineLine, read_command
from twofold.core import errors
from twofold.core.errors import Place
from twofold.perf.software import DEFAULT_ENGINE, SPEC_ENGINES

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
    "w8a8_int8": "int8",
    "compressed-tensors": "int8",
    "modelopt": "fp8",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
}
_CACHES = {"fp8": "fp8", "q8": "int8", "int8": "int8"}  # the others are as wide as the weights' usual
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
    line = read_command(text, place)
    options = dict(line.options)
    if "context" in options:  # of all slots of llama.cpp together
        slots = _whole(options, "max-num-seqs", 1, place)
        options["max-model-len"] = str(_whole(options, "context", 0, place) // max(1, slots))
    model, model_note = _model(options, names)
    served = options.get("served-model-name", "").split(" ")[0] or model.rsplit("/", 1)[-1]
    lines = [
        f"# Inferred from: {file or ' '.join(text.split())[:160]}",
        f"name: {spec_name(served)}",
        f"model: {yaml_text(model)}{model_note}",
        "",
        "serving:",
        f"  engine: {line.engine}" if line.engine in SPEC_ENGINES else _no_engine(line.engine),
        _on(line, options, names, place),
        f"  availability: 99.9 %{COMMENT}assumed",
        *_formats(options),
        "  classes:",
        "    chat:",
        *_traffic(options, place),
        ASSUMED_SLO,
    ]
    return written(lines)


def _model(options: Mapping[str, str], names: Names) -> tuple[str, str]:
    """The catalogue's model: by where its weights are, else by what it is served as."""
    weights = options["model"]
    served = options.get("served-model-name", "").split(" ")[0]
    if weights.startswith("$"):  # set by who starts the script
        weights = served or weights.removeprefix("$").removeprefix("WEIGHTS_").lower()
    found = catalog_model(weights, names)
    return catalog_model(served, names) if served and "the catalogue has no" in found[1] else found


def _no_engine(name: str) -> str:
    return f"  # engine: {name}{COMMENT}no plan is made with its constants: as {DEFAULT_ENGINE}"


def _on(line: EngineLine, options: Mapping[str, str], names: Names, place: Place | None) -> str:
    """The machine of a replica, where a rendered script names it; else how many accelerators it has."""
    if line.machine.partition("x")[2] in names.accelerators:
        return f"  on: {line.machine}{COMMENT}one replica, by the head of the script"
    tensor, pipeline, data = (
        _whole(options, f"{kind}-parallel-size", 1, place) for kind in ("tensor", "pipeline", "data")
    )
    # Attention ranks are among the tensor parallel ones where these two engines count; vLLM's beside them.
    count = tensor * pipeline * (data if line.engine == "vllm" else 1)
    return f"  # on: {count}xH100-SXM{COMMENT}{count} per replica; name your accelerator to keep them"


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


def _whole(options: Mapping[str, str], key: str, default: int, place: Place | None) -> int:
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
        cache_format = _CACHES.get(cache.partition("_")[0], "bf16")
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
