"""`plan --rehearse`: a plan's fleet on the twin, at the peak and without its spares; what holds instead."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf
from typing import TypeVar

from twofold.answer.context import Context
from twofold.answer.serving_choice import ServingChoice, with_fleet
from twofold.answer.serving_pools import latency_with
from twofold.contracts.goals import metric_text
from twofold.contracts.results import serving
from twofold.contracts.results.simulated import ClassFigures
from twofold.inference.search import PoolChoice
from twofold.perf.types import one
from twofold.rehearse import peak
from twofold.rehearse.sizes import GROWN_RATIOS, LATENCIES, Seen, fewest_of, resized, seen_around, surest
from twofold.rehearse.workers import Tell, Workers, standing_workers

T = TypeVar("T")
Planned = Callable[[ServingChoice], serving.ServicePlan]


@dataclass(frozen=True, slots=True)
class Trial:
    """One fleet with what the twin says of it."""

    choice: ServingChoice
    plan: serving.ServicePlan
    classes: tuple[ClassFigures, ...]

    @property
    def missed(self) -> tuple[ClassFigures, ...]:
        """The classes that miss a goal."""
        return tuple(each for each in self.classes if each.missed)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Of each pool the replicas that it needs, without spares, and accelerators of one."""
        return [
            (pool.count.needed, round(one(pool.replica.accelerator_count)))
            for pool in self.choice.fleet.pools
        ]

    @property
    def name(self) -> str:
        """Such as `3 × 8 + 1 × 4 H100`."""
        sizes = " + ".join(f"{count} × {size}" for count, size in self.sizes)
        return f"{sizes} {self.plan.machine.accelerator}"


