"""The tables of a rehearsal's page, and where the numbers in them come from."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from twofold.contracts.goals import QUANTILES, metric_text
from twofold.contracts.results import simulated
from twofold.core.display import format_seconds, format_si, format_usd
from twofold.pages.sections import Cell, Derived, Linked, Section
from twofold.report.figures import percent, share
from twofold.report.simulate import TIMED_EFFECTS

MARKS = {True: "✓", False: "✗ missed", None: "– not judged"}
PLACEMENTS_MOST = 200  # rows of who stands where


def goal_section(made: simulated.Simulation) -> Section:
    """Each goal with what the plan said and the twin saw."""
    rows = [row for one in made.classes for row in _goal_rows(one)]
    heads = ("class", "goal", "limit", "plan", "twin", "")
    return Section("Goals", heads, tuple(rows), (2, 3, 4))


def _goal_rows(one: simulated.ClassFigures) -> Iterator[tuple[Cell, ...]]:
    for slo in one.slos:
        planned = "–" if slo.planned_s is None else format_seconds(slo.planned_s)
        seen: Cell = "too many without an answer" if one.arrived_count else "–"
        if slo.simulated_s is not None:
            seen = Linked(format_seconds(slo.simulated_s), _path(one, slo.metric))
        limit = format_seconds(slo.limit_s)
        yield one.name, metric_text(slo.metric), limit, planned, seen, MARKS[slo.met]
    kept = one.success
    if kept is not None and kept.simulated_fraction is not None:
        told: Cell = Linked(share(kept.simulated_fraction), _path(one, "success"))
        yield one.name, "success", f"{100 * kept.goal_fraction:.8g} %", "", told, MARKS[kept.met]


def derived_figures(made: simulated.Simulation) -> tuple[Derived, ...]:
    """How each figure of a goal was found: of what, out of how many, and how sure it is."""
    found = []
    for one in made.classes:
        for slo in one.slos:
            if slo.simulated_s is not None:
                found.append(Derived(_path(one, slo.metric), *_how(one, slo)))
        kept = one.success
        if kept is not None and kept.simulated_fraction is not None:
            asked, failed = one.arrived_count, kept.failed_count
            parts = (f"{asked:,} arrived after the warm-up", f"{failed:,} of them got no whole answer")
            found.append(Derived(_path(one, "success"), "whole answers / arrived", parts))
    return tuple(found)


def _how(one: simulated.ClassFigures, slo: simulated.SloKept) -> tuple[str, tuple[str, ...]]:
    metric, _, which = slo.metric.rpartition("_")
    planned = (
        "the plan has no such figure"
        if slo.planned_s is None
        else (
            f"planned {format_seconds(slo.planned_s)}: "
            f"`twofold explain PLAN serving.{one.service}.classes.{one.name}.slos.{slo.metric}.predicted`"
        )
    )
    arrived = f"{one.arrived_count:,} arrived after the warm-up, {one.finished_count:,} finished"
    if slo.metric == "finish_within":
        return "window · arrived / finished, at least the window", (arrived, planned)
    figures: simulated.LatencyFigures | None = getattr(one, f"{metric}_s")
    parts = [arrived, "those without an answer count as later than any that has one"]
    if figures is not None:
        bounds: tuple[float, float] | None = getattr(figures.interval, which)
        answered = f"of answers alone {format_seconds(getattr(figures, which))}"
        between = (
            f", with 95 % from {format_seconds(bounds[0])} to {format_seconds(bounds[1])}" if bounds else ""
        )
        parts.append(answered + (between or ", too few for an interval"))
    return f"{100 * QUANTILES[which]:g} of 100 that asked waited no longer", (*parts, planned)


def _path(one: simulated.ClassFigures, figure: str) -> str:
    return f"{one.service}.{one.pool}.{one.name}.{figure}"


def table_sections(made: simulated.Simulation) -> tuple[Section, ...]:
    """Everything else: latencies, pools, faults, releases, beliefs, tenants, the cluster, what to know."""
    return (
        _latencies(made.classes),
        _outcomes(made.fleets),
        _pools(made),
        _faults(made.fleets),
        _tenants(made.tenants),
        _beliefs(made.beliefs),
        _compared(made.comparison),
        *(_cluster_sections(made.training) if made.training else ()),
        Section("Worth knowing", sentences=made.notes),
    )


def _latencies(classes: Sequence[simulated.ClassFigures]) -> Section:
    rows = []
    for one in classes:
        for metric in ("ttft", "tpot", "e2e"):
            seen: simulated.LatencyFigures | None = getattr(one, f"{metric}_s")
            if seen is not None:
                values = (seen.p50, seen.p90, seen.p95, seen.p99, seen.mean)
                rows.append((one.name, metric.upper(), *map(format_seconds, values), f"{seen.count:,}"))
    heads = ("class", "of answers", "p50", "p90", "p95", "p99", "mean", "answers")
    return Section("Latencies of what was answered", heads, tuple(rows), range_of(2, 8))


def range_of(first: int, after: int) -> tuple[int, ...]:
    """Columns that hold numbers."""
    return tuple(range(first, after))


def _outcomes(fleets: Sequence[simulated.FleetFigures]) -> Section:
    rows = [
        (_fleet(each), outcome, f"{count:,}", share(count / max(1, each.arrived_count)))
        for each in fleets
        for outcome, count in each.outcomes.items()
        if count
    ]
    heads = ("pool", "outcome", "requests", "of all")
    return Section("What became of requests", heads, tuple(rows), (2, 3))


def _pools(made: simulated.Simulation) -> Section:
    """The words are those of the screen: kept goals of the pool's classes, and what its replicas hold."""
    kept: defaultdict[tuple[str, str], float] = defaultdict(float)
    for one in made.classes:
        kept[one.service, one.pool] += one.goodput_per_s
    rows = [
        (
            _fleet(each),
            f"{each.replica_count:,} on {each.accelerator}",
            f"{each.replica_count_max:,}",
            format_si(kept[each.service, each.pool], "1/s"),
            "–" if each.load_fraction is None else percent(each.load_fraction),
            percent(each.utilisation_fraction),
            percent(each.kv_utilisation_fraction),
            percent(each.prefix_hit_fraction),
            "–" if each.cost_usd is None else format_usd(each.cost_usd),
            format_si(each.energy_j / 3600.0, "Wh"),
        )
        for each in made.fleets
    ]
    heads = ("pool", "replicas", "at most", "goodput", "busy", "computing", "cache", "prefix hits", "cost")
    return Section("Pools", (*heads, "energy"), tuple(rows), range_of(2, 10))


