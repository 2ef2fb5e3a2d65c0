"""How surely goals hold: all at once, what other confidences take, and what measuring first would save."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, inf, log, prod, sqrt
from operator import mul
from statistics import NormalDist
from typing import Any

import numpy as np

from twofold.answer import measured_serving
from twofold.answer.context import Context
from twofold.answer.measured_choice import MeasuredChoice
from twofold.answer.measured_training import run_total
from twofold.answer.ranges import GROWN_MOST
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.serving_pools import goals_of_pools
from twofold.answer.training_choice import TrainingChoice
from twofold.contracts.goals import metric_text
from twofold.contracts.results.plan import (
    Confidence,
    MeasureFirst,
    Plan,
    Rung,
)
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.inference.search import PoolChoice

CONFIDENCES = (0.5, 0.8, 0.95)
# Median errors of predictions that ten rows of the user's own calibrated, docs/accuracy.md, "after 10 rows":
# a normal error's median is 0.6745 of its deviation. A whole answer is mostly tokens.
MEASURED_LOG = {
    "ttft": 0.137 / 0.6745,
    "tpot": 0.070 / 0.6745,
    "e2e": 0.070 / 0.6745,
    "finish": 0.072 / 0.6745,
}
Z_80 = NormalDist().inv_cdf(0.9)
SHIFTS = tuple(NormalDist().inv_cdf((index + 0.5) / 40) for index in range(40))
WORTH_SAYING = 0.05  # of the replicas


@dataclass(frozen=True, slots=True)
class _Sized:
    """A pool at one confidence."""

    pool: PoolChoice
    needed: int  # replicas without spares
    holds_fraction: float  # of its least probable goal
    reached: bool


@dataclass(frozen=True, slots=True)
class _Tried:
    """A pool with what is predicted for its goals with so many replicas, and how probable they are."""

    pool: PoolChoice
    goals: Callable[[int], Mapping[tuple[str, str], tuple[Any, float]]]
    seen: dict[int, float] = field(default_factory=dict)

    def probability(self, needed: int) -> float:
        """That the least probable goal of the pool holds with so many replicas at work."""
        if needed not in self.seen:
            figures = self.goals(needed).values()
            chances = (figure.probability_within(limit_s) for figure, limit_s in figures)
            self.seen[needed] = min(chances, default=1.0)
        return self.seen[needed]


def _confidence(
    plan: Plan,
    runs: Mapping[str, TrainingChoice | MeasuredChoice],
    services: Mapping[str, Sequence[_Tried]],
    context: Context,
) -> Confidence:
    """How probably all goals hold at once, and which are below what a spec asks.

    Formula  the share of the draws in which every goal holds × those of services of measured rows
    Why      Draws are common: what errs for one goal errs for others too, so that all hold more often than
             chances multiplied would say. Rows of one service say nothing of another's.
    """
    figures = [(run_total(run, context), run.entry.time_limit_s or inf) for run in runs.values()]
    for pools in services.values():
        for each in pools:
            figures += each.goals(each.pool.count.needed).values()
    together = np.all([figure.samples <= limit for figure, limit in figures], axis=0) if figures else 1.0
    chances = {f"{run.name} deadline": run.run.deadline_holds_probability for run in plan.training}
    joint = float(np.mean(together))
    for service in plan.serving:
        own = {
            f"{service.name}.{each.name} {metric_text(slo.metric)}": slo.holds_probability
            for each in service.classes
            for slo in each.slos
        }
        joint *= 1.0 if service.name in services else prod(1.0 if p is None else p for p in own.values())
        chances |= own
    below = context.spec.margin_fraction or 0.0  # half asks for the middle, which every plan keeps
    asked = context.spec.confidence_fraction
    return Confidence(asked, joint, {name: p for name, p in chances.items() if p is not None and p < below})


def with_ladder(
    plan: Plan,
    runs: Mapping[str, TrainingChoice | MeasuredChoice],
    services: Mapping[str, ServingChoice],
    context: Context,
) -> Plan:
    """The plan with how sure it is, what other confidences would take, and what measuring first may save."""
    asked = context.spec.confidence_fraction
    tried = {
        name: list(map(_Tried, choice.fleet.pools, goals_of_pools(choice, context)))
        for name, choice in services.items()
    }
    plan = replace(plan, confidence=_confidence(plan, runs, tried, context))
    if plan.rehearsed:  # by the twin: what the closed form says of other confidences is no rung beside it
        return plan
    ladder = [rung for run in plan.training for rung in _run_rungs(run, runs[run.name], context)]
    saved = []
    for service in plan.serving:
        if service.name in services:
            choice, own = services[service.name], tried[service.name]
            pools = {sure: _sized(own, sure, asked) for sure in (*CONFIDENCES, asked)}
            ladder += _service_rungs(service, choice, pools, asked)
            saved += list(_measured(service, choice, own, pools[0.5], asked))
        else:
            ladder += _measured_rungs(service, context)
    saved.sort(key=lambda each: -(each.usd_per_year or 0.0))
    return replace(plan, ladder=tuple(ladder), measure_first=tuple(saved))


def _sized(tried: Sequence[_Tried], sure: float, asked: float) -> list[_Sized]:
    """Every pool with the fewest replicas of its layout with which each of its goals holds so surely.

    Formula  the planned ones at the confidence of the plan, and at more where they hold so surely already;
             else bisected, over the plan's own draws, and never fewer than a plan of the middle fills
    Why      Each of more replicas takes less of the peak, so that every goal holds in more of the draws.
    Limits   `GROWN_MOST` times what the middle takes, as for the plan.
    """
    found = []
    for pool in tried:
        planned = pool.pool.count.needed
        holds = pool.probability(planned)
        reached = holds >= sure or sure <= CONFIDENCES[0]
        if sure < asked and holds >= sure:
            needed = max(_fewest(pool, sure, (0, planned)).needed, _filled(pool))
            found.append(_Sized(pool.pool, needed, pool.probability(needed), True))
        elif sure != asked and not reached:
            middle = planned if asked <= CONFIDENCES[0] else _fewest(pool, 0.5, (0, planned)).needed
            found.append(_fewest(pool, sure, (planned, max(planned, round(GROWN_MOST * middle)))))
        else:
            found.append(_Sized(pool.pool, planned, holds, reached))
    return found


def _filled(tried: _Tried) -> int:
    """Replicas that a plan of the middle takes: full to the share that it leaves for chance."""
    pool = tried.pool
    just = _fewest(tried, CONFIDENCES[0], (0, pool.count.needed)).needed
    return min(pool.count.needed, ceil(just / pool.filled_fraction - 1e-9))


def _fewest(tried: _Tried, sure: float, ends: tuple[int, int]) -> _Sized:
    """The fewest replicas above the first of the ends; as planned where the other is too few."""
    (least, most), pool = ends, tried.pool
    if tried.probability(most) < sure:
        return _Sized(pool, pool.count.needed, tried.probability(pool.count.needed), False)
    while most - least > max(1, round(0.01 * most)):
        middle = (least + most) // 2
        least, most = (least, middle) if tried.probability(middle) >= sure else (middle, most)
    return _Sized(pool, most, tried.probability(most), True)


def _service_rungs(
    service: ServicePlan, choice: ServingChoice, pools: Mapping[float, Sequence[_Sized]], asked: float
) -> Iterator[Rung]:
    """A service at every confidence, spares as planned; the plan's own rung is the plan."""
    usd = service.cost_usd_per_year.value if service.cost_usd_per_year else None
    leased, own = service.machine.accelerator_count, pools[asked]
    for sure in sorted(pools):
        reached = all(each.reached for each in pools[sure])
        sized = pools[sure] if reached else own
        grown = [(each.needed + each.pool.count.spare) / each.pool.count.total for each in sized]
        paid, used = (
            sum(map(mul, parts, grown)) if sized is not own else 1.0
            for parts in (_parts(choice, choice.held.fractions if choice.held else {}), _parts(choice, {}))
        )
        yield Rung(
            name=service.name,
            confidence=sure,
            replica_count=sum(each.needed for each in sized),
            accelerator_count=round(leased * used),
            usd_per_year=None if usd is None else usd * paid,
            probability=min(each.holds_fraction for each in sized),
            binds="" if reached else Confidence.NOT_BY_REPLICAS,
            gate=_beyond(service, round(leased * used), choice.offer.held),
        )


