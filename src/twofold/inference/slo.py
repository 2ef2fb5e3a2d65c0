"""What a replica can promise: the rate at which a class still meets its objectives, and where the knee lies.

The curve is priced once; a promise is a crossing on it, sought on the straight line between
two of its batches. Array fields of the replica end in an axis of length 1.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from twofold.contracts.goals import SuccessGoal
from twofold.inference.curve import (
    LoadCurve,
    latencies_at,
    price_curve,
    rate_at,
    seen_by,
    served_at,
    side_by_side,
)
from twofold.inference.latency import Latency, Served
from twofold.inference.regimes import on_curve, open_curve
from twofold.inference.replica import Replica
from twofold.inference.stations import HELD, in_turn
from twofold.inference.steady import Lengths, batch_limit, sustained_batch
from twofold.perf.types import Floats

Array = NDArray[np.float64]
CURVE_POINTS = 33
CLOSE = 1e-11  # how far below the target, or from where it breaks, a crossing may be left
MOST_STEPS = 80  # about seven do


@dataclass(frozen=True, slots=True)
class Slo:
    """What a class promises, in seconds: latencies by goal, such as `ttft_p95`, or an end of a day's work."""

    latencies_s: Mapping[str, float] = field(default_factory=dict)
    finish_within_s: float | None = None  # without latencies: no single request is promised anything
    success: SuccessGoal | None = None  # of first tokens before the gateway gives up; None: nothing asks
    work_ratio: float = 1.0  # of a day's work, that replicas are sized for instead
    before: Latency | None = None  # what passes before a replica has a request; None: nothing does

    def with_margins(self, ratios: Mapping[str, float]) -> "Slo":
        """The same, each goal to be kept by its middle with so much to spare."""
        sooner = {name: limit / ratios.get(name, 1.0) for name, limit in self.latencies_s.items()}
        return replace(self, latencies_s=sooner, work_ratio=ratios.get("finish_within", 1.0))

    def on_replica(self) -> "Slo":
        """The same with what passes before a replica taken off each goal that it is in.

        Limits   the quantile of what passes before is taken off whole: a little more than the whole needs.
        """
        if self.before is None:
            return self
        own = {}
        for name, limit_s in self.latencies_s.items():
            metric, _, which = name.partition("_")
            taken_s = float(np.max(getattr(self.before, f"{which}_s"))) if metric in HELD else 0.0
            own[name] = max(limit_s - taken_s, np.finfo(np.float64).tiny)
        return replace(self, latencies_s=own, before=None)

    @property
    def is_waited_for(self) -> bool:
        """Whether single requests are promised anything."""
        return self.finish_within_s is None or bool(self.latencies_s)

    @property
    def targets_s(self) -> dict[str, float]:
        """Every limit by the goal that it is of."""
        return dict(self.latencies_s) | ({"success": SuccessGoal.TIMEOUT_S} if self.success else {})

    def reached_s(self, goal: str, latencies: Mapping[str, Latency]) -> Array:
        """What a goal's limit is held against."""
        if self.before is not None:
            held = {name: in_turn(self.before, each) for name, each in latencies.items() if name in HELD}
            latencies = {**latencies, **held}
        if goal == "success":
            assert self.success
            first = latencies["ttft"]
            return np.asarray(self.success.within_s(np.asarray(first.p95_s), np.asarray(first.p99_s)), float)
        metric, _, which = goal.partition("_")
        return np.asarray(getattr(latencies[metric], f"{which}_s"), float)


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """Requests with one promise. `rate_per_s` is what replicas must carry: the peak for interactive work."""

    name: str
    lengths: Lengths
    rate_per_s: float
    slo: Slo
    shared_prefix_fraction: float = 0.0
    received_fraction: float = 0.0  # of the input, computed by workers for prompts
    outlasts_zone: bool = True  # whether spares stand ready for the loss of one

    def on(self, replica: Replica) -> Replica:
        """The replica as this class finds it: its shared prefix is in the cache."""
        found = {"shared_prefix_fraction": self.shared_prefix_fraction}
        cache = replace(replica.cache, **found, received_fraction=self.received_fraction)
        return replace(replica, cache=cache)


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


