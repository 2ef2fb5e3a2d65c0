"""Quantities of serving: iterations, loads, limits and layouts of a replica, by the models that plans use."""

# ruff: noqa: ARG001 (every quantity takes the world, every command the field that was asked)

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from twofold.answer import loads
from twofold.answer.quick_serve import ServingQuestion, make_replica
from twofold.contracts.goals import METRICS, QUANTILES, stated_goal
from twofold.core.errors import InfeasibleError
from twofold.inference.fleet import replicas_power_w
from twofold.inference.replica import CacheOptions, Replica, communication_bytes_per_token, max_sequences
from twofold.inference.slo import Slo, TrafficClass, bottleneck, rate_limit
from twofold.inference.steady import Lengths
from twofold.perf.software import DEFAULT_ENGINE
from twofold.perf.types import one
from twofold.verdicts.machines import machines, price_usd_per_h
from twofold.verdicts.world import CommandOf, World, one_of, options

PROMISED = TrafficClass("all", Lengths(1000.0, 200.0), 1.0, Slo({"ttft_p95": 1.0, "tpot_p95": 0.05}))
"""What a choice of hardware must carry: p95 of 1 s to the first token and 50 ms for each further one."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What one replica gives under a load."""

    tpot_s: float
    ttft_s: float
    e2e_s: float
    ttft_s_p50: float
    ttft_s_p95: float
    ttft_s_p99: float
    tpot_s_p95: float
    e2e_s_p50: float
    e2e_s_p95: float
    e2e_s_p99: float
    requests_per_s: float
    tokens_per_s: float
    batch: float
    utilisation: float
    mfu: float
    power_w: float
    tokens_per_j: float
    usd_per_mtok: float | None
    usd_per_request: float | None
    accelerators: int


