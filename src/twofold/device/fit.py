"""From samples of one machine to the constants of its operators and links.

Peaks are the best rates seen, so that no efficiency exceeds 1; all else is what `perf`'s own operators need
to give the seconds that were measured.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from twofold.catalog.types import Accelerator
from twofold.core.errors import RunError
from twofold.core.estimate import Source
from twofold.device.cases import Sample, Suite, suite_for
from twofold.device.files import FitError
from twofold.device.search import Array, Unknown, Values, fit_logs, spread_log
from twofold.perf import collectives, operators
from twofold.perf.attention import attention_decode_s, attention_prefill_s
from twofold.perf.constants import ConstantRow, Constants
from twofold.perf.device import device
from twofold.perf.formats import bytes_per_weight
from twofold.perf.types import Device, Network

FITTED_BY = "device"
LEAST_SPREAD_LOG = 0.05  # no machine repeats itself more exactly over a day
LARGE_BYTES = 2**25  # a pass over so much streams from memory
UNITS = {"_fraction": "fraction", "_s": "s", "_half_k": "count", "_bytes": "B"}  # else a ratio
PASSES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}  # of the payload over the wire

EFFICIENCY = (0.005, 1.0)
GEMM = (
    Unknown("gemm_efficiency_fraction", 0.8, 1.0, *EFFICIENCY),
    Unknown("gemm_memory_efficiency_fraction", 0.7, 1.0, *EFFICIENCY),
    Unknown("gemm_floor_ratio", 1.0, 1.0, 0.02, 50.0),
)
GEMM_SHAPE = (Unknown("gemm_half_k", 30.0, 1.5, 1.0, 2000.0), Unknown("gemm_ramp_ratio", 0.1, 1.5, 1e-3, 5.0))
PREFILL = (
    Unknown("attention_efficiency_fraction", 0.3, 1.5, *EFFICIENCY),
    Unknown("attention_tile_s", 2e-5, 1.5, 1e-8, 1e-2),
    Unknown("attention_floor_s", 2e-5, 1.5, 1e-7, 1e-2),
)
DECODE = (
    Unknown("decode_efficiency_fraction", 0.5, 1.5, *EFFICIENCY),
    Unknown("decode_tile_s", 5e-6, 1.5, 1e-8, 1e-2),
    Unknown("decode_floor_s", 2e-5, 1.5, 1e-7, 1e-2),
)
LINKS = (
    Unknown("link_efficiency_fraction", 0.7, 0.7, *EFFICIENCY),
    Unknown("link_latency_s", 5e-5, 1.5, 1e-8, 1e-1),
    Unknown("link_half_bytes", 1e5, 2.0, 1.0, 1e9),
    Unknown("collective_launch_s", 1e-4, 1.5, 1e-7, 1e-1),
)


@dataclass(frozen=True, slots=True)
class Peaks:
    """The best rates seen: what a catalogue row states."""

    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]  # by format; 16 bits only where faster than 32
    link_bytes_per_s: float  # of one rank, one direction; 0 for a single rank


@dataclass(frozen=True, slots=True)
class FittedPart:
    """Constants of one group, and how far they are off."""

    rows: tuple[ConstantRow, ...]
    error: FitError


def usual_s(sample: Sample) -> float:
    """The first quartile of a case's repeats: what others do on the machine only ever adds time."""
    return float(np.quantile(sample.seconds, 0.25))


def usual(samples: Sequence[Sample]) -> Array:
    """`usual_s` of every sample."""
    return np.array([usual_s(each) for each in samples])


def of_group(samples: Sequence[Sample], *groups: str) -> list[Sample]:
    """The samples of some groups, in their order."""
    return [sample for sample in samples if sample.group in groups]


def column(samples: Sequence[Sample], name: str) -> Array:
    """One size of every sample."""
    return np.array([float(sample.sizes[name]) for sample in samples])


def peaks(samples: Sequence[Sample], rank_count: int) -> Peaks:
    """The best rates among all cases. Raises RunError when there is nothing to take them from."""
    streamed = [
        each for each in of_group(samples, "copy", "triad", "read") if int(each.sizes["bytes"]) >= LARGE_BYTES
    ]
    products = of_group(samples, "gemm")
    if not streamed or not products:
        raise RunError("the measurement holds no products or no memory passes", hint="measure again")
    rates = [float(each.sizes["bytes"]) / usual_s(each) for each in streamed]
    flops: dict[str, float] = {}
    for each in products:
        m, n, k = (float(each.sizes[name]) for name in "mnk")
        fmt = str(each.sizes["format"])
        flops[fmt] = max(flops.get(fmt, 0.0), 2.0 * m * n * k / usual_s(each))
        if int(each.sizes["cold"]) > 1:
            rates.append(n * k * bytes_per_weight(fmt) / usual_s(each))
    native = {fmt: rate for fmt, rate in flops.items() if fmt == "fp32" or rate > flops["fp32"]}
    share = (rank_count - 1) / rank_count
    moved = ((PASSES[s.group] * share * float(s.sizes["bytes"]), s) for s in of_group(samples, *PASSES))
    link_rate = max((wire_bytes / usual_s(sample) for wire_bytes, sample in moved), default=0.0)
    return Peaks(max(rates), MappingProxyType(native), link_rate)


