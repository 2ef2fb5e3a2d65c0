"""Command lines of serving engines: a pool of the plan in the words of vLLM, SGLang, TensorRT-LLM and others.

Sources  the engines' own documentation of their arguments; versions are named where they matter.
"""

from collections.abc import Callable, Mapping
from math import ceil
from types import MappingProxyType

from twofold.core.errors import ValueRefusedError
from twofold.live.control.engines import (
    KV_BLOCK_COUNT,
    PROCESSOR_ENVIRONMENT,
    processor_options,
    serve_options,
)
from twofold.rendering.commands import Command, Option
from twofold.rendering.own import own_server
from twofold.rendering.parted import with_role
from twofold.rendering.records import ServedPool, on_processors
from twofold.rendering.yaml_text import Said

# What each engine calls a format of the weights; "" where the checkpoint says it and no option does.
VLLM_FORMATS = {
    "fp8": "fp8",
    "int4": "awq_marlin",
    "nvfp4": "modelopt_fp4",
    "mxfp4": "mxfp4",
    "int8": "compressed-tensors",
}
SGLANG_FORMATS = {
    "fp8": "fp8",
    "int4": "awq_marlin",
    "nvfp4": "modelopt_fp4",
    "mxfp4": "mxfp4",
    "int8": "w8a8_int8",
}
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
IN_CHECKPOINT = ("int4", "int8", "nvfp4", "mxfp4")  # made beforehand, not while it is loaded
CACHE_8_BIT = ("fp8", "int8")
OF_SERVERS = ("--host", "--port", "--served-model-name")  # of what asks the engine, not its own
PREFILL_TOKENS = 2048  # of a step, where the plan says none


def vllm(pool: ServedPool, weights: str, native_format: str) -> Command:
    """`vllm serve`."""
    replica, at = pool.pool.replica, f"{pool.at}.replica"
    stored = replica.weights_format or native_format
    options = [
        Option("--served-model-name", pool.pool.model, f"{pool.at}.model"),
        *_where(pool),
        *_sizes(pool, "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"),
        *([Option("--enable-expert-parallel", "", f"{at}.ep")] if (replica.ep or 1) > 1 else []),
        *_format(stored, native_format, VLLM_FORMATS, "--dtype", "--quantization", f"{at}.weights_format"),
        *([Option("--kv-cache-dtype", "fp8", f"{at}.kv_format")] if replica.kv_format in CACHE_8_BIT else []),
        Option("--max-num-seqs", _rank_batch(pool), f"{at}.max_batch"),
        *_chunk(pool, "--max-num-batched-tokens"),
        Option("--max-model-len", str(pool.longest_tokens), _longest(pool)),
        _prefix(pool, "--enable-prefix-caching", "--no-enable-prefix-caching"),
    ]
    return Command(("vllm", "serve", weights), tuple(options), lost=_lost(pool, stored, native_format))


def sglang(pool: ServedPool, weights: str, native_format: str) -> Command:
    """`python -m sglang.launch_server`."""
    replica, at = pool.pool.replica, f"{pool.at}.replica"
    stored = replica.weights_format or native_format
    options = [
        Option("--model-path", weights, f"{pool.at}.model"),
        Option("--served-model-name", pool.pool.model, f"{pool.at}.model"),
        *_where(pool),
        *_all_ranks(pool, "--tp-size", "--pp-size", "--dp-size"),
        *([Option("--enable-dp-attention", "", f"{at}.dp")] if (replica.dp or 1) > 1 else []),
        *([Option("--ep-size", str(replica.ep), f"{at}.ep")] if (replica.ep or 1) > 1 else []),
        *_format(stored, native_format, SGLANG_FORMATS, "--dtype", "--quantization", f"{at}.weights_format"),
        *(
            [Option("--kv-cache-dtype", "fp8_e4m3", f"{at}.kv_format")]
            if replica.kv_format in CACHE_8_BIT
            else []
        ),
        Option("--max-running-requests", str(replica.max_batch), f"{at}.max_batch"),
        *_chunk(pool, "--chunked-prefill-size"),
        Option("--context-length", str(pool.longest_tokens), _longest(pool)),
        *([] if shared_prefix(pool).value else [_prefix(pool, "", "--disable-radix-cache")]),
    ]
    program = "python", "-m", "sglang.launch_server"
    return Command(program, tuple(options), lost=_lost(pool, stored, native_format))


