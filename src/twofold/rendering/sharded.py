"""Runs whose data parallel ranks share the weights: Accelerate, DeepSpeed, and our own trainer.

Sources  config_args.py of Accelerate 1.x; DeepSpeed's configuration JSON; the
         arguments of Transformers' Trainer.
"""

import json
from collections.abc import Iterable
from typing import Any

from twofold.catalog.types import Model
from twofold.rendering.commands import Command, Option
from twofold.rendering.files import RenderedFile, head, plain
from twofold.rendering.records import TrainedRun, on_processors
from twofold.rendering.saving import stopped
from twofold.rendering.torchrun import (
    CHECKPOINTS,
    DATA,
    PORT,
    file_word,
    launch,
    lost_sizes,
    micro_batch_count,
)
from twofold.rendering.yaml_text import Node, Said, yaml_text

OWN_RECOMPUTES = ("none", "selective", "mlp", "full")  # tests hold that our trainer knows them
TRAINER_STOPS = "the Trainer of Transformers goes on when one is written"
SCRIPT = '"${TRAIN_SCRIPT:?set it to a script that has the arguments of Hugging Face Trainer}"'


def is_own(run: TrainedRun) -> bool:
    """Whether our own trainer runs it: processors of one machine, and nothing but data parallel ranks."""
    machine, layout = run.run.machine, run.layout
    return on_processors(machine) and machine.node_count == 1 and layout.dp == machine.accelerator_count


def own_trainer(
    run: TrainedRun, weights: str, model: Model, plan_digest: str
) -> tuple[Command, tuple[RenderedFile, ...]]:
    """The trainer that `up` starts, with the same order."""
    del weights, plan_digest
    layout, at = run.layout, f"{run.at}.layout"
    recompute = layout.recompute if layout.recompute in OWN_RECOMPUTES else "none"
    values = [
        ("name", run.name, f"{run.at}.name"),
        ("rank_count", layout.dp, f"{at}.dp"),
        ("steps", run.steps_count, f"{run.at}.run.steps"),
        ("sequence_tokens", run.sequence_tokens, f"{run.at}.batch_tokens"),
        ("global_batch_sequences", run.global_batch, f"{run.at}.batch_samples"),
        ("zero_stage", layout.zero_stage, f"{at}.zero_stage"),
        ("precision", run.run.precision or "fp32", f"{run.at}.precision"),
        (
            "micro_batch_sequences",
            layout.micro_batch,
            f"{at}.micro_batch",
        ),
        ("recompute", recompute, f"{at}.recompute"),
        ("checkpoint_every_steps", run.checkpoint_steps, f"{run.at}.run.checkpoints.interval_s"),
    ]
    file = RenderedFile(f"{run.name}.job.json", _json({name: value for name, value, _ in values}))
    options = [
        Option("", file_word(file), f"the order, by {run.at}"),
        Option("--folder", f'"${{RUNS:-runs}}/{run.name}"', "steps, checkpoints and what came out"),
        Option("--model-config", f'"${{CONFIG:?set it to the config.json of {plain(model.name)}}}"', ""),
    ]
    lost = [] if recompute == layout.recompute else [f"{layout.recompute} recompute: it does others or none"]
    program = "python", "-m", "twofold.live.training.train_job"
    return Command(program, tuple(options), lost=tuple(lost), notes=_reasons(values, file.path)), (file,)


def accelerate(
    run: TrainedRun, weights: str, model: Model, plan_digest: str
) -> tuple[Command, tuple[RenderedFile, ...]]:
    """`accelerate launch` with FSDP2, of a script with the arguments of Hugging Face's Trainer."""
    del model
    lost = [*lost_sizes(run, "Accelerate", "pp", "ep"), *stopped(run, TRAINER_STOPS)]
    if run.layout.recompute not in ("none", "full"):
        lost.append(f"{run.layout.recompute} recompute: Accelerate repeats whole layers or none")
    if run.layout.zero_stage < 2:
        lost.append(f"ZeRO-{run.layout.zero_stage}: FSDP shards gradients and optimiser always")
    said = f"Accelerate: {run.run.name}, {run.layout.text}"
    text = yaml_text([_fsdp_values(run)], head(said, plan_digest, lost))
    file = RenderedFile(f"{run.name}.accelerate.yaml", text)
    options = [
        Option("--config_file", file_word(file), f"by {run.at}"),
        Option("--machine_rank", '"${NODE_RANK:-0}"', "0 on the first node, whose address all have"),
        Option("--main_process_ip", '"${MASTER_ADDR:-localhost}"', "the first node's"),
        Option("--main_process_port", PORT, "a free one of the first node"),
        Option("", SCRIPT, "run_clm.py for example"),
        *_trainer_arguments(run, weights),
    ]
    return Command(("accelerate", "launch"), tuple(options), lost=tuple(lost)), (file,)


