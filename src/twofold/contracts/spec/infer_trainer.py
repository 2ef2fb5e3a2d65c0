"""The training half behind a script that starts training software, with the files that lie beside it.

Read are torchrun with Megatron-LM, Megatron-Bridge, torchtitan or DeepSpeed, Accelerate with FSDP, and the
trainer of `up`. What is not on the line, a deadline for example, is left to who reads the spec.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.contracts.names import Names
from twofold.contracts.spec.command_line import Words, script_words
from twofold.contracts.spec.infer_command import COMMENT, catalog_model, spec_name, written, yaml_text
from twofold.contracts.spec.reader import read_text
from twofold.core import errors
from twofold.core.errors import Place

TRAINER = re.compile(
    r"(?:^|[\s/])(torchrun|accelerate\s+launch|twofold\.live\.(?:training\.)?train_job)(?=\s|$)"
)
_HEAD = re.compile(r"^# ([\w-]+): (?:([\d,]+) × )?(\d{1,4}) ([A-Za-z][\w.-]+),", re.M)  # of a rendered script
_SHAPE = re.compile(
    r"^\s*--num-layers\s.*# of (\S+)$", re.M
)  # whose shape a rendered line of Megatron-LM has
_CONFIG = re.compile(r"the config\.json of ([\w.-]+)")
_RECIPE = re.compile(r"with the shape of ([\w.-]+)")
_TITAN = {"llama3": "llama-3.1"}  # what torchtitan calls otherwise than people do


@dataclass(frozen=True, slots=True)
class Trained:
    """What a line and its files say of a run."""

    framework: str
    model: str  # as the line or a file has it
    kind: str
    steps: str
    batch: str  # sequences of one step
    sequence: str  # tokens
    precision: str


def spec_of_trainer(text: str, names: Names, file: str) -> str:
    """A run with the line's model, steps, batch and precision, on the machines that the head names."""
    words, folder = script_words(text, TRAINER, Place(file, 1, 1)), Path(file).parent
    found = _reader_of(words)(words, text, folder)
    for name in ("steps", "batch", "sequence"):
        value = getattr(found, name)
        if not re.fullmatch(r"[1-9]\d{0,11}", value):
            what = f"`{file}` says no {name} that is a whole number: `{value[:32]}`"
            raise errors.InferenceSourceError(what, place=Place(file, 1, 1))
    model, note = catalog_model(found.model, names)
    head = _HEAD.search(text)
    machine = f"{head[2] or '1'}x{head[3]}x{head[4]}".replace(",", "") if head else ""
    assumed = f"  # on: 1x8xH100-SXM{COMMENT}name your machines to keep them"
    on = f"  on: {machine}{COMMENT}by the head of the script"
    return written(
        [
            f"# Inferred from: {file}",
            f"name: {spec_name(Path(file).stem)}",
            f"model: {yaml_text(model)}{note}",
            "",
            "training:",
            *([f"  name: {spec_name(head[1])}"] if head else []),
            f"  kind: {found.kind}",
            f"  steps: {found.steps}",
            f"  sequence: {found.sequence} tok",
            f"  global_batch: {found.batch} seq",
            f"  precision: {found.precision}",
            f"  framework: {found.framework}",
            on if head and head[4] in names.accelerators else assumed,
        ]
    )


Reader = Callable[[Words, str, Path], Trained]


def _reader_of(words: Words) -> Reader:
    if "deepspeed" in words.options:
        return _deepspeed
    if "job.config-file" in words.options:
        return _titan
    if "config-file" in words.options:
        return _accelerate
    if any(word.endswith(".job.json") for word in words.others):
        return _own
    if "recipe" in words.options:
        return _bridge
    if "train-iters" in words.options:
        return _megatron
    known = "Megatron-LM, Megatron-Bridge, torchtitan, DeepSpeed, Accelerate and the trainer of `up` are read"
    raise errors.InferenceSourceError("no line of training software that is known", hint=known)


def _megatron(words: Words, text: str, folder: Path) -> Trained:
    del folder
    told, shape = words.options, _SHAPE.search(text)
    formats = {"fp8-format": "fp8", "bf16": "bf16", "fp16": "fp16"}
    adapters = re.search(r"^# lost: adapters", text, re.M)
    tuned = "lora" if adapters else "finetune"
    return Trained(
        framework="dualpipe" if re.search(r"^# lost: DualPipe", text, re.M) else "megatron-core",
        model=shape[1] if shape else told.get("tokenizer-model", ""),
        kind=tuned if "pretrained-checkpoint" in told else "pretrain",
        steps=told["train-iters"],
        batch=told.get("global-batch-size", ""),
        sequence=told.get("seq-length", ""),
        precision=next((name for flag, name in formats.items() if flag in told), "fp32"),
    )


