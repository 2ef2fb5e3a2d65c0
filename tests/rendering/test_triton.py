"""Triton's model repositories hold the plan's engine arguments, under the names that their backends have."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.rendered import texts, with_replica
from tests.text_format import read
from twofold.app.rendering import render
from twofold.contracts.results.plan import Plan
from twofold.core.errors import ValueRefusedError


def of_tensorrt(plan: Plan, **changed: Any) -> dict[str, str]:
    return dict(texts(with_replica(plan, engine="tensorrt-llm", **changed), "triton"))


def llm_arguments(files: dict[str, str]) -> dict[str, Any]:
    (text,) = [text for path, text in files.items() if path.endswith("model.yaml")]
    found: dict[str, Any] = YAML(typ="safe").load(text)
    return found


@pytest.mark.parametrize("name", ["assistant", "finetune", "portfolio"])
def test_each_pool_has_a_repository_with_its_engine_s_arguments(name: str, examples: dict[str, Plan]) -> None:
    plan = examples[name]
    files = texts(plan, "triton")
    told = {path: json.loads(text) for path, text in files.items() if path.endswith("/1/model.json")}
    pools = [pool for service in plan.serving for pool in service.pools]
    assert len(told) == len(pools)
    for (path, arguments), pool in zip(told.items(), pools, strict=True):
        assert arguments["max_num_seqs"] == pool.replica.max_batch
        assert arguments.get("tensor_parallel_size", 1) == pool.replica.tp
        assert arguments["quantization"] == pool.replica.weights_format
        config = read(files[path.replace("1/model.json", "config.pbtxt")])
        assert config["name"] == path.split("/")[1] and config["backend"] == "vllm"
        assert config["max_batch_size"] == 0 and config["model_transaction_policy"] == {"decoupled": True}
        (group,) = config["instance_group"]
        assert group == {"count": 1, "kind": "KIND_MODEL"}  # vLLM's backend refuses KIND_GPU beyond one GPU
        assert [each["name"] for each in config["input"]] == ["text_input", "stream", "sampling_parameters"]


def test_each_value_is_explained_beside_the_file_that_holds_no_comments(examples: dict[str, Plan]) -> None:
    files = texts(examples["finetune"], "triton")
    (path,) = [path for path in files if path.endswith("model.json")]
    beside = files[path.replace("1/model.json", "config.pbtxt")]
    for name, value in json.loads(files[path]).items():
        line = next(line for line in beside.splitlines() if line.startswith(f"# {name} {json.dumps(value)} "))
        assert line.rpartition("  # ")[2].strip()


def test_tensorrt_llm_is_told_what_its_command_line_has_no_words_for(examples: dict[str, Plan]) -> None:
    plan = examples["finetune"]
    files = of_tensorrt(plan, tp=2, dp=4, ep=8, accelerator_count=8, max_batch=64, kv_format="fp8")
    told = llm_arguments(files)
    assert (told["tensor_parallel_size"], told["moe_expert_parallel_size"]) == (8, 8)
    assert told["enable_attention_dp"] is True and told["kv_cache_config"]["dtype"] == "fp8"
    assert told["max_batch_size"] == 16  # of one copy of attention
    assert told["triton_config"] == {"max_batch_size": 0, "decoupled": True}
    assert "--extra_llm_api_options" not in "".join(files.values())
    plain = llm_arguments(of_tensorrt(plan, kv_format="bf16"))
    assert "enable_attention_dp" not in plain and "dtype" not in plain["kv_cache_config"]


@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm"])
def test_the_script_starts_a_server_on_the_repository(
    engine: str, examples: dict[str, Plan], tmp_path: Path
) -> None:
    """By a `tritonserver` of our own, which says what it was told; TensorRT-LLM's own files are copied in."""
    plan = with_replica(examples["finetune"], engine=engine)
    made = render(plan, "triton", tmp_path / "out")
    own = tmp_path / "trt" / "triton_backend" / "all_models" / "llmapi" / "tensorrt_llm" / "1"
    own.mkdir(parents=True)
    for name in ("model.py", "helpers.py"):
        (own / name).write_text("own", "utf-8")
    program = tmp_path / "bin" / "tritonserver"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', "utf-8")
    program.chmod(0o755)
    (script,) = [each.path for each in made.files if each.executable]
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    environment["TENSORRT_LLM"] = str(tmp_path / "trt")
    done = subprocess.run(
        [tmp_path / "out" / script, "--log-verbose", "1"], env=environment, capture_output=True, check=True
    )
    words = done.stdout.decode().split()
    repository = Path(words[words.index("--model-repository") + 1])
    assert words[-2:] == ["--log-verbose", "1"]
    (model,) = repository.iterdir()
    assert read((model / "config.pbtxt").read_text("utf-8"))["name"] == model.name
    names = {each.name for each in (model / "1").iterdir()}
    assert names == ({"model.json"} if engine == "vllm" else {"model.yaml", "model.py", "helpers.py"})


def test_what_triton_does_not_run_is_lost_aloud_or_refused(examples: dict[str, Plan]) -> None:
    files = texts(examples["assistant"], "triton")
    scripts = [text for path, text in files.items() if path.endswith(".sh")]
    assert all("# lost: the run pretrain: Triton serves" in text for text in scripts)
    for name in ("moe", "laptop"):
        with pytest.raises(ValueRefusedError, match="vLLM and TensorRT-LLM, and the plan has neither"):
            texts(examples[name], "triton")
    wide = with_replica(examples["finetune"], tp=16, accelerator_count=16)
    assert "servers: join them before" in "".join(texts(wide, "triton").values())


@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm"])
def test_triton_s_schema_reads_its_configuration(engine: str, examples: dict[str, Plan]) -> None:
    schema = pytest.importorskip(
        "tritonclient.grpc.model_config_pb2", reason="pip install 'tritonclient[grpc]'"
    )
    text_format = pytest.importorskip("google.protobuf.text_format")
    files = texts(with_replica(examples["finetune"], engine=engine), "triton")
    (text,) = [text for path, text in files.items() if path.endswith("config.pbtxt")]
    config = text_format.Parse(text, schema.ModelConfig())
    assert [each.name for each in config.input] == [each["name"] for each in read(text)["input"]]
    assert config.name == read(text)["name"] and len(config.output) == 1
    assert config.model_transaction_policy.decoupled == (engine == "vllm")
    with pytest.raises(text_format.ParseError):
        text_format.Parse(text.replace("KIND_", "KINDS_"), schema.ModelConfig())
