"""Where the numbers of a training run come from: what was noted while they were computed, and its leaves."""

from collections.abc import Iterator, Sequence

import numpy as np

from twofold.answer.calibrated import run_scope
from twofold.answer.context import Context, region_of
from twofold.answer.delivery import law_leaves
from twofold.answer.derivation import (
    Known,
    Leaves,
    Noted,
    assumed_leaf,
    figures_of,
    model_leaf,
    path_input,
    spec_leaf,
    spread_inputs,
    supply_leaves,
)
from twofold.answer.measured_choice import MeasuredChoice
from twofold.answer.moved import cited, moved
from twofold.answer.ranges import training_scope
from twofold.answer.training_choice import TrainingChoice
from twofold.answer.training_step import MEMORY_PARTS, STEP_PARTS
from twofold.contracts.results.plan import Derivation, Input
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.rows.measured_rows import StepRow
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core import record
from twofold.core.display import format_count, format_memory, format_si
from twofold.core.estimate import Source
from twofold.training.memory import memory
from twofold.training.run import SNAPSHOT_S, Reliability
from twofold.training.step import step_time

PLACES = {  # of what was noted, where a plan calls it otherwise
    "compute_s": "step_parts.compute.value",
    **{field: f"step_parts.compute.{field.removesuffix('_s')}" for field in STEP_PARTS["compute"]},
    **{held[0]: f"step_parts.{name}.value" for name, held in STEP_PARTS.items() if len(held) == 1},
    **{field: f"memory_parts.{name}.value" for name, field in MEMORY_PARTS.items()},
    "run.steps_count": "run.steps",
    "run.checkpoint_interval_s": "run.checkpoints.interval_s",
    "run.checkpoint_stall_s": "run.checkpoint_s",
    "run.checkpoint_pause_s": "run.checkpoints.pause_s",
    "run.failures_count": "run.interruptions",
    "run.total_accelerator_h": "run.accelerator_h",
    "meter_j": "run.energy_j",
    "carbon_gco2": "run.carbon_gco2",
}


def training_derivations(
    choice: TrainingChoice, plan: TrainingPlan, book: record.Book, context: Context
) -> Iterator[Derivation]:
    """Every estimate of a run with what it follows from."""
    at, job, chosen, entry = f"training.{plan.name}", choice.job, choice.chosen, choice.entry
    offer, found, layout = chosen.offer, chosen.found.best, plan.layout
    assert found and layout
    scope = {
        "accelerator": offer.accelerator.name,
        "format": job.precision,
        "fabric": offer.node.fabric,
        **training_scope("step", job, offer.accelerator),
    }
    leaves = Leaves(context.constants, tuple(scope.items()))
    cluster, stack, names = moved(chosen.cluster, chosen.stack)
    with record.recording() as again:
        step = step_time(job.workload, job.precision, found.layouts, cluster, stack)
        held = memory(job.workload, found.layouts, stack)
        _ = step.compute_s, step.total_s, held.buffers_bytes, held.total_bytes  # sums that are noted
    own = run_scope(offer.accelerator.name, job)
    micro_batches = job.global_batch_sequences / (layout.dp * layout.micro_batch)
    flops = float(np.max(job.workload.model_flops_per_token)) * job.tokens_per_step
    known: dict[str, Input | Sequence[Input]] = {name: leaves.moved(name, offer) for name in names}
    known |= run_leaves(plan, at, choice, leaves, context)
    known |= {
        "layout": assumed_leaf("layout", layout.text, "the fastest that fits"),
        "micro_batches": spec_leaf(
            "micro-batches", f"{micro_batches:g}", f"{at}.global_batch, over DP × micro-batch"
        ),
        "layers": model_leaf(job.model, "layers", job.model.layers / layout.pp, "layers per stage"),
        "heads": model_leaf(job.model, "heads", job.model.heads),
        "parameters": model_leaf(job.model, "parameters", job.model.parameters),
        "parameters_active": model_leaf(
            job.model, "parameters_active", job.model.parameters_active, "active parameters"
        ),
        "memory_spread": leaves.constant("training_memory_spread_factor", "spread"),
        "step_spread": spread_inputs(leaves, "interval_training_step_ratio", own, "step", own["kind"]),
        "tokens": spec_leaf("tokens", format_count(entry.token_count), f"{at}.tokens"),
        "batch": spec_leaf(
            "tokens per step", format_count(entry.batch_tokens), f"{at}.global_batch × sequence"
        ),
        "laws": law_leaves(context.constants),
        "loss_target": spec_leaf("target", f"{entry.loss_target}", f"{at}.loss_target"),
        "model_flops": assumed_leaf(
            "model FLOPs", format_si(flops, "FLOP"), "6 × active parameters + attention, per token"
        ),
        "half_peak": leaves.moved("peak_flops_per_s.bf16", offer),
        "peak": leaves.moved(f"peak_flops_per_s.{job.precision}", offer),
    }
    yield from Noted(at, book | cited(again, names), figures_of(plan), known, PLACES).rows()


def _accelerators(entry: TrainingRun, count: str, at: str) -> Input:
    if entry.on is not None:
        return spec_leaf("accelerators", count, f"{at}.on")
    return assumed_leaf("accelerators", count, "the machines that meet the goals for the least money")


