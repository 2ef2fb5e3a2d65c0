"""What a replica can promise: the rate at which a class still meets its objectives, and where the knee lies.

One pass prices a whole load curve: the batch that an arrival meets runs along a last axis, from a lone
request to a full cache, and every promise is a crossing on it. Array fields of the replica end in an axis of
length 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from twofold.inference.load import (
    NORMAL_P95,
    NORMAL_P99,
    Latency,
    Lengths,
    Served,
    at_batch,
    batch_limit,
    open_loop,
    quantile_factor,
    sustained_batch,
)
from twofold.inference.types import Replica
from twofold.perf import Floats

Array = NDArray[np.float64]
T = TypeVar("T")
CURVE_POINTS = 33  # twice as many move no limit by 1 %


@dataclass(frozen=True, slots=True)
class Slo:
    """What a class promises, in seconds; None is not promised."""

    ttft_s_p50: float | None = None
    ttft_s_p95: float | None = None
    ttft_s_p99: float | None = None
    tpot_s_p50: float | None = None
    tpot_s_p95: float | None = None
    tpot_s_p99: float | None = None
    e2e_s_p50: float | None = None
    e2e_s_p95: float | None = None
    e2e_s_p99: float | None = None
    finish_within_s: float | None = (
        None  # a day's work is done by then; no single request is promised anything
    )

    def targets(self) -> dict[str, float]:
        """The promised latencies by name."""
        named = {field.name: getattr(self, field.name) for field in fields(Slo)}
        return {
            name: value for name, value in named.items() if value is not None and name != "finish_within_s"
        }


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """Requests with one promise. `rate_per_s` is what replicas must carry: the peak for interactive work."""

    name: str
    lengths: Lengths
    rate_per_s: float
    slo: Slo
    shared_prefix_fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The most that one replica carries within the objectives, one number per candidate.

    `binding` names what stops it there: an objective, or `throughput` when the engine saturates first.
    """

    requests_per_s: Array
    met_sequences: Array  # the batch that an arrival meets there
    binding: NDArray[np.str_]
    idle_s: Array  # the binding objective's value without load: above its target nothing helps but hardware
    knee_requests_per_s: Array  # from here p95 grows faster than throughput
    saturation_requests_per_s: Array


def load_axis(value: T) -> T:
    """A replica with a last axis of length 1 on every array field, ready for a load curve."""
    if isinstance(value, np.ndarray):
        return value[..., None]  # type: ignore[return-value]  # the same type, one axis more
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {f.name: load_axis(getattr(value, f.name)) for f in fields(value) if f.name != "cluster"}
    return replace(value, **changed)


def load_curve(replica: Replica, lengths: Lengths, points: int = CURVE_POINTS) -> Served:
    """Open arrivals from nearly none to saturation, along the last axis; rates rise along it.

    The batch that an arrival meets is spaced evenly in its logarithm from 1 to the batch limit.
    """
    limit = np.maximum(sustained_batch(replica, lengths, batch_limit(replica, lengths)), 1.0 + 1e-6)
    steps = np.linspace(0.0, 1.0, points)
    return at_batch(replica, lengths, np.asarray(limit) ** steps)


def for_class(replica: Replica, traffic: TrafficClass) -> Replica:
    """The replica as this class finds it: its shared prefix is in the cache."""
    return replace(
        replica, cache=replace(replica.cache, shared_prefix_fraction=traffic.shared_prefix_fraction)
    )


def rate_limit(replica: Replica, traffic: TrafficClass) -> RateLimit:
    """Requests/s of one replica within a class's objectives, alone on it.

    Formula  the largest rate on the load curve at which no promised quantile exceeds its target, interpolated
    Why      Latencies rise with load, so that each promise is one crossing; the first one binds.
    Shapes   as the replica's candidate axes; see `load_axis`.
    Units    1/s.
    Limits   0 where a lone request already misses; the saturation rate where nothing is promised.
    """
    return limit_on_curve(load_curve(for_class(replica, traffic), traffic.lengths), traffic.slo)


