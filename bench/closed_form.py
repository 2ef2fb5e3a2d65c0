"""The closed form of serving beside the twin: ratios of latencies at random arrivals.

By replica, spread of prompts and load, alone and among others behind a gate that routes by least work. Names
of cases or families choose among them: `python -m bench.closed_form slow "8b, H100"`; `sizes` prints replicas
planned beside the fewest that hold (`bench/fleet_sizes.py`).
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist, median

import numpy as np
from numpy.typing import NDArray

from bench import fleet_sizes
from twofold.catalog.catalog import load_catalog
from twofold.gating.beliefs import half_full, replica_beliefs
from twofold.inference import regimes
from twofold.inference.replica import Replica, engine
from twofold.inference.steady import Lengths
from twofold.inference.table import ServiceTable
from twofold.perf.constants import load_constants
from twofold.perf.device import device, network
from twofold.perf.shape import ModelShape, model_kind
from twofold.perf.types import Cluster
from twofold.policy.gate.events import ReplicaAdded, RequestArrived
from twofold.policy.gate.fleet_view import FleetView, Request
from twofold.policy.gate.routing import Router
from twofold.policy.gate.settings import Beliefs, GateSettings, Routing, RoutingSettings
from twofold.rehearse.engine import engine_settings
from twofold.twin.serving.engine import Engine
from twofold.twin.serving.engine_types import EngineWork, FirstToken
from twofold.twin.serving.step_table import StepTable

Array = NDArray[np.float64]
REQUESTS = 8000  # per replica
WARM_UP_FRACTION = 0.05
LIMIT_RATIO = 4  # of a mean answer, that clients ask for at most: as a rehearsal's do
LOADS = (0.2, 0.4, 0.6, 0.85)  # of what carries prompts that are all alike
SPREADS = (0.0, 0.5, 1.0, 1.5, 2.0)
FLEETS, FLEET_SPREAD = (2, 6), 1.5
SIZES = "sizes"
FIGURES = (
    "ttft mean", "ttft p50", "ttft p95", "ttft p99", "tpot mean", "tpot p95", "tpot p99",
    "e2e p95", "e2e p99",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A replica and what it is asked. Slow ones take about as long for a mean prompt as people will wait."""

    name: str
    family: str
    model: str
    part: str
    weights: str
    tp: float
    chunk_tokens: float
    max_batch: float
    input_tokens: float
    output_tokens: float
    output_spread: float = 0.0


CASES = (
    Case("8b, H100", "fast", "llama-3.1-8b", "H100-SXM", "bf16", 1.0, 8192.0, 1024.0, 1155.0, 211.0),
    Case("70b, 4 H200", "fast", "llama-3.1-70b", "H200", "fp8", 4.0, 8192.0, 1024.0, 1155.0, 211.0),
    Case("gpt-oss, 2 H100", "fast", "gpt-oss-120b", "H100-SXM", "mxfp4", 2.0, 2048.0, 1024.0, 1000.0, 300.0),
    Case("32b, 2 A100", "fast", "qwen3-32b", "A100-80GB", "bf16", 2.0, 2048.0, 512.0, 2000.0, 300.0),
    Case("8b fp8, L4", "slow", "llama-3.1-8b", "L4", "fp8", 1.0, 2048.0, 256.0, 809.0, 150.0),
    Case("8b, L4", "slow", "llama-3.1-8b", "L4", "bf16", 1.0, 2048.0, 256.0, 600.0, 150.0, 0.9),
    Case("8b, A10", "slow", "llama-3.1-8b", "A10", "bf16", 1.0, 2048.0, 256.0, 900.0, 200.0, 0.9),
    Case("14b, 2 L4", "slow", "qwen3-14b", "L4", "bf16", 2.0, 2048.0, 256.0, 800.0, 200.0, 0.9),
)


@cache
def replica_of(case: Case) -> Replica:
    """The replica with the software of now."""
    catalog, constants = load_catalog(), load_constants()
    part, model = catalog.accelerator(case.part), catalog.model(case.model)
    cluster = Cluster(device(part, constants), network(part, 8, 50e9, "infiniband", constants), 8)
    software = engine(
        constants, "vllm", "0.15", family=part.family, model=model_kind(model), weights_format=case.weights
    )
    activation = cluster.device.default_activation_format(case.weights)
    made = Replica(ModelShape.of(model), cluster, software, case.weights, activation, tp=case.tp)
    return replace(made, chunk_tokens=case.chunk_tokens, rank_batch=case.max_batch)


@cache
def table_of(case: Case) -> StepTable:
    """Its step times."""
    return StepTable.from_service_table(ServiceTable.of(replica_of(case)))


def lengths_of(case: Case, spread: float) -> Lengths:
    """What is asked of it, prompts spread by so much."""
    return Lengths(case.input_tokens, case.output_tokens, spread, case.output_spread)


def rate_of(case: Case, load: float) -> float:
    """Requests/s at a share of what carries prompts that are all alike."""
    alike = replace(lengths_of(case, 0.0), output_spread=0.0)
    return load / float(regimes.open_loop(replica_of(case), alike, 1.0).utilisation_fraction)


def drawn(mean: float, spread: float, count: int, random: np.random.Generator) -> Sequence[int]:
    """Log-normal lengths, evenly over their quantiles: their mean and spread do not depend on chance."""
    normal = NormalDist()
    places = np.array([normal.inv_cdf((each + 0.5) / count) for each in range(count)])
    sigma = np.sqrt(np.log1p(spread**2))
    lengths = mean * np.exp(sigma * places - 0.5 * sigma**2)
    random.shuffle(lengths)
    return [max(1, round(each)) for each in lengths]


