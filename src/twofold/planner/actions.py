"""What to do with a plan: its machines as it describes them, other ways, the cost, what may go wrong."""

from collections.abc import Iterator
from math import ceil

from twofold.contracts.goals import metric_text
from twofold.contracts.results import holdings
from twofold.contracts.results.ledger import LineItem, total_usd
from twofold.contracts.results.plan import Action, Confidence, Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_range, format_seconds, format_usd
from twofold.core.quantity import DAY_S, YEAR_S

FLIP_LIMIT_FRACTION = 0.2
WORTH_SAYING = 0.01  # of the first year, that an alternative saves
BATCH_METRIC = "finish_within"
RENTED = ("rent", "support")
LEAST_USD = 1.0  # a difference that is told
RISKS = 3
MONTHS = 12.0
SURE = 0.995  # a goal that holds so probably is no risk
RARE_COUNT = 0.5  # interruptions of a run, that are no risk worth a line
OWN_TOO_FEW = "your own machines do not carry"  # this service, or its busiest months
RENTS = ", so it rents: "  # a run or service that own machines do not carry beside others
OWN_FEWER = "so all of them are rented"  # than `on:` names, see `answer/context.py`
TOGETHER = " together"  # several that share what an account gets, see `portfolio/shared.py`
LESS_SURE = "less sure than asked"  # what costs less, see `portfolio.decide`
ON_DEMAND = "on-demand cloud"  # a kind of offer, see `catalog/capacity.py`
MARKET = "marketplace host"  # another kind: nobody says in which halls such hosts stand
MEASURE = "measure one node for an hour"


def actions_of(plan: Plan) -> tuple[Action, ...]:
    """What to use, rent and give back, in that order; the cost, other ways, the risks, the next command.

    `SPEC` in a command is the user's path.
    """
    worst = "zone-loss" if any(each.zones > 1 for each in plan.serving) else "replica-crash"
    tried = [_rehearsal(plan)] if plan.serving else []  # before signing
    if not any(each.startswith("plan ") for each in tried):
        tried.append("plan SPEC --full")
    if plan.serving and plan.rehearsed:
        tried = [f"simulate SPEC --scenario {worst}"]
        if any(need.planned_missed for each in plan.serving for need in each.replica_needs):
            # The spec alone is planned as it was before its rehearsal.
            tried = ["plan SPEC --rehearse --out plan.json", f"simulate plan.json --scenario {worst}"]
    risks = [Action("risk", text, "", None) for text in dict.fromkeys(_risks(plan))]
    follow = (Action("next", f"twofold {each}", "", None) for each in tried)
    return (*_fleets(plan), *_instead(plan), *risks[:RISKS], *follow)


def _fleets(plan: Plan) -> Iterator[Action]:
    """The machines of every run and service, those of your own first."""
    lines = plan.money.lines if plan.money else ()
    own = {owner_of(line) for line in lines if line.category == "energy"}
    runs = plan.money.runs if plan.money else ()
    repeated = {each.name: f", {each.runs_per_year:.3g} times" for each in runs if each.runs_per_year != 1}
    for half in sorted(plan.halves, key=lambda each: each.machine.price is not None):
        kinds = RENTED if half.machine.price else ("energy",)
        usd = total_usd(each for each in lines if each.category in kinds and owner_of(each) == half.name)
        text = _machines(half, half.name in own) + repeated.get(half.name, "")
        ends = format_seconds(half.run.ends_s.value) if isinstance(half, TrainingPlan) else ""
        yield Action("rent" if half.machine.price else "use", text, ends, usd if lines else None, half.name)
    beside: dict[str, float] = {}  # what the year holds that no machine's line has, by category
    for line in lines:
        if line.category not in (*RENTED, "energy"):
            beside[line.category] = beside.get(line.category, 0.0) + line.total_usd
    if beside:
        named = sorted(beside, key=lambda each: -beside[each])
        text = " · ".join(f"{each} {format_usd(beside[each])}" for each in named)
        yield Action("also", text, "", sum(beside.values()))
    for run in plan.training:
        if run.release_after_s is not None and run.machine.price:
            yield Action("release", _released(run), format_seconds(run.release_after_s), None, run.name)
    if plan.money:
        cost = f"first year {format_usd(plan.money.total_usd)}"
        yield Action("cost", " · ".join(filter(None, (cost, _simple(plan)))), "", plan.money.total_usd)


