"""What `twofold plan --details` adds below the screen: the tables behind its lines."""

from collections.abc import Iterator, Sequence

from twofold.contracts import METRICS, QUANTILES
from twofold.contracts.results import ClassPlan, Loser, Part, Plan, ServicePlan, TrainingPlan
from twofold.core import Estimate, format_bytes, format_seconds, format_si, format_usd
from twofold.report.building_tables import building_tables
from twofold.report.compliance import bill_blocks
from twofold.report.figures import percent, ranged, shares, watt_hours
from twofold.report.lines import DOT, field, heading, stacked, table
from twofold.report.money import more_money_lines
from twofold.report.money_details import detail_money_lines
from twofold.report.plan import plan_lines
from twofold.report.portfolio import portfolio_tables
from twofold.report.serving import pooling_pieces
from twofold.report.training import cost_text, storage_text


def screen_lines(plan: Plan, spec: str, *, details: bool, money: bool, defaults: bool) -> list[str]:
    """The one screen, and below it what else was asked for; `spec` is how commands name the spec."""
    priced = plan.money if money else None
    return stacked(
        [
            plan_lines(plan, spec),
            detail_lines(plan, spec, money_follows=priced is not None) if details else [],
            detail_money_lines(priced) if priced else [],
            default_lines(plan) if defaults else [],
        ]
    )


def detail_lines(plan: Plan, spec: str = "SPEC", *, money_follows: bool = False) -> list[str]:
    """Every table that the screen has no room for, run by run and service by service.

    `spec` is how commands name it. Without MORE MONEY where the tables of `--money`, which begin with it,
    come behind.
    """
    blocks = [block for run in plan.training for block in _training_blocks(run)]
    blocks += [block for service in plan.serving for block in _serving_blocks(service)]
    blocks += [all_actions_lines(plan, spec)]
    blocks += portfolio_tables(plan.portfolio) if plan.portfolio else []
    blocks += [more_money_lines(plan.money)] if plan.money and not money_follows else []
    blocks += building_tables(plan.building) if plan.building else []
    blocks += bill_blocks(plan.compliance) if plan.compliance else []
    blocks += [factor_lines(plan), digest_lines(plan)]
    return stacked(blocks)


def all_actions_lines(plan: Plan, spec: str) -> list[str]:
    """Everything that the block DO THIS has room for a part of."""
    texts = [(each.kind, each.text.replace("SPEC", spec).split(DOT)) for each in plan.actions]
    lines = [line for kind, pieces in texts for line in field(kind, pieces)]
    return ["DO THIS, whole", *lines] if lines else []


def default_lines(plan: Plan) -> list[str]:
    """Every value that the spec left open, as it could be written there."""
    if not plan.defaults:
        return ["DEFAULTS     none: the spec says everything"]
    return ["DEFAULTS", *table(("path", "value"), plan.defaults)]


def factor_lines(plan: Plan) -> list[str]:
    """What is not known, and how far each unknown alone moves a headline: where measuring pays."""
    rows = [
        (
            factor.name.replace("_", " "),
            f"×{factor.low_factor:.2f} to ×{factor.high_factor:.2f}",
            _swing(factor.step_swing_fraction),
            _swing(factor.tpot_swing_fraction),
        )
        for factor in plan.factors
    ]
    title = "80 % ranges of the factors, and what each alone does to time per step and per token"
    return _titled("UNKNOWNS", title, table(("factor", "range", "step", "TPOT"), rows, numbers=(2, 3)))


def digest_lines(plan: Plan) -> list[str]:
    digests = plan.digests
    named = {"spec": digests.spec, "catalog": digests.catalog, "constants": digests.constants}
    named |= {"calibration": digests.calibration} if digests.calibration else {}
    return heading("MADE FROM", [f"twofold {plan.twofold}", *(f"{k} {v[:12]}" for k, v in named.items())])


def _swing(fraction: float | None) -> str:
    return "–" if fraction is None else f"±{percent(abs(fraction))}"


def _training_blocks(run: TrainingPlan) -> Iterator[list[str]]:
    yield _titled("MEMORY", f"{run.name}, of one device", _parts(run.memory_parts))
    yield _titled("FORMATS", f"{run.name}, the same bytes by number format", _parts(run.memory_by_format))
    yield _titled("STEP", run.name, _parts(run.step_parts))
    gains = [f"20 % more {bound.resource} gains {percent(bound.gain_fraction)}" for bound in run.bounds]
    yield heading("BOUNDS", [f"{run.name}: {gains[0]}", *gains[1:]]) if gains else []
    files = storage_text(run.run.checkpoints)
    yield heading("FILES", [f"{run.name}: {files}"]) if files else []
    yield _titled("FRONT", f"{run.name}: nothing beats these in time, cost and size", _front(run))
    yield _titled("SCALING", run.name, _scaling(run))
    yield _titled("TENANCY", run.name, _tenancy(run))
    yield heading("ENERGY", [f"{run.name} {watt_hours(run.run.energy_j)}", *_carbon(run.run.carbon_gco2)])
    yield _losers(run.name, run.losers)


