"""Quantities of training: steps, memory, layouts, scaling and runs, by the models that plans use."""

# ruff: noqa: ARG001 (every quantity takes the world, every command the field that was asked)

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from twofold.claims.machines import machines, price_usd_per_h
from twofold.claims.quantity import Quantity, one_of, options, sizes_of
from twofold.claims.world import World
from twofold.core import InfeasibleError, ValueRefusedError
from twofold.perf import all_gather_s, all_reduce_s, all_to_all_s, reduce_scatter_s, scale_cluster
from twofold.plan import Given
from twofold.training import (
    Candidate,
    Layouts,
    Limits,
    Priced,
    Recompute,
    RunPlan,
    Stack,
    TrainingJob,
    Workload,
    candidate,
    checkpoint_bytes,
    layouts_of,
    load_stack,
    memory,
    model_flops_per_token,
    model_flops_utilisation,
    price_layouts,
    run_plan,
    scale_stack,
    step_time,
    trained_parameters,
    workload,
)

KINDS = ("pretrain", "finetune", "lora")
PRECISIONS = ("bf16", "fp16", "fp32", "fp8", "fp4")
RECOMPUTE = {"none": 0, "selective": 1, "full": 2}
RELIEF = 1.2  # how much more of a resource `training_needs` tries
RESOURCES = ("compute", "memory_bandwidth", "link", "fabric", "host")
LAYOUT_SIZES = ("tp", "cp", "ep", "pp", "vpp", "dp", "micro_batch")


@dataclass(frozen=True, slots=True)
class Trained:
    """The fastest layout of a job that fits, and its step; parts are shares of the step."""

    step_s: float
    tokens_per_s: float
    mfu: float
    compute_fraction: float  # arithmetic of the model and of recomputation
    matrix_fraction: float  # matrix products and attention alone
    communication_fraction: float  # exposed
    bubble_fraction: float
    optimizer_fraction: float
    host_fraction: float
    input_fraction: float
    memory_bytes: float  # of one accelerator, the upper end by which it is judged to fit
    weights_bytes: float
    activations_bytes: float
    accelerators: int
    tp: int
    pp: int
    cp: int
    dp: int
    usd_per_mtok: float | None


