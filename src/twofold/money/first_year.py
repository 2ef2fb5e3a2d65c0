"""The one total of a plan: the bill of its first year, and how far it may be off."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from twofold.answer.context import Context
from twofold.answer.derivation import Noted, figures_of, path_input, spec_leaf
from twofold.answer.supply_rules import may_host
from twofold.building.compliance_costs import OF_RENT
from twofold.building.own import IDLE, billed, own_year_lines, own_years
from twofold.catalog.types import ApiPrice
from twofold.contracts.goals import metric_text
from twofold.contracts.results import ledger
from twofold.contracts.results.ledger import LineItem, cents, total_usd
from twofold.contracts.results.plan import Derivation, Input, Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.spec import Spec
from twofold.core import record
from twofold.core.display import format_apart, format_enough, format_usd
from twofold.core.errors import InfeasibleError
from twofold.core.estimate import Estimate, Source, half_common
from twofold.core.quantity import DAY_S
from twofold.money.bill import bill_lines, first_year_difference
from twofold.money.owning import Fleet, fleets_of, owning, ratios
from twofold.money.terms import ASSUMED
from twofold.money.units import run_money, service_money

# How the source of a line begins where no vendor lists the price.
ASSUMED_OF = {"spec ": "", ASSUMED: Source.ASSUMED.value}
FOLLOWS_RENT = ("rent", "support")  # lines that are as unsure as the hours rented


def rent_of_year(
    training: Sequence[TrainingPlan], serving: Sequence[ServicePlan], spec: Spec
) -> Estimate | None:
    """Rent at list price: every run as often as it repeats, a year of every service; None without a price."""
    costs = [
        plan.cost_usd.times(entry.runs_per_year)
        for plan, entry in zip(training, spec.training, strict=True)
        if plan.cost_usd
    ]
    costs += [plan.cost_usd_per_year for plan in serving if plan.cost_usd_per_year]
    if not costs:
        return None
    middle = sum(cost.value for cost in costs)
    low = half_common([cost.value - cost.low for cost in costs])
    high = half_common([cost.high - cost.value for cost in costs])
    return Estimate(middle, max(0.0, middle - low), middle + high, "USD", costs[0].source)


def first_year(plan: Plan, rent: Estimate | None, lines: Sequence[LineItem]) -> Estimate:
    """The bill's total with a range: of rent and its support, of own machines' energy, of what rules ask for.

    Formula  total = sum of the lines, to the cent; half of each part's spread is common to all parts, half
             is its own
    Limits   storage and egress have no range: both are small, and follow what the spec states.
    """
    total = total_usd(lines)
    parts = []
    if rent and rent.value > 0:
        scale = total_usd(line for line in lines if line.category in FOLLOWS_RENT) / rent.value
        parts.append((scale * (rent.value - rent.low), scale * (rent.high - rent.value)))
    energy = total_usd(line for line in lines if line.category == "energy")
    joules = [half.run.energy_j for half in plan.training if half.machine.price is None]
    joules += [half.energy_j_per_year for half in plan.serving if half.machine.price is None]
    if energy and (middle := sum(each.value for each in joules)):
        ends = [abs(sum(getattr(each, end) for each in joules) / middle - 1.0) for end in ("low", "high")]
        parts.append((energy * ends[0], energy * ends[1]))
    if plan.compliance:
        asked = [item for item in plan.compliance.items if item.category not in OF_RENT]
        middles = total_usd(item.line for item in asked)
        lows, highs = sum(item.low_usd for item in asked), sum(item.high_usd for item in asked)
        parts.append((middles - lows, highs - middles))
    low, high = (half_common([part[end] for part in parts]) for end in (0, 1))
    return Estimate(
        total, max(0.0, total - low), total + high, "USD", rent.source if rent else Source.ASSUMED
    )


def with_first_year(plan: Plan, rent: Estimate | None, lines: Sequence[LineItem]) -> Plan:
    """The plan whose first year is its bill's total, and how probably that keeps the budget."""
    whole = "the runs as often as they repeat and a year of services, with every line of the bill"
    said = whole if rent else "sum of the bill: every line of the bill"
    total = record.note("first_year_usd", first_year(plan, rent, lines), said, "rented", "beside")
    holds = plan.budget_usd and total.probability_within(plan.budget_usd)
    said = "share of what the range of the first year leaves within the budget"
    record.note("budget_holds_probability", holds, said, "first_year_usd", "budget")
    return replace(plan, first_year_usd=total, budget_holds_probability=holds)


