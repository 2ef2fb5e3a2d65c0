"""The screen of a rehearsal: goals by class, what became of all requests, what broke first."""

from collections.abc import Iterator, Sequence

from twofold.answer import paths
from twofold.contracts.goals import metric_text
from twofold.contracts.results import simulated, sweeps
from twofold.contracts.results.simulated import ClassFigures
from twofold.core.display import format_apart, format_seconds, format_si, format_usd
from twofold.rehearse.figure_table import OF_FLEETS, figure_of
from twofold.report.figures import answered, percent, share, success_goal
from twofold.report.lines import DOT, both_ends, field, heading, listed, stacked, table
from twofold.report.simulate_cluster import training_lines
from twofold.report.sweep import sweep_lines

HEADINGS = ("class", "asked", "goal", "plan", "p50", "p95", "p99", "")
LEAST_SHOWN_USD = 1e-3
MARKS = {True: "✓", False: "✗", None: "–"}
FINISHED = "finished"
# What a person wants to know the time of.
TIMED_EFFECTS = (
    *("OpenCircuit", "EjectReplica", "FailOverZone", "RestoreZone", "CloseCircuit", "StartReplica"),
    *("StageRelease", "RollBackRelease", "PromoteRelease"),
)


def simulation_lines(made: simulated.Simulation | sweeps.Sweep) -> list[str]:
    """The screen of a rehearsal, or of a sweep of them, at most 100 columns wide."""
    return sweep_lines(made) if isinstance(made, sweeps.Sweep) else _rehearsal_lines(made)


def _rehearsal_lines(simulation: simulated.Simulation) -> list[str]:
    training = simulation.training
    span = format_seconds(training.duration_s if training else simulation.horizon_s)
    head = both_ends(
        f"{simulation.name} · {simulation.scenario}",
        f"middle speeds, seed {simulation.seed}, {span} simulated",
    )
    tenants = listed(
        simulation.tenants,
        ("TENANTS", lambda each: each.name or "others"),
        (">requests", lambda each: f"{each.arrived_count:,}"),
        (">finished", lambda each: share(each.finished_count / max(1, each.arrived_count))),
        (">TTFT p95", lambda each: "–" if each.ttft_p95_s is None else format_seconds(each.ttft_p95_s)),
        (">E2E p95", lambda each: "–" if each.e2e_p95_s is None else format_seconds(each.e2e_p95_s)),
        (">of its fair share", lambda t: "–" if t.fair_fraction is None else share(t.fair_fraction)),
    )
    return stacked(
        [
            [*head, *field("", simulation.about)],
            _verdict_lines(simulation),
            *(_fleet_lines(fleet, simulation) for fleet in simulation.fleets),
            tenants if simulation.tenants else [],
            training_lines(training) if training else [],
            _belief_lines(simulation) if len(simulation.beliefs) > 1 else [],
            _comparison_lines(simulation.comparison) if simulation.comparison else [],
            _closing_lines(simulation),
        ]
    )


def _fleet_lines(fleet: simulated.FleetFigures, simulation: simulated.Simulation) -> list[str]:
    pool = fleet.service, fleet.pool
    classes = [each for each in simulation.classes if (each.service, each.pool) == pool]
    name = fleet.service if fleet.pool in ("", fleet.service) else f"{fleet.service}/{fleet.pool}"
    count = f"{fleet.replica_count} replicas" if fleet.replica_count != 1 else "1 replica"
    count += f", {fleet.spare_count} of them spare," if fleet.spare_count else ""
    most = f", {fleet.replica_count_max} at most" if fleet.replica_count_max > fleet.replica_count else ""
    cost = format_usd(fleet.cost_usd) if fleet.cost_usd is not None else "no price"
    kept = format_si(sum(each.goodput_per_s for each in classes), "1/s")
    asked = format_si(sum(each.rate_per_s for each in classes), "1/s")
    rows = [row for each in classes for row in _class_rows(each, simulation)]
    return [
        *both_ends(f"SERVING   {name}: {count} on {fleet.accelerator}{most}", cost),
        *table(HEADINGS, rows, numbers=(1, 3, 4, 6)),
        *field("before", *_tier_pieces(fleet)),
        *field("replica", fleet.replica_text),
        *field("outcomes", *_outcome_pieces(fleet)),
        *field("goodput", f"{kept} of {asked} within every goal", *_token_pieces(fleet)),
        *field("used", *_use_pieces(fleet)),
        *field("fault", *(_fault_pieces(fleet.after_fault) if fleet.after_fault else ())),
    ]