@dataclass(frozen=True, slots=True)
class _Site:
    """A job on machines with its software, and every layout that it may take."""

    job: TrainingJob
    found: Given
    stack: Stack
    priced: Priced

    @property
    def fitting(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        return np.flatnonzero(self.priced.high_bytes <= self.found.cluster.device.memory_bytes)


def train(
    world: World,
    model: str,
    on: str,
    batch: int = 512,
    sequence: int = 8192,
    precision: str = "bf16",
    kind: str = "pretrain",
    framework: str = "megatron-core",
    recompute: str = "",
    zero: int | None = None,
    layout: str = "",
    scale: str = "",
    oversubscription: float = 1.0,
    fabric: str = "",
    nic: str = "",
    virtual: str = "",
    offload: bool = False,
    slower_latency: float = 1.0,
) -> Trained:
    """The fastest training step of a model on machines; `layout` fixes sizes, as in `tp=8,pp=4`."""
    found = machines(
        world,
        on,
        scale=scale,
        oversubscription=oversubscription,
        fabric=fabric,
        nic=nic,
        virtual=virtual,
        slower_latency=slower_latency,
    )
    job = _job(world, model, batch, sequence, precision, kind, framework, offload)
    stated = {name: int(size) for name, size in sizes_of(layout, LAYOUT_SIZES, "size of a layout").items()}
    if recompute:
        stated["recompute"] = RECOMPUTE[one_of(recompute, RECOMPUTE, "way to recompute")]
    if zero is not None:
        stated["zero_stage"] = zero
    site = _site(world, job, found, stated)
    return _trained(site, _best(site))


def _step(world: World, model: str, on: str, batch: int) -> Trained:
    """`train` without further wishes, computed once."""
    return world.once(("step", model, on, batch), lambda: train(world, model, on, batch))


def _job(
    world: World,
    model: str,
    batch: int,
    sequence: int,
    precision: str,
    kind: str,
    framework: str,
    offload: bool,
) -> TrainingJob:
    one_of(precision, PRECISIONS, "precision")
    one_of(kind, KINDS, "kind of run")
    return TrainingJob(
        world.catalog.model(model), kind, sequence, batch, precision, framework,  # type: ignore[arg-type]
        lora_rank=16 if kind == "lora" else 0, optimizer_place="host" if offload else "device",
    )  # fmt: skip


def _site(world: World, job: TrainingJob, found: Given, stated: Mapping[str, int]) -> _Site:
    stack = load_stack(world.constants, job.framework, job.precision, found.accelerator.family)
    recompute = tuple(
        Recompute(mode) for mode in ((stated["recompute"],) if "recompute" in stated else (0, 1, 2))
    )
    limits = Limits(
        tp_max=stated.get("tp"),
        cp_max=stated.get("cp"),
        pp_max=stated.get("pp", Limits().pp_max),
        zero_stages=(stated["zero_stage"],) if "zero_stage" in stated else None,
        recompute=recompute,
    )
    priced = price_layouts(job, found.cluster, stack, limits)
    agrees = np.ones(len(priced.layouts), bool)
    for name, size in stated.items():
        agrees &= getattr(priced.layouts, name) == size
    kept = Priced(
        priced.layouts.take(agrees), priced.step_s[agrees], priced.high_bytes[agrees], priced.refused
    )
    return _Site(job, found, stack, kept)


def _best(site: _Site) -> Candidate:
    fitting = site.fitting
    if not len(fitting):
        raise InfeasibleError(
            f"{site.job.model.name} does not fit {site.found.accelerator_count} accelerators"
        )
    index = int(fitting[np.argmin(site.priced.step_s[fitting])])
    return candidate(site.job, site.priced.layouts.row(index), site.found.cluster, site.stack)


def _trained(site: _Site, best: Candidate) -> Trained:
    step, held, total_s = best.step, best.memory, best.step_s

    def share(*parts: Any) -> float:
        return sum(_one(part) for part in parts) / total_s

    rate = site.job.tokens_per_step / total_s
    count = site.found.accelerator_count
    price = price_usd_per_h(site.found)
    return Trained(
        step_s=total_s,
        tokens_per_s=rate,
        mfu=_one(model_flops_utilisation(workload(site.job), best.layouts, site.found.cluster, total_s)),
        compute_fraction=share(step.compute_s, step.recompute_s, step.head_s),
        matrix_fraction=share(step.gemm_s, step.attention_s, step.experts_s),
        communication_fraction=share(step.communication_s),
        bubble_fraction=share(step.bubble_s),
        optimizer_fraction=share(step.optimizer_s),
        host_fraction=share(step.host_s),
        input_fraction=share(step.data_s),
        memory_bytes=best.high_bytes,
        weights_bytes=_one(held.weights_bytes),
        activations_bytes=_one(held.activations_bytes),
        accelerators=count,
        **{name: int(_one(getattr(best.layouts, name))) for name in ("tp", "pp", "cp", "dp")},
        usd_per_mtok=None if price is None else price * count / 3600 / rate * 1e6,
    )


def trains(
    world: World, model: str, on: str, offload: bool = False, framework: str = "megatron-core"
) -> bool:
    """Whether any layout of a 16-bit pre-training run fits the memory of the machines."""
    job = _job(world, model, 512, 8192, "bf16", "pretrain", framework, offload)
    return bool(len(_site(world, job, machines(world, on), {}).fitting))


def layout_spread(world: World, model: str, on: str, batch: int = 512) -> float:
    """The slowest over the fastest step of all layouts that fit."""
    job = _job(world, model, batch, 8192, "bf16", "pretrain", "megatron-core", False)
    site = _site(world, job, machines(world, on), {})
    times = site.priced.step_s[site.fitting]
    if not len(times):
        raise InfeasibleError("nothing fits")
    return float(np.max(times) / np.min(times))


def training_gain(world: World, model: str, on: str, resource: str, batch: int = 512) -> float:
    """Share of a step that 20 % more of a resource saves: compute, memory_bandwidth, link, fabric or host."""
    one_of(resource, RESOURCES, "resource")
    return training_gains(world, model, on, batch)[resource]


def training_gains(world: World, model: str, on: str, batch: int = 512) -> Mapping[str, float]:
    """The same for every resource, of the fastest layout."""

    def compute() -> Mapping[str, float]:
        job = _job(world, model, batch, 8192, "bf16", "pretrain", "megatron-core", False)
        site = _site(world, job, machines(world, on), {})
        best = _best(site)
        gains = {}
        for name in RESOURCES:
            cluster = scale_cluster(site.found.cluster, {name: RELIEF})
            relieved = step_time(job, best.layouts, cluster, scale_stack(site.stack, {name: RELIEF}))
            gains[name] = 1 - _one(relieved.total_s) / best.step_s
        return gains

    return world.once(("gains", model, on, batch), compute)


def training_needs_first(world: World, model: str, on: str, batch: int = 512) -> str:
    """The resource of which 20 % more shortens a training step most."""
    gains = training_gains(world, model, on, batch)
    return max(gains, key=lambda name: gains[name])


def gpus_to_train(world: World, model: str, gpu: str) -> int:
    """The fewest accelerators, in nodes of eight beyond one node, whose memory holds a training run."""
    for count in (1, 2, 4, 8, *(8 * n for n in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128))):
        on = f"1x{count}x{gpu}" if count <= 8 else f"{count // 8}x8x{gpu}"
        if ask_trains(world, model, on):
            return count
    raise InfeasibleError(f"{model} does not fit 1,024 {gpu}")