def tensorrt_llm(pool: ServedPool, weights: str, native_format: str) -> Command:
    """`trtllm-serve`: formats of weights and cache are the checkpoint's own."""
    replica, at = pool.pool.replica, f"{pool.at}.replica"
    stored = replica.weights_format or native_format
    options = [
        *_where(pool),
        *_all_ranks(pool, "--tp_size", "--pp_size", ""),
        *([Option("--ep_size", str(replica.ep), f"{at}.ep")] if (replica.ep or 1) > 1 else []),
        Option("--max_batch_size", _rank_batch(pool), f"{at}.max_batch"),
        *_chunk(pool, "--max_num_tokens"),
        Option("--max_seq_len", str(pool.longest_tokens), _longest(pool)),
    ]
    lost = [*_lost(pool, stored, native_format)]
    if (replica.dp or 1) > 1:
        lost.append(
            "attention by data parallel ranks: `enable_attention_dp` of a file for --extra_llm_api_options"
        )
    if replica.kv_format in CACHE_8_BIT:
        lost.append("an 8-bit KV cache: `kv_cache_config.dtype` of a file for --extra_llm_api_options")
    return Command(("trtllm-serve", weights), tuple(options), lost=tuple(lost))


def llama_server(pool: ServedPool, weights: str, native_format: str) -> Command:
    """`llama-server` of llama.cpp: a GGUF file, slots of equal length."""
    replica, at = pool.pool.replica, f"{pool.at}.replica"
    slots = replica.max_batch
    options = [
        Option("--model", weights, f"{pool.at}.model"),
        Option("--alias", pool.pool.model, f"{pool.at}.model"),
        *_where(pool),
        Option("--parallel", str(slots), f"{at}.max_batch"),
        Option("--ctx-size", str(slots * pool.longest_tokens), f"slots × {_longest(pool)}"),
        *_chunk(pool, "--batch-size"),
        *([Option("--cache-type-k", "q8_0", f"{at}.kv_format")] if replica.kv_format in CACHE_8_BIT else []),
        *([Option("--cache-type-v", "q8_0", f"{at}.kv_format")] if replica.kv_format in CACHE_8_BIT else []),
    ]
    stored = replica.weights_format or native_format
    lost = [f"weights in {stored}: convert the checkpoint to a GGUF file of that size"]
    if replica.accelerator_count > 1:
        lost.append("tensor parallel ranks: layers are split over the devices, one after the other")
    return Command(("llama-server",), tuple(options), lost=tuple(lost))


def transformers(pool: ServedPool, weights: str, native_format: str) -> Command:
    """`transformers serve` with continuous batching, one device: the options that `up` starts it with."""
    replica, at = pool.pool.replica, f"{pool.at}.replica"
    stored = replica.weights_format or native_format
    decided = serve_options(DTYPES.get(stored, "auto"), replica.chunk_tokens or PREFILL_TOKENS)
    because = "requests join and leave between steps", f"{at}.weights_format", f"{at}.chunk_tokens"
    options = [Option(*option, why) for option, why in zip(decided, because, strict=True)]
    variables: list[Option] = []
    if on_processors(pool.service.machine):
        why = "processors", "tokens of a block of the cache", "as `up` starts it; more takes more memory"
        told = processor_options("cpu", KV_BLOCK_COUNT)
        options += [Option(*option, each) for option, each in zip(told, why, strict=True)]
        variables = [Option(name, value, "as `up` sets it") for name, value in PROCESSOR_ENVIRONMENT.items()]
    lost = [] if replica.accelerator_count == 1 else ["more than one device a replica"]
    if stored not in DTYPES:
        lost.append(f"weights in {stored}")
    line = (*options, *_where(pool))
    return Command(("transformers", "serve", weights), line, tuple(variables), tuple(lost))


Engine = Callable[[ServedPool, str, str], Command]
ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        "vllm": vllm,
        "sglang": sglang,
        "trtllm": tensorrt_llm,
        "tensorrt-llm": tensorrt_llm,
        "llama.cpp": llama_server,
        "transformers": transformers,
    }
)


