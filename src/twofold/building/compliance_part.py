"""From a plan to the system that rules bind, and what they change in it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from twofold.answer import Context, cheapest, node_of_size, priced
from twofold.building.compliance import compliance_of
from twofold.building.compliance_costs import Rent
from twofold.building.compliance_system import RuledFleet, RuledSystem
from twofold.building.derive import compliance_derivations
from twofold.building.entries import training_token_bytes
from twofold.catalog import Catalog, HardwarePrice, Price, economic_by_provider, figure, find_regime
from twofold.contracts.results import Compliance, Machine, Plan, PriceUsed, ServicePlan, TrainingPlan
from twofold.contracts.spec import Spec
from twofold.core import YEAR_H

BYTES_PER_WEIGHT = 2.0  # as published, in 16 bits
OF_REQUESTS = ("ttft", "e2e")  # goals that a record written once per request may hold up


@dataclass(frozen=True, slots=True)
class Used:
    """One run or service with the accelerator-hours of its first year."""

    half: str
    name: str
    machine: Machine
    accelerator_h: float


def compliance_part(plan: Plan, context: Context) -> Compliance | None:
    """What the spec's rules change; None where it names none."""
    spec = context.spec.compliance
    if spec is None:
        return None
    whole = context.catalog.whole
    used = tuple(_used(plan, context.spec))
    system = system_of(plan, used, spec.regime, spec.users_count, whole)
    found = [_rent(each, context, whole) for each in used]
    rents = [rent for rent in found if rent is not None]
    today = context.today.isoformat() if context.today else None
    base_usd = sum(rent.base_usd for rent in rents) if len(rents) == len(found) else None
    tax = context.spec.supply.economics.tax_fraction
    return compliance_of(spec, system, rents, base_usd, whole, today, tax)


def with_compliance(plan: Plan, rules: Compliance, catalog: Catalog) -> Plan:
    """The plan with what its rules change, what to know of it, and where its figures come from."""
    return replace(
        plan,
        compliance=rules,
        warnings=(*plan.warnings, *rules.notes),
        derivations=(*plan.derivations, *compliance_derivations(rules, catalog)),
    )


def system_of(
    plan: Plan, used: tuple[Used, ...], regime: str, users_count: int, catalog: Catalog
) -> RuledSystem:
    """The plan as rules see it: nodes by half, requests with their lengths, what is stored and moved."""
    classes = [each for service in plan.serving for each in service.classes]
    rate = sum(each.rate_per_s for each in classes)
    inputs, outputs = (
        sum(each.rate_per_s * (getattr(each, field) or 0.0) for each in classes) / rate if rate else 0.0
        for field in ("input_tokens", "output_tokens")
    )
    goals = [slo.limit_s for each in classes for slo in each.slos if slo.metric.startswith(OF_REQUESTS)]
    halves: tuple[TrainingPlan | ServicePlan, ...] = (*plan.training, *plan.serving)
    models = {half.model: half.parameters or 0 for half in halves}
    places = {(price.provider, price.region) for half in halves if (price := half.machine.price)}
    return RuledSystem(
        regime=find_regime(catalog, regime),
        fleets=tuple(
            RuledFleet(
                each.half,
                each.machine.node,
                each.machine.node_count,
                each.machine.accelerator_count,
                each.machine.price is not None,
            )
            for each in used
        ),
        site_count=max(1, len(places)),
        users_count=users_count,
        requests_per_s=rate,
        peak_requests_per_s=sum(each.peak_per_s for each in classes),
        input_tokens=inputs,
        output_tokens=outputs,
        tightest_goal_s=min(goals, default=None),
        checkpoint_interval_s=min(
            (run.run.checkpoints.interval_s.value for run in plan.training), default=None
        ),
        weights_bytes=BYTES_PER_WEIGHT * sum(models.values()),
        data_bytes=training_token_bytes(catalog) * sum(run.tokens or 0.0 for run in plan.training),
        providers=tuple(sorted(provider.lower() for provider, _ in places)),
    )


def _used(plan: Plan, spec: Spec) -> Iterator[Used]:
    for run, entry in zip(plan.training, spec.training, strict=True):
        hours = run.run.accelerator_h.value * entry.runs_per_year
        yield Used("training", run.name, run.machine, hours)
    for service in plan.serving:
        hours = service.machine.accelerator_count * YEAR_H
        yield Used("serving", service.name, service.machine, hours)


def _rent(used: Used, context: Context, whole: Catalog) -> Rent | None:
    """Accelerator-hours as they are paid and as they would be without the rules; None where nothing is known.

    Without the rules: the cheapest of the same term in the same shop, at the same provider and at any.
    Machines of your own cost their price over the years of use, with rules and without.
    """
    price = used.machine.price
    if price is None:
        return _own_rent(used, whole)
    paid = price.usd_per_accelerator_h.value
    same = _open_price(used, price, (price.provider,), price.instance, context, whole)
    other = _open_price(used, price, context.spec.supply.shop.providers, "", context, whole)
    at_provider = min(paid, same.usd_per_accelerator_h) if same else paid
    anywhere = min(at_provider, other.usd_per_accelerator_h) if other else at_provider
    cheapest = other.provider if other and anywhere < at_provider else price.provider
    support, open_support = (
        economic_by_provider("support by", each, whole).value for each in (price.provider, cheapest)
    )
    terms = context.spec.supply.economics
    return Rent(
        used.name,
        used.accelerator_h,
        paid,
        at_provider,
        anywhere,
        _row(price),
        _row(same) if same else _row(price),
        _row(other) if other else _row(price),
        price.date,
        support,
        open_support,
        terms.discount_fraction,
        terms.tax_fraction,
    )


def _open_price(
    used: Used,
    price: PriceUsed,
    providers: tuple[str, ...],
    instance: str,
    context: Context,
    whole: Catalog,
) -> Price | None:
    """The cheapest price without the rules, of that instance where the providers have it."""
    accelerator = whole.accelerator(used.machine.accelerator)
    node = node_of_size(whole, accelerator, used.machine.accelerators_per_node)
    shop = context.spec.supply.shop.model_copy(update={"providers": providers})
    return cheapest(
        priced(whole, accelerator, shop, (price.term,), shop.regions), replace(node, name=instance)
    )


def _own_rent(used: Used, whole: Catalog) -> Rent | None:
    machine = used.machine
    rows = {row.name: row for row in whole.rows(HardwarePrice)}
    row = rows.get(machine.node) or rows.get(machine.accelerator)
    if row is None:
        return None
    life_years = figure(whole, "depreciation", "AI server useful life (accounting)").value
    count = machine.accelerators_per_node if row.kind == "server" else 1
    usd_per_h = row.usd / (count * life_years * YEAR_H)
    # Bought machines are there all year, busy or not.
    hours = machine.accelerator_count * YEAR_H
    source = f"hardware_prices: {row.name}, over {life_years:g} years"
    return Rent(used.name, hours, usd_per_h, usd_per_h, usd_per_h, source, source, source, row.date)


def _row(price: PriceUsed | Price) -> str:
    return f"{price.provider} {price.instance} {price.region} {price.term}"