def least_training_memory(world: World, model: str, on: str) -> float:
    """Bytes of the fullest accelerator in the layout that takes least, of a small batch."""
    job = _job(world, model, 1536, 4096, "bf16", "pretrain", "megatron-core", False)
    found = machines(world, on)
    stack = load_stack(world.constants, job.framework, job.precision, found.accelerator.family)
    lean = Limits(micro_batch_max=1, vpp_max=1, recompute=(Recompute.FULL,))
    return float(np.min(price_layouts(job, found.cluster, stack, lean).high_bytes))


def ask_trains(world: World, model: str, on: str) -> bool:
    """`trains` of a small batch that every count divides, computed once."""
    job = _job(world, model, 1536, 4096, "bf16", "pretrain", "megatron-core", False)
    lean = Limits(micro_batch_max=1, vpp_max=1, pp_max=16, recompute=(Recompute.FULL,))

    def compute() -> bool:
        found = machines(world, on)
        stack = load_stack(world.constants, job.framework, job.precision, found.accelerator.family)
        high = price_layouts(job, found.cluster, stack, lean).high_bytes
        return bool(np.any(high <= found.cluster.device.memory_bytes))

    return world.once(("fits", model, on), compute)


def gpus_in_time(
    world: World, model: str, gpu: str, tokens: float, days: float, mfu: float | None = None
) -> float:
    """Accelerators that train a model on so many tokens in so many days, at the MFU that 64 nodes reach."""
    shape = workload(_job(world, model, 512, 8192, "bf16", "pretrain", "megatron-core", False))
    flops = float(np.max(model_flops_per_token(shape))) * tokens
    reached = mfu or _step(world, model, f"64x8x{gpu}", 2048).mfu
    return gpus_for_flops(world, flops, gpu, days, reached)


def gpus_for_flops(world: World, flops: float, gpu: str, days: float, mfu: float) -> float:
    """Accelerators that do so many FLOPs in so many days at a share of their 16-bit peak."""
    return flops / (_peak(world, gpu) * mfu * days * 86400.0)


def time_for_flops(world: World, flops: float, gpu: str, count: float, mfu: float) -> float:
    """Seconds that so many accelerators take for so many FLOPs."""
    return flops / (_peak(world, gpu) * mfu * count)


def _peak(world: World, gpu: str) -> float:
    accelerator = world.catalog.accelerator(gpu)
    peak = accelerator.bf16_flops_per_s or accelerator.fp16_flops_per_s
    if peak is None:
        raise ValueRefusedError(f"{gpu} has no 16-bit units")
    return peak


@dataclass(frozen=True, slots=True)
class Run:
    """A whole run beyond its step."""

    wall_s: float
    goodput_fraction: float
    failures: float
    lost_work_s: float  # per failure
    checkpoint_interval_s: float
    checkpoint_bytes: float
    checkpoint_write_bytes_per_s: float
    ingest_bytes_per_s: float
    needed_bytes_per_s: float
    headroom_fraction: float  # paid hours beyond those of steps that count
    accelerator_h: float
    cost_usd: float | None
    energy_j: float


def run(world: World, model: str, on: str, tokens: float, batch: int = 512, write_s: float = 60.0) -> Run:
    """A run of so many tokens with its failures and checkpoints, each written in `write_s`."""
    step = _step(world, model, on, batch)
    found = machines(world, on)
    job = _job(world, model, batch, 8192, "bf16", "pretrain", "megatron-core", False)
    plan: RunPlan = run_plan(job, step.step_s, found.cluster, tokens, checkpoint_write_s=write_s)
    price = price_usd_per_h(found)
    return Run(
        plan.wall_s,
        plan.goodput_fraction,
        plan.failures_count,
        plan.lost_work_s,
        plan.checkpoint_interval_s,
        plan.checkpoint_bytes or 0.0,
        plan.storage.checkpoint_write_bytes_per_s or 0.0,
        plan.storage.ingest_bytes_per_s or 0.0,
        plan.storage.needed_bytes_per_s or 0.0,
        plan.wall_s / plan.compute_s - 1.0,
        plan.base_accelerator_h,
        None if price is None else price * plan.base_accelerator_h,
        plan.energy_j,
    )


def collective_s(world: World, operation: str, size: float, on: str, slower_latency: float = 1.0) -> float:
    """Seconds of one all_reduce, all_gather, reduce_scatter or all_to_all of `size` bytes among all ranks."""
    found = machines(world, on, slower_latency=slower_latency)
    kinds = {
        "all_reduce": all_reduce_s,
        "all_gather": all_gather_s,
        "reduce_scatter": reduce_scatter_s,
        "all_to_all": all_to_all_s,
    }
    one_of(operation, kinds, "collective")
    return _one(kinds[operation](found.cluster.network, size, float(found.accelerator_count)))


