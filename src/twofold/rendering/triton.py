"""The target `triton`: a model repository of the Triton Inference Server for each pool, and what starts it.

Sources  Triton's model_config.proto (`ModelConfig`); vllm_backend, whose `model.json` is vLLM's
         AsyncEngineArgs; TensorRT-LLM's triton_backend/all_models/llmapi, whose `model.yaml` is what its
         LLM is given.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from twofold.core.errors import ValueRefusedError
from twofold.rendering.commands import Command, Option, commented, option_lines
from twofold.rendering.engines import engine_arguments, shared_prefix
from twofold.rendering.files import RenderedFile, head, one_line
from twofold.rendering.given import Given
from twofold.rendering.kubernetes_pods import source_of
from twofold.rendering.records import ServedPool, label
from twofold.rendering.runtimes import engine_name
from twofold.rendering.slices import by_hand
from twofold.rendering.yaml_text import Node, Said, yaml_text

IMAGES = {"vllm": "vllm-python-py3", "trtllm": "trtllm-python-py3"}  # how tags of tritonserver end
ENGINES = {"vllm": "vllm", "trtllm": "trtllm", "tensorrt-llm": "trtllm"}
OPTIONAL = "    optional: true"
GRPC, METRICS = 1000, 2000  # ports of a pool beyond its own
# What a client sends and gets: name, type, shape, whether it may be left out.
INPUTS = {
    "vllm": (
        ("text_input", "TYPE_STRING", 1, False),
        ("stream", "TYPE_BOOL", 1, True),
        ("sampling_parameters", "TYPE_STRING", 1, True),
    ),
    "trtllm": (
        ("text_input", "TYPE_STRING", -1, False),
        ("streaming", "TYPE_BOOL", 1, True),
        ("sampling_param_max_tokens", "TYPE_INT32", 1, True),
        ("sampling_param_temperature", "TYPE_FP32", 1, True),
        ("sampling_param_top_p", "TYPE_FP32", 1, True),
    ),
}
# TensorRT-LLM's own names of what its command line is told.
LLM_ARGUMENTS = {
    "--tp_size": "tensor_parallel_size",
    "--pp_size": "pipeline_parallel_size",
    "--ep_size": "moe_expert_parallel_size",
    "--max_batch_size": "max_batch_size",
    "--max_num_tokens": "max_num_tokens",
    "--max_seq_len": "max_seq_len",
}


def triton(given: Given) -> tuple[RenderedFile, ...]:
    """A folder and a script for each pool of vLLM or TensorRT-LLM.

    Raises ValueRefusedError where the plan has none.
    """
    served = [pool for pool in given.pools if engine_name(pool) in ENGINES]
    if not served:
        hint = "write `engine: vllm` or `engine: tensorrt-llm`, or render for the target `shell`"
        raise ValueRefusedError("Triton runs vLLM and TensorRT-LLM, and the plan has neither", hint=hint)
    others = [f"{pool.name}: Triton has no backend of {engine_name(pool)}" for pool in given.pools]
    left = [line for pool, line in zip(given.pools, others, strict=True) if pool not in served]
    left += [f"the run {run.run.name}: Triton serves; render it for another target" for run in given.runs]
    return tuple(file for pool in served for file in _pool_files(pool, given, left))


def _pool_files(pool: ServedPool, given: Given, left: Sequence[str]) -> Iterator[RenderedFile]:
    """A repository with the one model of a pool; each replica is a server of its own on its devices."""
    kind, command = ENGINES[engine_name(pool)], given.engine_command(pool)
    model = f"{pool.name}/{label(pool.pool.model)}"
    arguments = (
        _vllm_arguments(pool, command, given) if kind == "vllm" else _llm_arguments(pool, command, given)
    )
    if kind == "vllm":  # JSON holds no comments: what set its values stands in the file beside it
        said = commented([(f"# {name} {_written(each)}", _because(each)) for name, each in arguments.items()])
        beside = ["", "# Of 1/model.json:", *(one_line(line) for line in said)]
        values = {name: each.value if isinstance(each, Said) else each for name, each in arguments.items()}
        yield RenderedFile(f"{model}/1/model.json", json.dumps(values, indent=2) + "\n")
    else:
        beside = []
        lines = head(pool.title, given.digest)
        yield RenderedFile(f"{model}/1/model.yaml", yaml_text([arguments], lines))
    lines = [*head(pool.title, given.digest), *beside, "", *_config(label(pool.pool.model), kind)]
    yield RenderedFile(f"{model}/config.pbtxt", "\n".join(lines) + "\n")
    lines = list(_script(pool, kind, command, given, left))
    yield RenderedFile(f"{pool.name}.triton.sh", "\n".join(lines) + "\n", executable=True)


def _vllm_arguments(pool: ServedPool, command: Command, given: Given) -> Mapping[str, Node]:
    """The arguments of vLLM's engine: `model`, then what `vllm serve` would be told."""
    source = source_of(pool.weights, given)
    return {"model": Said(source.value, source.because or f"{pool.at}.model"), **engine_arguments(command)}