def _tier_pieces(fleet: simulated.FleetFigures) -> Iterator[str]:
    """`retrieval 3 × 4 cores p95 62 of 200 ms ✓ waiting 12 ms, cores 71 % busy`, in the order of requests."""
    for each in fleet.tiers:
        size = f"{each.name} {each.replica_count} × {each.cores} core{'s' if each.cores != 1 else ''}"
        late = format_seconds(each.p95_s)
        if each.goal_s is not None:
            late = " of ".join(format_apart(each.p95_s, each.goal_s, "s"))
        refused = f", {each.refused_count:,} refused" if each.refused_count else ""
        bound = ": the bottleneck" if each.is_bottleneck else ""
        waits = f"waiting {format_seconds(each.wait_s_mean)}" if each.passed_count else "nothing passed"
        used = f"cores {percent(each.busy_fraction)} busy{refused}{bound}"
        yield f"{size} p95 {late} {MARKS[each.met]} {waits}, {used}"


def _class_rows(each: ClassFigures, simulation: simulated.Simulation) -> Iterator[tuple[str, ...]]:
    """A row for each goal; the first one carries what belongs to the class."""
    name, asked = each.name, format_si(each.rate_per_s, "1/s")
    for slo in each.slos or (None,):
        yield name, asked, *_goal_cells(each, slo)
        name = asked = ""
    kept = each.success
    if kept is not None and kept.simulated_fraction is not None:
        goal, seen = success_goal(kept.goal_fraction), answered(kept.simulated_fraction)
        yield "", "", goal, "", "", seen, "", MARKS[kept.met]
    origin = simulation.traffic.get(each.name, "")
    if not origin.startswith("drawn"):
        yield "", "", f"from {origin}", "", "", "", "", ""


def _goal_cells(each: ClassFigures, slo: simulated.SloKept | None) -> tuple[str, ...]:
    metric = slo.metric.split("_")[0] if slo else "e2e"
    figures: simulated.LatencyFigures | None = getattr(each, f"{metric}_s", None)
    goal = f"{metric_text(slo.metric)} ≤ {format_seconds(slo.limit_s)}" if slo else "no goal"
    planned = format_seconds(slo.planned_s) if slo and slo.planned_s is not None else "–"
    mark = _marked(each, slo, figures) if slo else ""
    if slo and slo.metric == "finish_within":
        seen = "–"
        if slo.simulated_s is not None:  # requests come at the pace that fills the window: none ends sooner
            seen = "keeps up" if slo.simulated_s <= slo.limit_s else format_seconds(slo.simulated_s)
        return goal, planned, "", seen, "", mark
    if figures is None:
        return goal, planned, "–", "–", "–", mark
    p50, p99 = format_seconds(figures.p50), format_seconds(figures.p99)
    return goal, planned, p50, _with_interval(figures), p99, mark


def _marked(each: ClassFigures, slo: simulated.SloKept, figures: simulated.LatencyFigures | None) -> str:
    """`✗`, and why where the answers themselves were in time: who got none is later than all of them."""
    quantile = getattr(figures, slo.metric.rpartition("_")[2], None)
    if slo.met is not False or quantile is None or quantile > slo.limit_s or not each.arrived_count:
        return MARKS[slo.met]
    return f"{MARKS[slo.met]} {share(1 - each.finished_count / each.arrived_count)} without an answer"


