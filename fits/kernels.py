"""Fit the efficiencies of operators and links to the public kernel tables, and say how far they carry.

Run as a module with the folder of tables for the held-out errors: rows left out in five folds, one
accelerator left out, and a whole family left out, which is what a family without any table must expect.
The shipped fit never sees every fifth configuration (`kernel_tables.held_out`), so that these rows can be
scored with shipped constants.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fits.fitted import Fitted, rounded
from fits.pooled import Z_80, Pooled, Prior, fit_pooled, fold_masks
from twofold.core.estimate import Source
from twofold.measure.kernel_tables import (
    FORMAT_FIELDS,
    UNTUNED_EXPERTS,
    Array,
    Rows,
    attention_rows,
    column,
    comm_rows,
    device_of_rows,
    eager_floor_s,
    families,
    gemm_rows,
    leaves,
    moe_rows,
    table,
)
from twofold.measure.truth import Row
from twofold.perf.constants import ConstantRow, Constants, format_scope, load_constants
from twofold.perf.formats import WEIGHT_ONLY
from twofold.perf.operators import gemm_flops_per_byte, gemm_s

FITTED_BY = "kernels"
ENGINE_ALL_REDUCES = ("SGLang_CustomAllReduce_graph", "TRTLLM", "vLLM_custom_graph")
ROW_ARRAYS = ("leaf", "kernel", "measured_s", "held_out", "group", "possible")
EFFICIENCY = (0.03, 1.0)
LAUNCHES_S = 20e-6  # a kernel that takes less is mostly its launch

GEMM = (
    Prior("gemm_efficiency_fraction", 0.65, 0.3, *EFFICIENCY),
    Prior("gemm_memory_efficiency_fraction", 0.8, 0.3, *EFFICIENCY),
)
GEMM_FLOOR = Prior("gemm_floor_ratio", 1.3, 0.3, 0.5, 4.0)
GEMM_SHAPE = (
    Prior("gemm_half_k", 100.0, 1.0, 5.0, 1000.0),
    Prior("kernel_floor_s", 2.3e-6, 0.3, 1e-6, 1e-5),
    Prior("gemm_ramp_ratio", 1.8, 0.5, 0.1, 5.0),
    Prior("gemm_ramp_half_k", 1500.0, 1.0, 100.0, 2e4),
)
PREFILL = (
    Prior("attention_efficiency_fraction", 0.6, 0.3, *EFFICIENCY),
    Prior("attention_softmax_flops", 160.0, 1.0, 1.0, 800.0),
    Prior("attention_memory_efficiency_fraction", 0.3, 0.5, *EFFICIENCY),
    Prior("attention_tile_s", 2e-6, 0.5, 2e-7, 1e-5),
    Prior("attention_floor_s", 1e-5, 0.3, 3e-6, 3e-5),
    Prior("attention_wide_ratio", 0.1, 1.0, 0.01, 4.0),
)
PREFILL_FP8 = (Prior("attention_fp8_efficiency_fraction", 0.4, 0.3, *EFFICIENCY),)
DECODE = (
    Prior("decode_efficiency_fraction", 0.8, 0.3, *EFFICIENCY),
    Prior("decode_tile_s", 2e-6, 0.5, 2e-7, 1e-5),
    Prior("decode_floor_s", 1e-5, 0.3, 3e-6, 3e-5),
    Prior("decode_compute_fraction", 0.15, 0.5, 0.01, 1.0),
)
DECODE_FP8 = (Prior("decode_fp8_efficiency_fraction", 0.7, 0.3, *EFFICIENCY),)
MOE = (
    Prior("grouped_efficiency_fraction", 0.35, 0.4, *EFFICIENCY),
    Prior("grouped_memory_efficiency_fraction", 0.7, 0.3, *EFFICIENCY),
)
MOE_SHAPE = (
    Prior("grouped_floor_s", 2.5e-5, 0.3, 8e-6, 8e-5),
    Prior("grouped_pad_tokens", 32.0, 0.7, 2.0, 128.0),
)
MOE_BENCH = (  # not shipped
    Prior("routed_hidden_passes", 1.0, 1.0, 0.01, 10.0),
    Prior("routed_inter_passes", 1.0, 1.0, 0.01, 10.0),
    Prior("token_passes", 3.0, 1.0, 0.01, 40.0),
)
LINKS = (
    Prior("link_efficiency_fraction", 0.8, 0.2, *EFFICIENCY),
    Prior("link_latency_s", 1e-6, 0.5, 1e-7, 1e-5),
    Prior("link_half_bytes", 8e6, 1.0, 1e5, 1e8),
    Prior("collective_launch_s", 7e-6, 0.4, 2e-6, 3e-5),
    Prior("pair_loss_fraction", 0.2, 0.5, 0.01, 0.5),
    Prior("all_to_all_efficiency_fraction", 0.9, 0.2, *EFFICIENCY),
)
ENGINE_LINKS = (
    Prior("engine_launch_s", 4e-6, 0.4, 1e-6, 2e-5),
    Prior("engine_half_bytes", 1e6, 1.0, 1e4, 1e8),
)

UNITS = {
    "_fraction": "fraction",
    "_s": "s",
    "_half_k": "count",
    "_ratio": "ratio",
    "_flops": "FLOP",
    "_tokens": "tok",
    "_bytes": "B",
}


@dataclass(frozen=True, slots=True)
class Slice:
    """One part of a table: how to build its rows, under which format its constants stand, what is fitted."""

    title: str
    build: Callable[[Path, Constants], Rows]
    format_scope: str
    shipped: tuple[Prior, ...]
    bench: tuple[Prior, ...] = ()  # what only the benchmark itself adds

    @property
    def priors(self) -> tuple[Prior, ...]:
        """All that is fitted."""
        return self.shipped + self.bench


def _rows(truth: Path, name: str, **where: str) -> list[Row]:
    """Rows of a table in which columns hold what `where` says."""
    return [row for row in table(truth, name) if all(row[key] == text for key, text in where.items())]


def attention_table(truth: Path, phase: str, kv_dtype: str, kernels: Literal["own", "generic"]) -> list[Row]:
    """Prefill or decode in one format, by kernels made for the device or by generic ones (Triton)."""
    dtype = {"dtype" if phase == "prefill" else "kv_dtype": kv_dtype}
    rows = _rows(truth, "attention", phase=phase, **dtype)
    return [row for row in rows if ("triton" in row["kernel"]) == (kernels == "generic")]


def _gemm(dtypes: tuple[str, ...], format_scope: str, *more: Prior) -> Slice:
    def build(truth: Path, constants: Constants) -> Rows:
        return joined([gemm_rows(_rows(truth, "gemm", dtype=dtype), dtype, constants) for dtype in dtypes])

    return Slice(f"gemm {format_scope}", build, format_scope, GEMM + more)


def _attention(phase: str, kv_dtype: str, *priors: Prior) -> Slice:
    def build(truth: Path, constants: Constants) -> Rows:
        return attention_rows(attention_table(truth, phase, kv_dtype, "own"), phase, kv_dtype, constants)

    return Slice(f"{phase} {kv_dtype}", build, "", priors)


def _moe(dtypes: tuple[str, ...], format_scope: str, *more: Prior) -> Slice:
    def build(truth: Path, constants: Constants) -> Rows:
        tables = {dtype: _rows(truth, "moe", dtype=dtype) for dtype in dtypes}
        tuned = {
            dtype: [row for row in rows if row["kernel"] not in UNTUNED_EXPERTS]
            for dtype, rows in tables.items()
        }
        return joined([moe_rows(rows, dtype, constants) for dtype, rows in tuned.items()])

    return Slice(f"experts {format_scope}", build, format_scope, MOE + more, MOE_BENCH)


def _links(library: str, *priors: Prior) -> Slice:
    def build(truth: Path, constants: Constants) -> Rows:
        # The PCIe card of the table ran without peer access between sockets: it says nothing about others.
        rows = [row for row in table(truth, "comm") if row["gpu"] != "l40s"]
        if library == "nccl":
            return comm_rows([row for row in rows if row["library"] == "nccl"], library, constants)
        chosen = [row for row in rows if row["library"] != "nccl" and row["kernel"] in ENGINE_ALL_REDUCES]
        return comm_rows(chosen, library, constants)

    return Slice(f"collectives {library}", build, "", priors)


SLICES = (  # in this order: a later one stands on what an earlier one fitted
    _gemm(("bfloat16",), "bf16", *GEMM_SHAPE),
    _gemm(("fp8",), "fp8", GEMM_FLOOR),
    _gemm(("fp8_block",), "fp8_block", GEMM_FLOOR),
    _gemm(("nvfp4",), "nvfp4", GEMM_FLOOR),
    _gemm(("sq",), "int8"),
    _gemm(("int8_wo", "int4_wo"), WEIGHT_ONLY),
    _attention("prefill", "bfloat16", *PREFILL),
    _attention("prefill", "fp8", *PREFILL_FP8),
    _attention("decode", "bfloat16", *DECODE),
    _attention("decode", "fp8", *DECODE_FP8),
    _moe(("bfloat16",), "bf16", *MOE_SHAPE),
    _moe(("fp8",), "fp8"),
    _moe(("fp8_block",), "fp8_block"),
    _moe(("nvfp4",), "nvfp4"),
    _moe(("w4a8_mxfp4_mxfp8",), "mxfp8"),
    _moe(("int4_wo", "w4a16_mxfp4"), WEIGHT_ONLY),
    _links("nccl", *LINKS),
    _links("engine", *ENGINE_LINKS),
)


def fit(truth: Path, constants: Constants) -> Fitted:
    """Fit all kernel tables under `truth`; the rows that this fit owns."""
    rows: list[ConstantRow] = []
    for part in SLICES:
        measured = part.build(truth, constants)
        rows += constant_rows(
            part, measured, fit_pooled(measured, part.priors, families(), ~measured.held_out)
        )
        constants = constants.with_rows(rows)
    return Fitted([*rows, *fallback_rows(truth, constants)])


def fallback_rows(truth: Path, constants: Constants) -> list[ConstantRow]:
    """What a fallback costs, by family and phase: measured time over that of a 16-bit kernel of its shape.

    A range holds 80 % of the shapes that were measured. Below 1 it is faster: narrow weights are read in less
    time. A family of which none was measured is answered by all others.
    """
    groups: dict[tuple[str, str, str, str], list[tuple[str, float]]] = defaultdict(list)
    for operation, bits, phase, leaf, ratio in (
        *weight_only_ratios(truth, constants),
        *narrow_cache_ratios(truth, constants),
    ):
        for family in ("", families()[leaf]):
            groups[operation, bits, phase, family].append((leaf, ratio))
    rows = []
    for (operation, bits, phase, family), found in groups.items():
        scope = {"operation": operation, "bits": bits, "phase": phase} | (
            {"family": family} if family else {}
        )
        low, middle, high = map(rounded, np.quantile([ratio for _, ratio in found], (0.1, 0.5, 0.9)))
        rows.append(
            ConstantRow(
                middle,
                low,
                high,
                "ratio",
                name="fallback_slowdown_ratio",
                scope=format_scope(scope),
                rows=len(found),
                fitted_by=FITTED_BY,
                note=" ".join(sorted({leaf for leaf, _ in found})),
            )
        )
    return rows


def weight_only_ratios(truth: Path, constants: Constants) -> Iterator[tuple[str, str, str, str, float]]:
    """Products of 8-bit and 4-bit weights that are widened on the fly, over 16-bit ones of the same shape.

    The 16-bit product is predicted, by constants fitted on measured ones of the same table. Decode is what
    memory binds, prefill what compute binds. These kernels were timed with the host's launch, which is taken
    off; where a 16-bit product takes little more than that, a shape says nothing.
    """
    for bits, dtype in (("8", "int8_wo"), ("4", "int4_wo")):
        rows = _rows(truth, "gemm", dtype=dtype)
        m, n, k = (column(rows, name) for name in "mnk")
        leaf, base = leaves(rows), device_of_rows(leaves(rows), constants)
        floor_s, alone_s = eager_floor_s(rows, m * n * k, 0.0), np.asarray(gemm_s(base, m, n, k, "bf16"))
        ratio = (column(rows, "time_us") * 1e-6 - floor_s) / alone_s
        computes = gemm_flops_per_byte(m, n, k, "bf16") >= base.ridge_flops_per_byte("bf16")
        phase = np.where(computes, "prefill", "decode")
        for one in np.flatnonzero((alone_s > LAUNCHES_S) & (alone_s > 2.0 * floor_s)):
            yield "gemm", bits, str(phase[one]), str(leaf[one]), float(ratio[one])


def narrow_cache_ratios(truth: Path, constants: Constants) -> Iterator[tuple[str, str, str, str, float]]:
    """Attention over an 8-bit cache that is widened on the fly, over the same with a 16-bit cache."""
    for phase in ("prefill", "decode"):
        rows = _rows(truth, "attention", phase=phase, dtype="bfloat16", kv_dtype="fp8", gpu="l40s")
        cached = attention_rows(rows, phase, "bfloat16", constants)
        alone_s = cached.predict({})
        for one in np.flatnonzero(alone_s > LAUNCHES_S):
            ratio = cached.measured_s[one] / alone_s[one]
            yield "attention", "8", phase, str(cached.leaf[one]), float(ratio)


def joined(parts: Sequence[Rows]) -> Rows:
    """Several row sets as one: each predicts its own share."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([part.measured_s.size for part in parts])

    def predict(values: Mapping[str, Array]) -> Array:
        pieces = zip(parts, ends, strict=True)
        return np.concatenate(
            [
                part.predict(
                    {name: value[end - part.measured_s.size : end] for name, value in values.items()}
                )
                for part, end in pieces
            ]
        )

    pieces = [np.concatenate([getattr(part, name) for part in parts]) for name in ROW_ARRAYS]
    return Rows(predict=predict, **dict(zip(ROW_ARRAYS, pieces, strict=True)))


