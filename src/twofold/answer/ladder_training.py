"""Ladders of a training run: fabrics, sizes, sequences and tenancy, each rung in its own best layout."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twofold.answer.context import Context
from twofold.answer.question import Given, resized
from twofold.answer.ranges import Drawn, drawn
from twofold.answer.refusals import machines_text
from twofold.answer.stacks import cluster_on
from twofold.answer.training_choice import TrainingChoice
from twofold.answer.training_plan import bare_metal
from twofold.answer.training_run import estimate_run
from twofold.answer.training_step import TrainedStep, memory_estimate, step_samples, trained_step
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.estimate import Estimate
from twofold.perf.topology import fabric_parts
from twofold.training.job import TrainingJob
from twofold.training.layouts import Limits
from twofold.training.search import search
from twofold.training.stack import Stack

LIMITS = Limits(vpp_max=8)
# Label, class of fabric, line rate per accelerator, oversubscription.
FABRICS = (
    ("400G InfiniBand", "infiniband", 50e9, 1.0),
    ("400G RoCE", "roce", 50e9, 1.0),
    ("100GbE", "ethernet", 12.5e9, 1.0),
    ("200 Gb/s InfiniBand", "infiniband", 25e9, 1.0),
    ("800 Gb/s InfiniBand", "infiniband", 100e9, 1.0),
    ("400G InfiniBand 4:1", "infiniband", 50e9, 4.0),
)
WEAK_COUNTS = (1, 8, 64, 512)
STRONG_NODES = tuple(2**power for power in range(10))  # 1 … 512
CONTEXTS = (8192, 32768, 131072)
KNEE_FRACTION = 0.5


Value = Estimate | float | int | str | None


@dataclass(frozen=True, slots=True)
class Rung:
    """One row. Keys of `values` carry units as field names do; None where the row has no such figure."""

    label: str
    values: Mapping[str, Value]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Ladder:
    """One table: what varies, what is compared, and what the eye should catch."""

    title: str
    half: str  # training or serving
    name: str  # of the run or service
    columns: tuple[str, ...]  # keys of the rungs' values, in order
    rungs: tuple[Rung, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run on the machines of its plan."""

    entry: TrainingRun
    job: TrainingJob
    machines: Given
    stack: Stack


def planned_run_of(choice: TrainingChoice, context: Context) -> PlannedRun:
    """A run on the machines that its plan recommends."""
    return PlannedRun(choice.entry, choice.job, choice.chosen.machines(context), choice.chosen.stack)


def fabric_of_run(site: PlannedRun, context: Context) -> tuple[Ladder, ...]:
    """The same job on other networks between the same nodes, and what those are built of."""
    rungs: list[Rung] = []
    first: float | None = None
    for label, fabric, nic_bytes_per_s, oversubscription in FABRICS:
        node, count = site.machines.machine.accelerators_per_node, site.machines.accelerator_count
        between = nic_bytes_per_s, fabric, context.constants, count, oversubscription
        links = cluster_on(site.machines.accelerator, node, *between).network
        machines = replace(site.machines, cluster=replace(site.machines.cluster, network=links))
        best = best_step(site.job, machines, site.stack, context)
        parts = fabric_parts(context.catalog, fabric, count, nic_bytes_per_s, oversubscription)
        values: dict[str, Value] = {"switch": "none of this rate"}
        if parts:
            values = {
                "switch_count": parts.counts.switch_count,
                "cable_count": parts.counts.cable_count,
                "switch": f"{parts.switch.name}, {parts.port_count} ports",
                "tier_count": len(parts.counts.switches),
                "switches_usd": parts.usd,
                "switches_w": parts.power_w,
            }
        if best:
            first = first or best.step.middle
            values |= _step_values(best) | {"added_fraction": best.step.middle / first - 1}
        rungs.append(Rung(label, values, "" if best else "no layout fits"))
    columns = ("step_s", "added_fraction", "exposed_fraction", "switch_count", "cable_count", "switch")
    title = f"network between nodes: {machines_text(site.machines)}"
    one_node = site.machines.machine.node_count == 1
    notes = ("one node: nothing crosses the network",) if one_node else ()
    return (Ladder(title, "training", site.entry.name, columns, tuple(rungs), notes),)


def best_step(job: TrainingJob, machines: Given, stack: Stack, context: Context) -> TrainedStep | None:
    """The fastest layout that fits, under every draw; None where nothing does."""
    found = search(job, machines.cluster, stack, LIMITS)
    if found.best is None:
        return None
    return trained_step(job, machines, stack, found.best, context.draws, context.constants)


def _step_values(best: TrainedStep) -> dict[str, Value]:
    return {
        "step_s": best.step.estimate("s"),
        "exposed_fraction": best.communication_exposed_fraction,
        "layout": best.chosen.describe(),
    }


