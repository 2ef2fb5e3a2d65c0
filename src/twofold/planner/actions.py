"""What a plan says to do: what to rent first, what goes back when, what that costs, what may go wrong."""

from collections.abc import Container, Iterator, Sequence

from twofold.contracts.goals import metric_text
from twofold.contracts.results import ledger
from twofold.contracts.results.holdings import Lease, Portfolio
from twofold.contracts.results.ledger import LineItem, total_usd
from twofold.contracts.results.plan import Action, Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_seconds, format_usd
from twofold.money.bill import LEAST_USD
from twofold.money.portfolio import in_portfolio, names_of, rounding_usd
from twofold.portfolio.report import by_lease
from twofold.portfolio.solved import uncorrected

SHORT_CHARACTERS = 66  # of two leases, that they stand together on a line
SHOWN_LATER = 2
FLIP_LIMIT_FRACTION = 0.2
IDLE = "none of your own machines, which draw at rest all the same"
BATCH_METRIC = "finish_within"
RENTED = ("rent", "support")


def actions_of(plan: Plan) -> tuple[Action, ...]:
    """What to use, rent and give back, in that order; its cost, the risk, and the command to run next.

    `SPEC` in a command is the user's path. The screen has room for six lines, and says where it cut some.
    The portfolio is recommended where it answers everything for less than the fleets as planned; else these.
    """
    bill = _recommended(plan)
    parts = _of_portfolio(plan, bill) if bill else _of_fleets(plan)
    tried = "simulate SPEC --scenario zone-loss" if plan.rehearsed else "plan SPEC --rehearse"
    command = f"twofold {tried if plan.serving else 'plan SPEC --money'}"  # to run before signing
    return (*parts, *_risks(plan, bill), Action("next", command, "", None))


def _recommended(plan: Plan) -> ledger.PortfolioBill | None:
    """The portfolio's bill where the portfolio is what to buy."""
    money = plan.money
    if money is None or money.portfolio is None or plan.portfolio is None or not money.portfolio.answers:
        return None
    saved_usd = money.total_usd - money.portfolio.total_usd
    return money.portfolio if saved_usd > rounding_usd(money.lines, money.portfolio.lines) else None


def _of_portfolio(plan: Plan, bill: ledger.PortfolioBill) -> Iterator[Action]:
    portfolio = plan.portfolio
    assert portfolio is not None and plan.money is not None
    machines = [lease for lease in portfolio.leases if lease.accelerators_per_unit]
    own = [lease for lease in machines if lease.term == "owned"]
    rented = [lease for lease in machines if lease.term != "owned"]
    first_week = min((lease.start_week for lease in rented), default=0)
    first = sorted((each for each in rented if each.start_week == first_week), key=lambda each: -each.usd)
    absent = [half for half in plan.halves if half.name not in in_portfolio(portfolio)]
    held, priced = _by_price(absent)
    hosted = [lease for lease in portfolio.leases if lease.term == "api"]
    if hosted:
        texts = [f"{each.provider}'s hosted interface for {each.what}" for each in hosted]
        yield Action("use", " · ".join(texts), "", _usd(bill.lines, "api"))
    drawn_usd = _usd(bill.lines, "energy")  # of machines for rent it is in their price
    if own or held:
        yield Action("use", _joined(_listed(own), *_half_texts(held, plan)), "", drawn_usd)
    elif drawn_usd:
        yield Action("use", IDLE, "", drawn_usd)
    if first or priced:
        when = portfolio.start if portfolio.start and not first_week else f"week {first_week + 1}"
        fleets_usd = _usd(bill.lines, *RENTED, of={half.name for half in priced})
        usd = leased_usd(portfolio, bill.lines, first) + fleets_usd
        yield Action("rent", _joined(_listed(first), *_half_texts(priced, plan)), when, usd)
    later = [each for each in rented if each.start_week > first_week]
    if later:
        later.sort(key=lambda each: each.start_week)
        texts = [f"week {each.start_week + 1}, {_listed([each])}" for each in later[:SHOWN_LATER]]
        texts += [f"{len(later) - SHOWN_LATER} more"] if len(later) > SHOWN_LATER else []
        yield Action("then", " · ".join(texts), "", leased_usd(portfolio, bill.lines, later))
    back = portfolio.windows[:SHOWN_LATER]
    if back:
        years = [f"{format_usd(each.year_usd)} if held all year" for each in back]
        texts = [f"{w.run}'s machines on {w.release}, {year}" for w, year in zip(back, years, strict=True)]
        more = len(portfolio.windows) - len(back)
        texts += [f"{more} more windows"] if more else []
        yield Action("release", " · ".join(texts), back[0].release, None)
    yield Action("cost", _saved(plan, bill), "", bill.total_usd)