def _serving_blocks(service: ServicePlan) -> Iterator[list[str]]:
    yield _titled("MEMORY", f"{service.name}, of one device", _parts(service.memory_parts))
    yield _titled("LATENCY", f"{service.name}, at the peak", _latency(service.classes))
    for one in service.classes:
        yield _titled("BUDGET", f"{one.name}: where a request's time goes", _parts(one.latency_budget))
    pooling = ": ".join([service.name, *pooling_pieces(service)])
    yield _titled("POOLS", pooling, _pools(service.classes))
    start = [f"{part.name} {ranged(part.value)}" for part in service.cold_start_parts]
    if service.cold_start_s:
        yield heading("COLD START", [f"{service.name} {ranged(service.cold_start_s)}", *start])
    if service.kv_bytes_per_token is not None:
        yield heading("CACHE", [f"{service.name}: {format_bytes(service.kv_bytes_per_token)} per token"])
    if service.all_to_all_bytes_per_token:
        sent = format_bytes(service.all_to_all_bytes_per_token)
        yield heading("NETWORK", [f"expert parallelism sends {sent} per token through all layers"])
    energy = [f"{service.name}, in a year: {watt_hours(service.energy_j_per_year)}"]
    energy += _carbon(service.carbon_gco2_per_year)
    energy += [ranged(service.output_tokens_per_j)] if service.output_tokens_per_j else []
    yield heading("ENERGY", energy)
    yield _losers(service.name, service.losers)


def _titled(label: str, title: str, rows: list[str]) -> list[str]:
    """A heading above the rows of a table; nothing where there is only the table's head."""
    return [*heading(label, [title]), *rows] if len(rows) > 1 else []


def _parts(parts: Sequence[Part]) -> list[str]:
    """The parts of a total with their ranges and shares, which are 100 % together."""
    texts = shares([("", part.value.value) for part in parts])
    rows = [
        (part.name, ranged(part.value, "memory B" if part.value.unit == "B" else ""), share.strip())
        for part, share in zip(parts, texts, strict=True)
    ]
    return table(("part", "", "share"), rows, numbers=(2,))


def _front(run: TrainingPlan) -> list[str]:
    rows = [
        (
            point.what,
            f"{point.accelerator_count:,}",
            format_seconds(point.wall_s),
            "no price" if point.cost_usd is None else format_usd(point.cost_usd),
            "" if point.feasible else "misses",
        )
        for point in run.front
    ]
    what = "layout" if run.layout else "machines"
    return table((what, "devices", "time", "cost", ""), rows, numbers=(1, 2, 3))


def _scaling(run: TrainingPlan) -> list[str]:
    rows = [
        (f"{point.accelerator_count:,}", ranged(point.step_s), ranged(point.efficiency_fraction))
        for point in run.scaling
    ]
    return table(("devices", "step", "efficiency"), rows, numbers=(0,))


def _tenancy(run: TrainingPlan) -> list[str]:
    rows = [
        (one.name, percent(one.overhead_fraction), ranged(one.step_s), cost_text(one.cost_usd))
        for one in run.tenancy
    ]
    return table(("machines", "overhead", "step", "cost"), rows, numbers=(1,))


def _latency(classes: Sequence[ClassPlan]) -> list[str]:
    """TTFT, TPOT and end to end of every class, at three percentiles."""
    rows = []
    for one in classes:
        for metric, name in METRICS.items():
            found = [one.percentiles.get(f"{metric}_{percentile}") for percentile in QUANTILES]
            if any(found):
                rows.append((one.name, name, *(ranged(cell) if cell else "–" for cell in found)))
    return table(("class", "", *QUANTILES), rows)


def _pools(classes: Sequence[ClassPlan]) -> list[str]:
    rows = [
        (
            one.name,
            format_si(one.rate_per_s, "1/s"),
            format_si(one.peak_per_s, "1/s"),
            _count(one.input_tokens),
            _count(one.output_tokens),
            f"{one.replica_count}",
            ranged(one.rate_per_replica_per_s),
            "–" if one.knee_per_s is None else format_si(one.knee_per_s, "1/s"),
        )
        for one in classes
    ]
    columns = ("class", "mean", "peak", "tokens in", "out", "replicas", "one replica serves", "knee")
    return table(columns, rows, numbers=(1, 2, 3, 4, 5, 7))


def _count(number: float | None) -> str:
    return "–" if number is None else f"{number:,.0f}"


def _losers(name: str, losers: Sequence[Loser]) -> list[str]:
    return _titled("LOST", name, table(("what", "why"), [(loser.what, loser.why) for loser in losers]))


def _carbon(carbon: Estimate | None) -> list[str]:
    return [f"carbon {ranged(carbon)}"] if carbon else []
