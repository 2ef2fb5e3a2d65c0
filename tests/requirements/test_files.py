"""The requirement rows about files that start what was planned."""

import json
import re
from pathlib import Path
from typing import Any

from tests.object_fields import documents
from twofold.app.planning import plan
from twofold.app.rendering import render

ROOT = Path(__file__).parents[2]


def files_of(command: str) -> tuple[Any, dict[str, str]]:
    """The plan of a row's spec and the files of its command, by path."""
    path = ROOT / command.split()[2]
    made = plan(path)
    return made, {each.path: each.text for each in render(made, "shell").files}


def test_r_006_fsdp_and_deepspeed_are_configured_with_the_degrees_of_the_plan(command: str) -> None:
    """Accelerate, and DeepSpeed where it is installed, read them in tests/rendering/test_parsers.py."""
    made, files = files_of(command)
    by_fsdp, by_deepspeed = made.training
    (sharded,) = documents(files["launched-by-fsdp.accelerate.yaml"])
    assert sharded["num_processes"] == by_fsdp.layout.dp == by_fsdp.machine.accelerator_count
    assert sharded["fsdp_config"]["fsdp_reshard_after_forward"] == (by_fsdp.layout.zero_stage == 3)
    told = json.loads(files["launched-by-deepspeed.deepspeed.json"])
    layout = by_deepspeed.layout
    assert told["zero_optimization"]["stage"] == layout.zero_stage
    sizes = told["train_micro_batch_size_per_gpu"], told["gradient_accumulation_steps"], layout.dp
    assert sizes[0] == layout.micro_batch
    assert sizes[0] * sizes[1] * sizes[2] == told["train_batch_size"] == by_deepspeed.batch_samples


def test_r_051_vllm_tensorrt_llm_and_triton_are_told_what_is_planned(command: str) -> None:
    """Argument checkers of engines, and Triton's schema: tests/rendering; a first token: tests/live."""
    made, files = files_of(command)
    triton = {each.path: each.text for each in render(made, "triton").files}
    told = {
        "by-vllm": json.loads(triton["launched-by-vllm/llama-3-1-8b/1/model.json"])["max_num_seqs"],
        "by-tensorrt-llm": documents(triton["launched-by-tensorrt-llm/llama-3-1-8b/1/model.yaml"])[0][
            "max_batch_size"
        ],
    }
    flags = {
        "by-vllm": ("--max-num-seqs", "--tensor-parallel-size"),
        "by-tensorrt-llm": ("--max_batch_size", "--tp_size"),
    }
    for service in made.serving:
        script = files[f"launched-{service.name}.sh"]
        replica = service.pools[0].replica
        batch, ranks = flags[service.name]
        assert told[service.name] == replica.max_batch
        assert 'name: "llama-3-1-8b"' in triton[f"launched-{service.name}/llama-3-1-8b/config.pbtxt"]
        assert re.search(rf"^  {batch} {replica.max_batch} ", script, re.M)
        assert re.search(rf"^  {ranks} {replica.tp} ", script, re.M) or replica.tp == 1