def fit_kernels(
    samples: Sequence[Sample], accelerator: Accelerator, constants: Constants
) -> list[FittedPart]:
    """Every operator's constants, in an order in which later ones stand on earlier ones."""
    part = device(accelerator, constants)
    scope = f"accelerator={accelerator.name};family={accelerator.family}"
    shortest = next(each for each in of_group(samples, "launch") if each.sizes["kind"] == "add")
    low, high = np.quantile(np.log(shortest.seconds), (0.25, 0.75))  # repeats lie so far apart: half of 80 %
    spread = max(float(high - low), LEAST_SPREAD_LOG)
    floor = measured_row("kernel_floor_s", scope, usual_s(shortest), spread, 1)
    launches = FittedPart((floor,), fit_error("launch", np.zeros(1)))
    streams = _streams(samples, accelerator, scope)
    part = replace(part, kernel_floor_s=floor.value, memory_efficiency_fraction=streams.rows[0].value)
    suite, products = suite_for(accelerator.family), []
    for fmt in suite.formats:
        if any(each.sizes["format"] == fmt for each in of_group(samples, "gemm")):
            unknowns = (*GEMM, *GEMM_SHAPE) if fmt == suite.format else GEMM
            found, part = _products(samples, part, fmt, scope, unknowns)
            products.append(found)
    attention = _prefill(samples, part, scope, suite), _decode(samples, part, scope, suite)
    return [launches, streams, *products, *attention]


def fitted(
    group: str, scope: str, predict: Callable[[Values], Array], measured_s: Array, unknowns: Sequence[Unknown]
) -> FittedPart:
    """Fit one group; every constant gets the group's own spread as its range."""
    values = fit_logs(predict, measured_s, unknowns)
    errors_log = np.log(predict(values) / measured_s)
    return FittedPart(measured_rows(values, scope, errors_log, unknowns), fit_error(group, errors_log))


def measured_rows(
    values: Values, scope: str, errors_log: Array, unknowns: Sequence[Unknown]
) -> tuple[ConstantRow, ...]:
    """A row for every unknown, its range what predictions are off."""
    spread, count = spread_log(errors_log, LEAST_SPREAD_LOG), len(errors_log)
    return tuple(measured_row(each.name, scope, values[each.name], spread, count, each) for each in unknowns)


def fit_error(group: str, errors_log: Array) -> FitError:
    """Median and worst of what predictions are off."""
    off = np.abs(np.expm1(errors_log))
    return FitError(group, len(off), float(np.median(off)), float(np.max(off)))


def measured_row(
    name: str, scope: str, value: float, spread: float, rows: int, bounds: Unknown | None = None
) -> ConstantRow:
    """A row of source `m` with the range value·e^±spread, inside what physics allows."""
    low, high = value * np.exp(-spread), value * np.exp(spread)
    if bounds:
        low, high = max(low, bounds.low), min(high, bounds.high)
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "ratio")
    return ConstantRow(
        value,
        min(low, value),
        max(high, value),
        unit,
        Source.MEASURED,
        name=name,
        scope=scope,
        rows=rows,
        fitted_by=FITTED_BY,
        note="measured here",
    )


def _streams(samples: Sequence[Sample], accelerator: Accelerator, scope: str) -> FittedPart:
    """Passes that read and write more than caches hold, against the best rate of any."""
    found = [each for each in of_group(samples, "copy", "triad") if int(each.sizes["bytes"]) >= LARGE_BYTES]
    moved_bytes = column(found, "bytes")
    unknown = Unknown("memory_efficiency_fraction", 0.8, 1.0, *EFFICIENCY)

    def predict(values: Values) -> Array:
        seconds: Array = moved_bytes / (accelerator.memory_bytes_per_s * values[unknown.name])
        return seconds

    return fitted("memory", scope, predict, usual(found), (unknown,))


