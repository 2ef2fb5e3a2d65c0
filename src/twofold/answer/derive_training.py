"""Where the numbers of a training run come from, down to operators, catalogue rows and constants."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from twofold.answer.calibrated import run_scope, spread_inputs
from twofold.answer.context import Context
from twofold.answer.derivation import (
    Leaves,
    Table,
    accelerator_leaf,
    assumed_leaf,
    bandwidth_leaf,
    derived,
    grid_leaf,
    model_leaf,
    part_inputs,
    path_input,
    price_leaf,
    rows,
    spec_leaf,
    step_input,
)
from twofold.answer.ranges import training_scope
from twofold.answer.training_choice import TrainingChoice
from twofold.answer.training_step import MEMORY_PARTS, STEP_PARTS
from twofold.catalog import Accelerator, Model
from twofold.contracts.results import Derivation, Input, TrainingPlan
from twofold.contracts.spec import TrainingRun
from twofold.core import Source, format_count, format_si
from twofold.training import Reliability

# The operators of a layer: how their time follows, and the efficiency that it rests on.
OPERATORS = {
    "gemm": (
        "FLOPs / (peak × efficiency), not below bytes / bandwidth, forward and backward",
        "gemm_efficiency_fraction",
    ),
    "attention": (
        "causal FLOPs / (peak × efficiency), backward 2.5 times forward",
        "attention_efficiency_fraction",
    ),
    "experts": ("grouped products of the busiest expert rank", "grouped_efficiency_fraction"),
    "elementwise": ("bytes of unfused passes / (bandwidth × efficiency)", "memory_efficiency_fraction"),
}
# Figures of a run: how each follows, and from which of the named inputs.
RUN: Table = {
    "run.compute_s": ("{steps:,.0f} steps × step", "counted step"),
    "run.checkpoints.interval_s": (
        "√(2 · pause · time between failures), Daly's terms added",
        "write failures accelerators",
    ),
    "run.checkpoint_s": ("compute / interval × pause", "compute interval write"),
    "run.failure_s": (
        "failures × (detection + restart + reading the checkpoint back + about half an interval)",
        "failures accelerators stop write interval compute",
    ),
    "run.wall_s": ("compute + checkpoints + failures", "compute checkpoint failure"),
    "run.total_s": ("wall × (1 + headroom)", "wall headroom"),
    "run.accelerator_h": ("total × accelerators / 3600", "total accelerators"),
    "run.interruptions": ("wall × accelerators / hours per failure", "wall accelerators failures"),
    "run.goodput_fraction": ("compute / wall", "compute wall"),
    "run.energy_j": ("accelerators' power × wall × node factor × PUE", "wall node pue power"),
    "run.carbon_gco2": ("energy × grid", "energy grid"),
    "machine.price.usd_per_accelerator_h": ("list price", "listed doubt"),
    "cost_usd": ("accelerator-hours × price", "hours price"),
}


def training_derivations(
    choice: TrainingChoice, plan: TrainingPlan, context: Context
) -> Iterator[Derivation]:
    """Every estimate of a run with what it follows from."""
    at = f"training.{plan.name}"
    job = choice.job
    scope = {
        "accelerator": choice.chosen.offer.accelerator.name,
        "format": job.precision,
        "fabric": choice.chosen.offer.node.fabric,
        **training_scope(job, choice.chosen.offer.accelerator),
    }
    leaves = Leaves(context.constants, tuple(scope.items()))
    yield from _step(choice, plan, leaves, at)
    yield from _compute(choice, plan, leaves, at)
    yield from _rates(choice, plan, at)
    yield from _memory(plan, leaves, at, choice.job.model)
    tokens = spec_leaf("tokens", format_count(choice.entry.token_count), f"{at}.tokens")
    batch = spec_leaf(
        "tokens per step", format_count(choice.entry.batch_tokens), f"{at}.global_batch × sequence"
    )
    yield from run_derivations(plan, at, choice.entry, (tokens, batch), leaves)
    yield from _comparisons(plan, at)


def _step(choice: TrainingChoice, plan: TrainingPlan, leaves: Leaves, at: str) -> Iterator[Derivation]:
    formula = " + ".join(part.name for part in plan.step_parts)
    own = run_scope(choice.chosen.offer.accelerator.name, choice.job)
    spread = spread_inputs(leaves, "interval_training_step_ratio", own, "step", own["kind"])
    yield derived(f"{at}.step_s", formula, *part_inputs(plan.step_parts, f"{at}.step_parts"), *spread)
    layout = plan.layout
    assert layout
    sizes = assumed_leaf("layout", layout.text, "the fastest that fits")
    for part in plan.step_parts:
        if part.name == "compute":
            continue
        said = STEP_PARTS[part.name]
        inputs = [sizes, *_of_stack(said.constants, leaves), *_network_leaves(choice, part.name, leaves)]
        if part.name == "optimiser":
            inputs.append(bandwidth_leaf(choice.chosen.offer.accelerator))
        yield derived(f"{at}.step_parts.{part.name}.value", said.meaning, *inputs)


def _of_stack(names: str, leaves: Leaves) -> list[Input]:
    return [leaves.constant(f"training_{name}") for name in names.split()]


def _network_leaves(choice: TrainingChoice, part: str, leaves: Leaves) -> list[Input]:
    """The links that a part's ranks talk over: inside the fast domain, between nodes, or both."""
    found, network = choice.chosen.found.best, choice.chosen.cluster.network
    assert found
    tp, cp, ep, dp = (int(getattr(found.layouts, name)[0]) for name in ("tp", "cp", "ep", "dp"))
    groups = {  # how many ranks, and how far apart
        "TP": (tp, 1),
        "CP": (cp, tp),
        "EP": (ep, 1),
        "PP": (2, tp * cp * dp),
        "DP": (dp * cp, tp),
    }
    if part not in groups:
        return []
    ranks, stride = groups[part]
    offer, inputs = choice.chosen.offer, list[Input]()
    if stride < network.domain_size:
        label = offer.accelerator.scaleup_name or "link"
        rate = offer.accelerator.scaleup_bytes_per_s
        inputs.append(accelerator_leaf(offer.accelerator, "scaleup_bytes_per_s", rate, "B/s", label))
    if ranks * stride > max(network.domain_size, network.node_size):
        known, line_rate = offer.node.confidence != "assumed", format_si(offer.nic_bytes_per_s, "B/s")
        where = f"nodes.csv {offer.node.name} nic" if known else f"assumed for {offer.node.name}"
        source = Source.VENDOR if known else Source.ASSUMED
        inputs.append(Input("NIC per accelerator", line_rate, "", source.value, where))
        inputs.append(leaves.constant("fabric_efficiency_fraction"))
    return inputs


