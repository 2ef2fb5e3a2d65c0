"""A plan as a page: the decision first, then pictures, the bill, and where every number comes from."""

from collections.abc import Iterator, Sequence

from twofold.charts.of_plan import charts_of_plan
from twofold.contracts.goals import metric_text
from twofold.contracts.results.ledger import LineItem
from twofold.contracts.results.plan import Derivation, Plan
from twofold.contracts.results.serving import ClassPlan, ServicePlan, SloOutcome
from twofold.contracts.results.training import TrainingPlan
from twofold.core.display import format_memory, format_seconds, format_usd
from twofold.core.estimate import Estimate
from twofold.pages.html import cell, element, link, page, pictures, table, text
from twofold.pages.plan_entries import (
    ASKED,
    JOINT,
    KNOWN,
    OTHERS,
    OWN,
    RISKS,
    entries_of,
    place_of,
    replicas_of,
)
from twofold.pages.sections import FIGURE
from twofold.report.decision import sureness
from twofold.report.figures import chance, ranged
from twofold.report.money import number_text
from twofold.report.training import delivery_pieces

LETTERS = "80 % ranges · m measured here, f fitted on published measurements, v a vendor's figure, a assumed"


def plan_page(plan: Plan, digest: str) -> str:
    """The page of a plan, one file without script: numbers lead to how they were derived."""
    derived = (*plan.derivations, *entries_of(plan))
    known = {each.path for each in derived}
    return page(
        f"{plan.name}: plan",
        _head(plan, digest, known),
        *_refused(plan),
        *_decision(plan, known),
        *_listed("What could break it", _texts(plan, "risk"), RISKS, known),
        *_listed("What else there is", _texts(plan, "or"), OTHERS, known),
        element("h2", "Pictures"),
        pictures(charts_of_plan(plan)),
        *_bill(plan, known),
        *_assumed(plan, known),
        *_evidence(derived),
    )


def plan_cell(plan: Plan) -> str:
    """The decision with its pictures for a cell of a notebook: no page around it, and no style beyond it."""
    return cell(
        *_refused(plan),
        *_decision(plan, set()),
        *_listed("What could break it", _texts(plan, "risk"), RISKS, set()),
        pictures(charts_of_plan(plan)),
    )


def _head(plan: Plan, digest: str, known: set[str]) -> str:
    pieces = []
    if plan.first_year_usd:
        told = text("first year ") + _linked(plan.first_year_usd, "first_year_usd", known)
        if plan.budget_usd is not None:
            told += text(" of a budget of ") + _linked_text(format_usd(plan.budget_usd), "budget_usd", known)
        pieces.append(told)
    if said := sureness(plan):
        pieces.append(_linked_text(said, JOINT, known))
    if plan.confidence:
        pieces.append(_linked_text(f"{100 * plan.confidence.asked_fraction:.3g} % asked", ASKED, known))
    pieces.append("rehearsed in the digital twin" if plan.rehearsed else "not rehearsed: closed form only")
    made = f"twofold {plan.twofold} · sha256 {digest[:16]} · {LETTERS}"
    return (
        element("h1", text(plan.name))
        + element("p", " · ".join(pieces))
        + element("p", text(made), cls="soft")
    )


def _refused(plan: Plan) -> Iterator[str]:
    """What nothing meets: the page is of the rest."""
    for each in plan.infeasible:
        yield element("h2", text(f"Nothing meets {each.name}"), cls="bad")
        yield element("p", text(each.message))
        yield table(("", ""), [(text(label), text(said)) for label, said in each.lines])


def _decision(plan: Plan, known: set[str]) -> Iterator[str]:
    yield element("h2", "Do this")
    cards = []
    for half in plan.halves:
        fleet = next(
            (each for each in plan.actions if each.kind in ("rent", "use") and each.name == half.name), None
        )
        machine = fleet.text if fleet else half.machine.accelerator
        title = text(f"{half.name}: ") + _linked_text(machine, f"{place_of(half)}.machine", known)
        body = _run(half, plan, known) if isinstance(half, TrainingPlan) else _service(half, plan, known)
        cards.append(element("section", element("h3", title), *body, cls="card"))
    yield element("div", *cards, cls="cards")
    for each in plan.actions:
        if each.kind == "release":
            told = _linked_text(each.text, f"training.{each.name}.release_after_s", known)
            yield element("p", text("Release ") + told)


