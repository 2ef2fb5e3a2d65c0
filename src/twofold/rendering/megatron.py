"""Runs by Megatron-LM and Megatron-Bridge: a layout in their arguments.

Sources  arguments.py of Megatron-LM core_v0.15.0, and what it says of checkpoints; run_recipe.py of
         Megatron-Bridge v0.6.0, the first with these arguments.
"""

from math import floor

from twofold.catalog.types import Model
from twofold.rendering.commands import Command, Option
from twofold.rendering.files import RenderedFile, plain
from twofold.rendering.records import TrainedRun
from twofold.rendering.saving import is_behind, stopped
from twofold.rendering.torchrun import CHECKPOINTS, DATA, TOKENIZER, launch, lost_sizes
from twofold.training.compute import FEW_EXPERTS

SHARDED = {2: "optim_grads", 3: "optim_grads_params"}  # by Megatron-FSDP
USUAL = "assumed: as decoders have it today"  # what no catalogue row says
MODES = {"finetune": "sft"}  # of Megatron-Bridge, where it calls a kind of run otherwise
ONE_QUEUE = "kernels keep their order with that of collectives"
FP8 = ("fp8", "fp8_block")
EVALUATED_STEPS = 1000  # between two evaluations, as Megatron has it
READ_RATIO = 0.5  # most that a batch takes of a step where it is only read: forward, with what it waits for
LATE = ("megatron-lm-2023",)  # whose gradients the plan reduces after the last micro-batch
DROPOUTS = ("--attention-dropout", "--hidden-dropout")
BASE = '"${{ROTARY_BASE:?set it to rope_theta of the config of {}, a whole number that no plan has}}"'
SCHEDULE = (
    "the schedule of the learning rate, which no plan has: LR is its peak; give --lr-warmup-iters, "
    "--lr-decay-style and --min-lr, or it falls to 0 in a line from the first step"
)
FORMATS = {
    True: ("fsdp_dtensor", "the one that sharded weights have"),
    False: ("torch_dist", "as ranks write it"),
}
PERSISTENT = (("checkpoint.use_persistent_ckpt_worker", "true", "what writes while it trains"),)
OVERLAPS = ("overlap_grad_reduce", "overlap_param_gather")  # of Megatron-Bridge
SHARDED_STOPS = "Megatron-LM writes fsdp_dtensor so from core_v0.17 on, by --async-save"


def megatron_lm(
    run: TrainedRun, weights: str, model: Model, plan_digest: str
) -> tuple[Command, tuple[RenderedFile, ...]]:
    """`pretrain_gpt.py` of Megatron-LM. Everything is on its line: there is no file beside."""
    del plan_digest
    options = [
        *launch(run),
        Option("", '"${MEGATRON_LM:-.}/pretrain_gpt.py"', "of a checkout of Megatron-LM"),
        *_sizes(run, model),
        *_sharding(run),
        *_overlapped(run),
        *_recomputed(run, model),
        *_steps(run),
        *_evaluated(run),
        *_precision(run),
        *_shape(model),
        Option("--tokenizer-type", "HuggingFaceTokenizer", "a folder or a repository of the hub"),
        Option("--tokenizer-model", weights if run.run.kind != "pretrain" else TOKENIZER, ""),
        Option("--data-path", DATA, ""),
        *_saved(run),
        Option("--save", CHECKPOINTS, ""),
        Option("--load", CHECKPOINTS, "goes on from the newest one after an interruption"),
        *([] if run.run.kind == "pretrain" else [Option("--pretrained-checkpoint", weights, "converted")]),
        Option("--lr", '"${LR:-3e-4}"', "not in the plan"),
        Option("--exit-signal-handler", "", "saves and ends when it is told to"),
    ]
    # Sharded weights want several.
    one_queue = (
        [] if run.layout.zero_stage in SHARDED else [Option("CUDA_DEVICE_MAX_CONNECTIONS", "1", ONE_QUEUE)]
    )
    return Command(("torchrun",), tuple(options), tuple(one_queue), tuple(_lost(run, model))), ()


