"""Predict serving rows: time to first token, time per output token and throughput, each with an 80 % range.

Rows that share device, formats, engine and kind of load are priced in one pass; no row costs a model run.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import product
from math import exp, log
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.answer import loads
from twofold.answer.stacks import cluster_on, engine_on
from twofold.catalog.catalog import Catalog
from twofold.core.estimate import half_common
from twofold.inference import regimes
from twofold.inference.latency import Served
from twofold.inference.replica import Admission, CacheOptions, Engine, Replica, capacity, replica_of
from twofold.inference.steady import Lengths
from twofold.measure.inference_rows import Case, layouts, read_cases
from twofold.measure.truth import METRICS, Row, refusal
from twofold.perf.constants import Constants, format_scope
from twofold.perf.known import Known, load_known
from twofold.perf.shape import ModelShape, model_kind
from twofold.perf.software import engine_software
from twofold.perf.types import Cluster

Array = NDArray[np.float64]
RACK_SCALE_NODE = 4  # accelerators per tray where the scale-up domain is a rack
NIC_BYTES_PER_S = 50e9  # 400 Gb/s per accelerator: what published multi-node serving uses
KEPT_UP_FRACTION = 0.99  # of a rate: less is overload
USUAL_CHUNK_TOKENS = 8192.0  # what engines prefill in a step unless told


@dataclass(frozen=True, slots=True)
class Batch:
    """Cases that one call prices: their place among all cases, and the replica that they run on as arrays."""

    places: NDArray[np.intp]
    cases: tuple[Case, ...]
    replica: Replica
    lengths: Lengths
    habits: regimes.LimitHabits

    def column(self, name: str) -> Array:
        """A numeric field of all cases."""
        return _numbers(self.cases, name)


def predict_inference(
    rows: Sequence[Row], catalog: Catalog, constants: Constants, known: Known | None = None
) -> list[Row]:
    """The rows with `pred_…` columns appended; a row that cannot be answered says why in `pred_error`.

    `known` is what the fit of these constants has seen, the shipped table where it is not given.
    """
    known = known or load_known()
    cases, refused = read_cases(rows, catalog, constants)
    columns = {place: refusal("inference", reason) for place, reason in refused.items()}
    for place, predicted in zip(cases, best_layouts([*cases.values()], constants), strict=True):
        columns[place] = _columns(*predicted, constants, known)
    return [row | columns[place] for place, row in enumerate(rows)]


def best_layouts(
    cases: Sequence[Case], constants: Constants
) -> list[tuple[Case, dict[str, float], dict[str, float]]]:
    """Each case with its medians, and what physics leaves possible: least times, most tokens/s.

    Where a row leaves the layout open, the one of the highest throughput. A median is NaN where the model
    does not fit the memory.
    """
    tried = [(place, each) for place, case in enumerate(cases) for each in layouts(case)]
    values, ends = ({name: np.full(len(tried), np.nan) for name in METRICS["inference"]} for _ in range(2))
    for batch in batches([each for _, each in tried], constants):
        load, served = _served(batch)
        for name, column in _figures(batch, load, served).items():
            values[name][batch.places] = column
        bounds = loads.bounds(batch.replica, batch.lengths, load, served)
        for name, column in ends.items():
            scale = _copies(batch, load) if name.startswith("output") else 1e3
            column[batch.places] = bounds[name.split("_")[0]] * scale
    rates = values["output_tok_s"]
    best: dict[int, int] = {}
    for index, (place, _) in enumerate(tried):
        # Where the layout is open a deployer tunes it: the higher throughput wins.
        if place not in best or np.isnan(rates[best[place]]) or rates[index] > rates[best[place]]:
            best[place] = index
    medians, ends_of = (
        [{name: float(column[index]) for name, column in of.items()} for index in best.values()]
        for of in (values, ends)
    )
    return list(zip((tried[index][1] for index in best.values()), medians, ends_of, strict=True))


def batches(cases: Sequence[Case], constants: Constants) -> list[Batch]:
    """Group cases by what one call can share: device, formats, engine, kind of load and of attention."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for place, case in enumerate(cases):
        kind = (case.kind, case.fixed_batch, case.server_limit_s > 0, case.is_moe, case.is_mla)
        groups[case.accelerator.name, case.weights_format, case.kv_format, case.engine, kind].append(place)
    return [
        _batch(np.array(places), [cases[place] for place in places], constants) for places in groups.values()
    ]


