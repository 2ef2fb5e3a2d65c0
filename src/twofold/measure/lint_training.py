"""What cannot be, and what rarely is, in measured training steps: rooflines, layouts, memory, rates.

FLOPs are bounded from below by causal attention without recomputation and from above by full attention,
recomputed where the row counts that: whichever convention a source uses lies between, 6·N with the embedding
counted too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from twofold.catalog.catalog import Catalog
from twofold.measure import lint_units
from twofold.measure.lint_table import Table, Values, first_known
from twofold.measure.predict_training import group_entries, hardware, price_group, read_all
from twofold.measure.results import RowFinding
from twofold.measure.truth import Row, number, text
from twofold.perf.constants import Constants
from twofold.perf.formats import bytes_per_weight

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
        return first_known(table["step_time_s"], implied)


def lint_training(
    table: Table, predicted: Sequence[Row], catalog: Catalog, constants: Constants
) -> list[RowFinding]:
    """Every finding of bounds, layout and units of training rows."""
    bounds = read_bounds(table, catalog, constants)
    return [
        *_told_twice(table, bounds),
        *_compute_roofline(table, bounds),
        *_stated_rates(table, bounds),
        *_memory(table, bounds),
        *layout_findings(table),
        *(
            found
            for column, measured, unit, groups in (
                ("step_time_s", bounds.step_s(table), "s", "time in s;training step"),
                ("peak_mem_gib", table["peak_mem_gib"], "GiB", "training memory"),
            )
            for found in lint_units.surprises(
                table, predicted, (column,), measured, unit, lint_units.slips(groups, column, table.numbers)
            )
        ),
    ]


def read_bounds(table: Table, catalog: Catalog, constants: Constants) -> TrainingBounds:
    """Bounds of every row that can be read; its open choices are taken as they are kindest."""
    count = len(table.rows)
    least, most, peak, half, installed, states = np.full((6, count), np.nan)
    entries, _ = read_all(table.rows, catalog)
    for group in group_entries(entries):
        machine, accelerator = group.machine, catalog.accelerator(group.machine.accelerator)
        rows = np.array([entries[i].row for i in group.index])
        held = price_group(group, *hardware(machine, catalog, constants)).memory
        longer = replace(group.work, sequence_tokens=2 * np.asarray(group.work.sequence_tokens))
        least[rows] = group.work.model_flops_per_token
        table_flops = 6 * np.asarray(group.work.vocab) * group.work.hidden  # 6·N counts the embedding too
        most[rows] = longer.model_flops_per_token + table_flops
        width = bytes_per_weight(machine.precision)
        peak[rows] = lint_units.fastest_flops_per_s(accelerator, width, TRAINED_IN)
        half[rows] = lint_units.fastest_flops_per_s(accelerator, 2.0, TRAINED_IN)
        installed[rows] = max(accelerator.memory_bytes, accelerator.memory_nominal_bytes)
        kept = np.broadcast_to(held.weights_bytes + held.optimizer_bytes, rows.shape)
        np.fmin.at(states, rows, kept)
    counted = np.array([text(row, "flops_counting") != "model" for row in table.rows])
    tokens = table["global_batch_seqs"] * table["seq_len"]
    return TrainingBounds(
        tokens, least, most * np.where(counted, RECOMPUTED, 1.0), peak, half, installed, states
    )


def _told_twice(table: Table, bounds: TrainingBounds) -> list[RowFinding]:
    """Rate against step time, TFLOP/s and MFU against either: of the nearest peak, counted as is nearest."""
    gpus, mfu, stated = table["gpus"], table["mfu"], table["model_tflops_per_gpu"]
    own, half = bounds.peak_flops_per_s, bounds.half_peak_flops_per_s
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        rate = bounds.tokens / (gpus * bounds.step_s(table))
        implied = {
            "training rate": bounds.tokens / (gpus * table["step_time_s"]),
            "training flops": np.clip(
                stated, bounds.least_flops * (rate / 1e12), bounds.most_flops * (rate / 1e12)
            ),
            "mfu of flops": np.clip(mfu, stated * 1e12 / own, stated * 1e12 / half),
            "mfu of step": np.clip(mfu, bounds.least_flops * rate / own, bounds.most_flops * rate / half),
        }
        printed = {"mfu of step": (0.85 - LAST_DIGIT / mfu, 1.15 + LAST_DIGIT / mfu)}
    return [
        found
        for key, values in implied.items()
        for found in lint_units.disagreements(table, key, values, table.numbers, limits=printed.get(key))
    ]


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
        *table.find(key, above, most=most / GIB, as_gib=stated / lint_units.GIB_OVER_GB),
        *table.find("memory below states", below, least=bounds.states_bytes / GIB),
    ]


def layout_findings(table: Table) -> list[RowFinding]:
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
        *table.find(batches, ~lint_units.whole(batch, share), share > batch, share=share),
        *table.find("expert ranks in training", ep > ranks, ranks=ranks),
        *table.find("stages", pp > table["layers"]),
        *table.find("tp of heads", ~lint_units.whole(table["heads"], tp)),
        *table.find("ep of experts", ~lint_units.whole(table["experts"], ep)),
        *table.find("pp of layers", ~lint_units.whole(table["layers"], pp)),
    ]