def _bridge(words: Words, text: str, folder: Path) -> Trained:
    """What overrides the recipe; the recipe alone knows the precision, bf16 where nobody says otherwise."""
    del folder
    told = dict(word.split("=", 1) for word in words.others if "=" in word)
    mode, shape = words.options.get("mode", "pretrain"), _RECIPE.search(text)
    return Trained(
        framework="megatron-bridge",
        model=shape[1] if shape else words.options["recipe"],
        kind={"sft": "finetune"}.get(mode, mode if mode == "lora" else "pretrain"),
        steps=told.get("train.train_iters", ""),
        batch=told.get("train.global_batch_size", ""),
        sequence=told.get("dataset.seq_length", ""),
        precision="bf16",
    )


def _titan(words: Words, text: str, folder: Path) -> Trained:
    del text
    told = _file(words.options["job.config-file"], folder, tomllib.loads)
    model, training = _part(told, "model"), _part(told, "training")
    flavor = f"{_TITAN.get(str(model.get('name')), model.get('name'))}-{model.get('flavor')}"
    loaded = words.options.get("checkpoint.initial-load-path", "")
    is_tuned = loaded or _part(told, "checkpoint").get("initial_load_in_hf")
    is_narrow = any("float8" in str(each) for each in model.get("converters") or ())
    wide = "fp32" if training.get("mixed_precision_param") == "float32" else "bf16"
    return Trained(
        framework="torchtitan",
        model=loaded if loaded and not loaded.startswith("$") else flavor,  # a variable names no folder yet
        kind="finetune" if is_tuned else "pretrain",
        steps=str(training.get("steps", "")),
        batch=str(training.get("global_batch_size", "")),
        sequence=str(training.get("seq_len", "")),
        precision="fp8" if is_narrow else wide,
    )


def _deepspeed(words: Words, text: str, folder: Path) -> Trained:
    del text
    told = _file(words.options["deepspeed"], folder, json.loads)
    return _hugging_face(words, "megatron-deepspeed", str(told.get("train_batch_size", "")))


def _accelerate(words: Words, text: str, folder: Path) -> Trained:
    del text
    lines = _file(words.options["config-file"], folder, _flat_yaml)
    ranks = lines.get("parallelism_config_dp_shard_size") or lines.get("num_processes", "")
    sizes = (
        ranks,
        words.options.get("per-device-train-batch-size", ""),
        words.options.get("gradient-accumulation-steps", "1"),
    )
    batch = 1
    for size in sizes:
        batch *= int(size) if re.fullmatch(r"\d{1,9}", size) else 0
    return _hugging_face(words, "pytorch-fsdp", str(batch))


def _hugging_face(words: Words, framework: str, batch: str) -> Trained:
    told = words.options
    weights = told.get("model-name-or-path", "")
    return Trained(
        framework=framework,
        model=weights or told.get("config-name", ""),
        kind="finetune" if weights else "pretrain",
        steps=told.get("max-steps", ""),
        batch=batch,
        sequence=told.get("block-size", ""),
        precision=next((name for name in ("bf16", "fp16") if name in told), "fp32"),
    )


def _own(words: Words, text: str, folder: Path) -> Trained:
    path = next(word for word in words.others if word.endswith(".job.json"))
    told, config = _file(path, folder, json.loads), _CONFIG.search(text)
    named = config[1] if config else words.options.get("model-config", "")
    return Trained(
        framework="pytorch-fsdp",
        model="./config.json" if (folder / "config.json").is_file() else named,
        kind="pretrain",
        steps=str(told.get("steps", "")),
        batch=str(told.get("global_batch_sequences", "")),
        sequence=str(told.get("sequence_tokens", "")),
        precision=str(told.get("precision", "fp32")),
    )


def _file(word: str, folder: Path, read: Callable[[str], Any]) -> Mapping[str, Any]:
    """A file beside the script; the folder that the line names in front of it is where the script lies."""
    path = folder / word.rsplit("/", 1)[-1]
    try:
        told = read(read_text(path))
    except ValueError as error:
        raise errors.InferenceSourceError(f"`{path.name}` cannot be read: {error}") from error
    if not isinstance(told, dict):
        raise errors.InferenceSourceError(f"`{path.name}` holds no keys")
    return told


def _part(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = told.get(name)
    return part if isinstance(part, dict) else {}


def _flat_yaml(text: str) -> dict[str, str]:
    """Values of Accelerate's file by key, wherever they stand: no key is used twice there."""
    found = re.findall(r"^\s*([a-z_]+):[ \t]+([^#\n]*?)[ \t]*(?:#.*)?$", text, re.M)
    return {key: value.strip("'\"") for key, value in found}