def deepspeed(
    run: TrainedRun, weights: str, model: Model, plan_digest: str
) -> tuple[Command, tuple[RenderedFile, ...]]:
    """A script with the arguments of Hugging Face's Trainer and DeepSpeed's JSON, which has no comments."""
    del model, plan_digest
    layout, at = run.layout, f"{run.at}.layout"
    values: list[tuple[str, Any, str]] = [
        ("train_batch_size", run.global_batch, f"{run.at}.batch_samples"),
        ("train_micro_batch_size_per_gpu", layout.micro_batch, f"{at}.micro_batch"),
        ("gradient_accumulation_steps", micro_batch_count(run), f"{run.at}.batch_samples"),
        ("zero_optimization", _zero(layout.zero_stage), f"{at}.zero_stage"),
        ("bf16", {"enabled": run.run.precision not in ("fp16", "fp32")}, f"{run.at}.precision"),
        ("fp16", {"enabled": run.run.precision == "fp16"}, f"{run.at}.precision"),
        ("gradient_clipping", 1.0, "not in the plan"),
    ]
    if layout.tp > 1:
        values.append(("tensor_parallel", {"autotp_size": layout.tp}, f"{at}.tp"))
    file = RenderedFile(f"{run.name}.deepspeed.json", _json({name: value for name, value, _ in values}))
    lost = [*lost_sizes(run, "DeepSpeed's configuration", "pp", "cp", "ep"), *stopped(run, TRAINER_STOPS)]
    if run.run.precision not in ("bf16", "fp16", "fp32"):
        lost.append(f"products in {run.run.precision}: DeepSpeed's configuration has bf16 and fp16")
    if layout.recompute not in ("none", "full"):
        lost.append(f"{layout.recompute} recompute: the script repeats whole layers or none")
    options = [
        *launch(run),
        Option("", SCRIPT, "run_clm.py for example"),
        Option("--deepspeed", file_word(file), f"by {run.at}"),
        *_trainer_arguments(run, weights),
    ]
    if layout.recompute != "none":
        options.append(Option("--gradient_checkpointing", "true", f"{at}.recompute"))
    return Command(("torchrun",), tuple(options), lost=tuple(lost), notes=_reasons(values, file.path)), (
        file,
    )


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2) + "\n"


def _reasons(values: Iterable[tuple[str, Any, str]], path: str) -> tuple[str, ...]:
    """What set each value of a JSON file, which holds no comments."""
    return tuple(f"{path}: {name} is {because}" for name, _, because in values)


def _zero(stage: int) -> dict[str, Any]:
    return {"stage": stage, "overlap_comm": True, **({"contiguous_gradients": True} if stage > 0 else {})}


def _trainer_arguments(run: TrainedRun, weights: str) -> list[Option]:
    """What the arguments of Hugging Face's Trainer are called."""
    at, layout = run.at, run.layout
    source = "--config_name" if run.run.kind == "pretrain" else "--model_name_or_path"
    model = '"${CONFIG:?set it to a folder or a repository with the config of the model}"'
    precision = run.run.precision or "fp32"
    return [
        Option(source, model if run.run.kind == "pretrain" else weights, f"{at}.model"),
        Option("--train_file", DATA, ""),
        Option("--block_size", str(run.sequence_tokens), f"{at}.batch_tokens"),
        Option("--per_device_train_batch_size", str(layout.micro_batch), f"{at}.layout.micro_batch"),
        Option("--gradient_accumulation_steps", str(micro_batch_count(run)), f"{at}.batch_samples"),
        Option("--max_steps", str(run.steps_count), f"{at}.run.steps"),
        Option("--save_steps", str(run.checkpoint_steps), f"{at}.run.checkpoints.interval_s"),
        *([Option(f"--{precision}", "true", f"{at}.precision")] if precision in ("bf16", "fp16") else []),
        Option("--output_dir", CHECKPOINTS, ""),
        Option("--do_train", "", "without it the script only evaluates"),
    ]


def _fsdp_values(run: TrainedRun) -> dict[str, Node]:
    """Accelerate's configuration."""
    layout, at, machine = run.layout, f"{run.at}.layout", f"{run.at}.machine"
    precision = {"fp32": "no"}.get(run.run.precision or "", run.run.precision or "no")
    values: dict[str, Any] = {
        "compute_environment": Said("LOCAL_MACHINE", "each node starts its own"),
        "distributed_type": Said("FSDP", f"{run.at}.framework"),
        "mixed_precision": Said(precision, f"{run.at}.precision"),
        "num_machines": Said(run.run.machine.node_count, f"{machine}.node_count"),
        "num_processes": Said(run.run.machine.accelerator_count, f"{machine}.accelerator_count"),
        "rdzv_backend": Said("static", "nodes are numbered by who starts them"),
        "fsdp_config": {
            "fsdp_version": Said(2, "the one that Accelerate goes on with"),
            "fsdp_auto_wrap_policy": Said("TRANSFORMER_BASED_WRAP", "layer by layer, as the plan gathers"),
            "fsdp_reshard_after_forward": Said(layout.zero_stage == 3, f"{at}.zero_stage"),
            "fsdp_activation_checkpointing": Said(layout.recompute != "none", f"{at}.recompute"),
            "fsdp_state_dict_type": Said(
                "SHARDED_STATE_DICT", "each rank writes its part, as the plan has it"
            ),
            "fsdp_cpu_ram_efficient_loading": Said(run.run.kind != "pretrain", f"{run.at}.kind"),
            "fsdp_offload_params": Said(False, "the plan keeps all on the device"),
        },
    }
    if layout.tp > 1 or layout.cp > 1:
        values["parallelism_config"] = {
            "parallelism_config_dp_shard_size": Said(layout.dp, f"{at}.dp"),
            "parallelism_config_tp_size": Said(layout.tp, f"{at}.tp"),
            "parallelism_config_cp_size": Said(layout.cp, f"{at}.cp"),
        }
    return values
