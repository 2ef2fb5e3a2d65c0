"""Entries for the numbers of a plan's page that the plan has no derivation of: stated, chosen or summed."""

from collections.abc import Iterable, Iterator

from twofold.contracts.goals import metric_text
from twofold.contracts.results.ledger import LineItem
from twofold.contracts.results.plan import Derivation, Input, Plan
from twofold.contracts.results.serving import ClassPlan, Replica, ServicePlan, SloOutcome
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_memory, format_seconds, format_usd, likely
from twofold.core.estimate import Estimate
from twofold.report.figures import percent, ranged
from twofold.report.money import number_text

ASKED, JOINT = "confidence.asked_fraction", "confidence.joint_probability"
OWN = "money.own.{}"  # what machines of one's own take for a run or service
RISKS, OTHERS, KNOWN = "lists.could_break", "lists.else", "lists.known"
HOLDS = "holds_probability"
PRICED = "the cheapest tried of what the spec allows that keeps every goal; one that is simpler may cost more"
UNPRICED = "of what the spec allows and was tried, one that keeps every goal; nobody prices it"


def place_of(half: TrainingPlan | ServicePlan) -> str:
    """Where a run or service stands in the plan's paths."""
    return f"{'training' if isinstance(half, TrainingPlan) else 'serving'}.{half.name}"


def replicas_of(service: ServicePlan) -> tuple[tuple[str, Replica, str], ...]:
    """The kinds of replicas of a service, each with its name and path; classes may have their own."""
    at = place_of(service)
    if len({pool.replica.text for pool in service.pools}) < 2:
        return (("one replica", service.replica, f"{at}.replica"),)
    return tuple(
        (f"one replica for {' and '.join(pool.classes)}", pool.replica, f"{at}.pools.{pool.name}.replica")
        for pool in service.pools
    )


def entries_of(plan: Plan) -> tuple[Derivation, ...]:
    """An entry for each number of the page that none of the plan's derivations is of; no path has two."""
    derived = {each.path for each in plan.derivations}
    found = {each.path: each for each in _entries(plan) if each.path not in derived}
    return tuple(found.values())


def _entries(plan: Plan) -> Iterator[Derivation]:
    yield from _of_goals(plan)
    yield from _of_lists(plan)
    for run in plan.training:
        yield from _of_run(run)
    for service in plan.serving:
        yield from _of_service(service)
    for number, line in enumerate(plan.money.lines if plan.money else ()):
        yield _of_line(f"money.lines.{number}", line, plan)
    for half in plan.halves:
        if plan.own_usd(half.name) is not None:
            yield _of_own(half.name, plan)


def _of_own(name: str, plan: Plan) -> Derivation:
    """What is paid for the power of a run or service on machines of one's own."""
    lines = enumerate(plan.money.lines if plan.money else ())
    own = [(at, line) for at, line in lines if line.what.startswith(f"{name}:")]
    paid = [
        Input(line.what.partition(": ")[2], format_usd(line.total_usd), f"money.lines.{at}", "", "")
        for at, line in own
    ]
    return Derivation(OWN.format(name), "its lines of the bill together", tuple(paid))


def _of_lists(plan: Plan) -> Iterator[Derivation]:
    """What the lines of a list compare, and which figures of the plan they are about."""
    machines = [
        Input(half.name, half.machine.accelerator, f"{place_of(half)}.machine", "", "")
        for half in plan.halves
    ]
    goals = [
        Input(f"{one.name} {metric_text(slo.metric)}", ranged(slo.predicted), f"{at}.predicted", "", "")
        for service in plan.serving
        for one in service.classes
        for slo in one.slos
        for at in (f"{place_of(service)}.classes.{one.name}.slos.{slo.metric}",)
        if slo.predicted is not None
    ]
    runs = [
        each
        for run in plan.training
        for each in (
            *_figure(f"{run.name} done after", run.run.total_s, f"{place_of(run)}.run.total_s"),
            *_figure(f"{run.name} stops", run.run.interruptions, f"{place_of(run)}.run.interruptions"),
        )
    ]
    said = "high ends of 80 % ranges against their limits; what an offer does not promise;"
    said += " interruptions of a run; the share of draws in which another machine is cheaper"
    yield Derivation(RISKS, said, (*goals, *runs, *machines))
    year = tuple(_figure("this plan", plan.first_year_usd, "first_year_usd"))
    said = "the same bill of the way that was not taken, less this one; sizes of a run by its own steps"
    yield Derivation(OTHERS, said, (*year, *runs))
    said = "what the planner assumed, counted or looked up; a line of the spec or of a table says otherwise"
    yield Derivation(KNOWN, said, tuple(machines))