def megatron_bridge(
    run: TrainedRun, weights: str, model: Model, plan_digest: str
) -> tuple[Command, tuple[RenderedFile, ...]]:
    """`run_recipe.py` of Megatron-Bridge: a recipe of the model's shape, overridden by the plan."""
    del plan_digest
    layout, at, pause = run.layout, f"{run.at}.layout", f"{run.at}.run.checkpoints.pause_s"
    values = [
        ("train.train_iters", run.steps_count, f"{run.at}.run.steps"),
        ("train.global_batch_size", run.global_batch, f"{run.at}.batch_samples"),
        ("train.micro_batch_size", layout.micro_batch, f"{at}.micro_batch"),
        ("dataset.seq_length", run.sequence_tokens, f"{run.at}.batch_tokens"),
        ("model.tensor_model_parallel_size", layout.tp, f"{at}.tp"),
        ("model.pipeline_model_parallel_size", layout.pp, f"{at}.pp"),
        ("model.context_parallel_size", layout.cp, f"{at}.cp"),
        ("model.expert_model_parallel_size", layout.ep, f"{at}.ep"),
        ("model.sequence_parallel", str(layout.sequence_parallel).lower(), f"{at}.sequence_parallel"),
        ("ddp.use_distributed_optimizer", str(layout.zero_stage > 0).lower(), f"{at}.zero_stage"),
        ("checkpoint.save_interval", run.checkpoint_steps, f"{run.at}.run.checkpoints.interval_s"),
        *(
            (f"ddp.{name}", "true", f"{at}.dp: the plan hides this traffic behind compute")
            for name, is_hidden in zip(OVERLAPS, _overlaps(run), strict=True)
            if is_hidden
        ),
        ("checkpoint.ckpt_format", *FORMATS[layout.zero_stage in SHARDED]),
        *((f"validation.{name}", count, because) for name, count, because in evaluations(run)),
        *([("checkpoint.async_save", "true", pause), *PERSISTENT] if is_behind(run) else []),
        *_bridge_choices(run, model),
    ]
    recipe = '"${RECIPE:?set it to a recipe of Megatron-Bridge with the shape of ' + f'{plain(model.name)}}}"'
    options = [
        *launch(run),
        Option("", '"${MEGATRON_BRIDGE:-.}/scripts/training/run_recipe.py"', "of a checkout"),
        Option("--recipe", recipe, ""),
        Option("--mode", MODES.get(run.run.kind, run.run.kind), f"{run.at}.kind"),
        *([] if run.run.kind == "pretrain" else [Option("--pretrained_checkpoint", weights, "")]),
        Option("--save_dir", CHECKPOINTS, ""),
        *(Option("", f"{key}={value}", because) for key, value, because in values),
    ]
    return Command(("torchrun",), tuple(options)), ()


def _bridge_choices(run: TrainedRun, model: Model) -> list[tuple[str, str, str]]:
    """What only some layouts have."""
    layout, at, found = run.layout, f"{run.at}.layout", []
    if layout.vpp > 1:
        found.append(("model.virtual_pipeline_model_parallel_size", str(layout.vpp), f"{at}.vpp"))
    if layout.zero_stage in SHARDED:
        found.append(("ddp.use_megatron_fsdp", "true", f"{at}.zero_stage"))
        strategy = SHARDED[layout.zero_stage]
        found.append(("ddp.data_parallel_sharding_strategy", strategy, f"{at}.zero_stage"))
    if layout.recompute == "full":
        found += [
            ("model.recompute_granularity", "full", f"{at}.recompute"),
            ("model.recompute_method", "uniform", f"{at}.recompute"),
            ("model.recompute_num_layers", "1", f"{at}.recompute"),
        ]
    elif modules := _modules(layout.recompute, model):
        found.append(("model.recompute_granularity", "selective", f"{at}.recompute"))
        found.append(("model.recompute_modules", f"[{','.join(modules)}]", f"{at}.recompute"))
    return found


def _sizes(run: TrainedRun, model: Model) -> list[Option]:
    """Ranks of each kind; those of one are left out."""
    layout, at = run.layout, f"{run.at}.layout"
    said = (
        ("--tensor-model-parallel-size", layout.tp, "tp"),
        ("--pipeline-model-parallel-size", layout.pp, "pp"),
        ("--num-virtual-stages-per-pipeline-rank", layout.vpp, "vpp"),
        ("--context-parallel-size", layout.cp, "cp"),
        ("--expert-model-parallel-size", layout.ep, "ep"),
    )
    found = [Option(flag, str(size), f"{at}.{name}") for flag, size, name in said if size > 1]
    if layout.ep > 1 and _whole_experts(run, model):
        found.append(Option("--expert-tensor-parallel-size", "1", "an expert is not cut"))
    if layout.sequence_parallel:
        found.append(Option("--sequence-parallel", "", f"{at}.sequence_parallel"))
    return found


