"""Being told no: what a training job needs, what was tried, what would fit; codes of a search in words."""

from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType

import numpy as np

from twofold.answer.question import Given
from twofold.answer.training_step import TrainingSite
from twofold.catalog.types import Accelerator, Model
from twofold.contracts.goals import metric_text
from twofold.core.display import format_memory, format_seconds
from twofold.core.errors import InfeasibleError, ValueRefusedError
from twofold.training.job import TrainingJob
from twofold.training.run import RunPlan
from twofold.training.search import search


def machines_text(machines: Given) -> str:
    """`64 × 8 H100-SXM5-80GB`."""
    machine = machines.machine
    nodes = f"{machine.node_count:,} × " if machine.node_count > 1 else ""
    return f"{nodes}{machine.accelerators_per_node} {machine.accelerator}"


def need_links(accelerator: Accelerator, accelerator_count: int) -> None:
    """Raise ValueRefusedError where a job is to be split over slices, which do not see each other."""
    if accelerator.works_alone and accelerator_count > 1:
        what = f"{accelerator_count:,} × {accelerator.name} train nothing together: slices have no links"
        raise ValueRefusedError(what, hint="train on one slice, or on whole devices")


def nothing_trains(site: TrainingSite) -> InfeasibleError:
    """No layout of the job fits the machines: by how much, and what would."""
    machines, priced = site.machines, site.priced
    closest = site.candidates(np.argmin(priced.high_bytes))
    held, count = closest.memory, machines.accelerator_count
    capacity = machines.cluster.device.memory_bytes
    found = search(site.job, machines.cluster, site.stack)
    change = found.nearest_miss.change if found.nearest_miss else "another layout: state less of it"
    named = {
        "weights": held.weights_bytes,
        "gradients": held.gradients_bytes,
        "optimiser": held.optimizer_bytes,
        "activations": held.activations_bytes,
    }
    parts = ", ".join(f"{name} {format_memory(float(np.max(value)))}" for name, value in named.items())
    most = format_memory(float(np.max(held.high_bytes)))
    missing = format_memory(closest.high_bytes - capacity)
    lines = (
        ("needs", f"up to {most} ({parts}) per device; each has {format_memory(capacity)}"),
        *([("", f"all {count:,} together have {format_memory(capacity * count)}")] if count > 1 else []),
        ("tried", f"{len(priced.layouts):,} layouts: every one exceeds memory"),
        ("closest", f"{closest.describe()}: misses by {missing} per device"),
        ("would fit", change),
    )
    name = site.job.model.name
    return InfeasibleError(f"no layout of {name} trains on {machines_text(machines)}", lines=lines)


def nothing_divides(job: TrainingJob, machines: Given, refused: Mapping[str, int]) -> InfeasibleError:
    """No combination of sizes is a layout: which rules they broke, and what would help."""
    broken = ", ".join(f"{count:,} by {reason}" for reason, count in refused.items())
    batch, count = job.global_batch_sequences, machines.accelerator_count
    lines = (
        ("needs", f"a split of {batch:,} seq and {job.model.layers} layers over {count:,} devices"),
        ("tried", f"{sum(refused.values()):,} combinations, all refused: {broken}"),
        ("would fit", f"fewer devices · a larger batch, such as {max(count, 2 * batch):,} seq"),
    )
    return InfeasibleError(f"no layout divides {job.model.name} over {machines_text(machines)}", lines=lines)


def never_ahead(run: RunPlan, machines: Given) -> InfeasibleError:
    """Failures come faster than a restart and a checkpoint take: how fast, and what would help.

    Formula  accelerators: failures scale with their number; a write w counts twice, to write and to read it
    """
    between_s, write_s = run.mean_time_between_failures_s, run.checkpoint_write_s
    stop_s = run.restart_s + write_s
    fewer = int(machines.accelerator_count * between_s / stop_s)
    faster_s = (between_s - (run.restart_s - write_s)) / 2
    fixes = [f"fewer than {fewer:,} accelerators"]
    fixes += [f"checkpoints within {format_seconds(faster_s)}"] if faster_s > 0 else []
    stop = f"{format_seconds(stop_s)} to notice it, start again, read a checkpoint and write the next"
    lines = (
        ("binds", f"something fails every {format_seconds(between_s)} on average"),
        ("needs", stop),
        ("would fit", " · ".join(fixes)),
    )
    return InfeasibleError(f"{machines_text(machines)} never get ahead of their failures", lines=lines)


def need_context(models: Sequence[Model], tokens: float, whose: str = "", flag: str = "") -> None:
    """Raise ValueRefusedError for a model that writes no tokens one after the other, and where a request is
    longer than every model's context; 0 is not known."""
    for model in models:
        if model.arch == "encoder":
            hint = "measure a replica and write `model: {measured: rows.csv}`"
            raise ValueRefusedError(f"{whose}{model.name} is an encoder: it writes no tokens", hint=hint)
    longest = max(models, key=lambda model: model.max_context_tokens or inf)
    if 0 < longest.max_context_tokens < tokens:
        held = f"the context of {longest.name}, {longest.max_context_tokens:,}"
        hint = f"shorten `{flag}input` or `{flag}output`"
        raise ValueRefusedError(f"{whose}{tokens:,.0f} tokens exceed {held}", hint=hint)


REASONS = MappingProxyType({"memory": "exceed memory", "slower": "slower", "dearer": "dearer"})


def reason_text(reason: str) -> str:
    """What happened to the candidates that a reason counts; rules of how numbers divide are one reason.

    >>> reason_text("memory"), reason_text("slo ttft_s_p95"), reason_text("heads")
    ('exceed memory', 'miss TTFT p95', 'do not divide')
    """
    if reason.startswith("slo "):
        return f"miss {metric_text(reason.removeprefix('slo '))}"
    return REASONS.get(reason, "do not divide")