def _with_interval(figures: simulated.LatencyFigures) -> str:
    """`380 ms ±4 %`; without an interval where there are too few requests for one."""
    found = figures.interval.p95
    if found is None:
        return f"{format_seconds(figures.p95)} ±?"
    half = (found[1] - found[0]) / 2 / figures.p95 if figures.p95 else 0.0
    return f"{format_seconds(figures.p95)} ±{100 * half:.0f} %"


def _outcome_pieces(fleet: simulated.FleetFigures) -> list[str]:
    """Every way in which requests ended, the most frequent first."""
    total = max(1, sum(fleet.outcomes.values()))
    ordered = sorted(fleet.outcomes.items(), key=lambda item: (item[0] != FINISHED, -item[1]))
    pieces = [f"{name} {share(count / total)}" for name, count in ordered if count]
    retried = f"{fleet.retry_count:,} retries of clients" if fleet.retry_count else ""
    before = " with those of the warm-up" if fleet.measured_s < fleet.duration_s else ""
    return [f"{fleet.arrived_count:,} requests{before}", *pieces, retried]


def _token_pieces(fleet: simulated.FleetFigures) -> Iterator[str]:
    if fleet.has_tokens:
        yield format_si(fleet.output_tokens / fleet.duration_s if fleet.duration_s else 0.0, "tok/s")
    if fleet.usd_per_1k_output_tokens is not None:
        yield f"{format_usd(1e3 * fleet.usd_per_1k_output_tokens)} per million output tokens"
    if fleet.usd_per_request is not None:
        count, said = (1e3, "1k") if fleet.usd_per_request >= LEAST_SHOWN_USD / 1e3 else (1e6, "million")
        yield f"{format_usd(count * fleet.usd_per_request)} per {said} requests"
    yield format_si(fleet.energy_j / 3600.0, "Wh")
    if not fleet.power_w_max:  # shorter than the spans that power is averaged over
        return
    most, ramp = format_si(fleet.power_w_max, "W"), format_si(fleet.power_ramp_w_per_s, "W/s")
    limit = fleet.power_ramp_limit_w_per_s
    site = "" if limit is None else f", of which a site takes {format_si(limit, 'W/s')}"
    yield f"{most} at most, changing by {ramp}{site}"


def _use_pieces(fleet: simulated.FleetFigures) -> Iterator[str]:
    if fleet.load_fraction is not None:
        yield f"busy {percent(fleet.load_fraction)} of what its replicas hold"
    for each in OF_FLEETS:
        if each.of_fleet and (fleet.has_tokens or not each.of_tokens):
            yield each.text.format(percent(each.of_fleet(fleet)))
    if fleet.saved_s:
        yield f"{format_seconds(fleet.saved_s)} of {format_seconds(fleet.computed_s)} computing saved"
    if again := fleet.effects.get("GiveAgain"):
        of_all = share(again / max(1, fleet.arrived_count))
        yield f"{again:,} exact repeats ({of_all}) given {fleet.given_again_tokens:,} tokens again"
    if fleet.smaller_count is not None:
        yield f"{fleet.smaller_count:,} sent to the smaller model, whose replicas are in all of this"
    if fleet.has_tokens:
        yield f"{percent(fleet.kv_waste_fraction)} of held cache empty"
    if fleet.token_gap_p99_s is not None and fleet.token_gap_max_s is not None:
        usual, longest = (format_seconds(gap_s) for gap_s in (fleet.token_gap_p99_s, fleet.token_gap_max_s))
        yield f"between tokens {usual} in 99 %, {longest} at most"
    if fleet.preempted_count:
        yield f"{fleet.preempted_count:,} preempted"
    if fleet.started_count:
        yield f"{fleet.started_count} starts of {format_seconds(fleet.start_s_mean)}"
    yield f"gate: {fleet.event_count:,} events"
    yield from (f"{name} {count:,}" for name, count in fleet.effects.items() if name != "Probe")