def _faults(fleets: Sequence[simulated.FleetFigures]) -> Section:
    rows = []
    for each in fleets:
        after = each.after_fault
        if after is not None:
            effects = sorted(after.first_effects_s.items(), key=lambda item: item[1])
            told = ", ".join(
                f"{name} after {format_seconds(at_s)}" for name, at_s in effects if name in TIMED_EFFECTS
            )
            back = "not to the end" if after.recovered_s is None else format_seconds(after.recovered_s)
            rows.append((_fleet(each), format_seconds(after.at_s), told, f"{after.missent_count:,}", back))
    heads = ("pool", "fault at", "the gate", "sent where nobody could hear", "recovered after")
    return Section("After the fault", heads, tuple(rows), (1, 3, 4))


def _tenants(tenants: Sequence[simulated.TenantFigures]) -> Section:
    rows = [
        (
            each.name or "others",
            f"{each.arrived_count:,}",
            share(1.0 - each.finished_count / each.arrived_count) if each.arrived_count else "–",
            "–" if each.ttft_p95_s is None else format_seconds(each.ttft_p95_s),
            "–" if each.e2e_p95_s is None else format_seconds(each.e2e_p95_s),
            "–" if each.fair_fraction is None else share(each.fair_fraction),
        )
        for each in tenants
    ]
    heads = ("tenant", "requests", "without an answer", "TTFT p95", "E2E p95", "of its fair share")
    return Section("Tenants", heads, tuple(rows), range_of(1, 6))