def _products(
    samples: Sequence[Sample], part: Device, fmt: str, scope: str, unknowns: Sequence[Unknown]
) -> tuple[FittedPart, Device]:
    """Products in one format; what has no format of its own (shape of short loops) comes with the first."""
    found = [each for each in of_group(samples, "gemm") if each.sizes["format"] == fmt]
    m, n, k = (column(found, name) for name in "mnk")
    shape, out = {each.name for each in GEMM_SHAPE}, "bf16" if fmt == "fp8" else fmt

    def with_values(values: Values) -> Device:
        by_format = {
            name: MappingProxyType({**getattr(part, name), fmt: value})
            for name, value in values.items()
            if name not in shape
        }
        return _changed(part, {**values, **by_format})

    def predict(values: Values) -> Array:
        return np.asarray(operators.gemm_s(with_values(values), m, n, k, fmt, out), float)

    starts = [_starting(each, part, fmt) for each in unknowns]
    result = fitted(f"products {fmt}", scope, predict, usual(found), starts)
    rows = tuple(
        row if row.name in shape else replace(row, scope=f"{scope};format={fmt}") for row in result.rows
    )
    values = {row.name: row.value for row in rows}
    return replace(result, rows=rows), with_values(values)


def _starting(unknown: Unknown, part: Device, fmt: str = "") -> Unknown:
    """The search begins where the family's own constants are, if an accelerator has them."""
    if part.family == "cpu":
        return unknown
    known = getattr(part, unknown.name)
    start = float(known.get(fmt, unknown.start) if isinstance(known, Mapping) else known)
    return replace(unknown, start=min(max(start, unknown.low), unknown.high))


def _changed(part: Device, values: Mapping[str, Any]) -> Device:
    """The device with some of its fields, by name."""
    return replace(part, **values)


def _prefill(samples: Sequence[Sample], part: Device, scope: str, suite: Suite) -> FittedPart:
    found = of_group(samples, "prefill")
    sequences, tokens, heads = (column(found, name) for name in ("sequences", "tokens", "heads"))

    def predict(values: Values) -> Array:
        memory = {"attention_memory_efficiency_fraction": part.memory_efficiency_fraction}
        changed = _changed(part, {**memory, **values})
        shape = sequences, tokens, 0.0, heads, heads, suite.head_dim
        seconds = attention_prefill_s(changed, *shape, suite.format)
        return np.asarray(seconds, float)

    starts = [_starting(each, part) for each in PREFILL]
    result = fitted("attention, prefill", scope, predict, usual(found), starts)
    memory = measured_row(
        "attention_memory_efficiency_fraction", scope, float(np.max(part.memory_efficiency_fraction)), 0.2, 0
    )
    return replace(result, rows=(*result.rows, replace(memory, high=min(memory.high, 1.0))))


def _decode(samples: Sequence[Sample], part: Device, scope: str, suite: Suite) -> FittedPart:
    found = of_group(samples, "decode")
    sizes = column(found, "sequences"), column(found, "context")
    heads = suite.heads, suite.kv_heads, suite.head_dim

    def predict(values: Values) -> Array:
        return np.asarray(attention_decode_s(_changed(part, values), *sizes, *heads, suite.format), float)

    starts = [_starting(each, part) for each in DECODE]
    return fitted("attention, decode", scope, predict, usual(found), starts)


def fit_links(
    samples: Sequence[Sample], accelerator: Accelerator, links: Network, rank_count: int
) -> FittedPart | None:
    """Collectives among all ranks; None for a single one."""
    calls = {
        "all_reduce": collectives.all_reduce_s,
        "all_gather": collectives.all_gather_s,
        "reduce_scatter": collectives.reduce_scatter_s,
    }
    found = of_group(samples, *calls)
    if not found:
        return None
    scope = f"accelerator={accelerator.name};family={accelerator.family}"
    payload_bytes = column(found, "bytes")

    def predict(values: Values) -> Array:
        changed = replace(
            links,
            link_bytes_per_s=accelerator.scaleup_bytes_per_s * values["link_efficiency_fraction"],
            link_latency_s=values["link_latency_s"],
            link_half_bytes=values["link_half_bytes"],
            launch_s=values["collective_launch_s"],
            pair_loss_fraction=0.0,
        )
        by_call = {
            name: np.asarray(call(changed, payload_bytes, rank_count), float) for name, call in calls.items()
        }
        return np.array([by_call[each.group][index] for index, each in enumerate(found)])

    result = fitted("collectives", scope, predict, usual(found), LINKS)
    no_loss = measured_row("pair_loss_fraction", scope, 0.0, 0.0, len(found))
    return replace(result, rows=(*result.rows, no_loss))