def _run(run: TrainingPlan, plan: Plan, known: set[str]) -> Iterator[str]:
    at = place_of(run)
    paid = plan.money.runs if plan.money else ()
    repeated = any(each.name == run.name and each.runs_per_year != 1 for each in paid)
    rows = [
        ("done after", _linked(run.run.total_s, f"{at}.run.total_s", known) + _deadline(run, plan, known)),
        (
            "cost each time" if repeated else "cost",
            _cost(run.cost_usd, f"{at}.cost_usd", run.name, plan, known),
        ),
        ("layout", _linked_text(run.layout.text if run.layout else "as measured", f"{at}.layout", known)),
        ("a step", _linked(run.step_s, f"{at}.step_s", known)),
        ("MFU", _linked(run.mfu_fraction, f"{at}.mfu_fraction", known)),
        (
            "memory",
            _linked(run.memory_bytes, f"{at}.memory_bytes", known, "memory B")
            + _of(run.memory_capacity_bytes, f"{at}.memory_capacity_bytes", known),
        ),
        ("interruptions", _linked(run.run.interruptions, f"{at}.run.interruptions", known)),
    ]
    yield table(("", ""), rows)
    if run.delivery:
        paths = {
            "accelerator-hours": f"{at}.run.accelerator_h",
            "expected loss": f"{at}.delivery.loss",
            "target": f"{at}.delivery.loss_target_nats",
            "finish date": f"{at}.delivery.ends_on",
        }
        pieces = delivery_pieces(run, run.delivery)
        bought = [
            (label, _linked_text(said.removeprefix(f"{label} "), paths.get(label, ""), known))
            for label, said in pieces
        ]
        yield table(("", ""), bought)


def _cost(cost: Estimate | None, path: str, name: str, plan: Plan, known: set[str]) -> str:
    """Rent; what machines of one's own take, which leads to its lines of the bill."""
    usd = plan.own_usd(name)
    if cost or usd is None or plan.money is None:
        return _linked(cost, path, known)
    return _linked_text(f"{format_usd(usd)} for power, your own", OWN.format(name), known)


def _deadline(run: TrainingPlan, plan: Plan, known: set[str]) -> str:
    if run.deadline_s is None:
        return ""
    at, met = place_of(run), run.run.total_s.value <= run.deadline_s
    said = chance(met, run.run.deadline_holds_probability, _asked(plan))
    limit = _linked_text(format_seconds(run.deadline_s), f"{at}.deadline_s", known)
    return f" of {limit} " + _marked(said, f"{at}.run.deadline_holds_probability", known)


def _service(service: ServicePlan, plan: Plan, known: set[str]) -> Iterator[str]:
    at = place_of(service)
    spares = f"{service.spare_count} of them spare: {service.spare_reason}"
    layouts = replicas_of(service)
    alone = next((f" of {name}" for name, one, _ in layouts[1:] and layouts if one == service.replica), "")
    rows = [
        ("a year", _cost(service.cost_usd_per_year, f"{at}.cost_usd_per_year", service.name, plan, known)),
        (
            "replicas",
            _linked_text(f"{service.replica_count}", f"{at}.replica_count", known)
            + ", "
            + _linked_text(spares, f"{at}.spare_count", known),
        ),
        *((text(label), _linked_text(replica.text, path, known)) for label, replica, path in layouts),
        (
            text(f"memory{alone}"),
            _linked(service.memory_bytes, f"{at}.memory_bytes", known, "memory B")
            + _of(service.memory_capacity_bytes, f"{at}.memory_capacity_bytes", known),
        ),
    ]
    yield table(("", ""), rows)
    goals = [_goal_row(one, slo, at, plan, known) for one in service.classes for slo in one.slos]
    yield table(("class", "replicas", "goal", "at the peak", "holds", "to a rate of"), goals, (1,))


