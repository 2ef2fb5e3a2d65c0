"""From a plan to the system that rules bind, and everything that they change in it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from twofold.answer.context import Context
from twofold.answer.offers import cheapest, node_of_size, priced
from twofold.building.compliance_costs import SIZES, Rent, bill_of, totals_of, uncharged, uplift_at, uplift_of
from twofold.building.compliance_evidence import cited_notes, controls_of, families_of, register_of
from twofold.building.compliance_system import (
    RuledFleet,
    RuledSystem,
    differences_of,
    enclaves_of,
    keys_of,
    logs_of,
    transfer_of,
)
from twofold.building.derive import compliance_derivations
from twofold.building.entries import training_token_bytes
from twofold.catalog.catalog import Catalog
from twofold.catalog.figures import economic_by_provider, figure
from twofold.catalog.places import best_price
from twofold.catalog.regimes import find_regime, permits, refusal_reason
from twofold.catalog.types import HardwarePrice, Price, Regime
from twofold.contracts.results import compliance
from twofold.contracts.results.parts import Machine, PriceUsed
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.contracts.spec.supply import ComplianceSpec
from twofold.core import record
from twofold.core.quantity import DAY_S, YEAR_H

BYTES_PER_WEIGHT = 2.0  # as published, in 16 bits
OF_REQUESTS = ("ttft", "e2e")  # goals that a record written once per request may hold up


def compliance_of(
    spec: ComplianceSpec,
    system: RuledSystem,
    rents: Sequence[Rent],
    base_usd: float | None,
    catalog: Catalog,
    today: str | None,
    tax_fraction: float = 0.0,
) -> compliance.Compliance:
    """Everything that a regime changes.

    `catalog` holds all prices, those that are refused too. `base_usd` is a year of the machines at the same
    providers' prices without the rules; None: some have no price. Tax is on every line but wages.
    `today` is 2026-11-22, or None where no day is judged.
    Raises UnknownNameError for a mandate that `cites` names and the register does not have.
    """
    regime = system.regime
    keys = keys_of(system, catalog)
    with record.noting("logs"):
        logs = logs_of(system, spec.recorded, (spec.retention_s or 0.0) / DAY_S, catalog)
    items = bill_of(system, keys, logs, rents, catalog, tax_fraction)
    first, rent_usd, later = totals_of(items)
    largest = max(rents, key=lambda rent: rent.accelerator_h, default=None)
    transfer = transfer_of(system, catalog)
    controls = controls_of(catalog, regime, any(fleet.rented for fleet in system.fleets))
    accelerators = sum(fleet.accelerator_count for fleet in system.fleets)
    with record.noting("uplift"):
        uplift = uplift_of(accelerators, base_usd, items, catalog) if base_usd else None
    permitted, refused = places_of(catalog.prices(), catalog, regime)
    # What figures cannot say.
    notes = ["an authorised region is not an authorised service: compare the provider's list of services"]
    if regime.notes:
        notes.append(f"{regime.title}: {regime.notes}")
    if any(not fleet.rented for fleet in system.fleets):
        notes.append("machines without a price count as your own site: nothing is inherited there")
    return compliance.Compliance(
        regime=regime.name,
        title=regime.title,
        baseline=regime.baseline,
        offers_in_all=len(catalog.prices()),
        permitted=permitted,
        refused=refused,
        enclaves=enclaves_of(system),
        keys=keys,
        transfer=transfer,
        logs=logs,
        items=items,
        first_year_usd=first,
        rent_usd=rent_usd,
        later_year_usd=later,
        uplift=uplift,
        sizes=tuple(uplift_at(size, system, spec, largest, catalog) for size in SIZES) if largest else (),
        differences=differences_of(system, transfer, catalog),
        families=families_of(controls),
        controls=controls,
        mandates=register_of(catalog, today),
        notes=(*notes, *uncharged(system, catalog), *cited_notes(catalog, spec.cites, today)),
    )


RENTED, ON_DEMAND = "H100-SXM5-80GB", ("on_demand",)


def cluster_rules(
    catalog: Catalog,
    name: str,
    accelerators: int,
    *,
    requests_per_s: float = 0.0,
    recorded: Literal["content", "attribution"] = "content",
) -> compliance.Compliance:
    """What a regime changes in a cluster of 8-GPU nodes that trains, in which twenty people work; on no day.

    Its H100 are the cheapest that the regime permits, at list price, beside their provider's and anybody's
    without the regime. No uplift where nobody lists one.
    """
    regime = find_regime(catalog, name)
    rented = regime.rented and not regime.closed  # else the list price stands for machines of one's own
    fleet = RuledFleet("training", "DGX-H100", max(1, accelerators // 8), accelerators, rented)
    anywhere = best_price(catalog, RENTED, ON_DEMAND)
    authorised = catalog.restricted(permits(catalog, regime)) if rented else catalog
    paid = best_price(authorised, RENTED, ON_DEMAND)
    rents: list[Rent] = []
    base_usd: float | None = None
    providers: tuple[str, ...] = ()
    if paid and anywhere:
        prices = [
            each
            for each in catalog.prices_for(RENTED)
            if each.provider == paid.provider and each.instance == paid.instance and each.term in ON_DEMAND
        ]
        same = min(prices, key=lambda each: each.usd_per_accelerator_h)
        rows, hours = (paid, same, anywhere), accelerators * YEAR_H
        usd, words = [each.usd_per_accelerator_h for each in rows], [_words(each) for each in rows]
        base_usd = hours * usd[1]
        if regime.rented:
            rents.append(
                Rent("training", hours, usd[0], usd[1], usd[2], words[0], words[1], words[2], paid.date)
            )
            providers = (paid.provider,)
    rate = requests_per_s
    system = RuledSystem(
        regime, (fleet,), 1, 20, rate, 2 * rate, 1000.0, 200.0, None, 3600.0, 140e9, 60e12, providers
    )
    spec = ComplianceSpec(regime=name, recorded=recorded)  # type: ignore[arg-type]  # it is a row's
    return compliance_of(spec, system, rents, base_usd, catalog, None)


def _words(price: Price | PriceUsed) -> str:
    return f"{price.provider} {price.instance} {price.region} {price.term}"


def places_of(
    prices: Iterable[Price], catalog: Catalog, regime: Regime
) -> tuple[tuple[compliance.Permitted, ...], tuple[compliance.Refusal, ...]]:
    """The authorised places that have prices, and those that a regime forbids; most prices first."""
    may = permits(catalog, regime)
    counts = Counter(
        (may(price.provider, price.region), price.provider.lower(), price.region.lower()) for price in prices
    )
    authorised = catalog.authorisations(regime.name)
    rows = {(row.provider.lower(), row.region.lower()): row for row in authorised}
    permitted, refused = [], []
    for (is_permitted, provider, region), count in sorted(
        counts.items(), key=lambda item: (-item[1], item[0])
    ):
        if is_permitted:
            row = rows[provider, region]
            what = (row.since, row.conditions, row.confidence)
            permitted.append(compliance.Permitted(f"{provider}:{region}", count, *what))
        else:
            why = refusal_reason(provider, region, regime, authorised)
            refused.append(compliance.Refusal(f"{provider}:{region}", count, why))
    return tuple(permitted), tuple(refused)


def compliance_part(plan: Plan, context: Context) -> compliance.Compliance | None:
    """What the spec's rules change; None where it names none."""
    spec, whole = context.spec.compliance, context.catalog.whole
    if spec is None:
        return None
    # Every run and service with the accelerator-hours of its first year.
    hours = [
        run.run.accelerator_h.value * entry.runs_per_year
        for run, entry in zip(plan.training, context.spec.training, strict=True)
    ]
    machines = [service.machine for service in plan.serving]
    hours += [each.accelerator_count * each.held_fraction * YEAR_H for each in machines]
    system = system_of(plan, spec.regime, spec.users_count, whole)
    found = [_rent(half, used_h, context, whole) for half, used_h in zip(plan.halves, hours, strict=True)]
    rents = [rent for rent in found if rent is not None]
    today = context.today.isoformat() if context.today else None
    base_usd = sum(rent.base_usd for rent in rents) if len(rents) == len(found) else None
    tax = context.spec.supply.economics.tax_fraction
    return compliance_of(spec, system, rents, base_usd, whole, today, tax)