def run_leaves(
    plan: TrainingPlan, at: str, choice: TrainingChoice | MeasuredChoice, leaves: Leaves, context: Context
) -> Known:
    """What the run around a step rests on, and what is compared with it."""
    run, usual, offer = plan.run, Reliability(), choice.chosen.offer
    count, saving = plan.machine.accelerator_count, choice.entry.checkpoint
    stop_s, saved = usual.detection_s + usual.restart_s, f"{at}.checkpoint"
    write_s, stall_s = format_si(saving.write_within_s, "s"), format_si(saving.stall_s or 0.0, "s")
    known: dict[str, Input | Sequence[Input]] = {
        "headroom": [
            path_input(part.name, part.value, f"{at}.run.headroom.{part.name}.value") for part in run.headroom
        ],
        "accelerators": _accelerators(choice.entry, f"{count:,}", at),
        "write": spec_leaf("checkpoint write", write_s, f"{saved}.write_within"),
        "stall": spec_leaf("checkpoint pause", stall_s, f"{saved}.stall"),
        "snapshot": assumed_leaf(
            "snapshot",
            f"{format_si(SNAPSHOT_S, 's')} and a copy to the host",
            "0.5 s (ByteCheckpoint 2024) to 6 s (PyTorch 2024), and each accelerator's share over its PCIe",
        ),
        "failures": assumed_leaf(
            "accelerator-hours per failure",
            format_si(usual.accelerator_h_between_failures, ""),
            "Llama 3: 419 in 54 days on 16,384 GPUs",
        ),
        "stop": assumed_leaf(
            "detection and restart",
            format_si(stop_s, "s"),
            "2 min to notice, 5 min to replace a node and start again",
        ),
        "watts": (
            *leaves.moved("tdp_w", offer),
            *leaves.moved("idle_w", offer),
            leaves.unknown("power"),
        ),
        **supply_leaves(leaves, plan.machine.price, region_of(offer.price, context)),
    }
    if plan.deadline_s is not None:
        known["deadline"] = spec_leaf("deadline", format_si(plan.deadline_s, "s"), f"{at}.deadline")
    for part in run.headroom:
        share = format_si(part.value.value, "fraction")
        known[f"headroom.{part.name}"] = spec_leaf(part.name, share, f"{at}.headroom.{part.name}")
    for point in plan.scaling:
        size = point.accelerator_count
        known[f"size.{size}"] = assumed_leaf("size", f"{size:,}", "the batch grows with the cluster")
    for row in plan.tenancy:
        share = format_si(row.overhead_fraction, "fraction")
        known[f"overhead.{row.name}"] = spec_leaf("overhead", share, "supply.virtual_overhead")
    return known


ROWS_SHOWN = 8


def measured_training_derivations(
    choice: MeasuredChoice, plan: TrainingPlan, book: record.Book, context: Context
) -> Iterator[Derivation]:
    """Every estimate of a measured run, down to the rows of its file."""
    at, chosen = f"training.{plan.name}", choice.chosen
    rows, steps = chosen.measured.rows, chosen.measured.steps
    factor, repeats = f"×{steps.spread_factor:.3f}", f"{steps.repeats_count} repeated rows, Student's t"
    if steps.repeats_count:
        spread = Input("spread of a further run", factor, "", Source.MEASURED.value, repeats)
    else:
        why = "equal accelerators of one cluster, Sinha et al. 2022"
        spread = assumed_leaf("spread of a further run", factor, why)
    amounts = ("tokens", "samples", "steps")
    amount = next(name for name in amounts if getattr(choice.entry, name) is not None)
    offer = chosen.offer
    scope = {"family": offer.accelerator.family, "accelerator": offer.accelerator.name}
    leaves = Leaves(context.constants, tuple(scope.items()))
    held = [row for row in rows if row.memory_bytes is not None]
    known = dict(run_leaves(plan, at, choice, leaves, context)) | {
        "rows": _row_inputs(choice, _near(rows, chosen.cluster.accelerator_count)),
        "step_spread": spread,
        "memory_rows": [
            _row_input(row, format_memory(row.memory_bytes or 0.0))
            for row in (_near(held, chosen.cluster.accelerator_count) if held else ())
        ],
        "tokens": spec_leaf("samples", f"{choice.entry.sample_count:,.0f}", f"{at}.{amount}"),
        "batch": Input(
            "samples per step", f"{plan.batch_samples:,}", "", "m", f"{choice.entry.model.measured}"
        ),
    }
    for count in steps.counts:
        known[f"rows.{count}"] = _row_inputs(choice, _near(rows, count))
    return Noted(at, book, figures_of(plan), known, PLACES).rows()


def _near(rows: Sequence[StepRow], count: int) -> list[StepRow]:
    """The rows that a figure at a count follows from: its own, else those of the nearest counts."""
    counts = sorted({row.accelerator_count for row in rows})
    if count in counts:
        used = {count}
    elif counts[0] < count < counts[-1]:
        used = {max(n for n in counts if n < count), min(n for n in counts if n > count)}
    else:
        used = set(counts[:2] if count < counts[0] else counts[-2:])
    return [row for row in rows if row.accelerator_count in used]


def _row_inputs(choice: MeasuredChoice, rows: list[StepRow]) -> list[Input]:
    shown = [_row_input(row, format_si(row.step_s, "s")) for row in rows[:ROWS_SHOWN]]
    more = len(rows) - ROWS_SHOWN
    if more > 0:
        shown.append(Input(f"{more} more rows", "", "", "m", f"{choice.entry.model.measured}"))
    return shown


def _row_input(row: StepRow, text: str) -> Input:
    place = f"{row.place.file} line {row.place.line}"
    return Input(f"{row.accelerator_count:,} accelerators", text, "", Source.MEASURED.value, place)
