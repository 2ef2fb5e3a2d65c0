"""The tables of a rehearsal's page, and where the numbers in them come from."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from twofold.contracts.goals import METRICS, QUANTILES, metric_text
from twofold.contracts.results import simulated
from twofold.core.display import format_seconds, format_si, format_usd
from twofold.pages.cluster_tables import cluster_sections
from twofold.pages.sections import Cell, Derived, Section, led, notes_section, range_of
from twofold.report.figures import percent, share
from twofold.report.simulate import TIMED_EFFECTS

MARKS = {True: "✓", False: "✗ missed", None: "– not judged"}


def goal_section(made: simulated.Simulation) -> Section:
    """Each goal with what the plan said and the twin saw."""
    rows = [row for one in made.classes for row in _goal_rows(one)]
    heads = ("class", "goal", "limit", "plan", "twin", "")
    derived = tuple(each for one in made.classes for each in _goals_derived(one))
    return Section("Goals", heads, tuple(rows), (2, 3, 4), derived=derived)


def _goal_rows(one: simulated.ClassFigures) -> Iterator[tuple[Cell, ...]]:
    for slo in one.slos:
        planned = "–" if slo.planned_s is None else format_seconds(slo.planned_s)
        seen = "too many without an answer" if one.arrived_count else "–"
        if slo.simulated_s is not None:
            seen = format_seconds(slo.simulated_s)
        told = led(_path(one, slo.metric), format_seconds(slo.limit_s), planned, seen)
        yield one.name, metric_text(slo.metric), *told, MARKS[slo.met]
    kept = one.success
    if kept is not None and kept.simulated_fraction is not None:
        told = led(
            _path(one, "success"), f"{100 * kept.goal_fraction:.8g} %", "", share(kept.simulated_fraction)
        )
        yield one.name, "success", *told, MARKS[kept.met]


def _goals_derived(one: simulated.ClassFigures) -> Iterator[Derived]:
    """How each figure of a goal was found: of what, out of how many, and how sure it is."""
    for slo in one.slos:
        yield Derived(_path(one, slo.metric), *_how(one, slo))
    kept = one.success
    if kept is not None and kept.simulated_fraction is not None:
        asked, failed = one.arrived_count, kept.failed_count
        parts = (f"{asked:,} arrived after the warm-up", f"{failed:,} of them got no whole answer")
        yield Derived(_path(one, "success"), "whole answers / arrived", parts)


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
    limit = f"limit {format_seconds(slo.limit_s)}, as the plan's spec asks"
    if slo.metric == "finish_within":
        return "window · arrived / finished, at least the window", (arrived, planned, limit)
    figures: simulated.LatencyFigures | None = getattr(one, f"{metric}_s")
    parts = [arrived, "those without an answer count as later than any that has one"]
    if figures is not None:
        bounds: tuple[float, float] | None = getattr(figures.interval, which)
        answered = f"of answers alone {format_seconds(getattr(figures, which))}"
        between = (
            f", with 95 % from {format_seconds(bounds[0])} to {format_seconds(bounds[1])}" if bounds else ""
        )
        parts.append(answered + (between or ", too few for an interval"))
    return f"{100 * QUANTILES[which]:g} of 100 that asked waited no longer", (*parts, planned, limit)


def _path(one: simulated.ClassFigures, figure: str) -> str:
    return f"{one.service}.{one.pool}.{one.name}.{figure}"


def table_sections(made: simulated.Simulation) -> tuple[Section, ...]:
    """Everything else: latencies, pools, faults, releases, beliefs, tenants, the cluster, what to know."""
    return (
        _latencies(made),
        _outcomes(made),
        _pools(made),
        _faults(made.fleets),
        _tenants(made),
        _beliefs(made.beliefs),
        _compared(made.comparison),
        *(cluster_sections(made.training, made.seed) if made.training else ()),
        notes_section(made.notes, "counted in this rehearsal, or set in the spec that it is of"),
    )


def _latencies(made: simulated.Simulation) -> Section:
    rows: list[tuple[Cell, ...]] = []
    derived = []
    for one in made.classes:
        for metric in ("ttft", "tpot", "e2e"):
            seen: simulated.LatencyFigures | None = getattr(one, f"{metric}_s")
            if seen is not None:
                values = (seen.p50, seen.p90, seen.p95, seen.p99, seen.mean)
                path = _path(one, f"{metric}.answered")
                told = led(path, *map(format_seconds, values), f"{seen.count:,}")
                rows.append((one.name, metric.upper(), *told))
                derived.append(Derived(path, *_answered(one, METRICS[metric], seen, made.seed)))
    heads = ("class", "of answers", "p50", "p90", "p95", "p99", "mean", "answers")
    title = "Latencies of what was answered"
    return Section(title, heads, tuple(rows), range_of(2, 8), derived=tuple(derived))


def _answered(
    one: simulated.ClassFigures, metric: str, seen: simulated.LatencyFigures, seed: int
) -> tuple[str, tuple[str, ...]]:
    """What a row of latencies is of, and its intervals where the requests suffice for them."""
    parts = [f"measured by the twin over {seen.count:,} of {one.arrived_count:,} requests, seed {seed}"]
    for which in QUANTILES:
        bounds: tuple[float, float] | None = getattr(seen.interval, which)
        if bounds:
            ends = f"{format_seconds(bounds[0])} to {format_seconds(bounds[1])}"
            parts.append(f"{which}: with 95 % from {ends}")
    return f"{metric} of what was answered; of pN, N of 100 waited no longer", tuple(parts)


def _outcomes(made: simulated.Simulation) -> Section:
    rows: list[tuple[Cell, ...]] = []
    derived = []
    for each in made.fleets:
        path = f"{_fleet(each)}.outcomes"
        for outcome, count in each.outcomes.items():
            if count:
                told = led(path, f"{count:,}", share(count / max(1, each.arrived_count)))
                rows.append((_fleet(each), outcome, *told))
        parts = (
            f"{each.arrived_count:,} arrived, those of the warm-up among them",
            f"counted by the twin, seed {made.seed}; they add up to those that arrived",
        )
        derived.append(Derived(path, "requests by how they ended / arrived", parts))
    heads = ("pool", "outcome", "requests", "of all")
    return Section("What became of requests", heads, tuple(rows), (2, 3), derived=tuple(derived))


def _pools(made: simulated.Simulation) -> Section:
    """The words are those of the screen: kept goals of the pool's classes, and what its replicas hold."""
    kept: defaultdict[tuple[str, str], float] = defaultdict(float)
    for one in made.classes:
        kept[one.service, one.pool] += one.goodput_per_s
    rows = [
        (
            _fleet(each),
            *led(
                f"{_fleet(each)}.pool",
                f"{each.replica_count:,} on {each.accelerator}",
                f"{each.replica_count_max:,}",
                format_si(kept[each.service, each.pool], "1/s"),
                "–" if each.load_fraction is None else percent(each.load_fraction),
                percent(each.utilisation_fraction),
                percent(each.kv_utilisation_fraction) if each.has_tokens else "–",
                percent(each.prefix_hit_fraction) if each.has_tokens else "–",
                "–" if each.cost_usd is None else format_usd(each.cost_usd),
                format_si(each.energy_j / 3600.0, "Wh"),
            ),
        )
        for each in made.fleets
    ]
    heads = ("pool", "replicas", "at most", "goodput", "busy", "computing", "cache", "prefix hits", "cost")
    derived = tuple(Derived(f"{_fleet(each)}.pool", *_pool(each, made.seed)) for each in made.fleets)
    return Section("Pools", (*heads, "energy"), tuple(rows), range_of(2, 10), derived=derived)