def _llm_arguments(pool: ServedPool, command: Command, given: Given) -> Mapping[str, Node]:
    """The arguments of TensorRT-LLM's LLM class, with those that its command line has no words for."""
    replica, at = pool.pool.replica, f"{pool.at}.replica"
    source = source_of(pool.weights, given)
    told = [option for option in command.options if option.flag in LLM_ARGUMENTS]
    cache: dict[str, Node] = {"enable_block_reuse": shared_prefix(pool)}
    if replica.kv_format == "fp8":
        cache["dtype"] = Said("fp8", f"{at}.kv_format")
    return {
        "model": Said(source.value, source.because or f"{pool.at}.model"),
        "backend": "pytorch",
        **{LLM_ARGUMENTS[option.flag]: Said(int(option.value), option.because) for option in told},
        **({"enable_attention_dp": Said(True, f"{at}.dp")} if (replica.dp or 1) > 1 else {}),
        "kv_cache_config": cache,
        "triton_config": {"max_batch_size": 0, "decoupled": Said(True, "answers are streamed")},
    }


def _config(name: str, kind: str) -> Iterator[str]:
    """`config.pbtxt`: the text format of Triton's ModelConfig."""
    yield f'name: "{name}"'
    if kind == "vllm":
        yield 'backend: "vllm"'
        yield "max_batch_size: 0  # the engine batches by itself"
        yield "model_transaction_policy { decoupled: true }  # answers are streamed"
        yield "instance_group [ { count: 1, kind: KIND_MODEL } ]  # the engine takes the devices that it sees"
    else:
        yield 'backend: "python"  # max_batch_size and decoupled are model.yaml\'s'
        yield "instance_group [ { count: 1, kind: KIND_CPU } ]  # the engine takes the devices that it sees"
    yield from _tensors("input", INPUTS[kind])
    yield from _tensors("output", (("text_output", "TYPE_STRING", -1, False),))


def _tensors(field: str, tensors: Sequence[tuple[str, str, int, bool]]) -> Iterator[str]:
    yield f"{field} ["
    for at, (name, kind, size, optional) in enumerate(tensors):
        yield "  {"
        yield f'    name: "{name}"'
        yield f"    data_type: {kind}"
        yield f"    dims: [ {size} ]"
        yield from [OPTIONAL] if optional else []
        yield "  }" if at == len(tensors) - 1 else "  },"
    yield "]"


def _script(
    pool: ServedPool, kind: str, command: Command, given: Given, left: Sequence[str]
) -> Iterator[str]:
    """One server; as many as there are replicas are started, each on devices of its own."""
    machine, image = pool.service.machine, f"nvcr.io/nvidia/tritonserver:<yy.mm>-{IMAGES[kind]}"
    lost = [*_lost(pool, kind, command), *by_hand(machine.accelerator, given), *left]
    yield "#!/usr/bin/env bash"
    yield from head(pool.title, given.digest, lost)
    yield f"# {pool.pool.replica_count} = {pool.at}.replica_count, {pool.pool.spare_count} of them spare"
    size = pool.pool.replica.accelerator_count
    yield f"# in {image}, each with CUDA_VISIBLE_DEVICES of {size} = {pool.at}.replica.accelerator_count"
    yield "set -euo pipefail"
    yield 'FILES="${FILES:-$(dirname "$0")}"'
    if kind == "trtllm":
        yield 'own="${TENSORRT_LLM:?set it to a checkout of TensorRT-LLM of the version in the image}"'
        yield 'own="$own/triton_backend/all_models/llmapi/tensorrt_llm/1"'
        yield f'cp "$own/model.py" "$own/helpers.py" "$FILES/{pool.name}/{label(pool.pool.model)}/1/"'
    ports = "one for each pool", "the same, + 1000", "the same, + 2000"
    options = [
        Option("--model-repository", f'"$FILES/{pool.name}"', f"{pool.at}.model"),
        Option("--http-port", str(pool.port), ports[0]),
        Option("--grpc-port", str(pool.port + GRPC), ports[1]),
        Option("--metrics-port", str(pool.port + METRICS), ports[2]),
    ]
    yield "options=("
    yield from option_lines(options)
    yield ")"
    yield 'exec tritonserver "${options[@]}" "$@"'


def _lost(pool: ServedPool, kind: str, command: Command) -> Iterator[str]:
    yield from (each for each in command.lost if kind == "vllm" or "--extra_llm_api_options" not in each)
    if pool.nodes_per_replica > 1:
        yield f"a replica on {pool.nodes_per_replica} servers: join them before, by Ray or by MPI"


def _written(value: Node) -> str:
    return json.dumps(value.value if isinstance(value, Said) else value)


def _because(value: Node) -> str:
    return value.because if isinstance(value, Said) else ""
