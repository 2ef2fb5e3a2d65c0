"""What is rendered is read by the programs that it is for, where they are installed.

Those of the extras always; others by `make validate-rendered`, which installs each beside the tests.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.rendered import Files, texts, with_replica, with_run, words_of
from twofold.contracts.results.plan import Plan

NEEDED = "`make extras`"
DEEPSPEED = "is read by `make validate-rendered` (pip install deepspeed)"
TITAN = "is read by `make validate-rendered` (pip install torchtitan)"


def need(package: str, reason: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package}: {reason}")


def asked(program: str, *words: str) -> None:
    """Run Python of its own: these packages warn, and load for seconds."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]


TRANSFORMERS = """
import json, sys
from transformers.cli.transformers import app
told = app.commands["serve"].make_context("serve", json.loads(sys.argv[1])).params
assert (told["continuous_batching"], told["dtype"], told["port"]) == (True, sys.argv[2], 8000), told
"""


@pytest.mark.parametrize(("name", "dtype"), [("laptop", "float32"), ("finetune", "bfloat16")])
def test_transformers_reads_its_line(
    name: str, dtype: str, examples: dict[str, Plan], tmp_path: Path
) -> None:
    need("transformers", NEEDED)
    plan = with_replica(
        examples[name], engine="transformers", **({} if name == "laptop" else {"weights_format": "bf16"})
    )
    (text,) = [text for path, text in texts(plan, "shell").items() if "serve" in path]
    words = words_of(text, tmp_path)
    assert words[:2] == ["transformers", "serve"]
    asked(TRANSFORMERS, json.dumps(words[2:]), dtype)


ACCELERATE = """
import json, sys
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser, _validate_launch_command
config = load_config_from_file(sys.argv[1])
assert config.num_processes == int(sys.argv[2]) and config.fsdp_config["fsdp_version"] == 2
words = json.loads(sys.argv[3])
args, _, _ = _validate_launch_command(launch_command_parser().parse_args(words))
assert args.use_fsdp and args.num_machines == int(sys.argv[4]) and args.training_script == "given"
"""


@pytest.mark.parametrize(
    "layout", [{"zero_stage": 3}, {"zero_stage": 2, "recompute": "full"}, {"tp": 2, "dp": 4}]
)
def test_accelerate_reads_its_configuration_and_its_line(
    layout: dict[str, object], examples: dict[str, Plan], tmp_path: Path
) -> None:
    need("accelerate", NEEDED)
    plan = with_run(examples["finetune"], framework="pytorch-fsdp", layout=layout)
    files = texts(plan, "shell")
    config = tmp_path / "finetune.accelerate.yaml"
    config.write_text(files[config.name], "utf-8")
    words = words_of(files["finetune.sh"], tmp_path)
    words[words.index("--config_file") + 1] = str(config)
    machine = plan.training[0].machine
    sizes = str(machine.accelerator_count), str(machine.node_count)
    asked(ACCELERATE, str(config), sizes[0], json.dumps(words[2:]), sizes[1])


TRAINER = """
import json, sys
from argparse import ArgumentParser
from dataclasses import fields
from transformers import TrainingArguments
known = {each.name for each in fields(TrainingArguments)}
script = {"train_file", "block_size", "model_name_or_path", "config_name", "do_train"}
flags = {word[2:] for word in json.loads(sys.argv[1]) if word.startswith("--")}
assert not flags - known - script, flags - known - script
"""


@pytest.mark.parametrize("framework", ["deepspeed", "pytorch-fsdp"])
def test_the_trainer_of_transformers_has_the_arguments_of_scripts(
    framework: str, examples: dict[str, Plan], tmp_path: Path
) -> None:
    need("transformers", NEEDED)
    files = texts(with_run(examples["finetune"], framework=framework), "shell")
    words = words_of(files["finetune.sh"], tmp_path)
    asked(TRAINER, json.dumps(words[words.index("given") + 1 :]))


DEEPSPEED_READS = """
import json, sys
from deepspeed.runtime.config import DeepSpeedConfig
told = json.load(open(sys.argv[1]))
# One rank reads it, so that the batch of a step is that of one.
told["train_batch_size"] = told["train_micro_batch_size_per_gpu"] * told["gradient_accumulation_steps"]
read = DeepSpeedConfig(told)
assert read.zero_config.stage == told["zero_optimization"]["stage"]
assert read.gradient_accumulation_steps == told["gradient_accumulation_steps"]
"""


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_deepspeed_reads_its_configuration(stage: int, examples: dict[str, Plan], tmp_path: Path) -> None:
    need("deepspeed", DEEPSPEED)
    plan = with_run(examples["finetune"], framework="deepspeed", layout={"zero_stage": stage})
    path = tmp_path / "told.json"
    path.write_text(texts(plan, "shell")["finetune.deepspeed.json"], "utf-8")
    asked(DEEPSPEED_READS, str(path))


TITAN_READS = """
import sys
from torchtitan.config import ConfigManager
told = ConfigManager().parse_args(["--job.config-file", sys.argv[1]])
assert told.training.global_batch_size == 64 and told.parallelism.data_parallel_shard_degree == 8
"""


def test_torchtitan_reads_its_configuration(files_of: Callable[[str, str], Files], tmp_path: Path) -> None:
    need("torchtitan", TITAN)
    path = tmp_path / "finetune.toml"
    path.write_text(files_of("finetune", "shell")["finetune.toml"], "utf-8")
    asked(TITAN_READS, str(path))
