"""What cannot be, and what rarely is, in measured training steps: rooflines, layouts, memory, rates.

FLOPs are bounded from below by causal attention without recomputation and from above by full attention,
recomputed where the row counts that: whichever convention a source uses lies between, 6·N with the embedding
counted too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from twofold.catalog import Catalog
from twofold.measure.lint_table import RowFinding, Table, Values
from twofold.measure.lint_units import (
    GIB_OVER_GB,
    Agreement,
    Prediction,
    Slip,
    disagreements,
    fastest_flops_per_s,
    surprises,
    time_slips,
    whole,
)
from twofold.measure.predict_training import group_entries, read_all
from twofold.measure.truth import Row, number, text
from twofold.perf import Constants, bytes_per_weight
from twofold.training import load_stack, memory

GIB = 2**30
HIGHEST_MFU = 0.8  # beyond: nobody has published it
RECOMPUTED = 4 / 3  # forward once more: FLOPs of a source that counts it
LAST_DIGIT = 1e-3  # to which MFU is usually printed
MEMORY_SLACK = 0.9  # of the states, for optimisers with smaller moments and even stages
TRAINED_IN = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")


@dataclass(frozen=True, slots=True)
class TrainingBounds:
    """What bounds each row; NaN where it cannot be read."""

    tokens: Values  # of one step, all GPUs
    least_flops: Values  # per token
    most_flops: Values
    peak_flops_per_s: Values  # of the row's precision
    half_peak_flops_per_s: Values
    memory_bytes: Values
    states_bytes: Values  # weights and optimiser, under the stated sharding

    def step_s(self, table: Table) -> Values:
        """The step time, or the one that the rate implies."""
        implied = self.tokens / (table["tokens_per_s_per_gpu"] * table["gpus"])
        return np.where(np.isnan(table["step_time_s"]), implied, table["step_time_s"])


def lint_training(
    table: Table, predicted: Sequence[Row], catalog: Catalog, constants: Constants
) -> list[RowFinding]:
    """Every finding of bounds, layout and units of training rows."""
    bounds = read_bounds(table, catalog, constants)
    agreements = (_rate(table, bounds), _flops(table, bounds), *_utilisation(table, bounds))
    return [
        *(finding for agreement in agreements for finding in disagreements(table, agreement)),
        *_compute_roofline(table, bounds),
        *_stated_rates(table, bounds),
        *_memory(table, bounds),
        *_layout(table),
        *surprises(table, _step_prediction(table, bounds, predicted)),
        *surprises(table, _memory_prediction(table, predicted)),
    ]


def read_bounds(table: Table, catalog: Catalog, constants: Constants) -> TrainingBounds:
    """Bounds of every row that can be read; its open choices are taken as they are kindest."""
    count = len(table.rows)
    least, most, peak, half, installed, states = np.full((6, count), np.nan)
    entries, _ = read_all(table.rows, catalog)
    for group in group_entries(entries, catalog):
        machine, accelerator = group.machine, catalog.accelerator(group.machine.accelerator)
        rows = np.array([entries[i].row for i in group.index])
        stack = load_stack(constants, machine.framework, machine.precision, accelerator.family)
        held = memory(group.work, group.layouts, stack)
        longer = replace(group.work, sequence_tokens=2 * np.asarray(group.work.sequence_tokens))
        least[rows] = group.work.model_flops_per_token
        table_flops = 6 * np.asarray(group.work.vocab) * group.work.hidden  # 6·N counts the embedding too
        most[rows] = longer.model_flops_per_token + table_flops
        width = bytes_per_weight(machine.precision)
        peak[rows] = fastest_flops_per_s(accelerator, width, TRAINED_IN)
        half[rows] = fastest_flops_per_s(accelerator, 2.0, TRAINED_IN)
        installed[rows] = max(accelerator.memory_bytes, accelerator.memory_nominal_bytes)
        kept = np.broadcast_to(held.weights_bytes + held.optimizer_bytes, rows.shape)
        np.fmin.at(states, rows, kept)
    counted = np.array([text(row, "flops_counting") != "model" for row in table.rows])
    tokens = table["global_batch_seqs"] * table["seq_len"]
    return TrainingBounds(
        tokens, least, most * np.where(counted, RECOMPUTED, 1.0), peak, half, installed, states
    )


def _rate(table: Table, bounds: TrainingBounds) -> Agreement:
    gpus, length, replicas = table["gpus"], table["seq_len"], table["dp"]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        implied = bounds.tokens / (gpus * table["step_time_s"])
        slips = (
            Slip(1e3, "step_time_s is in milliseconds"),
            Slip(1e-3, "tokens_per_s_per_gpu is in thousands of tokens"),
            Slip(1 / 60, "step_time_s is in minutes"),
            Slip(60.0, "tokens_per_s_per_gpu is per minute"),
            Slip(gpus, "tokens_per_s_per_gpu is the rate of all GPUs together"),
            Slip(table["gpus_per_node"], "tokens_per_s_per_gpu is the rate of a node"),
            Slip(
                1 / length, "tokens_per_s_per_gpu counts sequences, or global_batch_seqs is counted in tokens"
            ),
            Slip(replicas, "global_batch_seqs is the batch of one replica"),
            Slip(1 / replicas, "tokens_per_s_per_gpu is that of one replica's batch"),
        )
    stated = ("tokens_per_s_per_gpu",), table["tokens_per_s_per_gpu"]
    by_step = ("step_time_s", "global_batch_seqs", "seq_len", "gpus"), implied
    hint = "one of these was measured or worked out differently"
    return Agreement("rate", "tokens/s per GPU", stated, by_step, (1 / 1.02, 1.02), slips, hint)


def _flops(table: Table, bounds: TrainingBounds) -> Agreement:
    """Stated TFLOP/s against step time, under the nearest convention."""
    seconds = bounds.step_s(table)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        per_gpu = bounds.tokens / (table["gpus"] * seconds) / 1e12
        stated = table["model_tflops_per_gpu"]
        implied = np.clip(stated, bounds.least_flops * per_gpu, bounds.most_flops * per_gpu)
    slips = (
        Slip(table["gpus"], "model_tflops_per_gpu is the rate of all GPUs together"),
        Slip(1e3, "model_tflops_per_gpu is in GFLOP/s, or step_time_s in milliseconds"),
        Slip(1e-3, "model_tflops_per_gpu is in PFLOP/s"),
        Slip(0.5, "a multiply-add was counted as one"),
        Slip(RECOMPUTED, "the FLOPs hold recomputation: flops_counting is 'hardware'"),
    )
    told = ("model_tflops_per_gpu",), stated
    by_step = ("step_time_s", "tokens_per_s_per_gpu", "global_batch_seqs", "seq_len"), implied
    hint = "the FLOPs of a token were counted in an unusual way, or one of these is another run's"
    return Agreement("flops", "TFLOP/s per GPU", told, by_step, (0.9, 1.1), slips, hint, 2.0)


def _utilisation(table: Table, bounds: TrainingBounds) -> tuple[Agreement, Agreement]:
    """Stated MFU against stated TFLOP/s and against step time: of either peak, under either convention."""
    mfu, stated_flops = table["mfu"], table["model_tflops_per_gpu"] * 1e12
    seconds = bounds.step_s(table)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        own, half = bounds.peak_flops_per_s, bounds.half_peak_flops_per_s
        of_flops = np.clip(mfu, stated_flops / own, stated_flops / half)
        rate = bounds.tokens / (table["gpus"] * seconds)
        of_step = np.clip(mfu, bounds.least_flops * rate / own, bounds.most_flops * rate / half)
    slips = (
        Slip(100.0, "mfu is in percent"),
        Slip(0.5, "mfu is of the peak with sparsity"),
        Slip(RECOMPUTED, "mfu counts recomputed FLOPs"),
    )
    hint = "mfu is of another device's peak, or counts other FLOPs"
    with np.errstate(invalid="ignore", divide="ignore"):
        printed = 0.85 - LAST_DIGIT / mfu, 1.15 + LAST_DIGIT / mfu
    told = ("mfu",), mfu
    by_flops, by_step = ("model_tflops_per_gpu",), ("step_time_s", "tokens_per_s_per_gpu")
    return (
        Agreement("mfu", "MFU", told, (by_flops, of_flops), (0.9, 1.1), slips, hint, 2.0),
        Agreement("mfu", "MFU", told, (by_step, of_step), printed, slips, hint, 2.0),
    )


def _compute_roofline(table: Table, bounds: TrainingBounds) -> list[RowFinding]:
    """Steps faster than the GPUs' peak allows (impossible), or than anybody has shown (suspect)."""
    seconds = bounds.step_s(table)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        floor = bounds.tokens * bounds.least_flops / (table["gpus"] * bounds.peak_flops_per_s)
        reached = floor / seconds
    key = np.where(np.isnan(table["step_time_s"]), "fast rate", "fast step")
    figures = {"seconds": seconds, "reached": reached, "floor": floor}
    return table.find(key, reached > HIGHEST_MFU, reached > 1, **figures)