def _measured_rungs(service: ServicePlan, context: Context) -> Iterator[Rung]:
    """The same of a service of measured rows."""
    entry = next(each for each in context.spec.services if each.name == service.name)
    confidences = sorted({*CONFIDENCES, context.spec.confidence_fraction})
    held = measured_serving.held_for(entry, context) if service.machine.price is None else 0
    for rung in measured_serving.measured_rungs(service, entry, confidences):
        yield replace(rung, gate=_beyond(service, rung.accelerator_count, held))


def _beyond(half: TrainingPlan | ServicePlan, accelerator_count: int, own_count: int = 0) -> str:
    """Whom to ask for more than the plan's offer has without a contract; "" where it has as many."""
    machine, price = half.machine, half.machine.price
    held = machine.accelerator_count - machine.hourly_count  # all year, at another price
    most = own_count if price is None else price.quantity
    if not most or accelerator_count <= max(most + held, machine.accelerator_count):
        return ""
    if price is None:
        return f"beyond your own {most:,}: own more, or rent"
    return f"beyond the {most:,} GPUs that {price.provider} sells so: ask for a quote"


def _parts(choice: ServingChoice, held: Mapping[str, float]) -> list[float]:
    """The part of a service's accelerators that each of its pools is, or of what they are held for."""
    sizes = [pool.accelerators * held.get(pool.classes[0], 1.0) for pool in choice.fleet.pools]
    return [each / sum(sizes) for each in sizes]