def _fault_pieces(after: simulated.AfterFault) -> Iterator[str]:
    """What the gate did, by when, and what was lost on the way."""
    yield f"at {format_seconds(after.at_s)}"
    firsts = after.first_effects_s
    yield from (f"{name} after {format_seconds(firsts[name])}" for name in TIMED_EFFECTS if name in firsts)
    last = f", the last after {format_seconds(after.missent_s)}" if after.missent_s is not None else ""
    yield f"{after.missent_count} sent where nobody could hear{last}"
    if after.affected_fraction is not None:
        stage = f", at a stage of {share(after.stage_fraction)}" if after.stage_fraction else ""
        yield f"the release got {share(after.affected_fraction)} of the requests until then{stage}"
    if after.release_p95_s:
        seen = [(*key.split("."), format_seconds(value)) for key, value in after.release_p95_s.items()]
        told = [f"{name} {metric.upper()} {text}" for name, metric, text in seen]
        yield f"p95 meanwhile: {', '.join(told)}"
    recovered = after.recovered_s
    yield f"recovered after {format_seconds(recovered)}" if recovered is not None else "not recovered"


def _belief_lines(simulation: simulated.Simulation) -> list[str]:
    """The same run with beliefs put off, side by side."""
    runs = sorted(simulation.beliefs, key=lambda run: abs(run.belief_factor - 1.0))
    rows = [
        (f"{each.name} {metric_text(slo.metric)}", *(_belief_cell(run, each, slo) for run in runs))
        for each in simulation.classes
        for slo in each.slos
        if slo.metric.endswith("_p95")
    ]
    rows.append(("within every goal", *(share(run.goodput_fraction) for run in runs)))
    rows.append(("all goals", *("met" if run.slos_met else "missed" for run in runs)))
    off = [run.belief_factor - 1.0 for run in runs]
    heads = ["perfect" if abs(each) < 1e-9 else f"{100 * each:+.0f} % off" for each in off]
    alike: dict[tuple[str, ...], list[str]] = {}  # heads of the columns that say the same
    for head, column in zip(heads, list(zip(*rows, strict=True))[1:], strict=True):
        alike.setdefault(column, []).append(head)
    merged = [(row[0], *(column[at] for column in alike)) for at, row in enumerate(rows)]
    return table(("BELIEFS", *map(DOT.join, alike.values())), merged, numbers=range(1, len(alike) + 1))


def _belief_cell(run: simulated.BeliefRun, each: ClassFigures, slo: simulated.SloKept) -> str:
    by_metric = {"ttft": run.ttft_p95_s, "tpot": run.tpot_p95_s, "e2e": run.e2e_p95_s}
    value = by_metric[slo.metric.removesuffix("_p95")].get(each.name)
    return "–" if value is None else format_seconds(value)


def _comparison_lines(comparison: simulated.Comparison) -> list[str]:
    """What people ask for in any case; how much else differs beyond chance is counted.

    Where every seed gives the same, as a trace under faults at fixed times does, nothing speaks of chance.
    """
    rows, others = [], 0
    drawn = any(one.low < one.high for one in comparison.differences)
    for one in comparison.differences:
        differs = drawn and not one.low <= 0 <= one.high
        row = figure_of(one.figure)
        shown = row.compared if row else ""
        if shown != "always" and not (differs and shown):
            others += differs
            continue
        a, b, gap, low, high = (
            _signed(one.figure, value) for value in (one.a, one.b, one.difference, one.low, one.high)
        )
        rows.append((one.figure, a, b, gap, f"{low} to {high}" if drawn else "–", "*" if differs else ""))
    names = ("COMPARED", comparison.a, comparison.b, "difference", "95 % interval", "")
    paired = f"paired over {len(comparison.seeds)} seeds; * differs beyond chance"
    paired = paired if drawn else "the same under every seed: nothing is drawn, so there is no interval"
    more = f"so do {others} further figures: `--json`" if others else ""
    return [*table(names, rows, numbers=(1, 2, 3, 4)), *field("", paired, more)]