def _pool(each: simulated.FleetFigures, seed: int) -> tuple[str, tuple[str, ...]]:
    """What each column of a pool is."""
    return (
        f"measured by the twin over {each.arrived_count:,} requests, seed {seed}",
        (
            "replicas: when the run began, as planned; at most: at any time",
            f"goodput: requests within every goal / {format_seconds(each.measured_s)} after the warm-up",
            "busy: requests that came / what its replicas hold; computing: of ready time",
            "cache: of the KV cache, in the mean; prefix hits: of input tokens, found in the cache",
            f"cost and energy: of {each.accelerator_h:,.3g} accelerator-h, at the plan's price and powers",
        ),
    )


def _faults(fleets: Sequence[simulated.FleetFigures]) -> Section:
    rows: list[tuple[Cell, ...]] = []
    derived = []
    for each in fleets:
        after = each.after_fault
        if after is not None:
            effects = sorted(after.first_effects_s.items(), key=lambda item: item[1])
            told = ", ".join(
                f"{name} after {format_seconds(at_s)}" for name, at_s in effects if name in TIMED_EFFECTS
            )
            back = "not to the end" if after.recovered_s is None else format_seconds(after.recovered_s)
            path = f"{_fleet(each)}.after_fault"
            said = led(path, format_seconds(after.at_s), told, f"{after.missent_count:,}", back)
            rows.append((_fleet(each), *said))
            parts = (
                "fault at: since the run began; all other times count from the fault",
                "the gate: when it first answered so; sent where nobody could hear: requests",
                "recovered: when 90 % of what is answered came in time again",
            )
            derived.append(Derived(path, "read off the twin's log of what the gate answered", parts))
    heads = ("pool", "fault at", "the gate", "sent where nobody could hear", "recovered after")
    return Section("After the fault", heads, tuple(rows), (1, 3, 4), derived=tuple(derived))


