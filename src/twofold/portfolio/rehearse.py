"""`plan --rehearse` for the portfolio: what serves in it on the twin, its rates corrected, solved again.

A machine is rehearsed as the plan rehearses its fleets: the replicas that the service's peak needs of it, the
spares away. Where a promise breaks, more replicas are tried until it holds, and its rate falls by as many;
where much is left of every promise, fewer are tried once.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice, with_fleet
from twofold.contracts.goals import metric_text
from twofold.contracts.results import holdings
from twofold.contracts.results.serving import ServicePlan
from twofold.core.display import format_seconds, format_usd
from twofold.inference.fleet import ReplicaCount
from twofold.portfolio.capacity import Pooled, best_pool, fleets_of, pools_for
from twofold.portfolio.demand import ClassDemand
from twofold.portfolio.problem import HOUR_S, PortfolioAnswer, PortfolioProblem
from twofold.portfolio.solved import LEAST_UNITS

if TYPE_CHECKING:
    from twofold.contracts.results.simulated import ClassFigures
    from twofold.rehearse.fleets import Planned

ROUNDS_MAX = 3
ROOM_FRACTION = 0.7  # of its limit that every p95 keeps to, for fewer replicas to be tried …
ROOM_RATIO = 1.15  # … by as much
LEAST_SHARE = 0.01  # of a class that a machine answers, to be worth a rehearsal
LEAST_CORRECTION = 0.02  # below it a rate is as planned
AS_IT_WAS = "with the corrected rates there is no portfolio: the one shown has the planned ones"

Key = tuple[str, tuple[str, ...], str, int]  # service, classes of the pool, machine searched, accelerators
Solve = Callable[[PortfolioProblem], PortfolioAnswer | None]


@dataclass(frozen=True, slots=True)
class Rehearsing:
    """What a rehearsal needs besides the portfolio: the services as planned, and who hears of it."""

    planned: "Planned"
    services: Mapping[str, ServicePlan]
    tell: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TwinCheck:
    """What the twin says of one machine: its rate over the planned one, and how it answered.

    `corrected` misses at the planned rate and holds at this one; `misses` does at none that was
    tried, or at one with which there is no portfolio.
    """

    ratio: float
    text: str
    verdict: Literal["holds", "corrected", "misses"]


@dataclass(frozen=True, slots=True)
class Rounds:
    """The last problem with its answer, a line for each round, and what is known of each machine."""

    problem: PortfolioProblem
    answer: PortfolioAnswer
    lines: tuple[str, ...]
    # Machines that were looked at, or that serve and were not; and whether each serves in the last answer.
    looked: tuple[tuple[Any, TwinCheck | None, bool], ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """A pool of a service's fleets, which the portfolio rents wherever its accelerators are."""

    service: str
    pooled: Pooled

    @property
    def key(self) -> Key:
        pool = self.pooled.pool
        return self.service, pool.classes, pool.offer, self.pooled.accelerators_per_replica

    @property
    def name(self) -> str:
        size = f"{self.pooled.accelerators_per_replica} × {self.pooled.accelerator}"
        return f"{self.service}.{'+'.join(self.pooled.pool.classes)} on {size}"