def _curve_to_limit(replica: Replica, lengths: Lengths, fleet_per_s: float = 0.0) -> LoadCurve:
    limit = sustained_batch(replica, lengths, batch_limit(replica, lengths))
    return price_curve(replica, lengths, float(np.max(limit)), fleet_per_s)


@dataclass(frozen=True, slots=True)
class Loads:
    """A replica along all its loads, whatever is promised there: what searches for other promises share."""

    views: tuple[LoadCurve, ...]  # as each class sees it, that is promised something
    points: Array  # batches that an arrival meets
    along: Served  # what the class of the first view gets there
    limits: dict[tuple[object, ...], "RateLimit"] = field(default_factory=dict)  # found before, by promises

    @classmethod
    def of(cls, *views: LoadCurve) -> "Loads":
        """One curve, as all classes see it that use the replica."""
        curve = views[0]
        # The batch at which the curve ends: the limit, or next to nothing above a lone request.
        end = np.maximum(np.atleast_1d(np.asarray(curve.limit_sequences, float)), 1.0 + 1e-6)
        points = end ** np.linspace(0.0, 1.0, CURVE_POINTS)  # even in the logarithm
        return cls(views, points, served_at(curve, points))


def rate_limit(replica: Replica, traffic: TrafficClass) -> RateLimit:
    """Requests/s of one replica within a class's objectives, alone on it.

    Formula  the largest rate on the load curve at which no promised quantile exceeds its target
    Why      Latencies rise with load, so that each promise is one crossing; the first one binds. As many such
             replicas as carry the class's rate share one gate, which sends each request to the least work.
    Shapes   as the replica's candidate axes; see `load_axis`.
    Units    1/s.
    Limits   0 where a lone request already misses; the saturation rate where nothing is promised.
    """
    return limit_within(loads_alone(replica, traffic), (traffic.slo,))


def loads_alone(replica: Replica, traffic: TrafficClass) -> Loads:
    """A replica along the loads of one class."""
    return Loads.of(_curve_to_limit(traffic.on(replica), traffic.lengths, traffic.rate_per_s))


def limit_within(loads: Loads, slos: Sequence[Slo]) -> RateLimit:
    """The first crossing of any promise on the one curve that all classes see, each with its own prompts."""
    promised = _promised(slos)
    if promised not in loads.limits:
        loads.limits[promised] = _first_crossing(loads, slos)
    return loads.limits[promised]


def limits_within(several: Iterable[Loads], slos: Sequence[Slo]) -> None:
    """Find `limit_within` of several at once, for whoever asks each: few candidates take as long as many."""
    alike: dict[int, list[Loads]] = {}
    for each in several:
        if _promised(slos) not in each.limits:
            alike.setdefault(each.views[0].met_sequences.size, []).append(each)
    for same in alike.values():
        counts = [len(each.points) for each in same]
        found = _first_crossing(side_by_side([replace(each, limits={}) for each in same], counts), slos)
        ends = np.cumsum(counts)[:-1]
        columns = (np.split(getattr(found, each.name), ends) for each in fields(found))
        for each, own in zip(same, zip(*columns, strict=True), strict=True):
            each.limits[_promised(slos)] = RateLimit(*own)


def _promised(slos: Sequence[Slo]) -> tuple[object, ...]:
    return tuple((*slo.latencies_s.items(), slo.success, slo.before) for slo in slos)