def _batch(places: NDArray[np.intp], cases: Sequence[Case], constants: Constants) -> Batch:
    first = cases[0]
    column = partial(_numbers, cases)
    node_size = RACK_SCALE_NODE if first.accelerator.scaleup_domain_count >= 64 else 8
    count = int(max(column("accelerators")))
    cluster = cluster_on(first.accelerator, node_size, NIC_BYTES_PER_S, "infiniband", constants, count)
    shape = ModelShape.stacked([ModelShape.of(case.model) for case in cases])
    system = _system(cluster, cases, constants)
    stated, queued = column("max_batch"), column("scheduler.queued_clients")
    stated = np.where(queued > 0, np.maximum(column("concurrency") - queued, 1.0) / column("dp"), stated)
    chunk = column("scheduler.chunk_tokens")
    usual = engine_software(first.engine).usual_batch
    lengths = Lengths(
        column("input_tokens"), column("output_tokens"), column("length_spread"), column("answer_spread")
    )
    replica = replace(
        replica_of(shape, *system, first.weights_format, first.kv_format),
        tp=column("tp"),
        pp=column("pp"),
        ep=column("ep"),
        dp=column("dp"),
        rank_batch=np.where(stated > 0, stated, usual),
        chunk_tokens=np.where(chunk > 0, chunk, USUAL_CHUNK_TOKENS),
        admission=Admission(
            column("scheduler.wait_steps"),
            column("scheduler.wait_tokens"),
            np.maximum(column("scheduler.poll_steps"), 1.0),
        ),
        cache=CacheOptions(shared_prefix_fraction=column("shared_prefix_fraction")),
        draft_tokens=column("draft_tokens"),
        halved_fraction=np.array(
            [engine_software(each.engine).halves_in(each.version) for each in cases], float
        ),
        draft_accept_fraction=constants.get("benchmark_draft_accept_fraction"),
    )
    names = [field.name for field in fields(regimes.LimitHabits)]
    habits = regimes.LimitHabits(*(constants.get(f"benchmark_limit_{name}") for name in names))
    return Batch(places, tuple(cases), replica, lengths, habits)


def _numbers(cases: Sequence[Case], name: str) -> Array:
    return np.array([*map(attrgetter(name), cases)], float)


def _system(cluster: Cluster, cases: Sequence[Case], constants: Constants) -> tuple[Cluster, Engine]:
    """The machines, and one engine whose numbers are arrays over the cases, as their eras differ."""
    known: dict[str, tuple[Cluster, Engine]] = {}
    for case in cases:
        if case.version not in known:
            told = case.version, model_kind(case.model), case.weights_format
            known[case.version] = engine_on(cluster, case.engine, constants, *told)
    own, first = known[cases[0].version]
    if len(known) == 1:
        return own, first
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(Engine) if field.name not in ("name", "era")):
        # Under draws of constants each has a leading axis; cases are the last one.
        each = [np.atleast_1d(np.asarray(getattr(known[case.version][1], name), float)) for case in cases]
        found[name] = np.concatenate(np.broadcast_arrays(*each), axis=-1)
    return own, replace(first, era="", **found)


def price_batch(batch: Batch) -> dict[str, Array]:
    """What the batch serves under its load; throughput counts all replicas of the deployment."""
    return _figures(batch, *_served(batch))


def _served(batch: Batch) -> tuple[loads.Load, Served]:
    load = _load(batch)
    return load, loads.served(batch.replica, batch.lengths, load)


def _copies(batch: Batch, load: loads.Load) -> Array:
    """Replicas that each serve as much; what is disaggregated is served as a whole."""
    replicas = batch.column("replicas")
    return np.ones_like(replicas) if isinstance(load, loads.Disaggregated) else replicas


def _figures(batch: Batch, load: loads.Load, served: Served) -> dict[str, Array]:
    copies = _copies(batch, load)
    values = {
        "ttft_mean_ms": served.ttft.mean_s * 1e3,
        "ttft_p50_ms": served.ttft.p50_s * 1e3,
        "tpot_mean_ms": served.tpot.mean_s * 1e3,
        "tpot_p50_ms": served.tpot.p50_s * 1e3,
        "output_tok_s": served.output_tokens_per_s * copies,
        "e2e_p50_ms": served.e2e.p50_s * 1e3,
        "e2e_p99_ms": served.e2e.p99_s * 1e3,
    }
    # Weights beyond the whole memory cannot run; a cache that looks too small still serves one sequence.
    held = capacity(batch.replica)
    fits = held.weights_bytes <= batch.replica.cluster.device.memory_bytes
    # Under draws of constants a value has a leading axis; without, it may be one number for all cases.
    shape = np.broadcast_shapes(copies.shape, *(np.shape(value) for value in values.values()))
    return {name: np.where(fits, np.broadcast_to(value, shape), np.nan) for name, value in values.items()}