def _compute(choice: TrainingChoice, plan: TrainingPlan, leaves: Leaves, at: str) -> Iterator[Derivation]:
    """Compute as micro-batches × layers × operators, each with the rate it reaches."""
    found, model, layout = choice.chosen.found.best, choice.job.model, plan.layout
    assert found and layout
    micro_batches = choice.job.global_batch_sequences / (layout.dp * layout.micro_batch)
    layers = model.layers / layout.pp
    times = {name: float(np.max(getattr(found.step, f"{name}_s"))) for name in OPERATORS}
    path = f"{at}.step_parts.compute"
    each = {name: value / (micro_batches * layers) for name, value in times.items() if value > 0}
    one_layer = format_si(sum(each.values()), "s")
    yield derived(
        f"{path}.value",
        f"{micro_batches:g} micro-batches × {layers:g} layers × {one_layer}",
        spec_leaf("micro-batches", f"{micro_batches:g}", f"{at}.global_batch, over DP × micro-batch"),
        model_leaf(model, "layers", layers, "layers per stage"),
        *(step_input(name, value, "s", f"{path}.{name}") for name, value in each.items()),
    )
    accelerator = choice.chosen.offer.accelerator
    for name in each:
        formula, constant = OPERATORS[name]
        efficiency = leaves.constant(constant)
        if name == "elementwise":
            factor = leaves.constant("training_elementwise_factor")
            yield derived(f"{path}.{name}", formula, bandwidth_leaf(accelerator), efficiency, factor)
            continue
        work = (
            model_leaf(model, "heads", model.heads, "heads")
            if name == "attention"
            else model_leaf(model, "parameters_active", model.parameters_active, "active parameters")
        )
        peak = _peak_leaf(accelerator, choice.job.precision)
        yield derived(f"{path}.{name}", formula, work, peak, efficiency)


def _peak_leaf(accelerator: Accelerator, precision: str) -> Input:
    for name in (precision, "bf16", "fp16", "fp32"):
        peak = getattr(accelerator, f"{name}_flops_per_s", None)
        if peak:
            return accelerator_leaf(accelerator, f"{name}_flops_per_s", peak, "FLOP/s", f"{name} peak")
    return assumed_leaf("peak", "unknown", "no row")


def _rates(choice: TrainingChoice, plan: TrainingPlan, at: str) -> Iterator[Derivation]:
    flops = float(np.max(choice.job.workload.model_flops_per_token)) * choice.job.tokens_per_step
    accelerator = choice.chosen.offer.accelerator
    inputs = (
        assumed_leaf("model FLOPs", format_si(flops, "FLOP"), "6 × active parameters + attention, per token"),
        spec_leaf(
            "tokens per step", format_count(choice.entry.batch_tokens), f"{at}.global_batch × sequence"
        ),
        path_input("step", plan.step_s, f"{at}.step_s"),
        _accelerators(plan, at),
    )
    for name, precision in (("mfu_fraction", "bf16"), ("peak_ratio", choice.job.precision)):
        formula = "model FLOPs / (step × accelerators × peak)"
        yield derived(f"{at}.{name}", formula, *inputs, _peak_leaf(accelerator, precision))