def _machines(half: TrainingPlan | ServicePlan, owned: bool) -> str:
    """`13 × 8 H100-SXM5-80GB fp8, lambda on demand`; nodes × accelerators of each."""
    machine = half.machine
    count = f"{machine.node_count} × {machine.accelerators_per_node}"
    if machine.node_count * machine.accelerators_per_node != machine.accelerator_count:
        count = f"{machine.accelerator_count} ×"
    stored = half.replica.weights_format if isinstance(half, ServicePlan) else None
    whose = "your own" if owned else "no price"
    if machine.price:
        whose = f"{machine.price.provider} {machine.price.term.replace('_', ' ')}{_paid_longer(half)}"
    if base := machine.base_price:
        rest = machine.node_count - machine.base_node_count
        whose = f"{machine.base_node_count} {base.provider} {base.term.replace('_', ' ')} + {rest} {whose}"
    return f"{count} {machine.accelerator}{f' {stored}' if stored else ''}, {whose}"


def _paid_longer(half: TrainingPlan | ServicePlan) -> str:
    """`, 30 d a`: what a contract is paid for at least, where a run is over before."""
    price = half.machine.price
    least_s = price.least_h * 3600.0 if price else 0.0
    if price is None or isinstance(half, ServicePlan) or half.run.total_s.value >= least_s:
        return ""
    return f", {format_seconds(least_s)} paid{' a' if price.least_assumed else ''}"


def _released(run: TrainingPlan) -> str:
    """`64 nodes after 16.1 d; held all year they are 11 M$`: of the machines as planned."""
    nodes = "the node" if run.machine.node_count == 1 else f"the {run.machine.node_count} nodes"
    text = f"{nodes} of {run.name} after {format_seconds(run.release_after_s or 0.0)}"
    if run.machine.price is None:
        return text
    if longer := _paid_longer(run):
        return f"{text}{longer}"
    hourly = run.machine.price.usd_per_accelerator_h.value * run.machine.accelerator_count
    return f"{text}; held all year they are {format_usd(hourly * 8760)} at list price"


def _simple(plan: Plan) -> str:
    """What being simple costs: the cheapest ways of all runs and services against the one recommended."""
    leasing = plan.leasing
    if leasing is None or leasing.usd <= leasing.cheapest_usd * (1.0 + WORTH_SAYING):
        return ""
    more = f"{100 * (leasing.usd / leasing.cheapest_usd - 1.0):.0f} %"
    return f"{more} over the cheapest, for {leasing.text}"


def _instead(plan: Plan) -> Iterator[Action]:
    """Other ways to the same, each with its difference, and why it is not this one."""
    for run in plan.training:
        if run.machine.price is None and (sizes := list(_own_sizes(run, plan))):
            yield Action("or", f"{run.name} on {', '.join(sizes)}", "", None, run.name)
    yield from _hosted(plan)
    for service in plan.serving:
        for text in service.warnings:
            if LESS_SURE in text:
                yield Action("or", text, "", None, service.name)
    yield from _cheaper(plan.leasing)


def _cheaper(leasing: holdings.Leasing | None) -> Iterator[Action]:
    """The cheapest leases: what they save in all, what there is more to manage, and which they are."""
    if leasing and leasing.usd > leasing.cheapest_usd * (1.0 + WORTH_SAYING):
        saved_usd = leasing.usd - leasing.cheapest_usd
        least = f"{100 * saved_usd / leasing.usd:.0f} % less, {format_usd(saved_usd)}/y"
        yield Action("or", f"{least}; not taken: {leasing.cheapest_text}", "", leasing.cheapest_usd)


