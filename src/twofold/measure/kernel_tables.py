"""The public kernel tables as rows to fit: which are used, their shapes, our operators that predict them."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from twofold.answer.stacks import cluster_on
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Accelerator
from twofold.measure.truth import Row, read_rows
from twofold.perf import collectives, operators
from twofold.perf.attention import attended_pairs, attention_decode_s, attention_prefill_s
from twofold.perf.constants import Constants
from twofold.perf.device import device
from twofold.perf.formats import kernel_format, peak_format
from twofold.perf.types import Device, Floats, Network, smooth_max

Array = NDArray[np.float64]
Predict = Callable[[Mapping[str, Array]], Array]  # a value per row of each constant -> seconds per row
T = TypeVar("T", Device, Network)

ACCELERATORS = {  # the tables' names -> the catalogue's
    "a100_sxm": "A100-SXM4-80GB",
    "b200_sxm": "B200-SXM-180GB",
    "gb200": "GB200-186GB",
    "h100_sxm": "H100-SXM5-80GB",
    "h200_sxm": "H200-SXM5-141GB",
    "l40s": "L40S",
}
GEMM_FORMATS = {  # dtype -> format of the products, of the weights
    "bfloat16": ("bf16", None),
    "fp8": ("fp8", None),
    "fp8_block": ("fp8_block", None),
    "nvfp4": ("nvfp4", None),
    "sq": ("int8", None),
    "int8_wo": ("bf16", "int8"),
    "int4_wo": ("bf16", "int4"),
}
MOE_FORMATS = GEMM_FORMATS | {
    "w4a16_mxfp4": ("bf16", "mxfp4"),
    "w4a8_mxfp4_mxfp8": ("mxfp8", "mxfp4"),
    "w4afp8": ("fp8", "int4"),
}
COLLECTIVES = {
    "all_gather": collectives.all_gather_s,
    "all_reduce": collectives.all_reduce_s,
    "alltoall": collectives.all_to_all_s,
    "reduce_scatter": collectives.reduce_scatter_s,
}
UNTUNED_EXPERTS = (  # at least twice as slow as other kernels for the same layer on the same part
    "sglang_flashinfer_cutlass_moe",
    "vllm_modeloptfp8moe_flashinfer_cutlass_flashinferexperts",
    "vllm_mxfp4_moe",
)
CLASSES = (  # what a kernel's name holds -> its class; the first that fits
    ("marlin_int4", "marlin int4"),
    ("marlin", "marlin"),
    ("min_latency", "low latency"),
    ("oaitriton", "triton"),
    ("triton", "triton"),
    ("fused_moe", "triton"),
    ("deepgemm", "deepgemm"),
    ("cutlass", "cutlass"),
    ("nongated", "cutlass"),
    ("trtllm", "trtllm"),
    ("fidecode", "flashinfer"),
    ("fiprefill", "flashinfer"),
    ("flashinfer", "flashinfer"),
)
SHARED_QUERIES = 32  # of one KV head: with more, one engine's decode reads the cache once per query head
# Kernels of FlashAttention's kind pack the queries that share a KV head into one tile.
PACKING = ("sglang own", "sglang flashinfer", "sglang triton", "vllm own", "vllm triton")
GEMM_EFFICIENCY, GROUPED_EFFICIENCY = "gemm_efficiency_fraction", "grouped_efficiency_fraction"
EAGER_FLOOR_S = 8e-6  # kernels whose fastest row takes longer were timed without CUDA graphs
FORMAT_FIELDS = (
    "gemm_floor_ratio",
    "gemm_efficiency_fraction",
    "gemm_memory_efficiency_fraction",
    "grouped_efficiency_fraction",
    "grouped_memory_efficiency_fraction",
)

ROUTING_DRAWS, ROUTING_SEED = 24, 7  # the mean over a few stands for the one that was timed
HELD_OUT_OF = 5  # one configuration in so many is kept from the shipped fit
# What was measured or remarked, and versions: one configuration stays on one side.
NOT_CONFIGURATION = {"time_us", "flag", "framework_version", "library_version"}


@dataclass(frozen=True, slots=True)
class Rows:
    """Measurements: the leaf that each belongs to, seconds, and how constants predict them.

    A row's prediction may depend on the constants of its own leaf alone: the fit differentiates all leaves
    in one pass.
    """

    leaf: NDArray[np.str_]
    kernel: NDArray[np.str_]  # which implementation was measured
    measured_s: Array
    predict: Predict
    held_out: NDArray[np.bool_]  # kept from the shipped fit, to score it
    group: NDArray[np.str_]  # phase or operation, for tables of errors
    possible: NDArray[np.bool_]  # not faster than the vendor's peaks allow

    @property
    def fitted(self) -> NDArray[np.bool_]:
        """The rows that the shipped fit sees."""
        return ~self.held_out & self.possible


def families() -> dict[str, str]:
    """Family of every accelerator in the tables."""
    catalog = load_catalog()
    return {name: catalog.accelerator(name).family for name in ACCELERATORS.values()}


def table(truth: Path, name: str) -> list[Row]:
    """Rows of `kernels_<name>.csv` without those that the caches flattered."""
    return [row for row in read_rows(truth / f"kernels_{name}.csv") if not row.get("flag")]


def kernel_class(row: Row) -> str:
    """Who made a kernel and how: its engine (or library) and the kind of its name, `vllm marlin`."""
    name = row["kernel"].lower().replace("deep_gemm", "deepgemm")
    if row["kernel"] in UNTUNED_EXPERTS:
        return f"{row['framework']} untuned"
    if "library" in row:
        return name
    kind = next((kind for part, kind in CLASSES if part in name), "own")
    return f"{row['framework']} {kind}"


def column(rows: Sequence[Row], name: str) -> Array:
    """One numeric column."""
    return np.array([float(row[name]) for row in rows])


def held_out(rows: Sequence[Row]) -> NDArray[np.bool_]:
    """Which rows the shipped fit never sees: every fifth by a hash of its configuration.

    The hash is of what was run (part, format, shape, kernel), not of what was measured nor of the order, so
    that the split stays as it is when rows are added, and all measurements of one configuration are on one
    side.
    """
    names = [name for name in (sorted(rows[0]) if rows else ()) if name not in NOT_CONFIGURATION]
    hashes = (
        hashlib.blake2b("|".join(f"{name}={row[name]}" for name in names).encode(), digest_size=4)
        for row in rows
    )
    return np.array([int.from_bytes(each.digest(), "big") % HELD_OUT_OF == 0 for each in hashes], bool)


def measured(
    rows: Sequence[Row], kernel: str, group: str, predict: Predict, least_s: Array | float = 0.0
) -> Rows:
    """`rows` of a table as rows to fit; `kernel` and `group` name the columns of both. A row that took less
    than `least_s`, what the vendor's peaks allow at best, is marked impossible."""
    measured_s = column(rows, "time_us") * 1e-6
    return Rows(
        leaves(rows),
        texts(rows, kernel),
        measured_s,
        predict,
        held_out(rows),
        texts(rows, group),
        np.asarray(measured_s >= least_s, bool),
    )