def _first_crossing(loads: Loads, slos: Sequence[Slo]) -> RateLimit:
    views, points, along = loads.views, loads.points, loads.along
    curve, end = views[0], points[..., -1:]
    names = [name for slo in slos for name in slo.targets_s]
    idle, met, broken = _crossing(views, slos, points, along) if names else (np.zeros(()), end, np.array(-1))
    fits = np.asarray(curve.limit_sequences) > 0
    rate, saturation = (np.where(fits, rate_at(curve, each), 0.0)[..., 0] for each in (met, end))
    columns = (
        np.where(broken < 0, saturation, np.minimum(rate, saturation)),
        met[..., 0],
        np.array([*names, "throughput"], "<U12")[broken],
        idle,
        _knee(np.asarray(along.requests_per_s, float), np.asarray(along.e2e.p95_s, float)),
        saturation,
    )
    return RateLimit(*(np.broadcast_to(each, saturation.shape) for each in columns))


def _ratios(
    views: Sequence[LoadCurve], slos: Sequence[Slo], met: Array, along: Served | None = None
) -> Array:
    """Every promised quantile over its target where arrivals meet `met`: [promise, …, batch].

    `along` is what the first view's class gets there, where it is known.
    """
    found = []
    for view, slo in zip(views, slos, strict=True):
        if targets := slo.targets_s:
            if along is not None and view is views[0]:
                latencies = {"ttft": along.ttft, "tpot": along.tpot, "e2e": along.e2e}
            else:
                asked = {name.split("_")[0] for name in targets} | ({"ttft"} if slo.success else set())
                latencies = latencies_at(view, met, asked)
            found += [slo.reached_s(name, latencies) / target for name, target in targets.items()]
    return np.stack(np.broadcast_arrays(*found))


def _crossing(
    views: Sequence[LoadCurve], slos: Sequence[Slo], points: Array, along: Served
) -> tuple[Array, Array, NDArray[np.intp]]:
    """The binding quantile without load, the last batch that keeps every promise, and which one breaks next.

    −1 where none breaks before the last of the points; the first of them where one is broken without load.
    """
    ratios = _ratios(views, slos, points, along)
    points = np.broadcast_to(points, ratios.shape[1:])
    worst = np.log(np.max(ratios, axis=0))
    bad = worst > 0.0
    first = np.where(np.any(bad, axis=-1), np.argmax(bad, axis=-1), points.shape[-1])[..., None]
    ends = [np.clip(each, 0, points.shape[-1] - 1) for each in (first - 1, first)]
    low, high = (np.take_along_axis(points, end, -1) for end in ends)
    low_value, high_value = (np.take_along_axis(worst, end, -1) for end in ends)
    met, after = _root(
        lambda at: np.log(np.max(_ratios(views, slos, at), axis=0)), low, high, low_value, high_value
    )
    breaks = np.argmax(_ratios(views, slos, after)[..., 0], axis=0)
    targets = np.array([target for slo in slos for target in slo.targets_s.values()])
    lone = np.take_along_axis(ratios[..., 0], breaks[None], axis=0)[0] * targets[breaks]
    never = first[..., 0] == points.shape[-1]
    return np.where(never, 0.0, lone), met, np.where(never, -1, breaks)


def _root(
    value_at: Callable[[Array], Array], low: Array, high: Array, low_value: Array, high_value: Array
) -> tuple[Array, Array]:
    """The last place found where a rising function is not above 0, and the first where it is.

    Regula falsi; an end that stays twice counts half (Illinois); from the tenth step on, every other one
    bisects.
    """
    done = ~(low < high)
    side = np.zeros(done.shape)
    for step in range(MOST_STEPS):
        if np.all(done):
            break
        low_value, high_value = np.where(done, -1.0, low_value), np.where(done, 1.0, high_value)
        share = 0.5 if step % 2 and step > 8 else low_value / (low_value - high_value)
        middle = low + (high - low) * share
        value = value_at(middle)
        kept = value <= 0.0
        low, high = np.where(kept & ~done, middle, low), np.where(kept | done, high, middle)
        low_value = np.where(kept, value, np.where(side < 0, 0.5 * low_value, low_value))
        high_value = np.where(kept, np.where(side > 0, 0.5 * high_value, high_value), value)
        side = np.where(kept, 1.0, -1.0)
        done = done | (kept & (value > -CLOSE)) | (high - low <= CLOSE * (high - 1.0))
    return low, high


