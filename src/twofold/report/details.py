"""What `twofold plan --details` adds below the screen: the tables behind its lines."""

from collections.abc import Iterator, Sequence

from twofold.contracts.goals import METRICS, QUANTILES
from twofold.contracts.results.parts import Loser, Part
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ClassPlan, ServicePlan, TierPlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.data import to_data
from twofold.core.display import format_bytes, format_seconds, format_si, format_usd
from twofold.core.estimate import Estimate
from twofold.report.building import building_block
from twofold.report.building_tables import building_tables
from twofold.report.compliance import bill_blocks
from twofold.report.decision import decision_lines
from twofold.report.figures import percent, ranged, shares, watt_hours
from twofold.report.lines import heading, listed, stacked, table, titled
from twofold.report.money import detail_money_lines, more_money_lines
from twofold.report.plan import has_own, plan_lines
from twofold.report.portfolio import portfolio_tables
from twofold.report.serving import choice_table, pooling_pieces
from twofold.report.training import cost_text, delivery_pieces


def screen_lines(
    plan: Plan, spec: str, *, full: bool, details: bool, money: bool, defaults: bool
) -> list[str]:
    """The decision, or all sections, and below what else was asked for; `spec` is how commands name it."""
    priced = plan.money if money else None
    return stacked(
        [
            plan_lines(plan, spec) if full or details or money else decision_lines(plan, spec),
            detail_lines(plan, money_follows=priced is not None) if details else [],
            detail_money_lines(priced) if priced else [],
            default_lines(plan) if defaults else [],
        ]
    )


def detail_lines(plan: Plan, *, money_follows: bool = False) -> list[str]:
    """Every table that the screen has no room for, run by run and service by service.

    Without MORE MONEY where the tables of `--money`, which begin with it, come behind.
    """
    blocks = [block for run in plan.training for block in _training_blocks(run, plan.own_usd(run.name))]
    blocks += [block for service in plan.serving for block in _serving_blocks(service)]
    blocks += portfolio_tables(plan.portfolio) if plan.portfolio else []
    blocks += [more_money_lines(plan.money)] if plan.money and not money_follows else []
    rented = plan.building if not has_own(plan) else None  # own machines have it above
    blocks += [building_block(rented)] if rented else []
    blocks += building_tables(plan.building) if plan.building else []
    blocks += bill_blocks(plan.compliance) if plan.compliance else []
    digests = [f"{name} {digest[:12]}" for name, digest in to_data(plan.digests).items() if digest]
    blocks += [factor_lines(plan), heading("MADE FROM", f"twofold {plan.twofold}", *digests)]
    return stacked(blocks)


def default_lines(plan: Plan) -> list[str]:
    """Every value that the spec left open, as it could be written there."""
    if not plan.defaults:
        return ["DEFAULTS     none: the spec says everything"]
    return ["DEFAULTS", *table(("path", "value"), plan.defaults)]


def factor_lines(plan: Plan) -> list[str]:
    """What is not known, and how far each unknown alone moves a headline: where measuring pays."""

    def swing(fraction: float | None) -> str:
        return "–" if fraction is None else f"±{percent(abs(fraction))}"

    lines = listed(
        plan.factors,
        ("factor", lambda factor: factor.name.replace("_", " ")),
        ("range", lambda factor: f"×{factor.low_factor:.2f} to ×{factor.high_factor:.2f}"),
        (">step", lambda factor: swing(factor.step_swing_fraction)),
        (">TPOT", lambda factor: swing(factor.tpot_swing_fraction)),
    )
    title = "80 % ranges of the factors, and what each alone does to time per step and per token"
    return titled("UNKNOWNS", title, lines)


def _training_blocks(run: TrainingPlan, own_usd: float | None) -> Iterator[list[str]]:
    unpriced = "no price" if own_usd is None else "your own"
    yield titled("MEMORY", f"{run.name}, of one device", _parts(run.memory_parts))
    yield titled("FORMATS", f"{run.name}, the same bytes by number format", _parts(run.memory_by_format))
    yield titled("STEP", run.name, _parts(run.step_parts))
    gains = [f"20 % more {bound.resource} gains {percent(bound.gain_fraction)}" for bound in run.bounds]
    yield heading("BOUNDS", f"{run.name}: {gains[0]}", *gains[1:]) if gains else []
    saved = run.run.checkpoints
    if saved.storage_bytes_per_s is not None:
        rate = f"storage {format_si(saved.storage_bytes_per_s, 'B/s')} for {saved.storage_term}"
        yield heading("FILES", f"{run.name}: {rate}")
    if run.delivery:
        yield heading("DELIVERY", run.name, *(text for _, text in delivery_pieces(run, run.delivery)))
    front = listed(
        run.front,
        ("layout" if run.layout else "machines", lambda point: point.what),
        (">devices", lambda point: f"{point.accelerator_count:,}"),
        (">time", lambda point: format_seconds(point.wall_s)),
        (">cost", lambda point: unpriced if point.cost_usd is None else format_usd(point.cost_usd)),
        ("", lambda point: "" if point.feasible else "misses"),
    )
    yield titled("FRONT", f"{run.name}: nothing beats these in time, cost and size", front)
    scaling = listed(
        run.scaling,
        (">devices", lambda point: f"{point.accelerator_count:,}"),
        ("step", lambda point: ranged(point.step_s)),
        ("efficiency", lambda point: ranged(point.efficiency_fraction)),
    )
    yield titled("SCALING", f"{run.name}, its batch grown with the accelerators", scaling)
    tenancy = listed(
        run.tenancy,
        ("machines", lambda one: one.name),
        (">overhead", lambda one: percent(one.overhead_fraction)),
        ("step", lambda one: ranged(one.step_s)),
        ("cost", lambda one: cost_text(one.cost_usd) if one.cost_usd else unpriced),
    )
    yield titled("TENANCY", run.name, tenancy)
    yield heading("ENERGY", f"{run.name} {watt_hours(run.run.energy_j)}", _carbon(run.run.carbon_gco2))
    yield _losers(run.name, run.losers)