def _memory(plan: TrainingPlan, leaves: Leaves, at: str, model: Model) -> Iterator[Derivation]:
    parts = part_inputs(plan.memory_parts, f"{at}.memory_parts")
    spread = leaves.constant("training_memory_spread_factor", "spread")
    formula = " + ".join(part.name for part in plan.memory_parts)
    yield derived(f"{at}.memory_bytes", formula, *parts, spread)
    assert plan.layout
    layout = assumed_leaf("layout", plan.layout.text, "the fastest that fits")
    parameters = model_leaf(model, "parameters", model.parameters)
    for part in plan.memory_parts:
        said = MEMORY_PARTS[part.name]
        path = f"{at}.memory_parts.{part.name}.value"
        yield derived(path, said.meaning, layout, parameters, *_of_stack(said.constants, leaves))
    for part in plan.memory_by_format:
        path = f"{at}.memory_by_format.{part.name}.value"
        yield derived(path, f"the parts kept in {part.name}", *parts)


def run_derivations(
    plan: TrainingPlan, at: str, entry: TrainingRun, counted: tuple[Input, ...], leaves: Leaves
) -> Iterator[Derivation]:
    """The run around a step, its energy and its cost; `counted` is what its number of steps follows from."""
    run, usual, price = plan.run, Reliability(), plan.machine.price
    stop_s = usual.detection_s + usual.restart_s
    known: dict[str, Input | Sequence[Input]] = {
        name: path_input(name, getattr(run, f"{name}_s"), f"{at}.run.{name}_s")
        for name in ("compute", "checkpoint", "failure", "wall", "total")
    }
    known |= {
        "counted": counted,
        "step": path_input("step", plan.step_s, f"{at}.step_s"),
        "interval": path_input("interval", run.checkpoints.interval_s, f"{at}.run.checkpoints.interval_s"),
        "headroom": part_inputs(run.headroom, f"{at}.run.headroom"),
        "accelerators": _accelerators(plan, at),
        "write": spec_leaf(
            "checkpoint pause", format_si(entry.checkpoint.write_within_s, "s"), f"{at}.checkpoint"
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
        "node": leaves.constant("node_power_factor"),
        "pue": leaves.constant("pue_ratio"),
        "power": leaves.unknown("power"),
        "hours": path_input("accelerator-hours", run.accelerator_h, f"{at}.run.accelerator_h"),
    }
    if run.carbon_gco2:
        known["energy"] = path_input("energy", run.energy_j, f"{at}.run.energy_j")
        known["grid"] = grid_leaf(price)
    if price and plan.cost_usd:
        path = f"{at}.machine.price.usd_per_accelerator_h"
        known["listed"], known["doubt"] = price_leaf(price), leaves.unknown("price")
        known["price"] = path_input("price", price.usd_per_accelerator_h, path)
    for row in rows(at, RUN, known):
        if row.path == f"{at}.run.total_s":
            for part in run.headroom:
                leaf = spec_leaf(part.name, format_si(part.value.value, "fraction"), f"{at}.headroom")
                yield derived(f"{at}.run.headroom.{part.name}.value", "of the run", leaf)
        yield replace(row, formula=row.formula.format(steps=run.steps))


def _accelerators(plan: TrainingPlan, at: str) -> Input:
    return spec_leaf("accelerators", f"{plan.machine.accelerator_count:,}", f"{at}.on, or searched")


def _comparisons(plan: TrainingPlan, at: str) -> Iterator[Derivation]:
    step = path_input("step", plan.step_s, f"{at}.step_s")
    first = f"{plan.scaling[0].accelerator_count}" if plan.scaling else ""
    for point in plan.scaling:
        path = f"{at}.scaling.{point.accelerator_count}"
        size = assumed_leaf("size", f"{point.accelerator_count:,}", "the batch grows with the cluster")
        yield derived(f"{path}.step_s", "the fastest layout of this size", size, step)
        own = path_input("step", point.step_s, f"{path}.step_s")
        yield derived(f"{path}.efficiency_fraction", f"tokens/s per accelerator over that of {first}", own)
    for row in plan.tenancy:
        path = f"{at}.tenancy.{row.name}"
        share = format_si(row.overhead_fraction, "fraction")
        overhead = spec_leaf("overhead", share, "supply.virtual_overhead")
        yield derived(f"{path}.step_s", "the same layout, slower by the overhead", step, overhead)
        if row.cost_usd and plan.cost_usd:
            cost = path_input("cost", plan.cost_usd, f"{at}.cost_usd")
            yield derived(f"{path}.cost_usd", "cost × its step over the plan's", cost, overhead)