def checkpoint(world: World, model: str) -> float:
    """Bytes of one checkpoint of mixed-precision training with Adam."""
    return checkpoint_bytes(_shape(world, model))


def training_state(world: World, model: str, optimizer: str = "adam", kind: str = "pretrain") -> float:
    """Bytes of weights, gradients and optimiser states, activations not counted."""
    shape = _shape(world, model, optimizer, kind)
    trained = float(np.max(trained_parameters(shape)))
    frozen = max(float(np.max(shape.parameters)) - trained, 0.0) if kind == "lora" else 0.0
    held = float(np.max(shape.weight_bytes))
    return trained * (held + 4.0 + float(np.max(shape.optimizer_bytes))) + frozen * held


def optimizer_state(world: World, model: str, optimizer: str = "adam", kind: str = "pretrain") -> float:
    """Bytes of master weights and moments."""
    shape = _shape(world, model, optimizer, kind)
    return float(np.max(trained_parameters(shape))) * float(np.max(shape.optimizer_bytes))


def _shape(world: World, model: str, optimizer: str = "adam", kind: str = "pretrain") -> Workload:
    one_of(optimizer, ("adam", "sgd"), "optimiser")
    which: Literal["adam", "sgd"] = "sgd" if optimizer == "sgd" else "adam"
    plain = _job(world, model, 512, 8192, "bf16", kind, "megatron-core", False)
    return workload(replace(plain, optimizer=which))


def activations(world: World, model: str, sequence: int, batch: int = 1, recompute: str = "none") -> float:
    """Bytes of activations of one micro-batch on one accelerator, nothing sharded."""
    job = _job(world, model, batch, sequence, "bf16", "pretrain", "megatron-core", False)
    mode = RECOMPUTE[one_of(recompute, RECOMPUTE, "way to recompute")]
    sizes = {f.name: 1 for f in fields(Layouts)} | {
        "zero_stage": 0, "micro_batch": batch, "recompute": mode, "sequence_parallel": 0,
    }  # fmt: skip
    stack = load_stack(world.constants, job.framework, job.precision, "hopper")
    return _one(memory(job, layouts_of([list(sizes.values())]), stack).activations_bytes)


def _one(value: Any) -> float:
    return float(np.ravel(np.asarray(value, float))[0])


def _shown(arguments: Mapping[str, Any], asked: str) -> str:
    """The command that shows a step, where `estimate train` has its arguments."""
    if arguments.get("offload") or arguments.get("slower_latency", 1.0) != 1.0:
        return ""
    told = dict(arguments) | {
        "batch": f"{arguments['batch']} seq",
        "sequence": None if arguments["sequence"] == 8192 else f"{arguments['sequence']} tok",
        "precision": None if arguments["precision"] == "bf16" else arguments["precision"],
        "kind": None if arguments["kind"] == "pretrain" else arguments["kind"],
        "framework": None if arguments["framework"] == "megatron-core" else arguments["framework"],
        "oversubscription": None if arguments["oversubscription"] == 1.0 else arguments["oversubscription"],
    }
    names = (
        "on batch sequence precision kind framework recompute zero layout scale oversubscription fabric nic "
        "virtual"
    )
    return f"twofold estimate train {arguments['model']}" + options(
        told, {n: f"--{n}" for n in names.split()}
    )


def _shown_run(arguments: Mapping[str, Any], asked: str) -> str:
    told = {
        "on": arguments["on"], "batch": f"{arguments['batch']} seq",
        "tokens": f"{arguments['tokens']:.12g} tok",
        "write-within": f"{arguments['write_s']:g} s",
    }  # fmt: skip
    return f"twofold estimate train {arguments['model']}" + options(told, {n: f"--{n}" for n in told})


TRAINING: Mapping[str, Quantity] = {
    "train": Quantity(train, _shown),
    "trains": Quantity(trains),
    "layout_spread": Quantity(layout_spread),
    "training_gain": Quantity(training_gain),
    "training_needs_first": Quantity(training_needs_first),
    "gpus_to_train": Quantity(gpus_to_train),
    "least_training_memory": Quantity(least_training_memory),
    "gpus_in_time": Quantity(gpus_in_time),
    "gpus_for_flops": Quantity(gpus_for_flops),
    "time_for_flops": Quantity(time_for_flops),
    "run": Quantity(run, _shown_run),
    "collective_s": Quantity(collective_s),
    "checkpoint": Quantity(checkpoint),
    "training_state": Quantity(training_state),
    "optimizer_state": Quantity(optimizer_state),
    "activations": Quantity(activations),
}
