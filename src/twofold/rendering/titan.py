"""Runs by torchtitan: a layout as its TOML file.

Source  job_config.py of torchtitan v0.2.2, the last release that reads one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from twofold.catalog.types import Model
from twofold.rendering.commands import Command, Option, commented
from twofold.rendering.files import RenderedFile, head
from twofold.rendering.records import TrainedRun
from twofold.rendering.saving import is_behind
from twofold.rendering.torchrun import CHECKPOINTS, TOKENIZER, file_word, launch, micro_batch_count

HUB = "begins with weights as the hub has them"
DATASET = '"${DATASET:?set it to the name of a dataset that torchtitan knows}"'
# Names and sizes under which torchtitan v0.2.2 has models of the catalogue.
TITAN_MODELS = {
    "llama-3.1-8b": ("llama3", "8B"),
    "llama-3-8b": ("llama3", "8B"),
    "llama-3.1-70b": ("llama3", "70B"),
    "llama-3-70b": ("llama3", "70B"),
    "llama-3.3-70b": ("llama3", "70B"),
    "llama-3.1-405b": ("llama3", "405B"),
    "qwen3-0.6b": ("qwen3", "0.6B"),
    "qwen3-8b": ("qwen3", "8B"),
    "qwen3-14b": ("qwen3", "14B"),
    "qwen3-32b": ("qwen3", "32B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"),
    "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
    "gpt-oss-20b": ("gpt_oss", "20b"),
    "gpt-oss-120b": ("gpt_oss", "120b"),
}


@dataclass(frozen=True, slots=True)
class Key:
    """A value of a section, as its file spells it."""

    section: str
    name: str
    value: str
    because: str


def torchtitan(
    run: TrainedRun, weights: str, model: Model, plan_digest: str
) -> tuple[Command, tuple[RenderedFile, ...]]:
    """`torchtitan.train` with a TOML file."""
    known = TITAN_MODELS.get(model.name)
    lost = [*_titan_lost(run), *([] if known else [f"the shape of {model.name}: register it as a flavor"])]
    lines = [
        *head(f"{run.title}; for torchtitan v0.2", plan_digest, lost),
        *_toml(_titan_keys(run, model, known or (model.family, model.name))),
    ]
    file = RenderedFile(f"{run.name}.toml", "\n".join(lines) + "\n")
    tokenizer = weights if run.run.kind != "pretrain" else TOKENIZER
    options = [
        *launch(run),
        Option("-m", "torchtitan.train", "v0.2"),
        Option("--job.config_file", file_word(file), f"by {run.at}"),
        Option("--model.hf_assets_path", tokenizer, "the tokenizer"),
        Option("--training.dataset", DATASET, "c4, or one that you registered"),
        Option("--checkpoint.folder", CHECKPOINTS, ""),
    ]
    if run.run.kind != "pretrain":
        options.append(Option("--checkpoint.initial_load_path", weights, ""))
    return Command(("torchrun",), tuple(options), lost=tuple(lost)), (file,)


def _titan_keys(run: TrainedRun, model: Model, names: tuple[str, str]) -> list[Key]:
    layout, at = run.layout, f"{run.at}.layout"
    sharded = layout.zero_stage > 0
    precision, whose = run.run.precision or "bf16", f"{run.at}.precision"
    local = layout.micro_batch * (micro_batch_count(run) if layout.pp > 1 else 1)
    return [
        Key("model", "name", _text(names[0]), f"{run.at}.model"),
        Key("model", "flavor", _text(names[1]), f"{run.at}.model"),
        *([Key("model", "converters", '["quantize.linear.float8"]', whose)] if precision == "fp8" else []),
        Key("training", "local_batch_size", str(local), f"{at}.micro_batch"),
        Key("training", "global_batch_size", str(run.global_batch), f"{run.at}.batch_samples"),
        Key("training", "seq_len", str(run.sequence_tokens), f"{run.at}.batch_tokens"),
        Key("training", "steps", str(run.steps_count), f"{run.at}.run.steps"),
        Key(
            "training",
            "mixed_precision_param",
            _text("float32" if precision == "fp32" else "bfloat16"),
            whose,
        ),
        Key("parallelism", "data_parallel_replicate_degree", str(1 if sharded else layout.dp), f"{at}.dp"),
        Key("parallelism", "data_parallel_shard_degree", str(layout.dp if sharded else 1), f"{at}.dp"),
        Key("parallelism", "fsdp_reshard_after_forward", _text(_resharded(run)), f"{at}.zero_stage"),
        Key("parallelism", "tensor_parallel_degree", str(layout.tp), f"{at}.tp"),
        Key("parallelism", "context_parallel_degree", str(layout.cp), f"{at}.cp"),
        Key("parallelism", "expert_parallel_degree", str(layout.ep), f"{at}.ep"),
        Key("parallelism", "pipeline_parallel_degree", str(layout.pp), f"{at}.pp"),
        *(_titan_pipeline(run, model) if layout.pp > 1 else []),
        Key("activation_checkpoint", "mode", _text(_titan_recompute(run)), f"{at}.recompute"),
        *(
            [Key("activation_checkpoint", "selective_ac_option", _text("op"), f"{at}.recompute")]
            if _titan_recompute(run) == "selective"
            else []
        ),
        Key("checkpoint", "enable", "true", "the plan saves"),
        *([] if run.run.kind == "pretrain" else [Key("checkpoint", "initial_load_in_hf", "true", HUB)]),
        Key("checkpoint", "interval", str(run.checkpoint_steps), f"{run.at}.run.checkpoints.interval_s"),
        Key(
            "checkpoint",
            "async_mode",
            _text("async" if is_behind(run) else "disabled"),
            f"{run.at}.run.checkpoints.pause_s",
        ),
    ]


def _titan_pipeline(run: TrainedRun, model: Model) -> list[Key]:
    layout, at = run.layout, f"{run.at}.layout"
    schedule = "Interleaved1F1B" if layout.vpp > 1 else "1F1B"
    layers = -(-model.layers // (layout.pp * layout.vpp))
    return [
        Key("parallelism", "pipeline_parallel_schedule", _text(schedule), f"{at}.vpp"),
        Key("parallelism", "pipeline_parallel_layers_per_stage", str(layers), f"{at}.vpp"),
        Key("parallelism", "pipeline_parallel_microbatch_size", str(layout.micro_batch), f"{at}.micro_batch"),
    ]


def _resharded(run: TrainedRun) -> str:
    return "always" if run.layout.zero_stage == 3 else "never"


def _titan_recompute(run: TrainedRun) -> str:
    return run.layout.recompute if run.layout.recompute in ("none", "full") else "selective"


def _titan_lost(run: TrainedRun) -> list[str]:
    layout, found = run.layout, []
    if layout.recompute not in ("none", "full", "selective"):
        found.append(f"{layout.recompute} recompute: torchtitan's policy per operator instead")
    if layout.zero_stage == 1:
        found.append("ZeRO-1: FSDP shards gradients too")
    if run.run.kind == "lora":
        found.append("adapters: v0.2 trains all weights")
    return found


def _text(text: str) -> str:
    """A string of TOML."""
    return json.dumps(text, ensure_ascii=True)


def _toml(keys: Sequence[Key]) -> list[str]:
    """Sections in their order, each value with what set it."""
    lines: list[tuple[str, str]] = []
    for section in dict.fromkeys(key.section for key in keys):
        lines += [("", ""), (f"[{section}]", "")]
        lines += [(f"{key.name} = {key.value}", key.because) for key in keys if key.section == section]
    return list(commented(lines))