def _stated(path: str, text: str, where: str) -> Derivation:
    """What the spec says, or its default."""
    return Derivation(path, "as the spec says", (Input("stated", text, "", "", f"spec {where}"),))


def _figure(label: str, estimate: Estimate | None, path: str) -> Iterator[Input]:
    """A number of the plan that has an entry of its own."""
    if estimate is not None:
        yield Input(label, ranged(estimate), path, estimate.source.value, "")


def _of_goals(plan: Plan) -> Iterator[Derivation]:
    if plan.budget_usd is not None:
        yield _stated("budget_usd", format_usd(plan.budget_usd), "supply.budget")
    if plan.confidence is None:
        return
    yield _stated(ASKED, percent(plan.confidence.asked_fraction), "confidence")
    goals = [
        (f"{run.name} deadline", run.run.deadline_holds_probability, f"{place_of(run)}.run.deadline_{HOLDS}")
        for run in plan.training
    ]
    goals += [
        (
            f"{one.name} {metric_text(slo.metric)}",
            slo.holds_probability,
            f"{place_of(service)}.classes.{one.name}.slos.{slo.metric}.{HOLDS}",
        )
        for service in plan.serving
        for one in service.classes
        for slo in one.slos
    ]
    asked = plan.confidence.asked_fraction
    known = ((label, likely(sure, asked), path) for label, sure, path in goals if sure is not None)
    said = "share of the draws in which every goal holds × the chances of services of measured rows"
    yield Derivation(JOINT, said, tuple(Input(*told, "", "") for told in known))


def _chosen(half: TrainingPlan | ServicePlan) -> str:
    cost = half.cost_usd if isinstance(half, TrainingPlan) else half.cost_usd_per_year
    return UNPRICED if cost is None else PRICED


def _of_machine(half: TrainingPlan | ServicePlan, figures: Iterable[Input]) -> Iterator[Derivation]:
    """Which machines, how they are used, and what one of them can hold."""
    at, machine = place_of(half), half.machine
    count = f"{machine.accelerator_count:,} × {machine.accelerator} on {machine.node_count:,} nodes"
    tried = Input("tried", f"{half.tried:,} candidates", "", "", "by the search of this plan")
    yield Derivation(
        f"{at}.machine", _chosen(half), (Input("taken", count, "", "", "chosen"), tried, *figures)
    )
    row = f"accelerators.csv {machine.accelerator} memory_bytes"
    held = Input("memory", format_memory(half.memory_capacity_bytes), "", "v", row)
    yield Derivation(f"{at}.memory_capacity_bytes", "what one accelerator has", (held,))


def _of_run(run: TrainingPlan) -> Iterator[Derivation]:
    at = place_of(run)
    cost = tuple(_figure("cost", run.cost_usd, f"{at}.cost_usd"))
    step = tuple(_figure("a step", run.step_s, f"{at}.step_s"))
    memory = tuple(_figure("memory", run.memory_bytes, f"{at}.memory_bytes"))
    total = tuple(_figure("done after", run.run.total_s, f"{at}.run.total_s"))
    yield from _of_machine(run, (*total, *cost))
    if run.layout:
        chosen = Input("taken", run.layout.text, "", "", "chosen")
        said = "the fastest of the layouts that fit the memory of these machines"
        yield Derivation(f"{at}.layout", said, (chosen, *step, *memory))
    if run.deadline_s is not None:
        yield _stated(f"{at}.deadline_s", format_seconds(run.deadline_s), f"{at}.deadline")
        said = "share of what the range of the whole time leaves within the deadline"
        yield Derivation(f"{at}.run.deadline_{HOLDS}", said, total)
    if run.release_after_s is not None:
        price = run.machine.price
        listed = price.usd_per_accelerator_h if price else None
        hourly = tuple(_figure("list price", listed, f"{at}.machine.price.usd_per_accelerator_h"))
        said = "the end of the run; held all year: accelerators × list price × 8760 h"
        yield Derivation(f"{at}.release_after_s", said, (*total, *hourly))
    if run.delivery is None:
        return
    asked = run.delivery.loss_target_nats
    if asked is not None:
        wanted = Input("target", f"{asked:g} nats/token", "", "", f"spec {at}.loss_target")
        loss = tuple(_figure("expected loss", run.delivery.loss, f"{at}.delivery.loss"))
        said = "met where the expected loss is at most the target"
        yield Derivation(f"{at}.delivery.loss_target_nats", said, (wanted, *loss))
    yield Derivation(f"{at}.delivery.ends_on", "the start of the run, and what it takes from then on", total)