def texts(rows: Sequence[Row], name: str) -> NDArray[np.str_]:
    """One column of text."""
    return np.array([row[name] for row in rows], str)


def leaves(rows: Sequence[Row]) -> NDArray[np.str_]:
    """The catalogue's accelerator of each row."""
    return np.array([ACCELERATORS[row["gpu"]] for row in rows])


def device_of_rows(leaf: NDArray[np.str_], constants: Constants) -> Device:
    """One device whose every number is an array: that of each row's accelerator."""
    return _gather(leaf, lambda one: device(one, constants))


def network_of_rows(leaf: NDArray[np.str_], constants: Constants) -> Network:
    """One network of eight-accelerator nodes whose link numbers are arrays; nothing leaves a node here."""
    links = _gather(leaf, lambda one: cluster_on(one, 8, 1e9, "infiniband", constants, 8).network)
    return replace(links, domain_size=8, node_size=8)


def _gather(leaf: NDArray[np.str_], made: Callable[[Accelerator], T]) -> T:
    """What is made of each row's accelerator as one, each number (or number by format) an array over rows."""
    catalog = load_catalog()
    by_leaf = {name: made(catalog.accelerator(name)) for name in sorted(set(leaf))}
    first = next(iter(by_leaf.values()))
    arrays: dict[str, Any] = {}
    for field in fields(first):
        values = {name: getattr(record, field.name) for name, record in by_leaf.items()}
        if isinstance(getattr(first, field.name), Mapping):
            known = set.intersection(*(set(value) for value in values.values()))
            arrays[field.name] = {key: np.array([values[one][key] for one in leaf]) for key in known}
        elif isinstance(getattr(first, field.name), int | float):
            arrays[field.name] = np.array([values[one] for one in leaf])
    return replace(first, **arrays)