def _hosted(plan: Plan) -> Iterator[Action]:
    """Hosted APIs where they are cheaper, and what is lost: nobody hosts what a run of the spec makes."""
    made = {run.model for run in plan.training}
    served = {each.name: each for each in plan.serving}
    for service in plan.money.services if plan.money else ():
        api, own = service.api, served[service.name]
        if api and own.model not in made and 0.0 < api.api_usd_per_year < api.own_usd_per_year:
            ratio = api.own_usd_per_year / api.api_usd_per_year
            times = f"{ratio:,.0f} × cheaper" if ratio >= 9.95 else f"{ratio:.1f} × cheaper"
            by_config = f" ({api.model}, by its config.json)" if api.model != own.model else ""
            which = by_config if api.same_model else f" ({api.model}, as large, other weights)"
            usd = f"{format_usd(api.api_usd_per_year)}/y, {times}"
            text = f"hosted API of {api.provider} for {service.name}{which}: {usd}"
            # Nor with `hosted: true`, where the mix of leases may buy from it.
            yield Action(
                "or", f"{text}; not taken: no latency promised", "", api.api_usd_per_year, service.name
            )


def _own_sizes(run: TrainingPlan, plan: Plan) -> Iterator[str]:
    """The other sizes on the same machines of one's own: when, what energy, and what the days are worth."""
    planned, ends_s = run.machine.accelerator_count, run.run.ends_s.value
    lines = plan.money.lines if plan.money else ()
    drawn = [each for each in lines if owner_of(each) == run.name and each.unit == "kWh"]
    rests_usd, peaks_usd = _demand(run, plan)
    by_hour_usd, worked = total_usd(drawn) + rests_usd, _months(run, run.run.total_s.value, plan)
    for point in reversed(run.front):
        named = f" {run.machine.accelerator}" in point.what and point.cost_usd is None
        if named and point.feasible and point.accelerator_count != planned:
            more = point.accelerator_h / run.run.accelerator_h.value - 1.0
            told = [f"{100 * more:+.0f} % energy" if abs(more) >= 0.005 else "the same energy"]
            taller = point.accelerator_count / planned * _months(run, point.wall_s, plan) / worked - 1.0
            usd = by_hour_usd * more + peaks_usd * taller
            if abs(usd) >= LEAST_USD:
                charged = peaks_usd * taller > usd / 2  # most of it is demand charge
                told.append(
                    f"{format_usd(abs(usd))} {'less' if usd < 0.0 else 'for peaks' if charged else 'more'}"
                )
            if run.time_value_usd_per_d:
                sooner_s = ends_s - point.wall_s
                worth = format_usd(abs(sooner_s) / DAY_S * run.time_value_usd_per_d)
                when = f"earlier, worth {worth}" if sooner_s > 0.0 else f"later, which costs {worth}"
                told.append(f"{format_seconds(abs(sooner_s))} {when}")
            yield f"{point.accelerator_count:,} of them in {format_seconds(point.wall_s)} ({', '.join(told)})"


def _demand(run: TrainingPlan, plan: Plan) -> tuple[float, float]:
    """USD of a run's demand charge for the rest of its machines, and for the peaks that its work adds.

    Formula  rest = idle · t / (1 − t): the building has what the run leaves of it, t its share of the year
    Limits   on machines that are counted with another, that one pays for the peaks.
    """
    bills = (plan.money.lines if plan.money else (), plan.building.bill if plan.building else ())
    paid, idle = (
        total_usd(each for each in lines if owner_of(each) == name and each.unit == "month")
        for lines, name in zip(bills, (run.name, f"idle, {run.name}"), strict=True)
    )
    if not any(each.name == run.name for each in (plan.building.racks if plan.building else ())):
        return paid, 0.0
    share = run.run.total_s.value * _times(run, plan) / YEAR_S
    rests = min(paid, idle * share / (1.0 - share)) if share < 1.0 else paid
    return rests, paid - rests


def _months(run: TrainingPlan, wall_s: float, plan: Plan) -> float:
    """Months of the year that have a peak of a run which takes so long."""
    return min(MONTHS, _times(run, plan) * ceil(wall_s / (YEAR_S / MONTHS)))


def _times(run: TrainingPlan, plan: Plan) -> float:
    runs = plan.money.runs if plan.money else ()
    return next((each.runs_per_year for each in runs if each.name == run.name), 1.0)