def _signed(figure: str, value: float) -> str:
    """A figure in the unit that its name ends with, its sign kept."""
    sign, size = ("−" if value < 0 else ""), abs(value)
    unit = paths.unit_of(figure)
    if unit == "fraction":
        return f"{sign}{100 * size:.2f} %"
    if figure.endswith("_usd"):
        return f"{sign}{format_usd(size)}"
    return f"{sign}{format_si(size, unit)}" if unit else f"{sign}{size:,.4g}"


def _year_pieces(classes: Sequence[ClassFigures]) -> Iterator[str]:
    """What fails of a year's requests where it is known how often this happens."""
    for one in classes:
        kept = one.success
        if kept is not None and kept.year_failed_fraction is not None:
            failed, most = (100 * part for part in (kept.year_failed_fraction, kept.year_allowed_fraction))
            yield f"{one.name}: {_plain(failed)} % of a year's requests fail by this, {_plain(most)} % may"


def _plain(number: float) -> str:
    """Two digits without an exponent, however small: `100`, `0.0023`, `0.00000003`."""
    return f"{float(f'{number:.2g}'):.12f}".rstrip("0").rstrip(".")


def unjudged_goals(classes: Sequence[ClassFigures]) -> list[str]:
    """Goals that nothing is said of, each with what was seen: `batch done ≤ 6.0 h (6.7 h)`."""
    found = []
    for each in classes:
        for slo in each.slos:
            if slo.met is None:
                seen = "" if slo.simulated_s is None else f" ({format_seconds(slo.simulated_s)})"
                limit = format_seconds(slo.limit_s)
                found.append(f"{each.name} {metric_text(slo.metric)} ≤ {limit}{seen}")
        if not each.slos and not each.success:
            found.append(f"{each.name}, which has no goal")
    return found


def _verdict_lines(simulation: simulated.Simulation) -> list[str]:
    """Whether all goals were kept, and what broke first; where none was missed, what came near to it."""
    training, broke = simulation.training, simulation.broke_first
    left_open = unjudged_goals(simulation.classes)
    lines: list[str] = []
    if simulation.classes:
        missed = [f"{one.name} {metric_text(goal)}" for one in simulation.classes for goal in one.missed]
        tiers = [tier for each in simulation.fleets for tier in each.tiers if tier.met is False]
        missed += dict.fromkeys(f"tier {tier.name} p95" for tier in tiers)
        judged = [each for each in simulation.classes if each.success and each.arrived_count]
        few = [f"{one.name} success" for one in judged if one.success and one.success.met is None]
        verdict = f"missed: {', '.join(missed)}" if missed else "not judged"
        if simulation.slos_met:
            verdict = "all judged are met" if left_open else "all met"
            verdict += f"; not resolved: {', '.join(few)}" if few else ""
        if left_open and (simulation.slos_met or missed):
            verdict += f"; not judged: {', '.join(left_open)}"
        whose = f"of {simulation.scenario}: " if simulation.comparison else ""
        lines += heading("GOALS", f"{whose}{verdict}", *_year_pieces(simulation.classes))
    late = training.missed if training else ()
    lines += heading("GOALS", f"missed: {'; '.join(late)}") if late else []
    if broke and simulation.classes and simulation.slos_met and not late:
        every = "every goal that is judged" if left_open else "every goal"
        return [*lines, *heading("STRAINED", f"{broke}; over the whole run {every} is met")]
    return [*lines, *heading("BROKE FIRST", broke or "nothing: every limit held")]


def _closing_lines(simulation: simulated.Simulation) -> list[str]:
    """What waits for ever, the policies that were on, and what to know."""
    training = simulation.training
    stuck = [f"{fleet.pool}: {fleet.waits_for}" for fleet in simulation.fleets if fleet.waits_for]
    stuck += [training.waits_for] if training and training.waits_for else []
    lines = [*heading("WAITS FOR", *stuck), *heading("POLICIES", *simulation.policies)]
    gates = [f"{pool} {each[:12]}" for pool, each in simulation.gate_digests.items()]
    lines += heading("GATE", *gates)
    return [*lines, *(line for note in simulation.notes for line in heading("NOTE", note))]