def rehearsed(
    problem: PortfolioProblem,
    answer: PortfolioAnswer,
    asked: tuple[ClassDemand, ...],
    services: Mapping[str, ServingChoice],
    context: Context,
    rehearsing: Rehearsing,
    solve: Solve,
) -> tuple[Rounds, tuple[holdings.RehearsedMachine, ...]]:
    """The portfolio after its rounds on the twin, and what these saw."""
    machines: dict[tuple[str, str], Machine] = {}
    for each in asked:
        pools = pools_for(services[each.service], each.load.name)
        for offer in problem.offers:
            pooled = best_pool(pools, offer)
            if pooled is not None:
                machines[offer.name, each.name] = Machine(each.service, pooled)
    by_key = {machine.key: machine for machine in machines.values()}
    found = rounds(
        problem,
        answer,
        {which: machine.key for which, machine in machines.items()},
        lambda key: _checked(by_key[key], services[key[0]], context, rehearsing),
        solve,
    )
    rows = []
    for key, seen, serves in found.looked:
        machine = by_key[key]
        rows.append(
            holdings.RehearsedMachine(
                service=machine.service,
                classes=machine.pooled.pool.classes,
                accelerator=machine.pooled.accelerator,
                accelerators=machine.pooled.accelerators_per_replica,
                verdict=seen.verdict if seen else "unseen",
                rate_ratio=seen.ratio if seen else None,
                serves=serves,
                text=seen.text if seen else machine.name,
            )
        )
    return found, tuple(rows)


def rounds(
    problem: PortfolioProblem,
    answer: PortfolioAnswer,
    machines: Mapping[tuple[str, str], Hashable],
    look: Callable[[Any], TwinCheck],
    solve: Solve,
) -> Rounds:
    """At most three rounds: look at what serves, correct its rates, solve again until nothing changes.

    `machines` says what each pair of offer and demand is. A machine is looked at once, and its rate corrected
    on every offer of it. Where the corrected tables have no answer, the last one stands and says so.
    """
    planned_usd = answer.usd
    known: dict[Hashable, TwinCheck] = {}
    lines: list[str] = []
    for number in range(1, ROUNDS_MAX + 1):
        fresh = [key for key in _serving(problem, answer, machines, LEAST_SHARE) if key not in known]
        known |= {key: look(key) for key in fresh}
        told = [known[key].text for key in fresh] or ["no machine that is new"]
        lines += [f"round {number}: {format_usd(answer.usd)} of machines", *told]
        ratios = {key: known[key].ratio for key in fresh if abs(known[key].ratio - 1) > LEAST_CORRECTION}
        if not ratios:
            break
        rates = []
        for rate in problem.rates:
            ratio = ratios.get(machines.get((rate.offer, rate.demand)), 1.0)
            rates.append(replace(rate, rate_per_unit_per_s=rate.rate_per_unit_per_s * ratio))
        changed = replace(problem, rates=tuple(rates))
        again = solve(changed)
        if again is None:
            lines.append(AS_IT_WAS)
            known |= {key: replace(known[key], verdict="misses") for key in ratios if ratios[key] < 1}
            break
        problem, answer = changed, again
    serving = _serving(problem, answer, machines, 0.0)
    worth = _serving(problem, answer, machines, LEAST_SHARE)
    unseen = [key for key in worth if key not in known]
    if unseen:
        lines.append("machines that are new in its last correction were not rehearsed")
    if any(key not in worth and key not in known for key in serving):
        lines.append(f"machines that answer under {100 * LEAST_SHARE:.0f} % of a class were not looked at")
    gap = answer.usd / planned_usd - 1 if planned_usd else 0.0
    both = f"planned {format_usd(planned_usd)}, as rehearsed {format_usd(answer.usd)}"
    looked = tuple((key, known.get(key), key in serving) for key in (*known, *unseen))
    return Rounds(problem, answer, (*lines, f"gap {100 * gap:+.1f} %: {both}"), looked)


def _serving(
    problem: PortfolioProblem,
    answer: PortfolioAnswer,
    machines: Mapping[tuple[str, str], Hashable],
    least_share: float,
) -> list[Hashable]:
    """The machines on which the answer serves more than a share of some class, each once."""
    found: list[Hashable] = []
    for number, work in enumerate(problem.work_names):
        by_offer = answer.served_per_s[:, number].sum(axis=(1, 2))
        least = max(least_share * float(by_offer.sum()), LEAST_UNITS)
        found += [
            machines[offer.name, work]
            for offer, served in zip(problem.offers, by_offer, strict=True)
            if served >= least and (offer.name, work) in machines
        ]
    return list(dict.fromkeys(found))


