"""Replicas that the closed form asks for beside the fewest that hold on the twin, judged as rehearsals judge.

A grid of prompts, what of them is cached, answers and sizes of fleets. Each rate is the one for which a plan
takes so many replicas; the twin is then asked for the fewest, by halving. `full` are the replicas that the
closed form fills whole; a plan takes some more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.serving_plan import service_plan
from twofold.answer.serving_pools import sure_serving
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.spec.reader import parse_spec
from twofold.inference.fleet import target_utilisation
from twofold.perf.constants import load_constants
from twofold.rehearse.peak import on_twin, tables_of

COUNTS = (2, 5, 12, 30, 100)
FAR = 4.0  # times the planned replicas: the most that are tried, and as many times fewer
CLOSE = 0.1  # of the fewest that hold, or one replica


@dataclass(frozen=True, slots=True)
class Asked:
    """What a service is asked, and what it promises."""

    name: str
    model: str
    on: str
    input_tokens: int
    output_tokens: int
    cached: int  # per cent of the prompt
    goals: str
    spread: float = 3.0  # p95 over mean, of prompts
    weights: str = "fp8"


CASES = (
    Asked("1k chat", "llama-3.1-8b", "1xH100-SXM", 1000, 200, 0, "ttft_p95: 500 ms, tpot_p95: 20 ms"),
    Asked("1k half cached", "llama-3.1-8b", "1xH100-SXM", 1000, 200, 50, "ttft_p95: 300 ms, tpot_p95: 20 ms"),
    Asked(
        "1k chat, 70b", "llama-3.1-70b", "4xH100-SXM", 1155, 211, 0, "ttft_p95: 500 ms, tpot_p95: 40 ms", 3.5
    ),
    Asked("4k documents", "llama-3.1-8b", "1xH100-SXM", 4000, 300, 0, "ttft_p95: 2 s, tpot_p95: 30 ms"),
    Asked(
        "8k chat, cached", "llama-3.1-70b", "4xH100-SXM", 8000, 300, 90, "ttft_p95: 1 s, tpot_p95: 40 ms", 2.0
    ),
    Asked("32k", "llama-3.1-8b", "1xH100-SXM", 32_000, 300, 0, "ttft_p95: 10 s, tpot_p95: 60 ms", 1.5),
    Asked(
        "32k, cached", "llama-3.1-8b", "1xH100-SXM", 32_000, 300, 90, "ttft_p95: 3 s, tpot_p95: 50 ms", 1.8
    ),
    Asked("1k, answers of 1k", "qwen3-32b", "2xH100-SXM", 1000, 1000, 0, "e2e_p95: 60 s"),
)


def planned(case: Asked, rate_per_s: float) -> tuple[ServingChoice, ServicePlan, Context]:
    """The plan of a peak rate."""
    text = f"""
name: bench
confidence: 50 %
serving:
  model: {case.model}
  quantisation: {case.weights}
  on: {case.on}
  classes:
    all:
      traffic:
        rate: {rate_per_s:.9f} /s
        peak: 1x
        profile: flat
        input: {{mean: {case.input_tokens} tok, p95: {case.input_tokens * case.spread:.0f} tok}}
        output: {{mean: {case.output_tokens} tok, p95: {2 * case.output_tokens} tok}}
        shared_prefix: {case.cached} %
      slo: {{{case.goals}}}
"""
    spec, constants = parse_spec(text, "bench.yaml"), load_constants()
    context = Context(spec, load_catalog(), constants, draw_factors(constants, 2, 0), None)
    choice = sure_serving(spec.services[0], context)
    return choice, service_plan(choice, context), context


def of_size(case: Asked, count: int) -> tuple[ServingChoice, ServicePlan, Context]:
    """The plan of the rate that just needs so many replicas: how many one carries depends on all of them."""
    rate = 1.0
    for _ in range(4):
        pool = planned(case, rate)[0].fleet.pools[0]
        rate = target_utilisation(pool.at_once_count) * pool.limit_per_s * (count - 0.05)
    return planned(case, rate)


def fewest(choice: ServingChoice, plan: ServicePlan, context: Context) -> int:
    """Replicas without spares that hold on the twin, where one fewer does not."""
    tables, asked = tables_of(choice, context), choice.fleet.pools[0].count.needed

    def holds(count: int) -> bool:
        pools = tuple(replace(pool, replica_count=count, spare_count=0) for pool in plan.pools)
        return not any(each.missed for each in on_twin(replace(plan, pools=pools), tables))

    step = max(1, round(0.1 * asked))
    high = asked
    low = 0
    if holds(asked):
        while high > 1:
            low = max(high - step, 0)
            if low == 0 or not holds(low):
                break
            high, step = low, 2 * step
    else:
        low = asked
        while True:
            high = low + step
            if high > FAR * asked + 2 or holds(high):
                break
            low, step = high, 2 * step
    while high - low > max(1, round(0.02 * high)):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def main(arguments: Sequence[str] = ()) -> None:
    """Print planned beside fewest for every case, or those named, and how many are close."""
    wanted = [case for case in CASES if not arguments or case.name in arguments]
    print(f"{'replicas':20}{'size':>6}{'full':>8}{'planned':>9}{'fewest':>8}{'off':>8}  bound by")
    offs, near_count = [], 0
    for case in wanted:
        for count in COUNTS:
            choice, plan, context = of_size(case, count)
            pool = choice.fleet.pools[0]
            full, needed = pool.peak_per_s / pool.limit_per_s, pool.count.needed
            least = fewest(choice, plan, context)
            off, near = needed / least - 1.0, abs(needed - least) <= max(1, CLOSE * least)
            offs.append(abs(off))
            near_count += near
            print(
                f"{case.name:20}{count:6}{full:8.2f}{needed:9}{least:8}{off:8.0%}  {pool.binding}"
                f"{'' if near else '  !'}",
                flush=True,
            )
    print(f"close {near_count} of {len(offs)}, median {median(offs):.0%}")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