def _derivations(plan: Plan, book: record.Book, spec: Spec) -> Iterator[Derivation]:
    """Where the figures of money come from: both halves, the lines of bills and the spec."""
    lines = plan.money.lines if plan.money else ()
    known: dict[str, Input | Sequence[Input]] = {
        "rented": tuple(_rented(plan, spec)),
        "beside": tuple(_beside_rent(lines)),
        "money.lines": [_line(line, line.total_usd) for line in lines],
        "budget": spec_leaf("budget", format_usd(plan.budget_usd or 0.0), "supply.budget"),
    }
    if plan.portfolio:
        items = plan.portfolio.items
        known["portfolio.items"] = [_line(line, line.total_usd - line.tax_usd) for line in items]
    held = replace(plan, cross=(), derivations=(), building=None, compliance=None)
    return Noted("", book, figures_of(held), known).rows()


def _line(line: LineItem, usd: float) -> Input:
    """A line of a bill, and what of it is summed."""
    said = f"{line.source} {line.date}".strip()
    return Input(line.what, format_usd(usd), "", letter_of(line.source), said)


def letter_of(source: str) -> str:
    """The letter of a line's price: of the spec none, assumed, else listed by a vendor."""
    found = (letter for begins, letter in ASSUMED_OF.items() if source.startswith(begins))
    return next(found, Source.VENDOR.value)


def _rented(plan: Plan, spec: Spec) -> Iterator[Input]:
    """What `rent_of_year` is the sum of."""
    for run, entry in zip(plan.training, spec.training, strict=True):
        at = f"training.{run.name}"
        if run.cost_usd:
            yield path_input(run.name, run.cost_usd, f"{at}.cost_usd")
            if entry.repeats_every_s:
                yield spec_leaf("repeats", f"every {entry.repeats_every_s / DAY_S:g} d", f"{at}.repeats")
    for service in plan.serving:
        if service.cost_usd_per_year:
            at = f"serving.{service.name}.cost_usd_per_year"
            yield path_input(service.name, service.cost_usd_per_year, at)


def _beside_rent(lines: Sequence[LineItem]) -> Iterator[Input]:
    """What the bill holds besides rent at list price, kind by kind, and what comes off and on it."""
    kinds: dict[str, list[LineItem]] = {}
    for line in lines:
        if line.category != "rent":
            kinds.setdefault(line.category, []).append(line)
    for kind, own in kinds.items():
        text = format_usd(sum(line.total_usd - line.tax_usd for line in own))
        yield Input(kind, text, "", letter_of(own[0].source), own[0].source)
    for name, sign, field in (("discount", -1.0, "discount_usd"), ("tax", 1.0, "tax_usd")):
        usd = sign * sum(getattr(line, field) for line in lines)
        if usd:
            yield spec_leaf(name, format_usd(usd), f"supply.economics.{name}")


def check_budget(plan: Plan, budget_usd: float | None) -> None:
    """Raises InfeasibleError with the amounts where the first year exceeds the budget."""
    if plan.first_year_usd is None or budget_usd is None or plan.first_year_usd.value <= budget_usd:
        return
    total = plan.first_year_usd.value
    needed, budget = format_apart(total, budget_usd, "USD")
    looser = "looser objectives, fewer zones or a smaller variant for"
    costs = [
        *((run.name, run.cost_usd, "", "fewer tokens in") for run in plan.training),
        *((each.name, each.cost_usd_per_year, "/y", looser) for each in plan.serving),
    ]
    halves = [(cost.value, name, per, f"{how} `{name}`") for name, cost, per, how in costs if cost]
    parts = [f"{name} {format_usd(usd)}{per}" for usd, name, per, _ in halves]
    rest = total - sum(usd for usd, *_ in halves)
    parts += [f"support, storage, rules and other runs {format_usd(rest)}"] if rest >= 0.01 * total else []
    lines = [
        ("needs", f"{needed} in the first year: {' · '.join(parts)}"),
        ("budget", f"{budget}: {format_usd(total - budget_usd)} too little"),
    ]
    told = (note.partition("rehearsed: ")[2] for each in plan.serving for note in each.warnings)
    lines += [("rehearsed", note) for note in told if " misses " in note]
    dearest_first = sorted(halves, key=lambda each: -each[0])
    looser_goals = _looser_goals(plan, total - budget_usd)
    ways = [f"a budget of {format_enough(total, 'USD')}", *looser_goals, *(how for *_, how in dearest_first)]
    lines.append(("would fit", " · ".join(ways)))
    raise InfeasibleError(f"the plan exceeds the budget of {budget}", lines=tuple(lines))