def with_compliance(plan: Plan, rules: compliance.Compliance, book: record.Book, context: Context) -> Plan:
    """The plan with what its rules change, what to know of it, and, as noted, where its figures come from."""
    rows = compliance_derivations(rules, book, context.catalog) if context.in_full else ()
    return replace(
        plan,
        compliance=rules,
        warnings=(*plan.warnings, *rules.notes),
        derivations=(*plan.derivations, *rows),
    )


def system_of(plan: Plan, regime: str, users_count: int, catalog: Catalog) -> RuledSystem:
    """The plan as rules see it: nodes by half, requests with their lengths, what is stored and moved."""
    classes = [each for service in plan.serving for each in service.classes]
    rate = sum(each.rate_per_s for each in classes)
    inputs = sum(each.rate_per_s * (each.input_tokens or 0.0) for each in classes)
    outputs = sum(each.rate_per_s * (each.output_tokens or 0.0) for each in classes)
    goals = [slo.limit_s for each in classes for slo in each.slos if slo.metric.startswith(OF_REQUESTS)]
    intervals = [run.run.checkpoints.interval_s.value for run in plan.training]
    models = {half.model: half.parameters or 0 for half in plan.halves}
    places = {(price.provider, price.region) for half in plan.halves for price in half.machine.prices}
    names = ["training"] * len(plan.training) + ["serving"] * len(plan.serving)
    fleets = tuple(
        RuledFleet(name, own.node, own.node_count, own.accelerator_count, own.price is not None)
        for name, own in zip(names, (half.machine for half in plan.halves), strict=True)
    )
    return RuledSystem(
        regime=find_regime(catalog, regime),
        fleets=fleets,
        site_count=max(1, len(places)),
        users_count=users_count,
        requests_per_s=rate,
        peak_requests_per_s=sum(each.peak_per_s for each in classes),
        input_tokens=inputs / rate if rate else 0.0,
        output_tokens=outputs / rate if rate else 0.0,
        tightest_goal_s=min(goals, default=None),
        checkpoint_interval_s=min(intervals, default=None),
        weights_bytes=BYTES_PER_WEIGHT * sum(models.values()),
        data_bytes=training_token_bytes(catalog) * sum(run.tokens or 0.0 for run in plan.training),
        providers=tuple(sorted(provider.lower() for provider, _ in places)),
    )