@cache
def beliefs_of(case: Case) -> Beliefs:
    """What its gate believes of it: the truth."""
    replica = replica_of(case)
    table = ServiceTable.of(replica)
    return replica_beliefs(replica, table, half_full(table))


def seen(
    case: Case, spread: float, load: float, replica_count: int = 1, request_count: int = REQUESTS
) -> list[float]:
    """`FIGURES` on the twin, of so many requests per replica."""
    count, random = request_count * replica_count, np.random.default_rng(4)
    at_s = np.cumsum(random.exponential(1.0, count))
    at_s *= count / at_s[-1] / (rate_of(case, load) * replica_count)
    prompts = drawn(case.input_tokens, spread, count, random)
    answers = drawn(case.output_tokens, case.output_spread, count, random)
    first_s, done_s = routed(case, at_s.tolist(), prompts, answers, replica_count)
    # Without those that come before a steady state, and prompts longer than the whole cache.
    kept = np.isfinite(first_s) & (np.arange(count) >= count * WARM_UP_FRACTION)
    outputs, sent_s, first_s, done_s = np.array(answers)[kept], at_s[kept], first_s[kept], done_s[kept]
    tpot_s = ((done_s - first_s) / np.maximum(outputs - 1, 1))[outputs > 1]
    found = {"ttft": first_s - sent_s, "tpot": tpot_s, "e2e": done_s - sent_s}
    return [figure_of(found[name.split(" ")[0]], name.split(" ")[1]) for name in FIGURES]


def routed(
    case: Case, at_s: Sequence[float], prompts: Sequence[int], answers: Sequence[int], replica_count: int
) -> tuple[Array, Array]:
    """Seconds at which first and last tokens left engines among which a gate's router chose."""
    table, count = table_of(case), len(at_s)
    settings = engine_settings(replica_of(case), table)
    router = Router(Routing.LEAST_WORK, RoutingSettings())
    view, engines = FleetView(GateSettings(), beliefs_of(case)), {}
    for number in range(replica_count):
        engines[f"r{number}"] = Engine(table, settings)
        view.add_replica(ReplicaAdded(f"r{number}", count))
    limit_tokens = round(LIMIT_RATIO * case.output_tokens)
    first_s, done_s = np.full(count, np.nan), np.full(count, np.nan)

    def live(each: Engine, now_s: float) -> None:
        for output in each.advance(now_s):
            request = view.requests[output.key]
            if isinstance(output, FirstToken):
                first_s[output.key] = output.at_s
                view.start(request)
            else:
                done_s[output.key] = output.at_s
                view.release(request)

    for key, now_s in enumerate(at_s):
        for each in engines.values():
            live(each, now_s)
        request = Request(key, RequestArrived(prompts[key], limit_tokens))
        replica = router.route(view, request, now_s)
        assert replica is not None, key
        view.place(request, replica, now_s)
        engines[replica.replica_id].submit(EngineWork(key, prompts[key], answers[key]), now_s)
    for each in engines.values():
        while (next_s := each.next_at_s()) is not None:
            live(each, next_s)
    return first_s, done_s


def figure_of(values: Array, which: str) -> float:
    """A mean or a quantile."""
    return float(np.mean(values) if which == "mean" else np.quantile(values, float(which[1:]) / 100))


def told(case: Case, spread: float, load: float, replica_count: int = 1) -> list[float]:
    """`FIGURES` of the closed form."""
    rate = rate_of(case, load)
    found = regimes.open_loop(
        replica_of(case), lengths_of(case, spread), rate, fleet_per_s=replica_count * rate
    )
    named = (figure.split(" ") for figure in FIGURES)
    return [float(getattr(getattr(found, metric), f"{which}_s")) for metric, which in named]


def cells() -> list[tuple[Case, float, float, int]]:
    """Every replica alone at all spreads and loads, and in fleets at one spread."""
    alone = [(case, spread, load, 1) for case in CASES for spread in SPREADS for load in LOADS]
    return alone + [(case, FLEET_SPREAD, load, many) for case in CASES for many in FLEETS for load in LOADS]


def main(arguments: Sequence[str] = ()) -> None:
    """Print closed form over twin for every cell of the cases named, then median errors by family."""
    known = sorted({SIZES, *(name for case in CASES for name in (case.name, case.family))})
    parser = argparse.ArgumentParser(prog="python -m bench.closed_form")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of these, all without: {known}")
    wanted = parser.parse_args(arguments).names
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        parser.error(f"no case or family {unknown}: there are {known}")
    if not wanted or SIZES in wanted:
        fleet_sizes.main()
    if wanted == [SIZES]:
        return
    print(
        f"{'closed form / twin':18}{'n':>3}{'spread':>7}{'load':>6}"
        + "".join(f"{each:>10}" for each in FIGURES)
    )
    errors: dict[str, list[list[float]]] = {}
    for cell in cells():
        case, spread, load, many = cell
        if wanted and case.name not in wanted and case.family not in wanted:
            continue
        ratios = [ours / theirs for ours, theirs in zip(told(*cell), seen(*cell), strict=True)]
        family = case.family if many == 1 else f"{case.family} fleets"
        errors.setdefault(family, []).append([abs(each - 1.0) for each in ratios])
        print(f"{case.name:18}{many:3}{spread:7.1f}{load:6.2f}" + "".join(f"{each:10.2f}" for each in ratios))
    for family, rows in errors.items():
        for name, of in (("median error", median), ("90th percentile", ninetieth)):
            columns = [of(column) for column in zip(*rows, strict=True)]
            print(f"{family:14}{name:20}" + "".join(f"{each:10.0%}" for each in columns))


def ninetieth(values: Iterable[float]) -> float:
    """Below which nine in ten lie."""
    return float(np.quantile(list(values), 0.9))


if __name__ == "__main__":
    main(sys.argv[1:])