def with_values(base: Device, values: Mapping[str, Array], kernel: str) -> Device:
    """`base` with fitted constants in place; those by format are set for the format `kernel`."""
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name in FORMAT_FIELDS:
            changes[name] = {**getattr(base, name), kernel: value}
        elif hasattr(base, name):
            changes[name] = value
    return replace(base, **changes)


def gemm_rows(rows: Sequence[Row], dtype: str, constants: Constants) -> Rows:
    """Products of one dtype. Narrow activations are quantised in a kernel of their own, so that is added."""
    fmt, weight_fmt = GEMM_FORMATS[dtype]
    m, n, k = (column(rows, name) for name in "mnk")
    base = device_of_rows(leaves(rows), constants)
    floor_s: Array | float = 0.0
    if fmt != "bf16" or weight_fmt:
        floor_s = eager_floor_s(rows, m * n * k, 0.0 if weight_fmt else 0.5)
    key, flops = kernel_format(fmt, weight_fmt), 2.0 * m * n * k
    peak = base.peak_flops_per_s[peak_format(fmt)]

    def predict(values: Mapping[str, Array]) -> Array:
        told = throttled(values, GEMM_EFFICIENCY, flops, peak)
        if "throttle_fraction" in values:  # a class of kernels has a floor of its own
            told |= {"gemm_floor_ratio": np.ones(m.shape)}
        one = with_values(base, told, key)
        total_s = operators.gemm_s(one, m, n, k, fmt, weight_fmt=weight_fmt)
        if fmt != "bf16":
            total_s = total_s + values.get("quantise_ratio", 1.0) * operators.quantise_s(one, m, k, fmt)
        if weight_fmt:  # these were timed one by one: the host's time comes before the kernel's
            return np.asarray(total_s + floor_s)
        return np.asarray(smooth_max(total_s, floor_s, 8.0))

    return measured(rows, "kernel", "dtype", predict, flops / peak)


def eager_floor_s(rows: Sequence[Row], work: Array, quantile: float) -> Array:
    """The host's floor of each row, where its kernel's fastest time shows a run without CUDA graphs.

    It is a quantile of the times of the kernel's smallest products (the half with the least work), seen ones
    alone: there the host's launch is all that was measured.
    """
    group = np.char.add(np.char.add(texts(rows, "kernel"), " "), leaves(rows))
    measured_s, seen = column(rows, "time_us") * 1e-6, ~held_out(rows)
    floor_s = np.zeros(measured_s.shape)
    for one in set(group):
        here = (group == one) & seen
        if here.any() and measured_s[here].min() > EAGER_FLOOR_S:
            small = here & (work <= np.quantile(work[here], 0.5))
            floor_s[group == one] = np.quantile(measured_s[small], quantile)
    return floor_s


