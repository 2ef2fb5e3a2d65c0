"""What was measured, as a person reads it: rates and times of telling cases, with their repeats' range."""

from collections.abc import Callable, Sequence

import numpy as np

from twofold.core import Source
from twofold.device.cases import Sample
from twofold.device.files import Figure
from twofold.device.fit import of_group, usual_s
from twofold.perf import ConstantRow

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


def figures(samples: Sequence[Sample], rows: Sequence[ConstantRow], rank_count: int) -> tuple[Figure, ...]:
    """The figures of one measurement, in the order of a table."""
    shown = [
        *(_largest(samples, group, "memory", group, "bytes", "B/s") for group in ("read", "copy", "triad")),
        *(_best_product(samples, fmt) for fmt in ("fp32", "bf16")),
        _weights_read(samples),
        _shortest(samples),
        *_attention(samples),
        *_collectives(samples, rank_count),
        *_stores(samples),
        *(
            Figure(row.value, row.low, row.high, row.unit, MEASURED, group=group, name=name)
            for row in rows
            if row.name in SOFTWARE_NAMES
            for group, name in [SOFTWARE_NAMES[row.name]]
        ),
    ]
    return tuple(each for each in shown if each is not None)


def _rate(group: str, name: str, sample: Sample, amount: float, unit: str) -> Figure:
    """An amount over the seconds of a case."""
    slow, fast = (float(np.quantile(sample.seconds, q)) for q in (HIGH, LOW))
    value = amount / usual_s(sample)
    low, high = min(amount / slow, value), max(amount / fast, value)
    return Figure(value, low, high, unit, MEASURED, group=group, name=name)


def _time(group: str, name: str, sample: Sample) -> Figure:
    value = usual_s(sample)
    low, high = (float(np.quantile(sample.seconds, q)) for q in (LOW, HIGH))
    return Figure(value, min(low, value), max(high, value), "s", MEASURED, group=group, name=name)


def _largest(
    samples: Sequence[Sample], source: str, group: str, name: str, size: str, unit: str
) -> Figure | None:
    found = of_group(samples, source)
    if not found:
        return None
    sample = max(found, key=lambda each: float(each.sizes[size]))
    return _rate(group, name, sample, float(sample.sizes[size]), unit)


def _flops(sample: Sample) -> float:
    m, n, k = (float(sample.sizes[name]) for name in "mnk")
    return 2.0 * m * n * k


def _best_product(samples: Sequence[Sample], fmt: str) -> Figure | None:
    found = [each for each in of_group(samples, "gemm") if each.sizes["format"] == fmt]
    best: Callable[[Sample], float] = lambda each: _flops(each) / usual_s(each)  # noqa: E731 (typed key)
    sample = max(found, key=best, default=None)
    return (
        None if sample is None else _rate("products", f"{fmt}, best shape", sample, _flops(sample), "FLOP/s")
    )


def _weights_read(samples: Sequence[Sample]) -> Figure | None:
    """One row times weights that no cache holds: what decoding one sequence does."""
    found = [
        each for each in of_group(samples, "gemm") if each.sizes["m"] == 1 and each.sizes["format"] == "fp32"
    ]
    sample = max(found, key=_flops, default=None)
    return (
        None
        if sample is None
        else _rate("products", "one row, weights read", sample, 2.0 * _flops(sample), "B/s")
    )


def _shortest(samples: Sequence[Sample]) -> Figure | None:
    found = [each for each in of_group(samples, "launch") if each.sizes["kind"] == "add"]
    return _time("products", "shortest call", found[0]) if found else None


def _attention(samples: Sequence[Sample]) -> list[Figure]:
    shown = []
    for each in of_group(samples, "prefill")[-1:]:
        shape = (
            f"prefill of {each.sizes['sequences']} × {each.sizes['tokens']} tok, {each.sizes['heads']} heads"
        )
        shown.append(_time("attention", shape, each))
    for each in of_group(samples, "decode")[-1:]:
        shape = f"decode of {each.sizes['sequences']} over {each.sizes['context']} tok"
        shown.append(_time("attention", shape, each))
    return shown


def _collectives(samples: Sequence[Sample], rank_count: int) -> list[Figure]:
    shown = []
    share = (rank_count - 1) / rank_count
    for name, passes in (("all_reduce", 2.0), ("all_gather", 1.0), ("reduce_scatter", 1.0)):
        found = sorted(of_group(samples, name), key=lambda each: float(each.sizes["bytes"]))
        if found:
            words = name.replace("_", "-")
            shown.append(_time("links", f"{words}, 4 KiB", found[0]))
            wire_bytes = passes * share * float(found[-1].sizes["bytes"])
            shown.append(_rate("links", f"{words}, 16 MiB", found[-1], wire_bytes, "B/s"))
    return shown


def _stores(samples: Sequence[Sample]) -> list[Figure]:
    found = sorted(of_group(samples, "store"), key=lambda each: float(each.sizes["bytes"]))
    if not found:
        return []
    large = found[-1]
    return [
        _time("storage", "4 KiB written and forced", found[0]),
        _rate("storage", "32 MiB written and forced", large, float(large.sizes["bytes"]), "B/s"),
    ]