def limit_on_curve(curve: Served, slo: Slo) -> RateLimit:
    """The first crossing of any promise on a load curve."""
    rate = np.asarray(curve.requests_per_s, float)
    usable = np.asarray(curve.utilisation_fraction) <= 1.0
    saturation = np.max(np.where(usable, rate, 0.0), axis=-1)
    best, binding = saturation, np.full(saturation.shape, "throughput", dtype="<U12")
    idle = np.zeros_like(saturation)
    for name, target in slo.targets().items():
        value = np.broadcast_to(quantile(curve, name), rate.shape)
        crossing = _crossing(rate, value, target)
        binds = crossing < best
        best = np.where(binds, crossing, best)
        binding = np.where(binds, name, binding)
        idle = np.where(binds, value[..., 0], idle)
    batch = np.broadcast_to(np.asarray(curve.batch_sequences, float), rate.shape)
    met = interpolate_along(best, rate, batch)
    return RateLimit(best, met, binding, idle, _knee(rate, np.asarray(curve.e2e.p95_s, float)), saturation)


def quantile(served: Served, name: str) -> Floats:
    """`ttft_s_p95` and its like, from the parts of `Served`."""
    metric, _, which = name.split("_")
    latency: Latency = getattr(served, metric)
    value: Floats = getattr(latency, f"{which}_s")
    return value


def interpolate_along(wanted: Array, rate: Array, value: Array) -> Array:
    """`value` where `rate`, rising along the last axis, passes `wanted`; the ends hold beyond it."""
    above = np.argmax(rate >= wanted[..., None], axis=-1)
    above = np.where(np.any(rate >= wanted[..., None], axis=-1), above, rate.shape[-1] - 1)
    below = np.maximum(above - 1, 0)
    r0, r1 = _take(rate, below), _take(rate, above)
    v0, v1 = _take(value, below), _take(value, above)
    share = np.clip((wanted - r0) / np.where(r1 > r0, r1 - r0, 1.0), 0.0, 1.0)
    mixed: Array = v0 + (v1 - v0) * share
    return mixed


def _take(values: Array, index: NDArray[np.intp]) -> Array:
    taken: Array = np.take_along_axis(values, index[..., None], axis=-1)[..., 0]
    return taken


def _crossing(rate: Array, value: Array, target: float) -> Array:
    """The rate at which `value` first exceeds `target`: 0 at once, infinite never."""
    bad = ~(value <= target)
    first = np.argmax(bad, axis=-1)
    before = np.maximum(first - 1, 0)
    v0, v1 = _take(value, before), _take(value, first)
    gap = np.where(np.isfinite(v1) & (v1 > v0), v1 - v0, np.inf)
    share = np.clip((target - v0) / gap, 0.0, 1.0)
    inside = _take(rate, before) + (_take(rate, first) - _take(rate, before)) * share
    crossed = np.where(first == 0, 0.0, inside)
    limit: Array = np.where(np.any(bad, axis=-1), crossed, np.inf)
    return limit


def _knee(rate: Array, p95_s: Array) -> Array:
    """The first rate at which p95 grows by a larger share than throughput does."""
    p95 = np.where(np.isfinite(p95_s), p95_s, 1e9)
    growth = np.diff(np.log(np.maximum(p95, 1e-12)), axis=-1)
    more = np.diff(np.log(np.maximum(rate, 1e-12)), axis=-1)
    steep = growth > np.maximum(more, 0.0)
    first = np.where(np.any(steep, axis=-1), np.argmax(steep, axis=-1), rate.shape[-1] - 1)
    return _take(rate, first)


def merged_lengths(classes: Sequence[TrafficClass]) -> Lengths:
    """The lengths of a mixture: means by rate, spreads that keep the mixture's variance."""
    shares = np.array([each.rate_per_s for each in classes], float)
    shares /= shares.sum()

    def mix(mean_of: str, spread_of: str) -> tuple[float, float]:
        means = np.array([getattr(each.lengths, mean_of) for each in classes], float)
        spreads = np.array([getattr(each.lengths, spread_of) for each in classes], float)
        mean = float(shares @ means)
        square = float(shares @ (means**2 * (1.0 + spreads**2)))
        return mean, max(0.0, square / mean**2 - 1.0) ** 0.5

    inputs, input_spread = mix("input_tokens", "input_spread")
    outputs, output_spread = mix("output_tokens", "output_spread")
    return Lengths(inputs, outputs, input_spread, output_spread)


def merged_class(classes: Sequence[TrafficClass]) -> TrafficClass:
    """All classes as one stream without promises; the shared prefix is weighted by input tokens."""
    tokens = [each.rate_per_s * float(np.mean(each.lengths.input_tokens)) for each in classes]
    cached = sum(each.shared_prefix_fraction * weight for each, weight in zip(classes, tokens, strict=True))
    rate = sum(each.rate_per_s for each in classes)
    return TrafficClass("all", merged_lengths(classes), rate, Slo(), cached / sum(tokens))


