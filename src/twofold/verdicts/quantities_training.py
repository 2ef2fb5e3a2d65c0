"""Quantities of training: steps, layouts and what limits them, by the models that plans use."""

# ruff: noqa: ARG001 (every quantity takes the world, every command the field that was asked)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from twofold.answer.question import Given
from twofold.answer.training_step import TrainingSite, limits_of, resource_gains, training_site
from twofold.core.errors import InfeasibleError
from twofold.perf import collectives
from twofold.perf.software import DEFAULT_FRAMEWORK
from twofold.perf.types import one
from twofold.training.job import Precision, TrainingJob
from twofold.training.layouts import RECOMPUTE
from twofold.training.search import Candidate
from twofold.training.step import model_flops_utilisation
from twofold.verdicts.machines import machines, price_usd_per_h
from twofold.verdicts.world import CommandOf, World, one_of, options, sizes_of

KINDS = ("pretrain", "finetune", "lora")
PRECISIONS = get_args(Precision)
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


def train(
    world: World,
    model: str,
    on: str,
    batch: int = 512,
    sequence: int = 8192,
    precision: str = "bf16",
    kind: str = "pretrain",
    framework: str = DEFAULT_FRAMEWORK,
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
    found = machines(world, on, scale, oversubscription, fabric, nic, virtual, slower_latency)
    job = job_of(world, model, batch, sequence, precision, kind, framework, offload)
    stated = {name: int(size) for name, size in sizes_of(layout, LAYOUT_SIZES, "size of a layout").items()}
    if recompute:
        stated["recompute"] = int(RECOMPUTE[one_of(recompute, RECOMPUTE, "way to recompute")])
    if zero is not None:
        stated["zero_stage"] = zero
    site = _site_of(world, job, found, stated)
    return _trained(site, _best(site))


def step_once(world: World, model: str, on: str, batch: int) -> Trained:
    """`train` without further wishes, computed once."""
    return world.once(("step", model, on, batch), lambda: train(world, model, on, batch))


def job_of(
    world: World,
    model: str,
    batch: int = 512,
    sequence: int = 8192,
    precision: str = "bf16",
    kind: str = "pretrain",
    framework: str = DEFAULT_FRAMEWORK,
    offload: bool = False,
) -> TrainingJob:
    """A job of a catalogue model. Raises UnknownNameError for a precision or a kind that there is none of."""
    one_of(precision, PRECISIONS, "precision")
    one_of(kind, KINDS, "kind of run")
    return TrainingJob(
        world.catalog.model(model), kind, sequence, batch, precision, framework,  # type: ignore[arg-type]
        lora_rank=16 if kind == "lora" else 0, optimizer_place="host" if offload else "device",
    )  # fmt: skip


def _site_of(
    world: World, job: TrainingJob, on: Given, stated: Mapping[str, int] | None = None
) -> TrainingSite:
    """A job on machines with the layouts that have the stated sizes."""
    return training_site(job, on, world.constants, limits_of(stated or {})).agreeing(stated or {})


def _best(site: TrainingSite) -> Candidate:
    best = site.fastest()
    if best is None:
        count = site.machines.accelerator_count
        raise InfeasibleError(f"{site.job.model.name} does not fit {count} accelerators")
    return best


def _trained(site: TrainingSite, best: Candidate) -> Trained:
    step, held, total_s = best.step, best.memory, best.step_s

    def share(*parts: Any) -> float:
        return sum(one(part) for part in parts) / total_s

    rate = site.job.tokens_per_step / total_s
    count = site.machines.accelerator_count
    price = price_usd_per_h(site.machines)
    return Trained(
        step_s=total_s,
        tokens_per_s=rate,
        mfu=one(model_flops_utilisation(site.job.workload, best.layouts, site.machines.cluster, total_s)),
        compute_fraction=share(step.compute_s, step.recompute_s, step.head_s),
        matrix_fraction=share(step.gemm_s, step.attention_s, step.experts_s),
        communication_fraction=share(step.communication_s),
        bubble_fraction=share(step.bubble_s),
        optimizer_fraction=share(step.optimizer_s),
        host_fraction=share(step.host_s),
        input_fraction=share(step.data_s),
        memory_bytes=best.high_bytes,
        weights_bytes=one(held.weights_bytes),
        activations_bytes=one(held.activations_bytes),
        accelerators=count,
        **{name: int(one(getattr(best.layouts, name))) for name in ("tp", "pp", "cp", "dp")},
        usd_per_mtok=None if price is None else price * count / 3600 / rate * 1e6,
    )


def trains(
    world: World, model: str, on: str, offload: bool = False, framework: str = DEFAULT_FRAMEWORK
) -> bool:
    """Whether any layout of a 16-bit pre-training run fits the memory of the machines."""
    job = job_of(world, model, framework=framework, offload=offload)
    return bool(_site_of(world, job, machines(world, on)).fits.any())


def layout_spread(world: World, model: str, on: str, batch: int = 512) -> float:
    """The slowest over the fastest step of all layouts that fit."""
    job = job_of(world, model, batch)
    site = _site_of(world, job, machines(world, on))
    times = site.priced.step_s[site.fits]
    if not len(times):
        raise InfeasibleError("nothing fits")
    return float(np.max(times) / np.min(times))


def training_gain(
    world: World, model: str, on: str, resource: str, batch: int = 512, precision: str = "bf16"
) -> float:
    """Share of a step that 20 % more of a resource saves: compute, memory_bandwidth, link, fabric or host."""
    gains = training_gains(world, model, on, batch, precision)
    return gains[one_of(resource, gains, "resource")]


def training_gains(
    world: World, model: str, on: str, batch: int = 512, precision: str = "bf16"
) -> Mapping[str, float]:
    """The same for every resource, of the fastest layout."""

    def compute() -> Mapping[str, float]:
        job = job_of(world, model, batch, precision=precision)
        site = _site_of(world, job, machines(world, on))
        return resource_gains(job, site.machines, site.stack, _best(site))

    return world.once(("gains", model, on, batch, precision), compute)


def training_needs_first(world: World, model: str, on: str, batch: int = 512) -> str:
    """The resource of which 20 % more shortens a training step most."""
    gains = training_gains(world, model, on, batch)
    return max(gains, key=lambda name: gains[name])


def collective_s(world: World, operation: str, size: float, on: str, slower_latency: float = 1.0) -> float:
    """Seconds of one all_reduce, all_gather, reduce_scatter or all_to_all of `size` bytes among all ranks."""
    found = machines(world, on, slower_latency=slower_latency)
    one_of(operation, collectives.BY_NAME, "collective")
    return one(collectives.BY_NAME[operation](found.cluster.network, size, float(found.accelerator_count)))


def _shown(arguments: Mapping[str, Any], asked: str) -> str:
    """The command that shows a step, where `estimate train` has its arguments."""
    if arguments.get("offload") or arguments.get("slower_latency", 1.0) != 1.0:
        return ""
    told = dict(arguments) | {
        "batch": f"{arguments['batch']} seq",
        "sequence": None if arguments["sequence"] == 8192 else f"{arguments['sequence']} tok",
        "precision": None if arguments["precision"] == "bf16" else arguments["precision"],
        "kind": None if arguments["kind"] == "pretrain" else arguments["kind"],
        "framework": None if arguments["framework"] == DEFAULT_FRAMEWORK else arguments["framework"],
        "oversubscription": None if arguments["oversubscription"] == 1.0 else arguments["oversubscription"],
    }
    names = (
        "on batch sequence precision kind framework recompute zero layout scale oversubscription fabric nic "
        "virtual"
    )
    return f"twofold estimate train {arguments['model']}{options(told, names.split())}"


COMMANDS: Mapping[str, CommandOf] = {"train": _shown}