def constant_rows(part: Slice, measured: Rows, pooled: Pooled) -> list[ConstantRow]:
    """The fitted nodes of one slice as rows. A family without measurements stays with the root's row."""
    family_of = families()
    counts = {leaf: int((measured.leaf == leaf).sum()) for leaf in family_of}
    rows = []
    for prior in part.shipped:
        for node in ["", *sorted(set(family_of.values())), *sorted(family_of)]:
            members = (
                [node] if node in family_of else [one for one in family_of if node in ("", family_of[one])]
            )
            count = sum(counts[one] for one in members)
            if count:
                rows.append(_row(part, prior, node, family_of.get(node), count, pooled))
    return rows


def _row(part: Slice, prior: Prior, node: str, family: str | None, count: int, pooled: Pooled) -> ConstantRow:
    scope = {"accelerator": node, "family": family} if family else {"family": node} if node else {}
    scope |= {"format": part.format_scope} if prior.name in FORMAT_FIELDS else {}
    value, spread = pooled.values[prior.name, node], np.exp(Z_80 * pooled.spreads_log[prior.name, node])
    unit = next(unit for ending, unit in UNITS.items() if prior.name.endswith(ending))
    return ConstantRow(
        name=prior.name,
        scope=";".join(f"{key}={text}" for key, text in sorted(scope.items())),
        value=rounded(value),
        low=rounded(max(value / spread, min(prior.low, value))),
        high=rounded(min(value * spread, max(prior.high, value))),
        unit=unit,
        source=Source.FITTED,
        rows=count,
        fitted_by=FITTED_BY,
        note=part.title,
    )


