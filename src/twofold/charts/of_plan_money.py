"""Pictures of what a plan costs, and what else would: ways and fleets, hosted APIs, owning, the bill."""

from collections.abc import Iterator
from math import isclose

from twofold.charts.chart import Axis, Bar, Bars, Chart, Curves, Line, Piece, Points, Rule
from twofold.contracts.goals import metric_text
from twofold.contracts.results import ledger
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_si
from twofold.core.quantity import DAY_S

YEAR_D = 365.0
MONTHS_PER_YEAR = 12
VOLUMES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # times the planned tokens
USES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of a year


def ways_of_run(run: TrainingPlan, own_usd: float | None = None) -> Iterator[Chart]:
    """Cost against time; the way that is taken on machines of one's own at what they take."""
    yield from _front(run, own_usd)


def ways_of_service(service: ServicePlan) -> Iterator[Chart]:
    """Cost against latency of the fleets that were weighed, the planned one marked."""
    if len(service.weighed) < 2:
        return
    first = service.weighed[0]
    points = Points(
        "fleets",
        tuple(each.latency_s for each in service.weighed),
        tuple(each.usd_per_year for each in service.weighed),
        tuple(f"{each.accelerator_count} × {each.what}" for each in service.weighed),
        frozenset(index for index, each in enumerate(service.weighed) if each.chosen),
    )
    of = f"{metric_text(first.metric)} of {first.class_name}"
    axes = Axis(f"{of} at the peak", "s"), Axis("cost", "USD/y", log=True)
    goal = (Rule("goal", first.limit_s, upright=True),)
    title = f"{service.name}: cost against latency of the fleets weighed"
    yield Curves(f"fleets.{service.name}", title, *axes, (), (points,), goal)


def money_of_plan(plan: Plan) -> Iterator[Chart]:
    """Hosted or own, owned or rented, and the bill."""
    years = plan.money.owning.years if plan.money and plan.money.owning else 0
    for service in plan.money.services if plan.money else ():
        if service.api and service.api.mtok_per_month > 0.0 and (years or not service.api.once_usd):
            yield _hosted(service.name, service.api, years)
    for crossing in plan.money.owning.crossings if plan.money and plan.money.owning else ():
        if not crossing.yours:
            yield _rented(crossing)
    yield from (*_owning(plan), *_bill(plan))


def _hosted(name: str, api: ledger.ApiComparison, years: int) -> Chart:
    """What a month costs over the tokens of a month, by a hosted API and on machines of the plan's kind.

    Own machines are a floor and then a slope, with what making the model takes spread over the years.
    """
    own_usd_per_mtok = api.own_usd_per_year / MONTHS_PER_YEAR / api.mtok_per_month
    once = api.once_usd / (MONTHS_PER_YEAR * years) if years else 0.0
    bends = [api.least_own_usd_per_month / own_usd_per_mtok] if own_usd_per_mtok else []
    crossing = [api.break_even_mtok_per_month] if api.break_even_mtok_per_month else []
    around = [api.mtok_per_month, *crossing]
    volumes = tuple(sorted({*bends, *around, *(each * ratio for each in around for ratio in VOLUMES)}))
    lines = (
        Line(f"hosted by {api.provider}", volumes, tuple(api.usd_per_mtok * each for each in volumes)),
        Line(
            "own fleet",
            volumes,
            tuple(max(api.least_own_usd_per_month, own_usd_per_mtok * each) + once for each in volumes),
        ),
    )
    planned = Rule("planned", api.mtok_per_month, upright=True)
    rules = (planned, *(Rule("break-even", each, upright=True) for each in crossing))
    never = "" if crossing else "the hosted API costs less at any volume"
    other = "" if api.same_model else f"hosted: {api.model}, of the same size; nobody lists this model"
    axes = Axis("Mtok a month", "", log=True), Axis("a month", "USD", log=True)
    title, note = f"{name}: hosted or on machines of its own", "; ".join(filter(None, (never, other)))
    return Curves(f"hosted.{name}", title, *axes, lines, (), rules, note)