def nodes_of_run(site: PlannedRun, context: Context) -> tuple[Ladder, ...]:
    """How the job scales: the batch grown with the cluster, and the batch held while nodes are added."""
    per_node = site.machines.machine.accelerators_per_node
    # Grown so that each accelerator has as many sequences as on the run's own machines.
    share = max(site.job.global_batch_sequences / site.machines.accelerator_count, 1.0)
    grown = {count: max(1, round(count * share)) for count in WEAK_COUNTS}
    weak = [(count, replace(site.job, global_batch_sequences=batch)) for count, batch in grown.items()]
    strong = [(nodes * per_node, site.job) for nodes in STRONG_NODES]
    fixed = f"batch held at {site.job.global_batch_sequences:,} seq: where more nodes stop paying"
    return (
        _scaling(site, context, "batch grown with the accelerators", weak),
        _scaling(site, context, fixed, strong),
    )


def _scaling(site: PlannedRun, context: Context, title: str, sizes: list[tuple[int, TrainingJob]]) -> Ladder:
    """Throughput per accelerator over that of the smallest size that fits, draw by draw."""
    rungs: list[Rung] = []
    base: Drawn | None = None
    knee: int | None = None
    for count, job in sizes:
        machines = resized(site.machines, count)
        label = f"{count:,}"
        best = best_step(job, machines, site.stack, context)
        if best is None:
            rungs.append(Rung(label, {"accelerator_count": count}, "no layout fits"))
            continue
        # Under the plain draws: what all sizes share cancels in their ratio.
        samples = step_samples(job, best.chosen.layouts, best.machines.cluster, best.stack, best.draws)
        per_accelerator = job.tokens_per_step / best.machines.accelerator_count
        rate = drawn(best.chosen.step_s, samples).inverse(per_accelerator)
        base = base or rate
        efficiency = base.inverse(rate)
        below = knee is None and efficiency.middle < KNEE_FRACTION
        knee = count if below else knee
        values = _step_values(best) | {
            "accelerator_count": count,
            "tokens_per_s": best.step.inverse(float(job.tokens_per_step)).estimate("tok/s"),
            "efficiency_fraction": efficiency.estimate("fraction"),
        }
        rungs.append(Rung(label, values, "below 50 %: communication and waiting dominate" if below else ""))
    columns = ("step_s", "tokens_per_s", "efficiency_fraction", "exposed_fraction")
    found = f"efficiency falls below 50 % at {knee:,} accelerators" if knee else "no size is below 50 %"
    return Ladder(title, "training", site.entry.name, columns, tuple(rungs), (found,))


def context_of_run(site: PlannedRun, context: Context) -> tuple[Ladder, ...]:
    """Longer sequences at the same tokens per step."""
    tokens = site.job.tokens_per_step
    rungs = []
    for length in CONTEXTS:
        sequences = max(1, tokens // length)
        job = replace(site.job, sequence_tokens=length, global_batch_sequences=sequences)
        best = best_step(job, site.machines, site.stack, context)
        values: dict[str, Value] = {"batch_sequences": sequences}
        if best:
            held = memory_estimate(best.chosen.memory, "memory B")
            values |= _step_values(best) | {"memory_bytes": held}
        beyond = length > site.job.model.max_context_tokens > 0
        note = "no layout fits" if not best else "beyond the model's context" if beyond else ""
        rungs.append(Rung(f"{length // 1024}k", values, note))
    columns = ("batch_sequences", "step_s", "exposed_fraction", "memory_bytes", "layout")
    title = f"sequence length at {tokens:,} tok per step"
    return (Ladder(title, "training", site.entry.name, columns, tuple(rungs)),)


def tenancy_of_run(site: PlannedRun, context: Context) -> tuple[Ladder, ...]:
    """The same run on bare metal and behind a hypervisor with the spec's overhead."""
    overhead = context.spec.supply.virtual_overhead_fraction
    bare = bare_metal(site.machines, overhead if site.machines.node.virtualised else 0.0)
    rungs = []
    for label, share in (("bare metal", 0.0), ("virtual", overhead)):
        machines = replace(bare, cluster=bare.cluster.virtualised(share))
        best = best_step(site.job, machines, site.stack, context)
        if best is None:
            rungs.append(Rung(label, {"overhead_fraction": share}, "no layout fits"))
            continue
        saving = site.entry.checkpoint.write_within_s, site.entry.checkpoint.stall_s
        run = estimate_run(best, site.entry.token_count, site.entry.headroom.shares, *saving)
        values = _step_values(best) | {
            "overhead_fraction": share,
            "total_s": run.total_s,
            "accelerator_h": run.accelerator_h,
            "cost_usd": run.cost_usd,
        }
        rungs.append(Rung(label, values))
    columns = ("overhead_fraction", "step_s", "total_s", "accelerator_h", "cost_usd")
    title = f"tenancy: {machines_text(site.machines)}, one price for both"
    return (Ladder(title, "training", site.entry.name, columns, tuple(rungs)),)