def _risks(plan: Plan) -> Iterator[str]:
    """What may go wrong, the largest first, each with what settles it behind its colon."""
    chances = ((*each, isinstance(half, TrainingPlan)) for half in plan.halves for each in _goals(half))
    goals = sorted(chances, key=lambda goal: goal[1])
    if goals and goals[0][1] < SURE:
        bought = plan.confidence is None or not plan.confidence.not_reached
        lacking = Confidence.NOT_BY_MACHINES if goals[0][2] else Confidence.NOT_BY_REPLICAS
        yield f"{goals[0][0]}: {MEASURE if bought else lacking}"
    yield from (text for text in plan.warnings if RENTS in text)
    yield from dict.fromkeys(text for half in plan.halves for text in _offered(half))
    for half in plan.halves:
        if any(text.startswith(OWN_TOO_FEW) for text in half.warnings):
            yield f"{half.name}: {OWN_TOO_FEW} it, so it rents: own more, or ask less of them"
        yield from (f"{half.name}: {text}: name no more" for text in half.warnings if OWN_FEWER in text)
    if plan.serving and not plan.rehearsed:
        yield f"not rehearsed, closed form only: `twofold {_rehearsal(plan)}`"
    elif rows := [each.name for each in plan.serving if each.parameters is None]:
        yield f"not rehearsed with the rest: {', '.join(rows)}, measured rows: `twofold simulate SPEC`"
    for half in plan.halves:
        price, count = half.machine.price, half.machine.node_count - half.machine.base_node_count
        if price and not price.gate and price.kind == ON_DEMAND and count > 1:
            asks = f"ask {price.provider} for stock, or reserve"
            yield f"{half.name}: nobody promises {count} nodes on demand: {asks}"
        if FLIP_LIMIT_FRACTION < half.flip_fraction <= 0.5:  # above, another reason chose it
            share = f"{100 * half.flip_fraction:.0f} %"
            yield f"{half.name}: another machine is cheaper in {share} of the draws: measure both"
    for run in plan.training:
        stops = run.run.interruptions
        if stops.value >= RARE_COUNT:
            every = format_seconds(run.run.checkpoints.interval_s.value)
            kept = f"goodput {100 * run.run.goodput_fraction.value:.0f} %"
            text = f"{format_range(stops.value, stops.low, stops.high, 'interruptions')} {stops.source}"
            yield f"{run.name}: {text}, {kept}: checkpoint every {every}"
    if goals and goals[0][1] >= SURE:
        yield f"closest: {goals[0][0]}: {MEASURE}"


def _rehearsal(plan: Plan) -> str:
    """What rehearses the services: measured rows are planned by nothing that a twin could put right."""
    return "plan SPEC --rehearse" if any(each.pools for each in plan.serving) else "simulate SPEC"


def _offered(half: TrainingPlan | ServicePlan) -> Iterator[str]:
    """What is not sure of the offer itself."""
    for price in half.machine.prices:
        if price.gate:
            asks, _, what = price.gate.partition(": ")
            whose = "" if TOGETHER in what else f"{half.name}: "
            yield f"{whose}{what}: {asks}"
        if price.kind == MARKET and isinstance(half, ServicePlan) and half.zones > 1:
            zones = f"{half.zones} zones are assumed of {price.provider}, a marketplace"
            yield f"{half.name}: {zones}: ask where its hosts stand"


def _goals(half: TrainingPlan | ServicePlan) -> Iterator[tuple[str, float]]:
    """Each promise in words, with the probability that it holds."""
    if isinstance(half, TrainingPlan):
        if half.deadline_s:
            ends, limit = format_seconds(half.run.ends_s.high), format_seconds(half.deadline_s)
            holds = half.run.deadline_holds_probability
            share = holds if holds is not None else float(half.run.ends_s.high <= half.deadline_s)
            yield f"{half.name} may take {ends} of {limit}", share
        return
    for one in half.classes:
        for goal in one.slos:
            if goal.predicted is not None:
                high_s, limit = goal.predicted.high, format_seconds(goal.limit_s)
                name = "done" if goal.metric == BATCH_METRIC else metric_text(goal.metric)
                text = f"{half.name}.{one.name} {name} may be {format_seconds(high_s)} for {limit}"
                holds = goal.holds_probability
                yield text, holds if holds is not None else float(high_s <= goal.limit_s)


def owner_of(line: LineItem) -> str:
    """The run or service that a line is for."""
    return line.what.partition(":")[0]