def _saved(plan: Plan, bill: ledger.PortfolioBill) -> str:
    """The first year, and what is saved on each other way to get the machines (of rent, for those)."""
    assert plan.portfolio is not None and plan.money is not None
    saved = [f"fleets below {format_usd(plan.money.total_usd - bill.total_usd)}"]
    own, *others = plan.portfolio.options or (None,)
    if own is not None:
        saved += [
            f"{each.name.removesuffix(' fleets')} {format_usd(each.usd - own.usd)}"
            for each in others
            if each.usd - own.usd >= LEAST_USD
        ]
    return f"first year {format_usd(bill.total_usd)}, saved: {', '.join(saved)}"


def _listed(leases: Sequence[Lease]) -> str:
    """`serve: 5 × 8 B200-SXM-180GB (nebius) + 1 more · pretrain: …`: by purpose, the dearest first."""
    purposes: dict[str, list[Lease]] = {}
    for lease in leases:
        names = dict.fromkeys(each.partition(".")[0] for each in lease.what.split(", "))
        purposes.setdefault(", ".join(names), []).append(lease)
    found = []
    for purpose, own in purposes.items():
        texts = [
            f"{each.units} × {each.accelerators_per_unit} {each.accelerator} "
            f"({'your own' if each.term == 'owned' else each.provider})"
            for each in own
        ]
        shown = 2 if len(purpose) + sum(map(len, texts[:2])) <= SHORT_CHARACTERS else 1
        rest_usd = sum(each.usd for each in own[shown:])
        more = f" + {len(texts) - shown} more, {format_usd(rest_usd)}" if len(texts) > shown else ""
        found.append(f"{purpose}: {', '.join(texts[:shown])}{more}")
    return " · ".join(found)


def _of_fleets(plan: Plan) -> Iterator[Action]:
    """The fleets as planned: where there is no portfolio, or none that answers for less."""
    held, priced = _by_price(plan.halves)
    lines = plan.money.lines if plan.money else None
    if held:
        usd = None if lines is None else _usd(lines, "energy")
        yield Action("use", _joined(*_half_texts(held, plan)), "", usd)
    if priced:
        usd = None if lines is None else _usd(lines, *RENTED, of={half.name for half in priced})
        yield Action("rent", _joined(*_half_texts(priced, plan)), "", usd)
    released = [
        f"{run.name}'s machines after {format_seconds(run.release_after_s)}"
        for run in plan.training
        if run.release_after_s is not None and run.machine.price
    ]
    if released:
        yield Action("release", " · ".join(released), "", None)
    if plan.money:
        why = ""
        if plan.portfolio and plan.money.portfolio and plan.money.portfolio.answers:
            why = ": no portfolio of leases answers all for less"
        yield Action("cost", f"first year {format_usd(plan.money.total_usd)}{why}", "", plan.money.total_usd)


def _by_price(
    halves: Sequence[TrainingPlan | ServicePlan],
) -> tuple[list[TrainingPlan | ServicePlan], list[TrainingPlan | ServicePlan]]:
    """Those that pay no rent (machines of one's own, or that nobody prices), and those that do."""
    unpaid = [half for half in halves if not half.machine.price]
    return unpaid, [half for half in halves if half.machine.price]


def _joined(*texts: str) -> str:
    return " · ".join(filter(None, texts))


def _half_texts(halves: Sequence[TrainingPlan | ServicePlan], plan: Plan) -> Iterator[str]:
    """`2 × 8 H100-SXM5-80GB of your own for serve`."""
    lines = plan.money.lines if plan.money else ()
    own = {owner_of(line) for line in lines if line.category == "energy"}
    for half in halves:
        machine = half.machine
        count = f"{machine.node_count} × {machine.accelerators_per_node}"
        if machine.node_count * machine.accelerators_per_node != machine.accelerator_count:
            count = f"{machine.accelerator_count} ×"
        whose = " of your own" if half.name in own else ""
        if machine.price:
            whose = f" of {machine.price.provider} ({machine.price.term.replace('_', ' ')})"
        yield f"{count} {machine.accelerator}{whose} for {half.name}"


def _risks(plan: Plan, bill: ledger.PortfolioBill | None) -> Iterator[Action]:
    """The largest thing that may go wrong, and whether anything was tried on the twin."""
    found = next(_dangers(plan, bill), "")
    portfolio = plan.portfolio if bill else None
    if not plan.serving or (plan.rehearsed and not portfolio):
        sure = ""
    elif plan.rehearsed and portfolio and portfolio.rounds:
        # Machines that serve since the last correction, which no round was left to look at.
        new = [each.text for each in portfolio.rehearsed if each.serves and each.verdict == "unseen"]
        late = ", ".join(new)
        sure = f"not rehearsed: {late}" if late else ""
    elif plan.rehearsed:
        sure = "the fleets below were rehearsed, the portfolio was not"
    else:
        sure = "not rehearsed"
    text = _joined(found, _unranged(plan) if bill else "", sure)
    if text:
        yield Action("risk", text, "", None)