def _goal_row(one: ClassPlan, slo: SloOutcome, at: str, plan: Plan, known: set[str]) -> tuple[str, ...]:
    path = f"{at}.classes.{one.name}"
    goal, seen = f"{path}.slos.{slo.metric}", slo.rehearsed
    told = _linked(slo.predicted, f"{goal}.predicted", known)
    if seen and seen.value_s is not None:
        told += text(" · twin ") + _linked_text(format_seconds(seen.value_s), f"{goal}.rehearsed", known)
    said = "–" if slo.met is None else chance(slo.met, slo.holds_probability, _asked(plan))
    limit = _linked_text(f"≤ {format_seconds(slo.limit_s)}", f"{goal}.limit_s", known)
    return (
        text(one.name),
        _linked_text(str(one.replica_count), f"{path}.holds_until_per_s", known),
        text(f"{metric_text(slo.metric)} ") + element("span", limit),
        told,
        _marked(said, f"{goal}.holds_probability", known),
        _linked(one.holds_until_per_s, f"{path}.holds_until_per_s", known),
    )


def _bill(plan: Plan, known: set[str]) -> Iterator[str]:
    if plan.money is None:
        return
    yield element("h2", "The bill of the first year")
    rows = [_bill_row(line, f"money.lines.{at}", known) for at, line in enumerate(plan.money.lines)]
    total = _linked_text(f"{plan.money.total_usd:,.2f}", "money.total_usd", known)
    rows.append((element("b", "total"), "", "", "", "", element("b", total), ""))
    yield table(("what", "for", "quantity", "unit", "$ each", "$", "price from"), rows, (2, 4, 5))


def _bill_row(line: LineItem, path: str, known: set[str]) -> tuple[str, ...]:
    """Names of machines and terms in what is paid for are of the line as well."""
    what, quantity, each, usd = (
        _linked_text(said, path, known)
        for said in (
            line.what,
            f"{line.quantity:,.2f}",
            number_text(line.unit_usd),
            f"{line.total_usd:,.2f}",
        )
    )
    return what, text(line.category), quantity, text(line.unit), each, usd, text(line.source)


def _assumed(plan: Plan, known: set[str]) -> Iterator[str]:
    if plan.defaults:
        yield element("h2", "What nobody wrote")
        yield table(
            ("key of the spec", "taken as"), [(text(path), text(value)) for path, value in plan.defaults]
        )
    told = [*plan.warnings, *(each for half in plan.halves for each in half.warnings)]
    yield from _listed("Worth knowing", told, KNOWN, known)


def _evidence(derived: Sequence[Derivation]) -> Iterator[str]:
    if derived:
        yield element("h2", "Where the numbers come from")
        yield element("dl", *map(_derived, derived))


def _derived(each: Derivation) -> str:
    """One number: its formula, and what it is made of, each part a link or its source."""
    parts = []
    for one in each.inputs:
        told = text(f"{one.label} {one.text}")
        if one.path:
            told = element("a", told, href=f"#{one.path}")
        where = " · ".join(each for each in (one.source, one.reference) if each)
        parts.append(told + (text(f" {where}") if one.reference else ""))
    inputs = element("ul", *(element("li", part) for part in parts)) if parts else ""
    return element("dt", text(f"{each.path} = {each.formula}"), id=each.path) + element("dd", inputs)


def _listed(title: str, texts: list[str], path: str, known: set[str]) -> Iterator[str]:
    """Lines of words; those with figures lead to how the list is made."""
    if texts:
        lines = (_linked_text(each, path if FIGURE.search(each) else "", known) for each in texts)
        yield element("h2", text(title))
        yield element("ul", *(element("li", each) for each in lines))


def _texts(plan: Plan, kind: str) -> list[str]:
    return [each.text for each in plan.actions if each.kind == kind]


def _linked(figure: Estimate | None, path: str, known: set[str], unit: str = "") -> str:
    """A figure as screens write it, in `unit` where they have another; a link to its derivation here."""
    return _linked_text(ranged(figure, unit), path if figure else "", known)


def _linked_text(said: str, path: str, known: set[str]) -> str:
    return link(said, path) if path in known else text(said)


def _marked(said: str, path: str, known: set[str]) -> str:
    """A mark and its probability; what is missed stands out."""
    if path in known and said != "–":
        return link(said, path)
    return element("span", text(said), cls="bad" if said.startswith("✗") else "")


def _of(capacity_bytes: float, path: str, known: set[str]) -> str:
    return text(" of ") + _linked_text(format_memory(capacity_bytes), path, known)


def _asked(plan: Plan) -> float | None:
    return plan.confidence.asked_fraction if plan.confidence else None