LATENCIES = tuple(each.name for each in fields(Serving) if each.name.partition("_")[0] in METRICS)


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one step that only decodes, and shares of it."""

    total_s: float
    communication_fraction: float
    host_fraction: float


@dataclass(frozen=True, slots=True)
class Limit:
    """What one replica carries within its promises."""

    requests_per_s: float
    batch: float
    binding: str  # the promise that breaks next, or throughput
    knee_fraction: float  # of saturation, where p95 begins to grow faster than throughput
    saturation_per_s: float


def replica(
    world: World,
    model: str,
    on: str,
    weights: str = "bf16",
    kv: str = "bf16",
    engine_name: str = DEFAULT_ENGINE,
    tp: int | None = None,
    max_batch: int = 1024,
    prefix: float = 0.0,
    offload: float = 0.0,
    scale: str = "",
) -> Replica:
    """One copy of a model on all given accelerators, split by tensors unless `tp` says otherwise.

    Raises InfeasibleError where weights or the cache of one short request do not fit.
    """
    asked = model, on, weights, kv, engine_name, tp, max_batch, prefix, offload, scale

    def made() -> Replica | None:
        question = ServingQuestion(
            world.catalog.model(model),
            machines(world, on, scale=scale),
            input_tokens=256.0,
            output_tokens=0.0,
            weights_format=weights,
            kv_format=kv,
            engine_name=engine_name,
            max_batch=float(max_batch),
            cache=CacheOptions(shared_prefix_fraction=prefix, offload_bytes=offload),
        )
        count = question.machines.accelerator_count
        ranks = tp or count
        if count % ranks or question.model.heads % ranks:
            return None
        split = replace(make_replica(question, world.constants), tp=float(ranks), pp=float(count // ranks))
        return split if float(max_sequences(split, 256.0)) >= 1 else None

    found = world.once(("replica", *asked), made)
    if found is None:
        raise InfeasibleError(f"{model} in {weights} does not fit {on}, or is not divided by {tp or 'all'}")
    return found


def serve(
    world: World,
    model: str,
    on: str,
    input: int = 1000,
    output: int = 200,
    concurrency: int | None = None,
    rate: float | None = None,
    weights: str = "bf16",
    kv: str = "bf16",
    engine: str = DEFAULT_ENGINE,
    tp: int | None = None,
    prefix: float = 0.0,
    offload: float = 0.0,
    scale: str = "",
    spread: float = 0.0,
) -> Serving:
    """One replica under `concurrency` clients, a `rate` of arrivals, or as much as it carries.

    `spread` is the deviation of output lengths over their mean.
    """
    made = replica(world, model, on, weights, kv, engine, tp, prefix=prefix, offload=offload, scale=scale)
    lengths = Lengths(float(input), float(output), 0.0, spread)
    if float(max_sequences(made, float(input + output))) < 1:
        raise InfeasibleError(f"{on} does not hold one request")
    asked: loads.Load = loads.Saturation()
    if concurrency is not None:
        asked = loads.ClosedLoop(float(concurrency))
    elif rate is not None:
        asked = loads.OpenLoop(rate)
    load = loads.served(made, lengths, asked)
    if not np.all(np.isfinite(np.asarray(load.e2e.mean_s, float))):
        raise InfeasibleError(f"{on} saturates below {rate:g} requests/s")
    found = machines(world, on)
    price, count = price_usd_per_h(found), int(one(made.accelerator_count))
    requests, tokens = one(load.requests_per_s), one(load.output_tokens_per_s)
    watts = replicas_power_w(made, load.batch_sequences, 1)
    peak = found.cluster.device.peak_flops_per_s.get("bf16", np.nan)
    flops = 2.0 * world.catalog.model(model).parameters_active
    work = requests * (one(lengths.input_tokens) + one(lengths.output_tokens)) * flops
    latencies = {}
    for name in LATENCIES:  # `ttft_s_p95`, or the mean of all for `ttft_s`
        metric, _, which = name.partition("_s")
        latencies[name] = one(getattr(getattr(load, metric), f"{which.removeprefix('_') or 'mean'}_s"))
    return Serving(
        **latencies,
        requests_per_s=requests,
        tokens_per_s=tokens,
        batch=one(load.batch_sequences),
        utilisation=one(load.utilisation_fraction),
        mfu=work / (count * one(peak)),
        power_w=watts,
        tokens_per_j=requests * (tokens / max(requests, 1e-30)) / max(watts, 1e-30),
        usd_per_mtok=None if price is None else price * count / 3600 / tokens * 1e6,
        usd_per_request=None if price is None else price * count / 3600 / requests,
        accelerators=count,
    )


def decode_step(
    world: World,
    model: str,
    on: str,
    batch: int = 1,
    context: int = 1000,
    weights: str = "bf16",
    scale: str = "",
) -> Step:
    """One step that decodes `batch` sequences of `context` tokens each, none prefilled."""
    made = replica(world, model, on, weights, scale=scale)
    step = loads.decode_step(made, float(batch), float(context))
    total_s = one(step.total_s)
    return Step(total_s, one(step.communication_s) / total_s, one(step.host_s) / total_s)


def prefill_s(
    world: World, model: str, on: str, tokens: int, weights: str = "bf16", scale: str = ""
) -> float:
    """Seconds of one step that prefills so many tokens and decodes none."""
    made = replica(world, model, on, weights, scale=scale)
    return one(loads.prefill_step(made, float(tokens)).total_s)


def static_tokens_per_s(
    world: World,
    model: str,
    on: str,
    batch: int,
    input: int = 1000,
    output: int = 200,
    spread: float = 0.0,
    weights: str = "bf16",
) -> float:
    """Useful output tokens/s of one batch that starts and ends together.

    With lengths of deviation `spread` over their mean, the batch lasts as long as its longest answer, the
    expected maximum of a log-normal: mean · exp(σ√(2 ln batch) − σ²/2), σ² = ln(1 + spread²).
    """
    made = replica(world, model, on, weights, max_batch=batch)
    sigma = float(np.sqrt(np.log1p(spread**2)))
    longest = float(np.exp(sigma * np.sqrt(2.0 * np.log(max(batch, 1))) - sigma**2 / 2.0)) if spread else 1.0
    load = loads.served(made, Lengths(float(input), output * longest), loads.StaticBatch(float(batch)))
    return one(load.output_tokens_per_s) / longest


def limit(
    world: World,
    model: str,
    on: str,
    ttft_s: float | None = 1.0,
    tpot_s: float | None = 0.05,
    e2e_s: float | None = None,
    input: int = 1000,
    output: int = 200,
    quantile: str = "p95",
    weights: str = "bf16",
    prefix: float = 0.0,
) -> Limit:
    """Requests/s of one replica within promises on a quantile of first token, token and whole answer.
    A promise of 0 s is none.
    """
    made = replica(world, model, on, weights, prefix=prefix)
    one_of(quantile, QUANTILES, "quantile")
    promised = {"ttft": ttft_s, "tpot": tpot_s, "e2e": e2e_s}
    slo = Slo({f"{name}_{quantile}": value for name, value in promised.items() if value})
    found = rate_limit(made, TrafficClass("all", Lengths(float(input), float(output)), 1.0, slo, prefix))
    saturation = one(found.saturation_requests_per_s)
    return Limit(
        one(found.requests_per_s),
        one(found.met_sequences),
        stated_goal(str(np.ravel(found.binding)[0])),
        one(found.knee_requests_per_s) / saturation if saturation else 0.0,
        saturation,
    )


def serving_gains(
    world: World, model: str, on: str, input: int = 1000, output: int = 200, weights: str = "bf16"
) -> Mapping[str, float]:
    """Requests/s within promises that 20 % more gains, of bandwidth, compute, capacity, link and host."""
    traffic = replace(PROMISED, lengths=Lengths(float(input), float(output)))
    return world.once(
        ("serving gains", model, on, input, output, weights),
        lambda: bottleneck(replica(world, model, on, weights), traffic),
    )


def serving_gain(
    world: World,
    model: str,
    on: str,
    resource: str,
    input: int = 1000,
    output: int = 200,
    weights: str = "bf16",
) -> float:
    """Requests/s within promises that 20 % more of one resource gains, as a share."""
    gains = serving_gains(world, model, on, input, output, weights)
    return gains[one_of(resource, gains, "resource")]


def serving_needs_first(
    world: World, model: str, on: str, input: int = 1000, output: int = 200, weights: str = "bf16"
) -> str:
    """The resource of which 20 % more carries most further requests."""
    gains = serving_gains(world, model, on, input, output, weights)
    return max(gains, key=lambda name: gains[name])


def step_bound(world: World, model: str, on: str, phase: str, batch: int = 1, weights: str = "bf16") -> str:
    """The resource of which 20 % more shortens a `decode` step most, or a `prefill` of 1,000 tokens each."""

    one_of(phase, ("decode", "prefill"), "phase")

    def seconds(scale: str) -> float:
        if phase == "decode":
            return decode_step(world, model, on, batch, 1000, weights, scale).total_s
        return prefill_s(world, model, on, 1000 * batch, weights, scale)

    names = {"compute": "compute", "bandwidth": "memory_bandwidth", "link": "link"}
    plain = seconds("")
    gains = {name: plain - seconds(f"{resource}=1.2") for name, resource in names.items()}
    return max(gains, key=lambda name: gains[name])


def sent_per_token(world: World, model: str, on: str, tp: int | None = None) -> float:
    """Bytes that one accelerator sends for every token of a replica."""
    return one(communication_bytes_per_token(replica(world, model, on, tp=tp)))


def serving_layout(world: World, model: str, on: str, metric: str = "latency") -> str:
    """The split of a replica that is best for `latency` of a token or for `throughput`: TP, PP or both."""
    made = replica(world, model, on)
    one_of(metric, ("latency", "throughput"), "metric")
    count = int(one(made.accelerator_count))
    tp = np.array([size for size in (1, 2, 4, 8) if count % size == 0], float)
    swept, lengths = replace(made, tp=tp, pp=count / tp), Lengths(1000.0, 200.0)
    holds = np.asarray(max_sequences(swept, 1200.0, 1000.0)) >= 1.0
    if not holds.any():
        raise InfeasibleError("nothing fits")
    if metric == "latency":
        merit = -np.asarray(loads.served(swept, lengths, loads.MetBatch(1.0)).tpot.mean_s)
    else:
        merit = np.asarray(loads.served(swept, lengths, loads.Saturation()).output_tokens_per_s)
    best = tp[np.argmax(np.where(holds, merit, -np.inf))]
    return " and ".join(name for name, size in (("TP", best), ("PP", count / best)) if size > 1) or "neither"


def _shown(arguments: Mapping[str, Any], asked: str) -> str:
    """The command that shows a load, where `estimate serve` has its arguments."""
    if (arguments["concurrency"] is None and arguments["rate"] is None) or arguments["spread"]:
        return ""
    told = {
        **arguments,
        "rate": f"{arguments['rate']:g} /s" if arguments["rate"] is not None else None,
        "prefix": f"{arguments['prefix']:.0%}" if arguments["prefix"] else None,
        "offload": f"{arguments['offload'] / 1e9:g} GB" if arguments["offload"] else None,
        "kv": None if arguments["kv"] == "bf16" else arguments["kv"],
        "engine": None if arguments["engine"] == DEFAULT_ENGINE else arguments["engine"],
    }
    names = "on input output concurrency rate weights kv engine tp prefix offload scale"
    return f"twofold estimate serve {arguments['model']}{options(told, names.split())}"


COMMANDS: Mapping[str, CommandOf] = {"serve": _shown}