def _beliefs(beliefs: Sequence[simulated.BeliefRun]) -> Section:
    rows = [
        (_off(each.belief_factor), share(each.goodput_fraction), MARKS[each.slos_met])
        for each in beliefs
        if len(beliefs) > 1
    ]
    heads = ("beliefs are off by", "within every goal", "all goals")
    return Section("With the gate's beliefs put off", heads, tuple(rows), (0, 1))


def _off(factor: float) -> str:
    return "perfect" if abs(factor - 1.0) < 1e-9 else f"{100 * (factor - 1.0):+.0f} %"


def _compared(comparison: simulated.Comparison | None) -> Section:
    if comparison is None:
        return Section("Compared")
    rows = [
        (one.figure, *(f"{value:.4g}" for value in (one.a, one.b, one.difference, one.low, one.high)))
        for one in comparison.differences
    ]
    heads = ("figure", comparison.a, comparison.b, "difference", "from", "to")
    said = (
        f"paired over {len(comparison.seeds)} seeds; intervals of 95 %; in the unit that the name ends with"
    )
    return Section("Two scenarios compared", heads, tuple(rows), range_of(1, 6), (said,))


def _cluster_sections(training: simulated.TrainingFigures) -> tuple[Section, ...]:
    runs = [
        (
            run.name,
            run.state,
            format_seconds(run.waited_s),
            "–" if run.train_s is None else format_seconds(run.train_s),
            "–" if run.completion_s is None else format_seconds(run.completion_s),
            "–" if run.tokens_per_s is None else format_si(run.tokens_per_s, "tok/s"),
            "–" if run.samples_per_s is None else format_si(run.samples_per_s, "1/s"),
        )
        for run in training.runs
    ]
    teams = [
        (
            team.name or "–",
            f"{team.accelerator_h:,.0f}",
            "–" if team.quota_fraction is None else percent(team.quota_fraction),
            "–" if team.share_fraction is None else percent(team.share_fraction),
            format_seconds(team.queue_s_p95),
        )
        for team in training.teams
    ]
    figures = [
        ("accelerators", f"{training.accelerator_count:,} on {training.node_count:,} nodes"),
        ("jobs", ", ".join(f"{name} {count:,}" for name, count in training.outcomes.items() if count)),
        ("goodput", f"{percent(training.goodput_fraction)} of the time that jobs held accelerators"),
        ("in use", percent(training.utilisation_fraction)),
        ("failures", f"{training.failure_count:,}, back after {format_seconds(training.recovery_s_mean)}"),
        ("checkpoints", f"{training.checkpoint_count:,} of {format_seconds(training.checkpoint_s_mean)}"),
        ("preempted", f"{training.preempted_count:,}"),
    ]
    causes = tuple((name, f"{count:,}") for name, count in training.failures_by_cause.items())
    stands = tuple(training.placement.items())
    more = len(stands) - PLACEMENTS_MOST
    said = (f"{more:,} more jobs are left out",) if more > 0 else ()
    times = ("run", "at the end", "waited", "trained in", "complete after", "tokens", "samples")
    return (
        Section("The plan's own runs", times, tuple(runs), range_of(2, 7)),
        Section("The cluster", ("", ""), tuple(figures)),
        Section("Failures by cause", ("cause", "times"), causes, (1,)),
        Section(
            "Teams", ("team", "accelerator-h", "promised", "had", "queue p95"), tuple(teams), range_of(1, 5)
        ),
        Section(
            "Who stands where at the end", ("job", "node:accelerators"), stands[:PLACEMENTS_MOST], (), said
        ),
    )


def _fleet(each: simulated.FleetFigures) -> str:
    return each.service if each.pool in ("", each.service) else f"{each.service}/{each.pool}"