@dataclass(frozen=True, slots=True)
class Tried:
    """A fleet as it was chosen, what its pools need on the twin, and the fleet of just these."""

    first: Trial
    needs: tuple[serving.ReplicaNeed, ...]
    grown: Trial | None = None  # None: the first holds, or nothing does on these machines

    @property
    def holding(self) -> Trial | None:
        """What holds: as it was chosen wherever that does."""
        return self.grown if self.first.missed else self.first

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All that have a plan, the one that holds first."""
        return (self.grown, self.first) if self.grown else (self.first,)


def rehearsed_service(
    choice: ServingChoice, planned: Planned, context: Context, tell: Tell
) -> tuple[ServingChoice, serving.ServicePlan]:
    """The fleet as it was chosen where it holds on the twin, else what does, and what was tried.

    Where a pool does not hold it grows to the fewest replicas that do, on the same machines. Only where
    `GROWN_RATIOS` do not reach that is the runner-up taken. Where nothing holds the plan keeps the first.
    """
    with standing_workers(peak.WORKERS.process_count) as workers:
        tried = [_tried(choice, planned, context, tell, workers)]
        if not tried[0].holding:
            leased = choice.held and not choice.offer.owned
            others = [each.fleet for each in choice.rivals] if leased else choice.result.alternatives
            tried += [
                _tried(with_fleet(choice, each, context), planned, context, tell, workers)
                for each in others[:1]
            ]
    best = next((trial for each in tried if (trial := each.holding)), tried[0].first)
    plan = _with_rehearsals(best, [trial for each in tried for trial in each.trials])
    if slow := max(peak.slow_ratios(best.choice, context).values(), default=1.0) - 1.0:
        sure = f"{100 * context.spec.confidence_fraction:.3g} %"
        world = (
            f"rehearsed in the world of {sure}: steps take up to {100 * slow:.0f} % longer than in the middle"
        )
        world += ", which `simulate` has"
        plan = replace(plan, warnings=(*plan.warnings, world))
    return best.choice, replace(plan, replica_needs=tuple(need for each in tried for need in each.needs))


def _at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """What calls return that wait for the twin in other processes, each in a thread."""
    if len(calls) <= 1:
        return [call() for call in calls]
    with ThreadPoolExecutor(len(calls)) as threads:
        return [each.result() for each in [threads.submit(call) for call in calls]]


def _tried(choice: ServingChoice, planned: Planned, context: Context, tell: Tell, workers: Workers) -> Tried:
    """A fleet on the twin; each pool by itself, with more or fewer replicas than were chosen."""
    tell(f"rehearsing {choice.entry.name} on {choice.offer.accelerator.name}")
    plan, tables = planned(choice), peak.tables_of(choice, context)
    pools = {pool.classes[0]: pool for pool in choice.fleet.pools}
    least = [partial(surest, pool, goals, context) for pool, goals in peak.pools_with_goals(choice, context)]
    calls = zip(pools.values(), least, strict=True)
    found = _at_once([partial(seen_around, plan, *each, tables, workers) for each in calls])
    seen = dict(zip(pools, found, strict=True))
    chosen = {name: pool.count.needed for name, pool in pools.items()}
    first = Trial(choice, plan, tuple(one for name, count in chosen.items() for one in seen[name][count]))
    counts = {name: fewest_of(each) for name, each in seen.items() if peak.missed_goals(each[chosen[name]])}
    larger = {name: count for name, count in counts.items() if count}
    grown = None
    if larger and len(larger) == len(counts):
        grown = _grown(first, larger, seen, planned, context, workers)
    usd = partial(_usd_beyond, grown or first, planned, context)
    needs = [_replica_need(first, pools[name], each, usd) for name, each in seen.items() if _is_told(each)]
    return Tried(first, tuple(needs), grown)


def _grown(
    first: Trial,
    counts: Mapping[str, int],
    seen: Mapping[str, Seen],
    planned: Planned,
    context: Context,
    workers: Workers,
) -> Trial | None:
    """The fleet with so many replicas in some pools, on the twin as it is planned then.

    Why      The search changes nothing but how many replicas there are. What a gate sends to one, and how
             long a run warms up, follow from the plan: what is at the edge there may need one more.
    """
    own = resized(first.choice, counts, context)
    plan, tables = planned(own), peak.tables_of(own, context)
    for name, count in counts.items():
        seen[name][count] = peak.on_twin(plan, tables, {name}, workers)
    more = {name: count + 1 for name, count in counts.items() if peak.missed_goals(seen[name][count])}
    if not more:
        sizes = {pool.classes[0]: pool.count.needed for pool in own.fleet.pools}
        classes = (one for name, count in sizes.items() for one in seen[name][count])
        return Trial(own, plan, tuple(classes))
    asked = {pool.classes[0]: pool.count.needed for pool in first.choice.fleet.pools}
    if any(count > GROWN_RATIOS[-1] * asked[name] + 1 for name, count in more.items()):
        return None
    return _grown(first, {**counts, **more}, seen, planned, context, workers)


def _is_told(seen: Seen) -> bool:
    """Whether it is worth saying how many a pool needs: it promises latencies, or the planned ones miss."""
    goals = (slo.metric for classes in seen.values() for each in classes for slo in each.slos)
    return len(seen) > 1 or any(goal in LATENCIES for goal in goals)


def _replica_need(
    first: Trial, pool: PoolChoice, seen: Seen, usd_beyond: Callable[[str, int, int], float | None]
) -> serving.ReplicaNeed:
    """Of a pool how few replicas hold on the twin, and what explains the gap."""
    name, asked, holds = pool.classes[0], pool.count.needed, fewest_of(seen)
    missing = [
        count for count, classes in seen.items() if peak.missed_goals(classes) and count < (holds or inf)
    ]
    misses = max(missing, default=None)
    missed = peak.missed_goals(seen[misses]) if misses else ()
    predicted_s = simulated_s = None
    if holds and missed and missed[0].metric in LATENCIES:
        own = missed[0].class_name, missed[0].metric
        goals = {(each.name, slo.metric): slo.simulated_s for each in seen[holds] for slo in each.slos}
        predicted_s, simulated_s = latency_with(first.choice, pool, holds, *own), goals.get(own)
    return serving.ReplicaNeed(
        pool=name,
        accelerator=first.plan.machine.accelerator,
        provider=price.provider if (price := first.plan.machine.price) else None,
        closed_form_count=asked,
        full_load_count=ceil(pool.peak_per_s / pool.limit_per_s - 1e-9),
        holding_count=holds,
        missing_count=misses,
        planned_missed=peak.missed_goals(seen[asked]),
        missed=missed,
        predicted_s=predicted_s,
        simulated_s=simulated_s,
        usd_per_year=usd_beyond(name, holds, asked) if holds else None,
    )


def _usd_beyond(
    trial: Trial, planned: Planned, context: Context, name: str, count: int, than: int
) -> float | None:
    """What so many replicas of a pool cost a year beyond another number of them, in whole leases."""
    if count == than:
        return 0.0
    own = {pool.classes[0]: pool.count.needed for pool in trial.choice.fleet.pools}[name]
    costs = []
    for each in (count, than):
        plan = trial.plan if each == own else planned(resized(trial.choice, {name: each}, context))
        costs.append(plan.cost_usd_per_year)
    more, less = costs
    return more.value - less.value if more and less else None


def _with_rehearsals(best: Trial, trials: Sequence[Trial]) -> serving.ServicePlan:
    """The best trial's plan, with what the twin says of it and of the others."""
    found = {each.name: each for each in best.classes}
    figures = {
        (each.name, figure.metric): figure for each in best.classes for figure in peak.figures_of(each)
    }
    classes = []
    for planned in best.plan.classes:
        slos = (replace(slo, rehearsed=figures.get((planned.name, slo.metric))) for slo in planned.slos)
        success, kept = planned.success, found[planned.name].success
        if kept is not None:
            success = replace(success, rehearsed_fraction=kept.simulated_fraction, rehearsed_met=kept.met)
        classes.append(replace(planned, slos=tuple(slos), success=success))
    return replace(
        best.plan,
        classes=tuple(classes),
        rehearsals=tuple(
            serving.Rehearsal(
                name=trial.name,
                accelerator_count=sum(count * size for count, size in trial.sizes),
                chosen=trial is best,
                holds=not trial.missed,
                classes=tuple(_rehearsed_class(each) for each in trial.classes),
            )
            for trial in (best, *(trial for trial in trials if trial is not best))
        ),
        warnings=(*best.plan.warnings, *_warnings(best, trials)),
    )