def _stated_rates(table: Table, bounds: TrainingBounds) -> list[RowFinding]:
    """Stated utilisation beyond one, stated FLOP/s beyond the peak."""
    mfu, stated = table["mfu"], table["model_tflops_per_gpu"] * 1e12
    peak = bounds.peak_flops_per_s
    key = np.select([mfu <= 1.5, mfu <= 100], ["mfu recomputed", "mfu in percent"], "mfu beyond")
    return [
        *table.find(key, mfu > HIGHEST_MFU, mfu > 1, share=mfu / 100),
        *table.find("flops beyond peak", stated > peak, stated=stated / 1e12, peak=peak / 1e12),
    ]


def _memory(table: Table, bounds: TrainingBounds) -> list[RowFinding]:
    """Peaks above what the device has, or below what weights and optimiser take under the stated shards."""
    stated, most = table["peak_mem_gib"], bounds.memory_bytes
    above = stated * GIB > most
    sharded = np.array([number(row, "zero_stage") is not None for row in table.rows]) | (table["dp"] == 1)
    least = MEMORY_SLACK * bounds.states_bytes
    below = sharded & (stated * GIB < least)
    causes = {"memory in gb": stated * 1e9 <= most * 1.005}
    divisors: dict[str, float | Values] = {"in mib": 1024.0, "in bytes": float(GIB), "of all": table["gpus"]}
    for unit, divisor in divisors.items():
        corrected = stated * GIB / divisor
        fits = (np.fmax(0.0, least) <= corrected) & (corrected <= most)
        causes[f"memory {unit}"] = fits & np.greater(divisor, 1)
    key = np.select([*causes.values()], [*causes], "memory beyond")
    return [
        *table.find(key, above, most=most / GIB, as_gib=stated / GIB_OVER_GB),
        *table.find("memory below states", below, least=bounds.states_bytes / GIB),
    ]


