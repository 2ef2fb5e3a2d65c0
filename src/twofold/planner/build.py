"""One spec becomes one plan: both halves, the 2×2 between them, and where every number comes from."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TypeVar

from twofold import __version__
from twofold.answer import derive, measured_serving, uncertainty
from twofold.answer.calibrated import calibration_notes
from twofold.answer.context import Context, model_of
from twofold.answer.cross import cross_cells
from twofold.answer.ladders import factor_swings
from twofold.answer.measured_training import figures_of_run
from twofold.answer.own_machines import shared
from twofold.answer.serving_choice import ServingChoice
from twofold.answer.serving_plan import service_plan
from twofold.answer.supply_rules import offered_where_asked
from twofold.answer.training_choice import TrainingChoice
from twofold.building.building import with_building
from twofold.building.compliance import compliance_part, with_compliance
from twofold.catalog.catalog import Catalog
from twofold.catalog.types import Model, ModelFamily
from twofold.contracts.goals import metric_text
from twofold.contracts.results.plan import Digests, Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.defaults import defaults_used
from twofold.contracts.spec.service import Service
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core import record
from twofold.core.display import format_apart
from twofold.core.errors import InfeasibleError
from twofold.money.first_year import check_budget, rent_of_year, with_money
from twofold.perf.constants import Constants
from twofold.planner.actions import actions_of
from twofold.planner.sureness import with_ladder
from twofold.portfolio.decide import Decision, decided, leased_again, leasing_of, service_on
from twofold.portfolio.join import portfolio
from twofold.portfolio.shared import sharing

SCHEMA = "twofold/plan/1"
C = TypeVar("C")
E = TypeVar("E", TrainingRun, Service)
P = TypeVar("P")
YOURS = "your own "  # begins what is said of machines that are paid for already
FIXES = "a faster accelerator · a smaller or quantised model · a looser objective"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan depends on besides spec, catalogue and constants."""

    draw_count: int = uncertainty.DRAW_COUNT
    seed: int = 0
    today: date | None = None  # None: prices are not judged by their age
    calibration: str = ""  # what was measured here and is part of the constants, in words
    calibration_digest: str = ""
    notes: tuple[str, ...] = ()  # what to know about that
    in_full: bool = (
        True  # with other ways, the cheapest mix and derivations, which the decision does not show
    )
    rehearse: bool = False  # whether services are confirmed on the twin
    tell: Callable[[str], None] = lambda _: None  # hears what a rehearsal is about


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with what it was chosen from, so that whoever varies it need not search again."""

    plan: Plan
    context: Context
    runs: Mapping[str, TrainingChoice]  # by name; runs of measured rows have none
    services: Mapping[str, ServingChoice]  # by name, as rehearsed where they were


def build_plan(
    spec: Spec,
    catalog: Catalog,
    constants: Constants,
    *,
    spec_digest: str,
    options: PlanOptions = PlanOptions(),
) -> Planned:
    """Plan every run and service of a spec. The same input gives the same plan, byte for byte (INV-5).

    Raises InfeasibleError, with what is needed, what was tried and what would fit, when a run or a service
    cannot be done within its deadline, objectives or budget.
    """
    draws = uncertainty.draw_factors(constants, options.draw_count, options.seed)
    allowed = offered_where_asked(spec, catalog)
    context = Context(spec, allowed, constants, draws, options.today, options.in_full)
    sure = shared(context)
    decision = decided(sure.runs, sure.services, context)
    chosen, services = decision.runs, dict(decision.services)
    books: dict[str, record.Book] = {}  # how the figures of each follow
    training = tuple(_noted("training", figures_of_run, chosen, books, context).values())
    runs = {name: choice for name, choice in chosen.items() if isinstance(choice, TrainingChoice)}
    planned = _noted("serving", service_plan, services, books, context)
    by_rows = {entry.name: entry for entry in spec.services if entry.model.measured}
    measured = _noted("serving", measured_serving.measured_plan, by_rows, books, context)
    need_kept((*planned.values(), *measured.values()))
    for name in services if options.rehearse else ():
        decision = _rehearse(name, services, planned, decision, books, context, options)
    training, serving = sharing(training, [(planned | measured)[one.name] for one in spec.services], allowed)
    planned_runs = list(zip(chosen.values(), training, strict=True))
    planned_services = [(services[plan.name], plan) for plan in serving if plan.name in services]
    with_model = [(runs[plan.name], plan) for plan in training if plan.name in runs]
    with record.recording() as books["cross"]:
        cross = cross_cells(with_model, planned_services, context) if options.in_full else ()
    told = planned_runs, serving, services, cross, books, context
    scopes = {name: run.scope for name, run in runs.items()} | {n: s.scope for n, s in services.items()}
    models = own_models(spec, catalog)
    plan = Plan(
        schema=SCHEMA,
        name=spec.name,
        twofold=__version__,
        digests=Digests(spec_digest, catalog.digest, constants.digest, options.calibration_digest),
        rehearsed=bool(planned) and all(each.rehearsals for each in planned.values()),
        training=training,
        serving=serving,
        cross=cross,
        first_year_usd=rent_of_year(training, serving, spec),  # the bill's total once there is a bill
        budget_usd=spec.supply.budget_usd,
        factors=factor_swings([*runs.values()], [*services.values()], context) if options.in_full else (),
        calibration=options.calibration,
        derivations=derive.derivations(*told) if options.in_full else (),
        defaults=_in_force(spec, serving),
        warnings=(
            *options.notes,
            *calibration_notes(context.constants, scopes),
            *_warnings(training, serving, spec),
            *dict.fromkeys(
                note for one in services.values() for each in one.loads for note in each.trace_notes
            ),
            *sure.notes,
            *_oddities(models, context),
        ),
        models=models,
        leasing=leasing_of(decision),
    )
    plan = with_ladder(plan, chosen, services, context)
    whole = with_supply_side(plan, context, runs, services)
    whole = replace(whole, derivations=derive.default_marked(whole.derivations, whole.defaults))
    check_budget(whole, spec.supply.budget_usd)
    return Planned(whole, context, runs, services)


def _rehearse(
    name: str,
    services: dict[str, ServingChoice],
    planned: dict[str, ServicePlan],
    decision: Decision,
    books: dict[str, record.Book],
    context: Context,
    options: PlanOptions,
) -> Decision:
    """Put the best that the twin says holds in place of a fleet that misses; the decision with its lease."""
    from twofold.rehearse.fleets import rehearsed_service  # brings the twin

    choice, first = services[name], planned[name]

    def again(own: ServingChoice) -> ServingChoice:
        return service_on(own, leased_again(own, decision, context).ways.get(name), (), context)

    def plan_of(own: ServingChoice) -> ServicePlan:
        return first if own is choice else service_plan(again(own), context)

    best, planned[name] = rehearsed_service(choice, plan_of, context, options.tell)
    if best is choice:
        return decision
    services[name] = again(best)
    _noted("serving", service_plan, {name: services[name]}, books, context)
    return leased_again(best, decision, context)


def _noted(
    half: str,
    figures: Callable[[C, Context], P],
    choices: Mapping[str, C],
    books: dict[str, record.Book],
    context: Context,
) -> dict[str, P]:
    """The figures of each choice by name; how they follow goes into a book under their path."""
    found: dict[str, P] = {}
    for name, choice in choices.items():
        with record.recording() as books[f"{half}.{name}"], InfeasibleError.of(name):
            found[name] = figures(choice, context)
    return found


def _in_force(spec: Spec, serving: Iterable[ServicePlan]) -> tuple[tuple[str, str], ...]:
    """What nobody wrote and what it came to: formats that were left open are those of the fleet."""
    chosen = {f"serving.{each.name}.quantisation": each.replica.weights_format for each in serving}
    chosen |= {f"serving.{each.name}.kv_quantisation": each.replica.kv_format for each in serving}
    return tuple((each.path, chosen.get(each.path) or each.text) for each in defaults_used(spec))


def need_kept(services: Iterable[ServicePlan]) -> None:
    """Raises InfeasibleError where a fleet misses a goal by its own figures: nobody is to rent it."""
    for service in services:
        missed = []
        for each in service.classes:
            for slo in each.slos:
                if slo.met is False and slo.predicted:
                    reached, limit = format_apart(slo.predicted.value, slo.limit_s, "s")
                    missed.append(f"{each.name}: {metric_text(slo.metric)} {reached} misses {limit}")
            if each.success.met is False:
                share = f"{100 * (each.success.predicted_fraction or 0.0):.4g} %"
                goal = f"below the {100 * each.success.goal_fraction:.8g} % of its `success`"
                missed.append(f"{each.name}: {share} get a first token before the gateway gives up, {goal}")
        if missed:
            lines = *(("binds", each) for each in missed), ("would fit", FIXES)
            error = InfeasibleError(f"the best fleet for `{service.name}` misses its objectives", lines=lines)
            error.whose = service.name
            raise error


def own_models(spec: Spec, catalog: Catalog) -> tuple[Model, ...]:
    """The models of a spec that no catalogue has, as their config.json describes them."""
    references = [run.model for run in spec.training] + [service.model for service in spec.services]
    references += [variant.model for service in spec.services for variant in service.variants]
    return tuple({each: model_of(each, catalog) for each in references if each.config}.values())


def _oddities(models: Sequence[Model], context: Context) -> Iterator[str]:
    """What was taken as it stands, and may not be meant: models of an unknown kind, days that are past."""
    for model in models:
        if model.family not in context.catalog.named(ModelFamily):
            yield f"{model.name}: `{model.family}` is no model type we know: read as most decoders are"
    days = [("the portfolio's year", context.spec.supply.start)]
    days += [(run.name, run.window.start if run.window else run.start) for run in context.spec.training]
    for what, day in days:
        if context.today and day and day < context.today:
            yield f"{what} starts on {day}, which is past"


def _warnings(
    training: tuple[TrainingPlan, ...], serving: tuple[ServicePlan, ...], spec: Spec
) -> tuple[str, ...]:
    """What concerns the whole plan: that it is half of one, or that money is missing from it."""
    warnings = []
    if not training or not serving:
        warnings.append(f"half a plan: the spec has no {'training' if serving else 'serving'}")
    measured = [run.name for run in spec.training if run.model.measured]
    measured += [service.name for service in spec.services if service.model.measured]
    if training and serving and measured:
        names = ", ".join(measured)
        warnings.append(f"not tried on the other half's fleet: {names}, which no row measures there")
    lacking: list[TrainingPlan | ServicePlan] = [plan for plan in training if plan.cost_usd is None]
    lacking += [plan for plan in serving if plan.cost_usd_per_year is None]
    # What stands in one's own house has a bill, see `answer/context.py`.
    unpriced = [each.name for each in lacking if not any(text.startswith(YOURS) for text in each.warnings)]
    if unpriced:
        what = f"no price is known for {' and '.join(unpriced)}"
        warnings.append(f"{what}: the cost of the first year leaves that out")
    if spec.supply.budget_usd is not None and unpriced:
        warnings.append("the budget was checked against what has a price")
    return tuple(warnings)


def with_supply_side(
    plan: Plan,
    context: Context,
    runs: Mapping[str, TrainingChoice],
    services: Mapping[str, ServingChoice],
) -> Plan:
    """The plan with what stands on its further screen; parts that do not apply stay None."""
    with record.recording() as book:
        compliance = compliance_part(plan, context)
    plan = replace(plan, portfolio=portfolio(runs, services, context) if context.in_full else None)
    plan = with_building(plan, context)
    # The bill has what the rules ask for among its lines, and what own machines take in their building.
    plan = with_money(replace(plan, compliance=compliance), context)
    if plan.compliance is not None:
        plan = with_compliance(plan, plan.compliance, book, context)
    return replace(plan, actions=actions_of(plan))