def _whole_experts(run: TrainedRun, model: Model) -> bool:
    """As the plan has it: `training/compute.py:expert_tensor_ranks`."""
    layout = run.layout
    return model.experts > FEW_EXPERTS or layout.ep * layout.tp > layout.tp * layout.cp * layout.dp


def _sharding(run: TrainedRun) -> list[Option]:
    """What ZeRO shards over data parallel ranks."""
    stage, because = run.layout.zero_stage, f"{run.at}.layout.zero_stage"
    if stage == 0:
        return []
    options = [Option("--use-distributed-optimizer", "", because)]
    if stage in SHARDED:
        options += [
            Option("--use-megatron-fsdp", "", because),
            Option("--data-parallel-sharding-strategy", SHARDED[stage], because),
        ]
    return options


def _overlapped(run: TrainedRun) -> list[Option]:
    """Traffic of data parallel ranks beside compute."""
    gradients, weights = _overlaps(run)
    because = f"{run.at}.layout.dp: the plan hides this traffic behind compute"
    return [
        *([Option("--overlap-grad-reduce", "", because)] if gradients else []),
        *([Option("--overlap-param-gather", "", because)] if weights else []),
    ]


def _overlaps(run: TrainedRun) -> tuple[bool, bool]:
    """Whether the plan hides reducing gradients, and gathering the weights of what is sharded."""
    layout = run.layout
    gradients = layout.dp * layout.cp > 1 and run.run.framework not in LATE
    return gradients, gradients and layout.zero_stage > 0


def _saved(run: TrainedRun) -> list[Option]:
    """How checkpoints are written. Later versions write while they train only by workers that stay."""
    options = [Option("--ckpt-format", *FORMATS[run.layout.zero_stage in SHARDED])]
    if is_behind(run) and run.layout.zero_stage not in SHARDED:
        because = f"{run.at}.run.checkpoints.pause_s"
        options += [
            Option("--async-save", "", because),
            Option("--use-persistent-ckpt-worker", "", "without it later versions stop for the write"),
        ]
    return options


def _recomputed(run: TrainedRun, model: Model) -> list[Option]:
    because = f"{run.at}.layout.recompute"
    if run.layout.recompute == "full":
        return [
            Option("--recompute-granularity", "full", because),
            Option("--recompute-method", "uniform", because),
            Option("--recompute-num-layers", "1", because),
        ]
    modules = _modules(run.layout.recompute, model)
    if not modules:
        return []
    named = [Option("", module, because) for module in modules]
    return [
        Option("--recompute-granularity", "selective", because),
        Option("--recompute-modules", "", because),
        *named,
    ]


def _modules(recompute: str, model: Model) -> list[str]:
    """Modules whose pass is repeated, in Megatron's words; none where all is kept."""
    if recompute == "light":
        more = [("moe_act", model.moe_layers > 0), ("mla_up_proj", model.mla_kv_rank > 0)]
        return ["layernorm", *(name for name, there in more if there)]
    return {"selective": ["core_attn"], "mlp": ["mlp"]}.get(recompute, [])


def _steps(run: TrainedRun) -> list[Option]:
    interval = f"{run.at}.run.checkpoints.interval_s"
    return [
        Option("--micro-batch-size", str(run.layout.micro_batch), f"{run.at}.layout.micro_batch"),
        Option("--global-batch-size", str(run.global_batch), f"{run.at}.batch_samples"),
        Option("--seq-length", str(run.sequence_tokens), f"{run.at}.batch_tokens"),
        Option("--max-position-embeddings", str(run.sequence_tokens), f"{run.at}.batch_tokens"),
        Option("--train-iters", str(run.steps_count), f"{run.at}.run.steps"),
        Option("--save-interval", str(run.checkpoint_steps), interval),
    ]


def _evaluated(run: TrainedRun) -> list[Option]:
    """Megatron's own count, 100 each 1000 steps, may take more than the plan has."""
    said = evaluations(run)
    return [Option(f"--{name.replace('_', '-')}", str(count), because) for name, count, because in said]