def _of_service(service: ServicePlan) -> Iterator[Derivation]:
    at = place_of(service)
    cost = tuple(_figure("a year", service.cost_usd_per_year, f"{at}.cost_usd_per_year"))
    memory = tuple(_figure("memory", service.memory_bytes, f"{at}.memory_bytes"))
    yield from _of_machine(service, cost)
    spares = Input("spares", str(service.spare_count), f"{at}.spare_count", "", "")
    count = str(service.replica_count - service.spare_count)
    serve = Input("that serve", count, "", "", "so many that every class keeps its goals at its peak")
    yield Derivation(f"{at}.replica_count", "those that serve, and spares", (serve, spares))
    why = Input("survives", service.spare_reason, "", "", f"spec {at}.availability, zones")
    yield Derivation(f"{at}.spare_count", "so many more that it is as available as the spec asks", (why,))
    for label, replica, path in replicas_of(service):
        chosen = Input(label, replica.text, "", "", "chosen")
        yield Derivation(path, _chosen(service), (chosen, *memory, *cost))
    for one in service.classes:
        for slo in one.slos:
            yield from _of_goal(f"{at}.classes.{one.name}", one, slo)


def _of_goal(at: str, one: ClassPlan, slo: SloOutcome) -> Iterator[Derivation]:
    path = f"{at}.slos.{slo.metric}"
    yield _stated(f"{path}.limit_s", format_seconds(slo.limit_s), f"{at}.slo")
    said = f"share of what the range of {metric_text(slo.metric)} leaves within the goal"
    predicted = tuple(_figure("predicted", slo.predicted, f"{path}.predicted"))
    limit = Input("goal", format_seconds(slo.limit_s), f"{path}.limit_s", "", "")
    yield Derivation(f"{path}.{HOLDS}", said, (*predicted, limit))
    yield from _of_rehearsed(path, one, slo)


def _of_rehearsed(path: str, one: ClassPlan, slo: SloOutcome) -> Iterator[Derivation]:
    seen = slo.rehearsed
    if seen is None or seen.value_s is None:
        return
    told = Input("at", f"{one.peak_per_s:,.3g} requests/s", "", "", "the peak, without spares")
    between: tuple[Input, ...] = ()
    if seen.low_s is not None and seen.high_s is not None:
        ends = f"{format_seconds(seen.low_s)} to {format_seconds(seen.high_s)}"
        between = (Input("with 95 % from", ends, "", "", "over the requests that it served"),)
    said = "measured by the twin over all that asked, unanswered ones last"
    yield Derivation(f"{path}.rehearsed", said, (told, *between))


def _of_line(path: str, line: LineItem, plan: Plan) -> Derivation:
    """A line of the bill: what it multiplies, what comes off and on it, and whose it is."""
    quantity = f"{line.quantity:,.2f} {line.unit}"
    parts = [
        Input("quantity", quantity, "", "", line.category),
        Input("price", f"{number_text(line.unit_usd)} $", "", "", f"{line.source} {line.date}".strip()),
    ]
    for name, usd in (("discount", line.discount_usd), ("tax", line.tax_usd)):
        if usd:
            parts.append(Input(name, f"{usd:,.2f} $", "", "", f"spec supply.economics.{name}"))
    whose = next((half for half in plan.halves if line.what.startswith(f"{half.name}: ")), None)
    if whose is not None:
        parts.append(Input("for", whose.name, f"{place_of(whose)}.machine", "", ""))
    less, more = " − discount" * bool(line.discount_usd), " + tax" * bool(line.tax_usd)
    said = f"quantity × price{less}{more}, to the cent = {line.total_usd:,.2f} $"
    return Derivation(path, said, tuple(parts))