def _rented(crossing: ledger.Crossing) -> Chart:
    """What an hour of use costs over how much of the year machines are used: owned ones cost all year."""
    even, used = crossing.utilisation_fraction, crossing.used_fraction
    marks = [each for each in (even, used) if USES[0] <= each <= 1.0]  # less would leave no room for the rest
    uses = tuple(sorted({*USES, *marks}))
    owned = tuple(crossing.owned_usd_per_accelerator_h / each for each in uses)
    rented = (crossing.rented_usd_per_accelerator_h,) * len(uses)
    named = (("planned", used), ("break-even", even))
    rules = tuple(Rule(name, at, upright=True) for name, at in named if at in marks)
    axes = Axis("of the year in use", "fraction"), Axis("an accelerator-hour in use", "USD/h", log=True)
    seldom = f"planned for {format_si(used, 'fraction')} of the year" if used < USES[0] else ""
    never = "" if even <= 1.0 else "renting costs less even all year"
    note = "; ".join(filter(None, (seldom, never)))
    lines, title = (Line("owned", uses, owned), Line("rented", uses, rented)), f"{crossing.name}: own or rent"
    key = f"rented.{'-'.join(crossing.name.split())}"  # no blank: a page names its pictures by it
    return Curves(key, title, *axes, lines, (), rules, note)


def _front(run: TrainingPlan, own_usd: float | None) -> Iterator[Chart]:
    """Cost against time of what no other way beats, the planned one marked."""
    ways = [(each.wall_s, each.cost_usd, each.what) for each in run.front if each.cost_usd is not None]
    planned = run.cost_usd.value if run.cost_usd else None
    taken = [index for index, (_, usd, _) in enumerate(ways) if planned and isclose(usd, planned)]
    note = ""
    if planned is None and own_usd is not None:
        count, kind = run.machine.accelerator_count, run.machine.accelerator
        own = f"{count} × {kind}{f' · {run.layout.text}' if run.layout else ''}, your own"
        ways.append((run.run.total_s.value, own_usd, own))
        taken, note = [len(ways) - 1], "of your own machines what they take, of others their rent"
    if len(ways) < 2:
        return
    times, costs, texts = zip(*ways, strict=True)
    points = Points("ways to train", times, costs, texts, frozenset(taken[:1]))
    rules = (Rule("deadline", run.deadline_s, upright=True),) if run.deadline_s else ()
    title = f"{run.name}: cost against time"
    yield Curves(
        f"front.{run.name}", title, Axis("time", "s"), Axis("cost", "USD"), (), (points,), rules, note
    )


def _owning(plan: Plan) -> Iterator[Chart]:
    """Money spent over the years: owned beside rented."""
    owning = plan.money.owning if plan.money else None
    if owning is None or not owning.cash:
        return
    years = tuple(float(step.year) * YEAR_D * DAY_S for step in owning.cash)
    owned, rented = [0.0], [0.0]
    for step in owning.cash:
        owned.append(owned[-1] + step.owned_usd)
        rented.append(rented[-1] + step.rented_usd)
    lines = (
        Line("owned", years, tuple(owned[1:])),
        Line("rented", years, tuple(rented[1:])),
    )
    y = Axis("spent", "USD")
    yield Curves("owning", "owned or rented", Axis("after the first day", "s"), y, lines)


def _bill(plan: Plan) -> Iterator[Chart]:
    """The first year's bill by what it is for."""
    if plan.money is None:
        return
    sums: dict[str, float] = {}
    for line in plan.money.lines:
        whose = line.what.partition(":")[0]
        sums[whose] = sums.get(whose, 0.0) + line.total_usd
    bars = tuple(Bar(name, (Piece("first year", usd),)) for name, usd in sums.items() if usd)
    if bars:
        yield Bars("bill", "the bill of the first year", Axis("cost", "USD"), bars)