def engine_command(pool: ServedPool, weights: str, native_format: str) -> Command:
    """How a replica of a pool is started; `weights` as the file names them, maybe a shell's variable.

    Raises ValueRefusedError for an engine that no line is known of.
    """
    if pool.is_own:
        return own_server(pool)
    name = (pool.pool.replica.engine or "").split()[0]
    if name not in ENGINES:
        hint = f"write `engine:` with one of {', '.join(ENGINES)}"
        raise ValueRefusedError(f"no command line is known of the engine `{name}`", hint=hint)
    command = ENGINES[name](pool, weights, native_format)
    return with_role(command, name, pool) if pool.role else command


def engine_arguments(command: Command) -> Mapping[str, Said]:
    """The options of `vllm serve` as its engine has them: numbers as numbers, switches as yes or no.

    Those of its server are left out.
    """
    found: dict[str, Said] = {}
    for option in command.options:
        if option.flag in OF_SERVERS:
            continue
        name = option.flag.removeprefix("--").replace("-", "_")
        value = int(option.value) if option.value.isdecimal() else option.value or True
        if name.startswith("no_"):
            name, value = name.removeprefix("no_"), False
        found[name] = Said(value, option.because)
    return found


def _where(pool: ServedPool) -> tuple[Option, ...]:
    return Option("--host", "0.0.0.0", "all of the machine"), Option(
        "--port", str(pool.port), "one for each pool"
    )


def _sizes(pool: ServedPool, tp: str, pp: str, dp: str) -> list[Option]:
    """Ranks of each kind that is more than one, in the engine's words; those without words are left out."""
    replica, at = pool.pool.replica, f"{pool.at}.replica"
    said = ((tp, replica.tp, "tp"), (pp, replica.pp, "pp"), (dp, replica.dp, "dp"))
    return [Option(flag, str(size), f"{at}.{name}") for flag, size, name in said if flag and (size or 1) > 1]


def _all_ranks(pool: ServedPool, tp: str, pp: str, dp: str) -> list[Option]:
    """The same where copies of attention are among the tensor parallel ranks."""
    replica, at = pool.pool.replica, f"{pool.at}.replica"
    copies = replica.dp or 1
    if copies == 1:
        return _sizes(pool, tp, pp, dp)
    ranks = Option(tp, str((replica.tp or 1) * copies), f"{at}.tp × {at}.dp")
    return [ranks, *_sizes(pool, "", pp, dp)]


def _rank_batch(pool: ServedPool) -> str:
    """Sequences of one copy of attention: some engines limit each."""
    return str(ceil(pool.pool.replica.max_batch / (pool.pool.replica.dp or 1)))


def _format(
    stored: str, native: str, names: Mapping[str, str], dtype: str, quantised: str, because: str
) -> list[Option]:
    """How weights are held: a data type, a way to quantise, or nothing where the checkpoint is as planned."""
    if stored in DTYPES:
        return [Option(dtype, DTYPES[stored], because)]
    return [] if stored == native else [Option(quantised, names.get(stored, stored), because)]


def _chunk(pool: ServedPool, flag: str) -> list[Option]:
    chunk = pool.pool.replica.chunk_tokens
    return [Option(flag, str(chunk), f"{pool.at}.replica.chunk_tokens")] if chunk else []


def shared_prefix(pool: ServedPool) -> Said:
    """Whether requests of any class begin alike."""
    for each in pool.classes:
        if each.shared_prefix_fraction > 0.0:
            return Said(True, f"serving.{pool.service.name}.classes.{each.name}.shared_prefix_fraction")
    return Said(False, "no class shares a prefix")


def _prefix(pool: ServedPool, with_it: str, without: str) -> Option:
    shared = shared_prefix(pool)
    return Option(with_it if shared.value else without, "", shared.because)


def _longest(pool: ServedPool) -> str:
    return f"longest request of {', '.join(pool.pool.classes)}, + 5 %"


def _lost(pool: ServedPool, stored: str, native: str) -> tuple[str, ...]:
    """What no option says."""
    found = []
    if stored in IN_CHECKPOINT and stored != native:
        found.append(f"weights in {stored} are made beforehand: give a checkpoint of {pool.pool.model} in it")
    if pool.pool.replica.kv_format == "int8":
        found.append("an int8 KV cache: it is held in the engine's own 8 bits, if it has any")
    return tuple(found)