def _tenants(made: simulated.Simulation) -> Section:
    rows = [
        (
            each.name or "others",
            *led(
                "tenants",
                f"{each.arrived_count:,}",
                share(1.0 - each.finished_count / each.arrived_count) if each.arrived_count else "–",
                "–" if each.ttft_p95_s is None else format_seconds(each.ttft_p95_s),
                "–" if each.e2e_p95_s is None else format_seconds(each.e2e_p95_s),
                "–" if each.fair_fraction is None else share(each.fair_fraction),
            ),
        )
        for each in made.tenants
    ]
    heads = ("tenant", "requests", "without an answer", "TTFT p95", "E2E p95", "of its fair share")
    arrived = sum(each.arrived_count for each in made.tenants)
    parts = (
        f"measured by the twin over {arrived:,} requests that arrived after the warm-up, seed {made.seed}",
        "p95: 95 of 100 answers took no longer",
        "of its fair share: input and output tokens of what finished / what was due to it",
    )
    derived = (Derived("tenants", "requests by who sent them", parts),) if rows else ()
    return Section("Tenants", heads, tuple(rows), range_of(1, 6), derived=derived)


def _beliefs(beliefs: Sequence[simulated.BeliefRun]) -> Section:
    rows = [
        (*led("beliefs", _off(each.belief_factor), share(each.goodput_fraction)), MARKS[each.slos_met])
        for each in beliefs
        if len(beliefs) > 1
    ]
    heads = ("beliefs are off by", "within every goal", "all goals")
    parts = (
        "off by: what the gate believes of its machines / what they are, less 1",
        "within every goal: of all requests that arrived",
    )
    derived = (Derived("beliefs", "the same run once for each factor, same seed", parts),) if rows else ()
    return Section("With the gate's beliefs put off", heads, tuple(rows), (0, 1), derived=derived)


def _off(factor: float) -> str:
    return "perfect" if abs(factor - 1.0) < 1e-9 else f"{100 * (factor - 1.0):+.0f} %"


def _compared(comparison: simulated.Comparison | None) -> Section:
    if comparison is None:
        return Section("Compared")
    rows = [
        (
            one.figure,
            *led(
                "compared",
                *(f"{value:.4g}" for value in (one.a, one.b, one.difference, one.low, one.high)),
            ),
        )
        for one in comparison.differences
    ]
    heads = ("figure", comparison.a, comparison.b, "difference", "from", "to")
    said = (
        f"paired over {len(comparison.seeds)} seeds; intervals of 95 %; in the unit that the name ends with"
    )
    parts = (f"seeds {', '.join(map(str, comparison.seeds))}, each run under both scenarios", said)
    derived = (Derived("compared", "means over the seeds, and of the paired differences", parts),)
    title = "Two scenarios compared"
    return Section(title, heads, tuple(rows), range_of(1, 6), (said,), derived)


def _fleet(each: simulated.FleetFigures) -> str:
    return each.service if each.pool in ("", each.service) else f"{each.service}/{each.pool}"
