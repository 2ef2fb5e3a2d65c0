"""Workers for prompts and workers for answers: what each engine's line says beside, and what joins them.

Sources  vLLM's guide to its NixlConnector and vLLM Router; SGLang's page on PD disaggregation and its router;
         TensorRT-LLM's page on disaggregated serving. The router tells a vLLM which side it is.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from twofold.core.errors import ValueRefusedError
from twofold.rendering.commands import Command, Option
from twofold.rendering.files import RenderedFile, head
from twofold.rendering.records import FIRST_PORT, ServedPool

CONNECTOR = json.dumps({"kv_connector": "NixlConnector", "kv_role": "kv_both"}, separators=(",", ":"))
SIDE_PORT, BOOTSTRAP_PORT, ROUTER_PORT = 5600, 8998, 9000
TENSORRT = ("trtllm", "tensorrt-llm")
MOVED = "the cache of a prompt goes to a worker for answers"
SIDE_HOST = "VLLM_NIXL_SIDE_CHANNEL_HOST: set it to a worker's address where they stand on several nodes"


def with_role(command: Command, engine: str, pool: ServedPool) -> Command:
    """The line of a worker. Raises ValueRefusedError for an engine that does both or nothing."""
    at = f"{pool.at}.role"
    if engine == "vllm":
        port = Option("VLLM_NIXL_SIDE_CHANNEL_PORT", str(SIDE_PORT + pool.port - FIRST_PORT), MOVED)
        more = (Option("--kv-transfer-config", CONNECTOR, f"{MOVED}; the router says which side"),)
        return replace(
            command,
            options=(*command.options, *more),
            variables=(*command.variables, port),
            lost=(*command.lost, SIDE_HOST),
        )
    if engine == "sglang":
        options = [
            Option("--disaggregation-mode", pool.role, at),
            Option("--disaggregation-transfer-backend", "nixl", MOVED),
        ]
        if pool.role == "prefill":
            options.append(Option("--disaggregation-bootstrap-port", str(BOOTSTRAP_PORT), "where sides meet"))
        return replace(command, options=(*command.options, *options))
    if engine in TENSORRT:
        file = Option("--extra_llm_api_options", f'"$FILES/{pool.name}.options.yaml"', at)
        return replace(command, options=(*command.options, file))
    hint = "write `engine:` with vllm, sglang or trtllm"
    raise ValueRefusedError(f"`{engine}` has no workers for prompts apart from those for answers", hint=hint)


def worker_files(pool: ServedPool, engine: str, digest: str) -> tuple[RenderedFile, ...]:
    """What a worker's line reads."""
    if not pool.role or engine not in TENSORRT:
        return ()
    lines = [
        *head(f"{pool.title}: options", digest),
        f"cache_transceiver_config:  # {MOVED}",
        "  backend: DEFAULT",
    ]
    if pool.role == "prefill":
        lines.append("disable_overlap_scheduler: true  # who only computes prompts has no next step")
    return (RenderedFile(f"{pool.name}.options.yaml", "\n".join(lines) + "\n"),)


def routers(pools: Sequence[ServedPool], engine_of: Sequence[str], digest: str) -> list[RenderedFile]:
    """For each pool that is parted the script of what sends a prompt to one side, its answer to the other."""
    found: list[RenderedFile] = []
    for at, pool in enumerate(pools):
        if pool.role != "prefill":
            continue
        answers = next(each for each in pools[at:] if each.role == "decode")
        name, what = pool.name.removesuffix("-prefill"), f"{pool.service.name}: the address that is asked"
        lines = [
            "#!/usr/bin/env bash",
            *head(what, digest),
            "set -euo pipefail",
            _addresses("PREFILL", pool),
            _addresses("DECODE", answers),
            *_started(engine_of[at], name, ROUTER_PORT + len(found)),
        ]
        found.append(RenderedFile(f"{name}-router.sh", "\n".join(lines) + "\n", executable=True))
    return found


def _addresses(variable: str, pool: ServedPool) -> str:
    """The workers of one side; what is not set is asked for."""
    asked = (
        f"http://HOST:{pool.port}, or as the batch script lists them, of each of {pool.pool.replica_count} "
    )
    asked += f"workers of {pool.name}"
    return f'{variable}="${{{variable}:?{asked}, between spaces}}"  # {pool.at}.replica_count'


def _started(engine: str, name: str, port: int) -> list[str]:
    """What is started, by engine."""
    if engine in TENSORRT:
        return [
            f'config="$(mktemp -t {name}.XXXXXX.yaml)"',
            "listed() {",
            '  printf "%s:\\n  num_instances: %d\\n  urls:\\n" "$1" "$(($# - 1))"',
            '  for each in "${@:2}"; do printf "  - %s\\n" "${each#http://}"; done',
            "}",
            "{",
            f'  printf "hostname: 0.0.0.0\\nport: {port}\\nbackend: pytorch\\n"',
            "  listed context_servers $PREFILL",
            "  listed generation_servers $DECODE",
            '} > "$config"',
            'exec trtllm-serve disaggregated -c "$config" "$@"',
        ]
    prompts = 'options+=(--prefill "$each")'
    program, first = "vllm-router", "--vllm-pd-disaggregation"
    if engine == "sglang":
        prompts = f'options+=(--prefill "$each" {BOOTSTRAP_PORT})'
        program, first = "python -m sglang_router.launch_router", "--pd-disaggregation"
    return [
        f"options=({first})",
        f"for each in $PREFILL; do {prompts}; done",
        'for each in $DECODE; do options+=(--decode "$each"); done',
        f'exec {program} "${{options[@]}}" --host 0.0.0.0 --port {port} "$@"',
    ]