def _load(batch: Batch) -> loads.Load:
    """What one replica carries: the load of a whole deployment is shared by its copies."""
    first, replicas, concurrency = batch.cases[0], batch.column("replicas"), batch.column("concurrency")
    match first.kind:
        case "static":
            return loads.StaticBatch(np.maximum(1.0, concurrency / replicas))
        case "closed" if first.fixed_batch:
            return loads.HeldBatch(concurrency / replicas)
        case "closed":
            alike = batch.column("length_spread") + batch.column("answer_spread") == 0
            engine = batch.replica.engine
            together = np.where(alike, engine.lockstep_fraction, 0.0)
            whole = alike & engine_software(first.engine).prefills_first  # all clients stay together
            burst = np.where(whole, together, engine.wave_fraction)
            clients = np.maximum(concurrency / replicas, np.minimum(concurrency, 1.0))
            return loads.ClosedLoop(clients, burst, together)
        case "open":
            rate_per_s = batch.column("rate_per_s") / replicas
            if not first.server_limit_s:
                count = batch.column("request_count") / replicas
                return loads.SustainedRate(rate_per_s, request_count=count)
            limits_s = batch.column("server_limit_s"), batch.column("interactive_limit_s")
            return loads.SustainedRate(rate_per_s, limits_s, batch.habits)
        case "burst":
            return loads.Burst(np.maximum(concurrency / replicas, 1.0))
        case "saturated":
            return loads.Saturation()
        case "disaggregated":
            return _disaggregated(batch)


def _disaggregated(batch: Batch) -> loads.Disaggregated:
    """Rows describe one decode worker; prefill workers share what accelerators are left.

    Prefill of an expert model runs data-parallel attention over its worker's accelerators, of a dense one
    tensor-parallel.
    """
    decode_workers, prefill_workers = batch.column("decode_workers"), batch.column("prefill_workers")
    per_worker = np.asarray(batch.replica.accelerator_count)
    left = batch.column("accelerators") - decode_workers * per_worker
    size = np.where(left >= prefill_workers, left / prefill_workers, per_worker)
    one = np.ones_like(size)
    tp, ep = (one, size) if batch.cases[0].is_moe else (size, one)
    prefill = replace(batch.replica, tp=tp, ep=ep, dp=ep, pp=one)
    return loads.Disaggregated(batch.column("concurrency"), prefill, prefill_workers, decode_workers)


def _overload(case: Case, predicted: dict[str, float]) -> list[str]:
    """That requests come faster than they are served, where they do."""
    served_per_s = predicted["output_tok_s"] / case.output_tokens
    if case.kind != "open" or served_per_s > KEPT_UP_FRACTION * case.rate_per_s:
        return []
    return [f"overloaded: {case.rate_per_s:.3g} requests/s come, {served_per_s:.3g} are served"]


def _columns(
    case: Case, predicted: dict[str, float], bounds: dict[str, float], constants: Constants, known: Known
) -> Row:
    model, part, software = case.model, case.accelerator, engine_software(case.engine)
    if not np.isfinite(predicted["tpot_mean_ms"]):
        reason = f"E-memory: {model.name} does not fit {case.accelerators:g} × {part.name}"
        return refusal("inference", reason)
    basis, era = "assumed" if case.assumed else "stated", software.era_of(case.version)
    names = model.name, model_kind(model), part.name, part.family, case.engine, era
    scopes = {
        metric: known.serving_scope(metric, case.kind, *names) | {"basis": basis}
        for metric in dict.fromkeys(name.split("_")[0] for name in predicted)
    }
    columns = {
        "pred_basis": basis,
        "pred_error": "",
        "pred_assumptions": "; ".join((*case.assumed, *case.usual, *_overload(case, predicted))),
        "pred_group": format_scope(known.group_of("inference", scopes)),
    }
    factors: dict[tuple[str, str], tuple[float, float]] = {}  # of the ends of 80 and 95 % ranges
    for (name, value), share in product(predicted.items(), ("", "_95")):
        metric, bound = name.split("_")[0], bounds[name] / value
        if metric in ("ttft", "tpot"):
            spread = constants.estimate(f"interval_serving{share}_ratio", **scopes[metric])
            low, high = spread.low, spread.high
        else:
            decoding_ms = max(case.output_tokens - 1.0, 0.0) * predicted["tpot_mean_ms"]
            decoding = decoding_ms / (predicted["ttft_mean_ms"] + decoding_ms)
            low, high = _of_answers(factors["ttft_mean_ms", share], factors["tpot_mean_ms", share], decoding)
        if metric == "output":
            low, high = 1 / high, min(1 / low, max(bound, 1.0))
        else:
            low = max(low, min(bound, 1.0))
        factors[name, share] = low, high
        columns |= {f"pred_{name}": f"{value:.6g}"}
        columns |= {
            f"pred_{name}_{end}{share}": f"{value * by:.6g}" for end, by in (("low", low), ("high", high))
        }
    return columns


def _of_answers(
    first: tuple[float, float], token: tuple[float, float], decoding: float
) -> tuple[float, float]:
    """The ends of the range of whole answers, of which a share is spent decoding, as factors.

    Formula  log of either end: half_common of the decoding share of a token's and the rest of a first token's
    Why      Whole answers, and tokens/s that are clients over their times, are made of first tokens and
             tokens: ranges of their own contradicted these, and missed more of sources left out.
    """
    low, high = (
        half_common([decoding * abs(log(each)), (1 - decoding) * abs(log(begun))])
        for each, begun in zip(token, first, strict=True)
    )
    return exp(-low), exp(high)