def _serving_blocks(service: ServicePlan) -> Iterator[list[str]]:
    yield titled("MEMORY", f"{service.name}, of one device", _parts(service.memory_parts))
    rows = []
    for one in service.classes:
        for metric, name in METRICS.items():
            found = [one.percentiles.get(f"{metric}_{percentile}") for percentile in QUANTILES]
            if any(found):
                rows.append((one.name, name, *map(ranged, found)))
    for tier in service.tiers:
        waits = (format_seconds(getattr(tier, f"{quantile}_s")) for quantile in QUANTILES)
        rows.append((f"tier {tier.name}", "in TTFT", *waits))
    yield titled("LATENCY", f"{service.name}, at the peak", table(("class", "", *QUANTILES), rows))
    yield titled("TIERS", f"{service.name}: CPU servers before its replicas", _tiers(service.tiers))
    for one in service.classes:
        yield titled("BUDGET", f"{one.name}: where a request's time goes", _parts(one.latency_budget))
    pooling = ": ".join([service.name, *pooling_pieces(service)])
    yield titled("POOLS", pooling, _pools(service.classes))
    start = [f"{part.name} {ranged(part.value)}" for part in service.cold_start_parts]
    if service.cold_start_s:
        yield heading("COLD START", f"{service.name} {ranged(service.cold_start_s)}", *start)
    if service.kv_bytes_per_token is not None:
        yield heading("CACHE", f"{service.name}: {format_bytes(service.kv_bytes_per_token)} per token")
    if service.all_to_all_bytes_per_token:
        sent = format_bytes(service.all_to_all_bytes_per_token)
        yield heading("NETWORK", f"expert parallelism sends {sent} per token through all layers")
    yield heading(
        "ENERGY",
        f"{service.name}, in a year: {watt_hours(service.energy_j_per_year)}",
        _carbon(service.carbon_gco2_per_year),
        ranged(service.output_tokens_per_j) if service.output_tokens_per_j else "",
    )
    yield titled("CHOICES", f"{service.name}: open in the spec, on the same machines", choice_table(service))
    yield _losers(service.name, service.losers)


def _tiers(tiers: Sequence[TierPlan]) -> list[str]:
    """How many, what each does, and what it costs."""
    return listed(
        tiers,
        ("tier", lambda one: one.name),
        (">replicas", lambda one: f"{one.replica_count}{' sized' if one.is_sized else ''}"),
        (">cores", lambda one: f"{one.cores}"),
        (">at once", lambda one: f"{one.in_flight_limit}"),
        (">work", lambda one: format_seconds(one.work_s)),
        (">busy", lambda one: percent(one.utilisation_fraction)),
        (">p95 goal", lambda one: format_seconds(one.goal_s)),
        (">holds to", lambda one: format_si(one.holds_until_per_s, "1/s")),
        (
            ">a year",
            lambda one: "no price" if one.cost_usd_per_year is None else format_usd(one.cost_usd_per_year),
        ),
    )


def _parts(parts: Sequence[Part]) -> list[str]:
    """The parts of a total with their ranges and shares, which are 100 % together."""
    texts = shares([("", part.value.value) for part in parts])
    rows = [
        (part.name, ranged(part.value, "memory B" if part.value.unit == "B" else ""), share.strip())
        for part, share in zip(parts, texts, strict=True)
    ]
    return table(("part", "", "share"), rows, numbers=(2,))


def _pools(classes: Sequence[ClassPlan]) -> list[str]:
    def count(number: float | None) -> str:
        return "–" if number is None else f"{number:,.0f}"

    return listed(
        classes,
        ("class", lambda one: one.name),
        (">mean", lambda one: format_si(one.rate_per_s, "1/s")),
        (">peak", lambda one: format_si(one.peak_per_s, "1/s")),
        (">tokens in", lambda one: count(one.input_tokens)),
        (">out", lambda one: count(one.output_tokens)),
        (">replicas", lambda one: f"{one.replica_count}"),
        ("one replica serves", lambda one: ranged(one.rate_per_replica_per_s)),
        (">knee", lambda one: "–" if one.knee_per_s is None else format_si(one.knee_per_s, "1/s")),
    )


def _losers(name: str, losers: Sequence[Loser]) -> list[str]:
    return titled("LOST", name, table(("what", "why"), [(loser.what, loser.why) for loser in losers]))


def _carbon(carbon: Estimate | None) -> str:
    return f"carbon {ranged(carbon)}" if carbon else ""