def _checked(machine: Machine, choice: ServingChoice, context: Context, rehearsing: Rehearsing) -> TwinCheck:
    """What the twin says of a pool's replicas at the peak of its service."""
    from twofold.rehearse.fleets import GROWN_RATIOS, on_twin, tables_of  # brings the twin

    known = _planned_check(machine, choice, rehearsing.services.get(machine.service))
    if known is not None:
        return known
    pool = machine.pooled.pool
    fleet = next(each for each in fleets_of(choice) if any(one is pool for one in each.pools))
    rehearsing.tell(f"rehearsing the portfolio's {machine.name}")
    plan = rehearsing.planned(choice if fleet is choice.fleet else with_fleet(choice, fleet, context))
    name, needed = pool.classes[0], pool.count.needed

    def run(count: int) -> "tuple[ClassFigures, ...]":
        pools = tuple(
            replace(each, replica_count=count + each.spare_count) if each.name == name else each
            for each in plan.pools
        )
        return on_twin(replace(plan, pools=pools), tables_of(choice, context), (name,))

    def holds(count: int) -> bool:
        return not any(each.missed for each in run(count))

    first = run(needed)
    slos = [(slo, slo.simulated_s) for each in first for slo in each.slos if slo.simulated_s is not None]
    said = _said(machine, ((o.metric, s) for o, s in slos if s < HOUR_S or o.metric == "finish_within"))
    if not any(each.missed for each in first):
        # Whether every latency keeps well below its limit; work of a day has no such room to show.
        shares = [seconds / slo.limit_s for slo, seconds in slos if slo.metric != "finish_within"]
        fewer = int(needed / ROOM_RATIO)
        if max(shares, default=1.0) <= ROOM_FRACTION and 0 < fewer < needed and holds(fewer):
            return TwinCheck(needed / fewer, f"{said}, has room: {_change(needed / fewer)}", "holds")
        return TwinCheck(1.0, f"{said}, holds", "holds")
    for ratio in GROWN_RATIOS:
        more = max(needed + 1, round(needed * ratio))
        if holds(more):
            return TwinCheck(needed / more, f"{said}, misses: {_change(needed / more)}", "corrected")
    least = 1 / GROWN_RATIOS[-1]  # more replicas are not tried: its rate may still be too high
    return TwinCheck(least, f"{said}, misses even at {_change(least)}", "misses")


def _change(ratio: float) -> str:
    return f"rate {100 * (ratio - 1):+.0f} %"


def _said(machine: Machine, figures: Iterable[tuple[str, float]]) -> str:
    texts = [f"{metric_text(metric)} {format_seconds(seconds)}" for metric, seconds in figures]
    return f"{machine.name} {', '.join(texts) or 'nothing promised'}"


def _planned_check(machine: Machine, choice: ServingChoice, plan: ServicePlan | None) -> TwinCheck | None:
    """What the plan's own rehearsal said of this machine; None where it rehearsed another."""
    pool = machine.pooled.pool
    same = (pool.classes, pool.offer, pool.variant)
    own = next((one for one in choice.fleet.pools if (one.classes, one.offer, one.variant) == same), None)
    chosen = next((each for each in plan.rehearsals if each.chosen), None) if plan else None
    if chosen is None or own is None:
        return None
    needed = ReplicaCount.of(pool.peak_per_s, pool.limit_per_s, at_once_count=pool.at_once_count).needed
    ratio = needed / max(own.count.needed, 1)
    figures = [figure for each in chosen.classes if each.name in pool.classes for figure in each.figures]
    said = _said(machine, ((each.metric, each.value_s) for each in figures if each.value_s is not None))
    if not chosen.holds:
        return TwinCheck(ratio, f"{said}, misses", "misses")
    what = "holds" if ratio == 1 else _change(ratio)
    return TwinCheck(ratio, f"{said}, {what}", "corrected" if ratio < 1 else "holds")