def _layout(table: Table) -> list[RowFinding]:
    """Sizes that do not multiply or divide as they must."""
    gpus, dp, tp, pp = (table[name] for name in ("gpus", "dp", "tp", "pp"))
    cp = np.where(np.isnan(table["cp"]), 1.0, table["cp"])
    ep, batch, share = table["ep"], table["global_batch_seqs"], table["dp"] * table["micro_batch"]
    product = dp * tp * pp * cp
    ranks, fitting = dp * tp * cp, gpus / (product / dp)
    within = (product * ep == gpus) | (product == gpus * ep)
    mismatch = np.isfinite(product) & np.isfinite(gpus) & (product != gpus)
    sizes = np.where(within, "experts multiplied", "sizes")
    batches = np.where(share <= batch, "uneven batch", "batch of a replica")
    return [
        *table.find(sizes, mismatch, product=product, fitting=fitting),
        *table.find(batches, ~whole(batch, share), share > batch, share=share),
        *table.find("expert ranks in training", ep > ranks, ranks=ranks),
        *table.find("stages", pp > table["layers"]),
        *table.find("tp of heads", ~whole(table["heads"], tp)),
        *table.find("ep of experts", ~whole(table["experts"], ep)),
        *table.find("pp of layers", ~whole(table["layers"], pp)),
    ]


def _step_prediction(table: Table, bounds: TrainingBounds, predicted: Sequence[Row]) -> Prediction:
    gpus, length = table["gpus"], table["seq_len"]
    middle, low, high = (_predicted(predicted, f"pred_step_time_s{end}") for end in ("", "_low", "_high"))
    slips = (
        *time_slips("step_time_s", "s"),
        Slip(1 / gpus, "the rate is that of all GPUs together, or the time was divided by their count"),
        Slip(gpus, "the time is summed over the GPUs"),
        Slip(1 / length, "global_batch_seqs is counted in tokens"),
        Slip(
            1 / table["dp"], "global_batch_seqs is that of all replicas, or the time that of one micro-batch"
        ),
        Slip(table["dp"], "global_batch_seqs is that of one replica"),
    )
    return Prediction("step_time_s", bounds.step_s(table), middle, (low, high), "s", slips)


def _memory_prediction(table: Table, predicted: Sequence[Row]) -> Prediction:
    middle, low, high = (_predicted(predicted, f"pred_peak_mem_gib{end}") for end in ("", "_low", "_high"))
    slips = (
        Slip(1024.0, "peak_mem_gib is in MiB"),
        Slip(float(GIB), "peak_mem_gib is in bytes"),
        Slip(1 / 1024, "peak_mem_gib is in TiB"),
        Slip(table["gpus_per_node"], "peak_mem_gib is that of a node"),
        Slip(table["gpus"], "peak_mem_gib is that of all GPUs together"),
    )
    return Prediction("peak_mem_gib", table["peak_mem_gib"], middle, (low, high), "GiB", slips)


def _predicted(rows: Sequence[Row], column: str) -> Values:
    return np.array([number(row, column) or np.nan for row in rows], float)
