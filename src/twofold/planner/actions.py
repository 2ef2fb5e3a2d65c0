"""What to do with a plan: its machines as it describes them, other ways, the cost, what may go wrong."""

from collections.abc import Iterator

from twofold.contracts.goals import metric_text
from twofold.contracts.results.ledger import LineItem, total_usd
from twofold.contracts.results.plan import Action, Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_seconds, format_usd

FLIP_LIMIT_FRACTION = 0.2
WORTH_SAYING = 0.01  # of the first year, that an alternative saves
BATCH_METRIC = "finish_within"
RENTED = ("rent", "support")


def actions_of(plan: Plan) -> tuple[Action, ...]:
    """What to use, rent and give back, in that order; the cost, other ways, the risk, the next command.

    `SPEC` in a command is the user's path.
    """
    worst = "zone-loss" if any(each.zones > 1 for each in plan.serving) else "replica-crash"
    tried = f"simulate SPEC --scenario {worst}" if plan.rehearsed else "plan SPEC --rehearse"
    command = f"twofold {tried if plan.serving else 'plan SPEC --money'}"  # to run before signing
    return (*_fleets(plan), *_instead(plan), *_risks(plan), Action("next", command, "", None))


def _fleets(plan: Plan) -> Iterator[Action]:
    """The machines of every run and service, those of your own first."""
    lines = plan.money.lines if plan.money else ()
    own = {owner_of(line) for line in lines if line.category == "energy"}
    runs = plan.money.runs if plan.money else ()
    repeated = {each.name: f", {each.runs_per_year:.3g} times" for each in runs if each.runs_per_year != 1}
    for half in sorted(plan.halves, key=lambda each: each.machine.price is not None):
        kinds = RENTED if half.machine.price else ("energy",)
        usd = total_usd(each for each in lines if each.category in kinds and owner_of(each) == half.name)
        text = _machines(half, half.name in own, repeated.get(half.name, ""))
        text += f", {format_usd(usd)}" if usd else ""
        yield Action("rent" if half.machine.price else "use", text, "", usd if lines else None)
    released = [
        f"{run.name}'s machines after {format_seconds(run.release_after_s)}"
        for run in plan.training
        if run.release_after_s is not None and run.machine.price
    ]
    if released:
        yield Action("release", " · ".join(released), "", None)
    if plan.money:
        cost = f"first year {format_usd(plan.money.total_usd)}"
        yield Action("cost", _joined(cost, _simple(plan)), "", plan.money.total_usd)


def _simple(plan: Plan) -> str:
    """What being simple costs: the cheapest ways of all runs and services against the one recommended."""
    leasing = plan.leasing
    if leasing is None or leasing.usd <= leasing.cheapest_usd * (1.0 + WORTH_SAYING):
        return ""
    more = f"{100 * (leasing.usd / leasing.cheapest_usd - 1.0):.0f} %"
    return f"the simplest that is near the cheapest: {leasing.text}, {more} dearer"


def _instead(plan: Plan) -> Iterator[Action]:
    """Other ways to the same, each with its difference, and why it is not this one."""
    texts = []
    leasing, mixed = plan.leasing, plan.portfolio
    leases = len({lease.offer for lease in mixed.leases}) if mixed and not mixed.conflict else 0
    if leasing and leasing.mixing_fraction > WORTH_SAYING and leases > leasing.leases_count:
        saved = f"{100 * leasing.mixing_fraction:.0f} % less where both are counted in parts of machines"
        texts.append(f"a mix of {leases} leases, {saved}")
    for service in plan.money.services if plan.money else ():
        api = service.api
        if api and 0.0 < api.api_usd_per_year < api.own_usd_per_year:
            times = api.own_usd_per_year / api.api_usd_per_year
            usd = f"{format_usd(api.api_usd_per_year)}/y, {times:.2g} × cheaper"
            texts.append(f"{api.provider}'s hosted interface for {service.name} {usd}: promises no latency")
    if texts:
        yield Action("or", " · ".join(texts), "", None)


def _joined(*texts: str) -> str:
    return " · ".join(filter(None, texts))


def _machines(half: TrainingPlan | ServicePlan, owned: bool, repeated: str) -> str:
    """`2 × 8 H100-SXM5-80GB of your own for serve`."""
    machine = half.machine
    count = f"{machine.node_count} × {machine.accelerators_per_node}"
    if machine.node_count * machine.accelerators_per_node != machine.accelerator_count:
        count = f"{machine.accelerator_count} ×"
    whose = " of your own" if owned else ""
    if machine.price:
        whose = f" of {machine.price.provider} ({machine.price.term.replace('_', ' ')})"
    when = ""
    if isinstance(half, TrainingPlan):
        when = f", {format_seconds(half.run.total_s.value)}{repeated}"
    elif machine.held_fraction < 1.0:
        when = f", by the hour, {machine.held_fraction * machine.node_count:.1f} on average"
    return f"{count} {machine.accelerator}{whose} for {half.name}{when}"


def _risks(plan: Plan) -> Iterator[Action]:
    """The largest thing that may go wrong, and whether anything was tried on the twin."""
    sure = "" if plan.rehearsed or not plan.serving else "not rehearsed"
    text = _joined(next(_dangers(plan), ""), sure)
    if text:
        yield Action("risk", text, "", None)


def _dangers(plan: Plan) -> Iterator[str]:
    """Largest first: goals that the range crosses, close calls."""
    goals = [goal for half in plan.halves for goal in _goals(half)]
    crossed = sorted((goal for goal in goals if goal[1] > 1.0), key=lambda goal: -goal[1])
    yield from (text for text, _ in crossed[:1])
    for half in plan.halves:
        if half.flip_fraction > FLIP_LIMIT_FRACTION:
            share = f"{100 * half.flip_fraction:.0f} %"
            yield f"{half.name}: another machine wins in {share} of the draws"
    closest = max(goals, key=lambda goal: goal[1], default=None)
    if closest:
        yield f"closest: {closest[0]}"


def _goals(half: TrainingPlan | ServicePlan) -> Iterator[tuple[str, float]]:
    """Each promise in words, with the upper end of its 80 % range over its limit."""
    if isinstance(half, TrainingPlan):
        if half.deadline_s:
            high_s = half.run.total_s.high
            ends, limit = format_seconds(high_s), format_seconds(half.deadline_s)
            yield f"{half.name} may take {ends} of {limit} (80 % range)", high_s / half.deadline_s
        return
    for one in half.classes:
        for goal in one.slos:
            if goal.predicted is not None:
                high_s, limit = goal.predicted.high, format_seconds(goal.limit_s)
                name = "done" if goal.metric == BATCH_METRIC else metric_text(goal.metric)
                may = f"{name} may be {format_seconds(high_s)} for {limit} (80 % range)"
                yield f"{half.name}.{one.name}: {may}", high_s / goal.limit_s


def owner_of(line: LineItem) -> str:
    """The run or service that a line is for."""
    return line.what.partition(":")[0]