def _measured(
    service: ServicePlan,
    choice: ServingChoice,
    tried: Sequence[_Tried],
    halves: Sequence[_Sized],
    asked: float,
) -> Iterator[MeasureFirst]:
    """What an hour of measuring on one node is expected to save of a service's replicas.

    Formula  E = mean over s of ⌈N · expected_ratio⌉ by pool, see `needed_ratio`
    Limits   each pool by its least probable goal; nothing where replicas do not help, or the middle is asked
    """
    if asked <= CONFIDENCES[0]:
        return
    expected, usd = 0.0, 0.0
    parts = _parts(choice, choice.held.fractions if choice.held else {})
    for half, each, weight in zip(halves, tried, parts, strict=True):
        pool, figures = half.pool, each.goals(half.pool.count.needed)
        goal = min(
            figures, key=lambda each: figures[each][0].probability_within(figures[each][1]), default=None
        )
        own = float(pool.count.needed)
        if goal is not None:
            low, high = np.quantile(figures[goal][0].samples, (0.1, 0.9))
            deviation = log(high / low) / (2.0 * Z_80) if high > low > 0.0 else 0.0
            own = expected_replicas(
                pool.count.needed, half.needed, asked, deviation, MEASURED_LOG[goal[1].split("_")[0]]
            )
        expected += own
        usd += weight * (pool.count.needed - own) / pool.count.total
    planned = sum(half.pool.count.needed for half in halves)
    if expected > planned * (1.0 - WORTH_SAYING):
        return
    cost = service.cost_usd_per_year
    yield MeasureFirst(
        service.name, f"one node for {service.name}", planned, expected, cost.value * usd if cost else None
    )


def expected_replicas(
    planned: int, in_the_middle: int, asked: float, deviation_log: float, measured_log: float
) -> float:
    """Replicas that are expected to be needed once one node was measured, at the same confidence.

    Formula  mean over s of ⌈N₅₀ · exp(κ·(a·s + b·z))⌉, κ = ln(N/N₅₀)/z, b = σₘ/σ, a = √(1 − b²)
    Why      The logarithm of a figure errs by a normal of deviation σ. Measuring tells all of it but σₘ:
             where the middle comes out, a·s of it, and what is left to chance is b of what it was. N₅₀
             replicas keep the goal by the middle, N with the confidence, whose normal quantile is z;
             between and beyond them the logarithm of the replicas is taken to be straight.
    Units    deviations of logarithms; replicas without spares.
    Source   law of total variance; σₘ by docs/accuracy.md, "after 10 rows".
    Limits   what it is where nothing is left to learn (σₘ ≥ σ), or where the middle needs as many.
    """
    if measured_log >= deviation_log or in_the_middle >= planned:
        return float(planned)
    z = NormalDist().inv_cdf(asked)
    left = measured_log / deviation_log
    known, slope = sqrt(1.0 - left**2), log(planned / in_the_middle) / z
    needed = (in_the_middle * exp(slope * (known * shift + left * z)) for shift in SHIFTS)
    return float(np.mean([max(1, ceil(each - 1e-9)) for each in needed]))


def _run_rungs(
    run: TrainingPlan, choice: TrainingChoice | MeasuredChoice, context: Context
) -> Iterator[Rung]:
    """A run at every confidence: the planned machines, or as many more as its quantile is late.

    Limits   twice the machines take half the time, and the same money; of your own those that were tried.
    """
    asked, limit_s = context.spec.confidence_fraction, choice.entry.time_limit_s
    count, usd = run.machine.accelerator_count, run.cost_usd.value if run.cost_usd else None
    total = run_total(choice, context)
    holds = total.probability_within(limit_s) if limit_s else 1.0
    for sure in sorted({*CONFIDENCES, asked}):
        quantile_s = float(np.quantile(total.samples, sure, method="inverted_cdf"))
        late = quantile_s / limit_s if limit_s and sure > asked else 1.0
        grown = _grown(run, choice, late) if late > 1.0 else count
        bound = holds < sure and (grown is None or sure <= asked) and sure > CONFIDENCES[0]
        grown = count if bound or grown is None else grown
        yield Rung(
            name=run.name,
            confidence=sure,
            replica_count=1,
            accelerator_count=grown,
            usd_per_year=None if usd is None else usd * choice.entry.runs_per_year,
            probability=holds if bound or grown == count else sure,
            binds=Confidence.NOT_BY_MACHINES if bound else "",
            gate="" if bound else _beyond(run, grown),
        )


def _grown(run: TrainingPlan, choice: TrainingChoice | MeasuredChoice, late: float) -> int | None:
    """Accelerators with which a run that is `late` times its limit would keep it; None where none would."""
    chosen, size = choice.chosen, run.machine.accelerators_per_node
    if choice.entry.on is not None:
        return None
    if chosen.offer.owned:
        times = ((each.node_count, each.total_s) for each in choice.others if each.offer == chosen.offer)
        return min((count * size for count, s in times if s * late <= chosen.total_s), default=None)
    if run.machine.price is None or late > GROWN_MOST:
        return None
    return ceil(run.machine.node_count * late) * size