def _knee(rate: Array, p95_s: Array) -> Array:
    """The first rate at which p95 grows by a larger share than throughput does."""
    p95 = np.where(np.isfinite(p95_s), p95_s, 1e9)
    growth = np.diff(np.log(np.maximum(p95, 1e-12)), axis=-1)
    more = np.diff(np.log(np.maximum(rate, 1e-12)), axis=-1)
    steep = growth > np.maximum(more, 0.0)
    first = np.where(np.any(steep, axis=-1), np.argmax(steep, axis=-1), rate.shape[-1] - 1)
    return np.take_along_axis(rate, first[..., None], axis=-1)[..., 0]


def merged_class(classes: Sequence[TrafficClass]) -> TrafficClass:
    """All classes as one stream without promises; the shared prefix is weighted by input tokens.

    Lengths are those of the mixture: means by rate, spreads that keep the mixture's variance.
    """
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
    lengths = Lengths(inputs, outputs, input_spread, output_spread)
    tokens = [each.rate_per_s * float(np.mean(each.lengths.input_tokens)) for each in classes]
    cached = sum(each.shared_prefix_fraction * weight for each, weight in zip(classes, tokens, strict=True))
    rate = sum(each.rate_per_s for each in classes)
    received = classes[0].received_fraction  # workers for answers receive all prompts, others none
    return TrafficClass("all", lengths, rate, Slo(), cached / sum(tokens), received)


def shared_rate_limit(replica: Replica, classes: Sequence[TrafficClass]) -> RateLimit:
    """Requests/s of one replica that all classes share by their rates, each within its promise."""
    return limit_within(loads_shared(replica, classes), [each.slo for each in classes])


def loads_shared(replica: Replica, classes: Sequence[TrafficClass]) -> Loads:
    """A replica along the loads of classes that share it by their rates."""
    mixed = merged_class(classes)
    curve = _curve_to_limit(mixed.on(replica), mixed.lengths, mixed.rate_per_s)
    return Loads.of(*(seen_by(curve, each.on(replica), each.lengths) for each in classes))


def shared_load(
    replica: Replica, classes: Sequence[TrafficClass], own: TrafficClass, requests_per_s: Floats
) -> Served:
    """What `own` gets of a replica that all `classes` share, at requests/s of all of them together."""
    return on_curve(peak_curve(replica, classes, own), requests_per_s)


def peak_curve(replica: Replica, classes: Sequence[TrafficClass], own: TrafficClass) -> LoadCurve:
    """The load curve of a replica that all `classes` share, as `own` sees it; of one, of it alone."""
    if len(classes) == 1:
        return open_curve(own.on(replica), own.lengths, fleet_per_s=own.rate_per_s)
    mixed, seen = merged_class(classes), (own.on(replica), own.lengths)
    return open_curve(mixed.on(replica), mixed.lengths, seen, mixed.rate_per_s)


def relieved(replica: Replica, resource: str, factor: float = 1.2) -> Replica:
    """The same replica with `factor` times as much of one resource (bandwidth compute capacity link host)."""
    cluster, engine, network = replica.cluster, replica.engine, replica.cluster.network
    if resource == "link":
        rates = ("link_bytes_per_s", "nic_bytes_per_s", "host_bytes_per_s")
        waits = ("link_latency_s", "launch_s", "engine_launch_s")
        faster = {name: getattr(network, name) * factor for name in rates}
        faster |= {name: getattr(network, name) / factor for name in waits}
        cluster = replace(cluster, network=replace(network, **faster))
    elif resource == "host":
        engine = engine.scaled({"host": factor})
    else:
        cluster = cluster.scaled({RESOURCES[resource].replace(" ", "_"): factor})
    return replace(replica, cluster=cluster, engine=engine)


# As `relieved` calls a resource -> as plans do.
RESOURCES: Mapping[str, str] = {
    "bandwidth": "memory bandwidth",
    "compute": "compute",
    "capacity": "memory capacity",
    "link": "link",
    "host": "host",
}


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