def _rent(half: TrainingPlan | ServicePlan, used_h: float, context: Context, whole: Catalog) -> Rent | None:
    """Accelerator-hours as they are paid and as they would be without the rules; None where nothing is known.

    Without the rules: the cheapest of the same term in the same shop, at the same provider and at any.
    Machines of your own cost their price over the years of use, with rules and without.
    """
    price, machine = half.machine.price, half.machine
    if price is None:
        return _own_rent(half.name, machine, whole)
    accelerator = whole.accelerator(machine.accelerator)
    node = node_of_size(whole, accelerator, machine.accelerators_per_node)
    terms, shop = context.spec.supply.economics, context.spec.supply.shop

    def open_price(providers: tuple[str, ...], instance: str) -> Price | None:
        """The cheapest price without the rules, of that instance where the providers have it."""
        there = shop.model_copy(update={"providers": providers})
        offers = priced(whole, accelerator, there, (price.term,), shop.regions)
        return cheapest(offers, replace(node, name=instance))

    paid = machine.usd_per_accelerator_h
    same, other = open_price((price.provider,), price.instance), open_price(shop.providers, "")
    at_provider = min(paid, same.usd_per_accelerator_h) if same else paid
    anywhere = min(at_provider, other.usd_per_accelerator_h) if other else at_provider
    open_provider = other.provider if other and anywhere < at_provider else price.provider
    support, open_support = (
        economic_by_provider("support by", each, whole).value for each in (price.provider, open_provider)
    )
    return Rent(
        half.name,
        used_h,
        paid,
        at_provider,
        anywhere,
        _words(price),
        _words(same or price),
        _words(other or price),
        price.date,
        support,
        open_support,
        terms.discount_fraction,
        terms.tax_fraction,
    )


def _own_rent(name: str, machine: Machine, whole: Catalog) -> Rent | None:
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
    return Rent(name, hours, usd_per_h, usd_per_h, usd_per_h, source, source, source, row.date)