def throttled(values: Mapping[str, Array], efficiency: str, flops: Array, peak: Floats) -> dict[str, Array]:
    """The values with the efficiency that the clock leaves, which falls while a kernel runs.

    Formula  efficiency·(1 − loss·t / (t + half)), t what the kernel's products take without the fall
    Why      The benchmark repeats one kernel: milliseconds of dense maths on narrow formats pull the power
             to its limit and the clock down; short ones end before the governor acts.
    Units    FLOPs and FLOP/s; values by row: `throttle_fraction` the loss, `throttle_half_s` seconds.
    Limits   short kernels: the efficiency; long ones: 1 − loss of it; without a loss the values as they are.
    """
    if "throttle_fraction" not in values:
        return dict(values)
    busy_s = flops / (peak * values[efficiency])
    kept = 1.0 - values["throttle_fraction"] * busy_s / (busy_s + values["throttle_half_s"])
    return {**values, efficiency: values[efficiency] * kept}


def attention_rows(rows: Sequence[Row], phase: str, kv_dtype: str, constants: Constants) -> Rows:
    """Prefill or decode in one format.

    Prefill's format is that of its products (16-bit products over an 8-bit cache count as 16-bit), decode's
    that of its cache.
    """
    names = ("batch", "isl_or_kv_len", "heads", "kv_heads", "head_dim", "window")
    batch, tokens, heads, kv_heads, head_dim, window = (column(rows, name) for name in names)
    fmt = "fp8" if kv_dtype == "fp8" else "bf16"
    base, kernel = device_of_rows(leaves(rows), constants), texts(rows, "kernel")
    unshared = (kernel == "torch_flow") & (heads > SHARED_QUERIES * kv_heads)
    read_heads = np.where(unshared, heads, kv_heads)
    if phase == "prefill":  # one generic kernel masks a window's keys but visits them all
        window = np.where(kernel == "triton", 0.0, window)
    packs = np.array([kernel_class(row) in PACKING for row in rows], bool)
    packed = np.where(packs, heads / kv_heads, 1.0)

    def predict(values: Mapping[str, Array]) -> Array:
        one = with_values(base, values, fmt)
        if phase == "decode":
            decode_s = attention_decode_s(one, batch, tokens, heads, read_heads, head_dim, fmt, window)
            return np.asarray(decode_s)
        shape = (batch, tokens, 0, heads, kv_heads, head_dim)
        return np.asarray(attention_prefill_s(one, *shape, fmt, window, packed_heads=packed))

    narrow = phase == "prefill" and fmt == "fp8"
    peak = base.peak_flops_per_s["fp8" if narrow else "bf16"]
    queries = tokens if phase == "prefill" else np.ones(tokens.shape)
    pairs = attended_pairs(queries, tokens - queries, window)
    least_s = 4.0 * batch * heads * pairs * head_dim / peak
    return measured(rows, "kernel", "phase", predict, least_s)


def moe_rows(rows: Sequence[Row], dtype: str, constants: Constants) -> Rows:
    """Expert layers of one dtype, timed on the busiest rank of a group whose ranks all see all tokens.

    Kernels differ in what they do for rows that other ranks own: `routed_hidden_passes` and
    `routed_inter_passes` are passes over all routed rows, `token_passes` over all tokens; they belong to the
    benchmark and are not shipped with the device.
    """
    fmt, weight_fmt = MOE_FORMATS[dtype]
    names = ("tokens", "experts", "topk", "hidden", "inter", "moe_tp", "moe_ep")
    sizes = [column(rows, name) for name in names]
    tokens, experts, topk, hidden, inter, moe_tp, moe_ep = sizes
    matrices = np.array([2 if "nongated" in row["kernel"] else 3 for row in rows])
    routing = zip(tokens, experts, topk, moe_ep, texts(rows, "distribution"), strict=True)
    busiest = [busiest_rank(*map(int, numbers), str(drawn)) for *numbers, drawn in routing]
    local_rows, touched = np.array(busiest, float).reshape(-1, 2).T
    imbalance = local_rows / (tokens * topk / moe_ep)
    shapes = (tokens, experts, topk, experts / moe_ep, hidden, inter / moe_tp)
    base = device_of_rows(leaves(rows), constants)
    key, peak = kernel_format(fmt, weight_fmt), base.peak_flops_per_s[peak_format(fmt)]
    flops = 2.0 * local_rows * matrices * hidden * inter / moe_tp

    def predict(values: Mapping[str, Array]) -> Array:
        one = with_values(base, throttled(values, GROUPED_EFFICIENCY, flops, peak), key)
        total_s = operators.grouped_gemm_s(one, *shapes, fmt, weight_fmt, matrices, imbalance, touched)
        passes = values["routed_hidden_passes"] * hidden + values["routed_inter_passes"] * shapes[-1]
        moved = tokens * (topk * passes + values["token_passes"] * hidden) * 2.0
        return np.asarray(total_s + moved / one.memory_bytes_per_s)

    even = 2.0 * tokens * topk / moe_ep * matrices * hidden * inter / moe_tp  # the busiest rank has no fewer
    return measured(rows, "kernel", "distribution", predict, even / peak)