def _dangers(plan: Plan, bill: ledger.PortfolioBill | None) -> Iterator[str]:
    """Largest first: what cannot be met, years that are too much, goals the range crosses, close calls."""
    if plan.portfolio and plan.portfolio.conflict and not bill:
        yield f"the portfolio cannot meet all of: {', '.join(plan.portfolio.conflict)}"
    if plan.portfolio and not bill:
        yield from (f"the portfolio's {each.text}" for each in uncorrected(plan.portfolio))
    if plan.portfolio and bill:
        for each in plan.portfolio.leases:
            if each.term == "api":  # hosted interfaces promise none
                yield f"no latency is promised for {each.what} by {each.provider}"
        for row in plan.portfolio.scenarios:
            if row.usd is None:
                yield f"{row.name}: too little, {row.short}"
    halves = [half for half in plan.halves if not bill or _is_as_planned(half, plan)]
    goals = [goal for half in plan.halves for goal in _goals(half, plan if bill else None)]
    crossed = sorted((goal for goal in goals if goal[1] > 1.0), key=lambda goal: -goal[1])
    yield from (text for text, _ in crossed[:1])
    for half in halves:
        if half.flip_fraction > FLIP_LIMIT_FRACTION:
            share = f"{100 * half.flip_fraction:.0f} %"
            yield f"{half.name}: another machine wins in {share} of the draws"
    closest = max(goals, key=lambda goal: goal[1], default=None)
    if closest:
        yield f"closest: {closest[0]}"


def _unranged(plan: Plan) -> str:
    """Runs, services or classes whose promises nothing gives a range for on the portfolio's machines."""
    portfolio = plan.portfolio
    assert portfolio is not None
    hosted = [what for each in portfolio.leases if each.term == "api" for what in each.what.split(", ")]
    names = [
        run.name for run in plan.training if run.deadline_s is not None and not _is_as_planned(run, plan)
    ]
    for service in plan.serving:
        promised = [one.name for one in service.classes if any(goal.predicted for goal in one.slos)]
        own = [name for name in promised if f"{service.name}.{name}" not in hosted]
        other = [name for name in own if not _answers_as_planned(service, name, plan)]
        names += [f"{service.name}.{name}" for name in other] if other != promised else [service.name]
    return f"{', '.join(names)}: ranges below are of other machines" if names else ""


def _is_as_planned(run: TrainingPlan | ServicePlan, plan: Plan) -> bool:
    """Whether the portfolio has a run on the accelerators of its fleet and no other, or some of a service."""
    if isinstance(run, ServicePlan):
        return any(_answers_as_planned(run, one.name, plan) for one in run.classes)
    if plan.portfolio is None or run.name not in in_portfolio(plan.portfolio):
        return True
    found = [lease for lease in plan.portfolio.leases if run.name in names_of(lease.what)]
    return {lease.accelerator for lease in found if lease.term != "api"} == {run.machine.accelerator}


def _answers_as_planned(service: ServicePlan, name: str, plan: Plan) -> bool:
    """Whether the portfolio answers some of a class on the accelerators that the service's fleet has."""
    assert plan.portfolio is not None
    alike = {each.offer for each in plan.portfolio.leases if each.accelerator == service.machine.accelerator}
    return service.name not in in_portfolio(plan.portfolio) or any(
        row.offer in alike and row.demand.partition("@")[0] == f"{service.name}.{name}"
        for row in plan.portfolio.served
    )


def _goals(half: TrainingPlan | ServicePlan, recommended: Plan | None) -> Iterator[tuple[str, float]]:
    """Each promise in words, with the upper end of its 80 % range over its limit.

    Where a portfolio is recommended, of what it does on machines like those of the fleets alone.
    """
    if isinstance(half, TrainingPlan):
        if half.deadline_s and (recommended is None or _is_as_planned(half, recommended)):
            high_s = half.run.total_s.high
            ends, limit = format_seconds(high_s), format_seconds(half.deadline_s)
            yield f"{half.name} may take {ends} of {limit} (80 % range)", high_s / half.deadline_s
        return
    for one in half.classes:
        if recommended is not None and not _answers_as_planned(half, one.name, recommended):
            continue
        for goal in one.slos:
            if goal.predicted is not None:
                high_s, limit = goal.predicted.high, format_seconds(goal.limit_s)
                name = "done" if goal.metric == BATCH_METRIC else metric_text(goal.metric)
                may = f"{name} may be {format_seconds(high_s)} for {limit} (80 % range)"
                yield f"{half.name}.{one.name}: {may}", high_s / goal.limit_s


def _usd(lines: Sequence[LineItem], *categories: str, of: Container[str] | None = None) -> float:
    """What a bill's lines of these categories come to, of all or of the fleets of some runs and services."""
    named = (line for line in lines if line.category in categories)
    return total_usd(line for line in named if of is None or owner_of(line) in of)


def leased_usd(portfolio: Portfolio, lines: Sequence[LineItem], leases: Sequence[Lease]) -> float:
    """Rent and support of some of a portfolio's leases."""
    billed, _ = by_lease(portfolio.leases, lines)
    return total_usd(line for lease, *its in billed if lease in leases for line in its if line)


def owner_of(line: LineItem) -> str:
    """The run or service that a line is for."""
    return line.what.partition(":")[0]
