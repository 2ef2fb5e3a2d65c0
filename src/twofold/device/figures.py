"""What was measured, as a person reads it: rates and times of telling cases, with their repeats' range."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from twofold.core.estimate import Source
from twofold.device.cases import KERNEL, Sample, suite_for
from twofold.device.files import Figure
from twofold.device.fit import PASSES, of_group, usual_s
from twofold.perf.constants import ConstantRow
from twofold.perf.formats import bytes_per_weight

LOW, HIGH = 0.1, 0.9  # quantiles of the repeats
MEASURED = Source.MEASURED
SOFTWARE_NAMES = {
    "training_host_layer_s": ("training", "host, per layer and step"),
    "training_host_step_s": ("training", "host, per step"),
    "serving_host_step_s": ("serving", "host, per step"),
    "serving_host_layer_s": ("serving", "host, per layer and step"),
    "serving_host_sequence_s": ("serving", "host, per sequence and step"),
    "serving_first_token_s": ("serving", "host, before a first token"),
}

HOST_OF_A_STEP = ("serving_host_step_s", "serving_host_layer_s", "serving_host_sequence_s")


def figures(samples: Sequence[Sample], rows: Sequence[ConstantRow], rank_count: int) -> tuple[Figure, ...]:
    """The figures of one measurement, in the order of a table."""
    software = (
        Figure(row.value, row.low, row.high, row.unit, MEASURED, group=group, name=name)
        for row in rows
        if row.name in SOFTWARE_NAMES
        for group, name in [SOFTWARE_NAMES[row.name]]
    )
    shares = _host_shares(samples, {row.name: row for row in rows})
    return *_kernels(samples), *_links_and_storage(samples, rank_count), *software, *shares


def _host_shares(samples: Sequence[Sample], rows: Mapping[str, ConstantRow]) -> Iterator[Figure]:
    """Of each decode step that was served, what the host takes: the rest is the device's.

    Formula  (host per step + per layer · layers + per sequence · sequences) / the step that was measured
    """
    if not all(name in rows for name in HOST_OF_A_STEP):
        return
    for each in of_group(samples, "step"):
        counts = 1.0, float(each.sizes["layers"]), float(each.sizes["requests"])
        host_s = sum(rows[name].value * count for name, count in zip(HOST_OF_A_STEP, counts, strict=True))
        seconds = usual_s(each), *(float(np.quantile(each.seconds, q)) for q in (HIGH, LOW))
        share, *ends = (min(1.0, host_s / each_s) for each_s in seconds)
        what = "host's share of a step, {layers} layers, {requests} sequences of {prompt} tok"
        name = what.format(**each.sizes)
        low, high = min(share, *ends), max(share, *ends)
        yield Figure(share, low, high, "fraction", MEASURED, group="serving", name=name)


def format_figures(samples: Sequence[Sample], family: str) -> tuple[tuple[Figure, ...], tuple[str, ...]]:
    """How long each operation takes in each format over the usual one, and what has no kernel here.

    Formula  seconds / those of the same operation and phase in the suite's first format; its ends are the
             first decile over the last of those, and the last over the first
    Limits   nothing in the usual format: no ratio.
    """
    usual, found, missing = suite_for(family).format, list[Figure](), list[str]()
    kernels = of_group(samples, KERNEL)
    of_usual = {_operation(each): each for each in kernels if each.sizes["format"] == usual and each.seconds}
    for each in kernels:
        (operation, phase), fmt = _operation(each), each.sizes["format"]
        base = of_usual.get((operation, phase))
        if not each.seconds:
            missing.append(f"{operation} of {phase} in {fmt}")
        elif base is not None and base is not each:
            value, name = usual_s(each) / usual_s(base), f"{phase} in {fmt}, over {usual}"
            (low_s, high_s), (base_low_s, base_high_s) = _ends(each), _ends(base)
            low, high = min(value, low_s / base_high_s), max(value, high_s / base_low_s)
            found.append(Figure(value, low, high, "ratio", MEASURED, group=operation, name=name))
    return tuple(found), tuple(missing)


def _ends(sample: Sample) -> tuple[float, float]:
    """What four of five repeats lie between."""
    return float(np.quantile(sample.seconds, LOW)), float(np.quantile(sample.seconds, HIGH))


def _operation(sample: Sample) -> tuple[str, str]:
    return str(sample.sizes["kernel"]), str(sample.sizes["phase"])


def power_figures(idle_w: float | None, busy_w: float | None) -> tuple[Figure, ...]:
    """What the accelerators draw together, where the driver tells: one reading at rest, the most of many."""
    told = (("at rest", idle_w), ("multiplying bf16", busy_w))
    return tuple(Figure(w, w, w, "W", MEASURED, group="power", name=name) for name, w in told if w)


def _kernels(samples: Sequence[Sample]) -> Iterator[Figure]:
    """Memory, products, the shortest call, attention."""
    for group in ("read", "copy", "triad"):
        for largest in _by_bytes(samples, group)[-1:]:
            yield _figure("memory", group, largest, float(largest.sizes["bytes"]), "B/s")
    products: dict[object, list[Sample]] = {}
    for each in of_group(samples, "gemm"):
        products.setdefault(each.sizes["format"], []).append(each)
    for fmt, found in ((fmt, products[fmt]) for fmt in ("fp32", "bf16", "fp8") if fmt in products):
        best = max(found, key=lambda each: _flops(each) / usual_s(each))
        yield _figure("products", f"{fmt}, best shape", best, _flops(best), "FLOP/s")
    # One row times weights that no cache holds: what decoding one sequence does.
    most = max(products.values(), key=len, default=[])
    if single := [each for each in most if each.sizes["m"] == 1]:
        largest = max(single, key=_flops)
        read_bytes = bytes_per_weight(str(largest.sizes["format"])) * _flops(largest) / 2.0
        yield _figure("products", "one row, weights read", largest, read_bytes, "B/s")
    for each in [each for each in of_group(samples, "launch") if each.sizes["kind"] == "add"][:1]:
        yield _figure("products", "shortest call", each)
    for each in [each for each in of_group(samples, "launch") if each.sizes["kind"] == "host"]:
        yield _figure("products", "shortest call, launched", each)
    for group, shape in (
        ("prefill", "prefill of {sequences} × {tokens} tok, {heads} heads"),
        ("decode", "decode of {sequences} over {context} tok"),
    ):
        for each in of_group(samples, group)[-1:]:
            yield _figure("attention", shape.format(**each.sizes), each)


def _links_and_storage(samples: Sequence[Sample], rank_count: int) -> Iterator[Figure]:
    """The smallest and the largest case of each collective, and of files forced to the disk."""
    share = (rank_count - 1) / rank_count
    for name, passes in PASSES.items():
        if found := _by_bytes(samples, name):
            words = name.replace("_", "-")
            yield _figure("links", f"{words}, 4 KiB", found[0])
            wire_bytes = passes * share * float(found[-1].sizes["bytes"])
            yield _figure("links", f"{words}, 16 MiB", found[-1], wire_bytes, "B/s")
    if found := _by_bytes(samples, "store"):
        yield _figure("storage", "4 KiB written and forced", found[0])
        large_bytes = float(found[-1].sizes["bytes"])
        yield _figure("storage", "32 MiB written and forced", found[-1], large_bytes, "B/s")


def _by_bytes(samples: Sequence[Sample], group: str) -> list[Sample]:
    return sorted(of_group(samples, group), key=lambda each: float(each.sizes["bytes"]))


def _flops(sample: Sample) -> float:
    m, n, k = (float(sample.sizes[name]) for name in "mnk")
    return 2.0 * m * n * k


def _figure(group: str, name: str, sample: Sample, amount: float = 0.0, unit: str = "s") -> Figure:
    """The seconds of a case, or an amount over them."""
    seconds = usual_s(sample), *(float(np.quantile(sample.seconds, q)) for q in (LOW, HIGH))
    value, *ends = (amount / each if amount else each for each in seconds)
    return Figure(value, min(value, *ends), max(value, *ends), unit, MEASURED, group=group, name=name)