def evaluations(run: TrainedRun) -> tuple[tuple[str, int, str], tuple[str, int, str]]:
    """Steps between evaluations, and batches of each.

    Formula  share · steps / (½ · (steps / interval + 2))
    Why      a batch that is only read takes at most half a step, and two evaluations more end a run
    """
    steps, at = run.steps_count, f"{run.at}.run.headroom.validation"
    share = next((each.value.value for each in run.run.run.headroom if each.name == "validation"), 0.0)
    interval = min(EVALUATED_STEPS, steps)
    count = floor(share * steps / (READ_RATIO * (steps // interval + 2)))
    because = f"no more than {at}" if count else "the plan counts none, or too little for one batch each"
    return ("eval_interval", interval, "not in the plan"), ("eval_iters", count, because)


def _precision(run: TrainedRun) -> list[Option]:
    because = f"{run.at}.precision"
    if run.run.precision in FP8:
        return [Option("--bf16", "", because), Option("--fp8-format", "hybrid", because)]
    return [Option(f"--{run.run.precision}", "", because)] if run.run.precision in ("bf16", "fp16") else []


def _shape(model: Model) -> list[Option]:
    """The model itself, as its catalogue row or its config has it."""
    of = f"of {model.name}"
    said = [
        ("--num-layers", model.layers),
        ("--hidden-size", model.hidden),
        ("--ffn-hidden-size", model.ffn_hidden or model.moe_ffn_hidden),
        ("--num-attention-heads", model.heads),
    ]
    options = [Option(flag, str(value), of) for flag, value in said]
    if model.mla_kv_rank:
        options += _latent(model)
    else:
        options.append(Option("--kv-channels", str(model.head_dim), of))
        if model.kv_heads != model.heads:
            options += [
                Option("--group-query-attention", "", of),
                Option("--num-query-groups", str(model.kv_heads), of),
            ]
    options += [
        Option("--normalization", "RMSNorm", USUAL),
        Option("--position-embedding-type", "rope", USUAL),
        Option("--rotary-base", BASE.format(plain(model.name)), ""),
    ]
    options += [Option(flag, "0", USUAL) for flag in DROPOUTS if model.ffn_matrices == 3]
    options += [Option("--swiglu", "", f"{of}: three matrices")] if model.ffn_matrices == 3 else []
    options.append(Option("--disable-bias-linear", "", USUAL))
    options += [] if model.tied_embeddings else [Option("--untie-embeddings-and-output-weights", "", of)]
    return [*options, *(_experts(model) if model.experts else [])]


def _latent(model: Model) -> list[Option]:
    """Latent attention."""
    said = [
        ("--kv-lora-rank", model.mla_kv_rank),
        ("--q-lora-rank", model.mla_q_rank),
        ("--qk-head-dim", model.mla_qk_nope),
        ("--qk-pos-emb-head-dim", model.mla_qk_rope),
        ("--v-head-dim", model.mla_v_head_dim),
    ]
    of = f"of {model.name}"
    numbers = [Option(flag, str(value), of) for flag, value in said if value]
    return [Option("--multi-latent-attention", "", of), *numbers]


def _experts(model: Model) -> list[Option]:
    """Layers of experts, after those without."""
    dense = model.layers - model.moe_layers
    said = [
        ("--num-experts", model.experts),
        ("--moe-router-topk", model.experts_topk),
        ("--moe-ffn-hidden-size", model.moe_ffn_hidden),
        ("--moe-shared-expert-intermediate-size", model.shared_ffn_hidden),
        ("--moe-router-num-groups", model.expert_groups),
        ("--moe-router-group-topk", model.expert_groups_topk),
    ]
    of = f"of {model.name}"
    options = [Option(flag, str(value), of) for flag, value in said if value]
    if dense:
        options.append(Option("--moe-layer-freq", f"([0]*{dense}+[1]*{model.moe_layers})", of))
    return [
        *options,
        Option("--moe-grouped-gemm", "", "as the plan takes experts to be computed"),
        Option("--moe-token-dispatcher-type", "alltoall", "as the plan takes tokens to travel"),
    ]


def _lost(run: TrainedRun, model: Model) -> list[str]:
    """What `pretrain_gpt.py` has no argument for."""
    layout = run.layout
    found = [SCHEDULE, *(stopped(run, SHARDED_STOPS) if layout.zero_stage in SHARDED else [])]
    if model.ffn_matrices != 3:
        found.append(
            f"dropout of {model.name}, which no row says: Megatron-LM's is 0.1, {' and '.join(DROPOUTS)}"
        )
    if run.run.kind == "lora":
        found.append("adapters: pretrain_gpt.py trains all weights; write `framework: megatron-bridge`")
    if run.run.framework == "dualpipe":
        found.append("DualPipe: expert traffic under products of another micro-batch, the other way round")
    if model.arch not in ("dense", "moe"):
        found.append(f"layers of {model.name} that are not softmax attention: give its own --spec")
    if layout.zero_stage in SHARDED and layout.pp > 1:
        found.append("sharded gradients in a pipeline: Megatron-FSDP gathers again for each micro-batch")
    return found + (lost_sizes(run, "a dense model", "ep") if not model.experts else [])