def shared_rate_limit(replica: Replica, classes: Sequence[TrafficClass]) -> RateLimit:
    """Requests/s of one replica that all classes share by their rates, each within its promise."""
    mixed = merged_class(classes)
    curve = load_curve(for_class(replica, mixed), mixed.lengths)
    limits = [limit_on_curve(_as_seen_by(curve, mixed.lengths, each.lengths), each.slo) for each in classes]
    best = limits[0]
    for other in limits[1:]:
        lower = other.requests_per_s < best.requests_per_s
        best = RateLimit(
            *(np.where(lower, getattr(other, f.name), getattr(best, f.name)) for f in fields(RateLimit))
        )
    return best


def shared_load(
    replica: Replica, classes: Sequence[TrafficClass], own: TrafficClass, requests_per_s: Floats
) -> Served:
    """What `own` gets of a replica that all `classes` share, at requests/s of all of them together."""
    mixed = merged_class(classes)
    served = open_loop(for_class(replica, mixed), mixed.lengths, requests_per_s)
    return _as_seen_by(served, mixed.lengths, own.lengths)


def _as_seen_by(curve: Served, mixed: Lengths, own: Lengths) -> Served:
    """A shared curve as one class sees it: its own prefill and its own number of output tokens."""
    per_token = np.maximum(curve.prefill_step_s - np.asarray(curve.step_s), 0.0) / np.maximum(
        mixed.input_tokens, 1.0
    )
    longer = (own.input_tokens - mixed.input_tokens) * per_token
    ttft = Latency(*(np.maximum(getattr(curve.ttft, f.name) + longer, curve.step_s) for f in fields(Latency)))
    tokens = max(float(np.mean(own.output_tokens)) - 1.0, 0.0)
    spread = {
        "mean_s": 1.0,
        "p50_s": quantile_factor(own.output_spread, 0.0),
        "p95_s": quantile_factor(own.output_spread, NORMAL_P95),
        "p99_s": quantile_factor(own.output_spread, NORMAL_P99),
    }
    e2e = Latency(
        *(getattr(ttft, f.name) + tokens * spread[f.name] * curve.tpot.mean_s for f in fields(Latency))
    )
    return replace(curve, ttft=ttft, e2e=e2e)


def relieved(replica: Replica, resource: str, factor: float = 1.2) -> Replica:
    """The same replica with `factor` times as much of one resource (bandwidth compute capacity link host)."""
    device, network, engine = replica.cluster.device, replica.cluster.network, replica.engine
    if resource == "bandwidth":
        device = replace(device, memory_bytes_per_s=device.memory_bytes_per_s * factor)
    elif resource == "compute":
        peaks: Mapping[str, Floats] = {k: v * factor for k, v in device.peak_flops_per_s.items()}
        device = replace(device, peak_flops_per_s=peaks)
    elif resource == "capacity":
        device = replace(device, memory_bytes=device.memory_bytes * factor)
    elif resource == "link":
        network = replace(
            network,
            link_bytes_per_s=network.link_bytes_per_s * factor,
            link_latency_s=network.link_latency_s / factor,
            launch_s=network.launch_s / factor,
            engine_launch_s=network.engine_launch_s / factor,
            nic_bytes_per_s=network.nic_bytes_per_s * factor,
            host_bytes_per_s=network.host_bytes_per_s * factor,
        )
    else:
        timed = [
            f.name
            for f in fields(engine)
            if f.name.startswith(("host", "prefill", "first")) and f.name.endswith("_s")
        ]
        engine = replace(engine, **{name: getattr(engine, name) / factor for name in timed})
    cluster = replace(replica.cluster, device=device, network=network)
    return replace(replica, cluster=cluster, engine=engine)


RESOURCES = ("bandwidth", "compute", "capacity", "link", "host")


def bottleneck(replica: Replica, traffic: TrafficClass) -> dict[str, float]:
    """What 20 % more of each resource gains in requests/s within the promise, as a fraction, most first."""
    base = float(np.max(rate_limit(replica, traffic).requests_per_s))
    gains = {
        resource: float(np.max(rate_limit(relieved(replica, resource), traffic).requests_per_s)) / base - 1.0
        if base > 0
        else 0.0
        for resource in RESOURCES
    }
    return dict(sorted(gains.items(), key=lambda item: -item[1]))