def held_out_lines(truth: Path, constants: Constants) -> Iterator[str]:
    """A table of errors on rows that the fit did not see: mean |error|, by slice and accelerator.

    The columns leave out every fifth row, the accelerator, and its whole family.
    """
    family_of = families()
    yield f"{'slice':24}{'accelerator':18}{'rows':>6}{'seen':>8}{'5-fold':>8}{'no part':>9}{'no family':>11}"
    fitted: list[ConstantRow] = []
    for part in SLICES:
        rows = part.build(truth, constants)
        pooled = fit_pooled(rows, part.priors, family_of)
        fitted += constant_rows(part, rows, pooled)
        constants = constants.with_rows(fitted)
        leaf_family = np.array([family_of[one] for one in rows.leaf])
        held_out = (
            _errors(rows, part, [np.zeros(rows.leaf.shape, bool)]),
            _errors(rows, part, fold_masks(rows, 5)),
            _errors(rows, part, [rows.leaf == one for one in sorted(set(rows.leaf))]),
            _errors(rows, part, [leaf_family == one for one in sorted(set(leaf_family))]),
        )
        for one in [*sorted(set(rows.leaf)), "all"]:
            here = np.ones(rows.leaf.shape, bool) if one == "all" else rows.leaf == one
            means = "".join(
                f"{np.mean(error[here]):>{width}.1%}"
                for error, width in zip(held_out, (8, 8, 9, 11), strict=True)
            )
            yield f"{part.title:24}{one:18}{here.sum():6}{means}"


def _errors(rows: Rows, part: Slice, masks: list[NDArray[np.bool_]]) -> Array:
    """|predicted/measured − 1| of each masked row by a fit without its mask; of all if none is."""
    errors = np.zeros(rows.measured_s.shape)
    for mask in masks:
        pooled = fit_pooled(rows, part.priors, families(), ~mask)
        predicted_s = rows.predict(pooled.by_row([prior.name for prior in part.priors], rows.leaf))
        chosen = mask if mask.any() else ~mask
        errors[chosen] = np.abs(predicted_s / rows.measured_s - 1.0)[chosen]
    return errors


if __name__ == "__main__":
    for line in held_out_lines(Path(sys.argv[1]), load_constants()):
        print(line)