def comm_rows(rows: Sequence[Row], library: str, constants: Constants) -> Rows:
    """Collectives inside one node: the library's (`nccl`), or a serving engine's all-reduce (`engine`)."""
    leaf, operation = leaves(rows), texts(rows, "op")
    payload_bytes, ranks = column(rows, "bytes"), column(rows, "gpus")
    base = network_of_rows(leaf, constants)
    peak = np.array([load_catalog().accelerator(one).scaleup_bytes_per_s for one in leaf])

    def predict(values: Mapping[str, Array]) -> Array:
        named = {"launch_s" if name == "collective_launch_s" else name: values[name] for name in values}
        changes: dict[str, Any] = {name: value for name, value in named.items() if hasattr(base, name)}
        if "link_efficiency_fraction" in values:
            changes["link_bytes_per_s"] = peak * values["link_efficiency_fraction"]
        links = replace(base, **changes)
        if library != "nccl":
            return np.asarray(collectives.serving_all_reduce_s(links, payload_bytes, ranks))
        chosen = [operation == name for name in COLLECTIVES]
        return np.select(chosen, [run(links, payload_bytes, ranks) for run in COLLECTIVES.values()])

    return measured(rows, "op", "op", predict, (ranks - 1.0) / ranks * payload_bytes / peak)


@cache
def busiest_rank(tokens: int, experts: int, topk: int, ranks: int, distribution: str) -> tuple[float, float]:
    """Rows and touched experts of the busiest of `ranks` ranks that share `experts` evenly.

    How      `power_law_A`: each expert's share is drawn from a power law, shares are scaled to all routed
             tokens and rounded, what rounding lost goes to experts at random.
    Shapes   scalars in, two floats out.
    Units    counts.
    Source   The distributions that the table's rows name.
    Limits   balanced: the mean of all ranks; one rank: all rows. At least one row and one expert.
    """
    local, routed = experts // ranks, tokens * topk
    if distribution == "balanced":
        return routed / ranks, float(min(local, max(1, -(-routed // ranks))))
    counts = _drawn(tokens, experts, topk, float(distribution.rpartition("_")[2]))
    by_rank = counts.reshape(ROUTING_DRAWS, ranks, local)
    rows = by_rank.sum(axis=2)
    busiest = by_rank[np.arange(ROUTING_DRAWS), rows.argmax(axis=1)]
    return max(1.0, float(rows.max(axis=1).mean())), max(1.0, float((busiest > 0).sum(axis=1).mean()))


def _drawn(tokens: int, experts: int, topk: int, exponent: float) -> Array:
    """Rows of each expert, one line per draw."""
    generator = np.random.default_rng(ROUTING_SEED)
    routed = tokens * topk
    low, high = (1.0, 0.8 * tokens) if routed > experts else (0.01, 2.0)
    uniform = generator.random((ROUTING_DRAWS, experts))
    power = 1.0 - exponent
    drawn = ((high**power - low**power) * uniform + low**power) ** (1.0 / power)
    counts: Array = np.round(drawn / drawn.sum(axis=1, keepdims=True) * routed)
    for line in counts:
        missing = routed - int(line.sum())
        order = generator.permutation(experts)
        whole, part = divmod(abs(missing), experts)
        line += np.sign(missing) * whole
        line[order[:part]] += np.sign(missing)
    clipped: Array = np.clip(counts, 0.0, float(tokens))
    return clipped