def _rehearsed_class(each: ClassFigures) -> serving.RehearsedClass:
    kept = each.success
    seen = () if kept is None else (kept.simulated_fraction, kept.met)
    return serving.RehearsedClass(each.name, each.finished_count, peak.figures_of(each), *seen)


def _warnings(best: Trial, trials: Sequence[Trial]) -> tuple[str, ...]:
    """That the cheapest fleet did not hold and what is planned instead; and what is not known to 10 %."""
    warnings = []
    first = trials[0]
    if first.missed:
        goals = ", ".join(f"{goal.class_name} {goal.text}" for goal in peak.missed_goals(first.classes))
        instead = "nothing that was tried does" if best is first else f"planned: {best.name}"
        warnings.append(f"rehearsed: {first.name} without spares misses {goals} at the peak; {instead}")
    vague = [
        f"{metric_text(figure.metric)} of {each.name}"
        for each in best.classes
        for figure in peak.figures_of(each)
        if not figure.resolved
    ]
    vague += [
        f"success of {each.name}"
        for each in best.classes
        if each.arrived_count and each.success and each.success.met is None
    ]
    if vague:
        warnings.append(
            f"rehearsed: unresolved, an interval wider than 10 % or too few requests: {', '.join(vague)}"
        )
    return tuple(warnings)