def _looser_goals(plan: Plan, lacking_usd: float) -> tuple[str, ...]:
    """The goals with which fleets stay as they were before the twin, where the budget covers those."""
    grown = [need for each in plan.serving for need in each.replica_needs if need.planned_missed]
    goals = [goal for need in grown for goal in need.planned_missed]
    late = all(goal.value is not None and goal.metric != "success" for goal in goals)
    if not goals or not late or sum(need.usd_per_year or 0.0 for need in grown) < lacking_usd:
        return ()
    texts = (
        f"{metric_text(each.metric)} ≤ {format_enough(each.value or 0.0, 's')} for `{each.class_name}`"
        for each in goals
    )
    return (" and ".join(texts),)


def with_money(plan: Plan, context: Context) -> Plan:
    """The plan with its money and where that comes from; nothing new where nothing has a price."""
    with record.recording() as book:
        priced = _priced(plan, context)
    rows = _derivations(priced, book, context.spec) if context.in_full else ()
    return replace(priced, derivations=(*plan.derivations, *rows))


def _priced(plan: Plan, context: Context) -> Plan:
    """The plan with its money; the same plan where nothing in it has a price to rent or to buy."""
    lines = bill_lines(plan, context)
    fleets, left_out = fleets_of(plan, context) if context.in_full or not lines else ((), ())
    bought = owning(plan, fleets, left_out, context)
    rent = plan.first_year_usd
    if plan.portfolio and plan.portfolio.items:
        said = "sum of its lines before tax, of the plan's weeks"
        record.note("portfolio.usd", plan.portfolio.usd, said, "portfolio.items")
    if not lines and bought is None:
        return plan if rent is None else with_first_year(plan, rent, lines)
    with record.noting("money"):
        money = _money(plan, rent, lines, fleets, bought, context)
    plan = replace(plan, money=money)
    if not lines and rent is None:
        return plan  # nothing has a price
    if plan.compliance:
        without = cents(money.total_usd - plan.compliance.first_year_usd.value)
        plan = replace(plan, compliance=replace(plan.compliance, without_usd=without))
    return with_first_year(plan, rent, lines)


def _money(
    plan: Plan,
    rent: Estimate | None,
    lines: tuple[LineItem, ...],
    fleets: Sequence[Fleet],
    bought: ledger.Owning | None,
    context: Context,
) -> ledger.Money:
    keys = context.spec.supply.economics
    services, runs = [], []
    for service in plan.serving:
        with record.noting(f"services.{service.name}"):
            services.append(service_money(service, plan, lines, context))
    for run, entry in zip(plan.training, context.spec.training, strict=True):
        with record.noting(f"runs.{run.name}"):
            runs.append(run_money(run, entry, plan.serving, context))
    return ledger.Money(
        currency=keys.currency,
        exchange_ratio=keys.exchange_ratio,
        discount_fraction=keys.discount_fraction,
        tax_fraction=keys.tax_fraction,
        lines=record.note("lines", lines, ""),
        total_usd=record.note("total_usd", total_usd(lines), "sum of the lines, to the cent", "lines"),
        difference=first_year_difference(lines, rent.value if rent else None),
        services=tuple(services),
        runs=tuple(runs),
        ratios=ratios(plan, fleets, context),
        owning=bought,
        notes=_notes(plan, context),
    )


def _notes(plan: Plan, context: Context) -> tuple[str, ...]:
    """What the money rests on that nobody stated."""
    notes = []
    if plan.serving and context.spec.supply.economics.downtime_usd_per_h is None:
        notes.append("the cost of an hour down is assumed: `supply.economics.downtime_cost` states yours")
    for name, own in billed(own_years(plan, context)).items():
        if name.startswith(IDLE):
            usd = format_usd(total_usd(own_year_lines(own)))
            notes.append(f"{name}: {own.machines} draw {usd} in the rest of the year: billed to nobody")
    machines = [*(run.machine for run in plan.training), *(each.machine for each in plan.serving)]
    if any(machine.price for machine in machines):
        notes.append("egress, support and storage are list prices of economics.csv, which you may replace")
    rules = context.spec.compliance
    providers = (price.provider for price in context.catalog.rows(ApiPrice))
    if plan.serving and rules and not any(may_host(each, context) for each in providers):
        notes.append(f"no hosted API is compared: none of a provider authorised for {rules.regime} is known")
    return tuple(notes)
