"""What follows from a plan's machines: the portfolio that supplies them, money, the building, rules."""

from collections.abc import Mapping
from dataclasses import replace

from twofold.answer import Context, ServingChoice, TrainingChoice
from twofold.building import compliance_part, with_building, with_compliance
from twofold.contracts.results import Plan, total_usd
from twofold.facility import OF_RENT
from twofold.money import with_money
from twofold.planner.actions import actions_of
from twofold.planner.bill_derive import bill_derivations
from twofold.portfolio import Rehearsing, portfolio


def with_supply_side(
    plan: Plan,
    context: Context,
    runs: Mapping[str, TrainingChoice],
    services: Mapping[str, ServingChoice],
    rehearsing: Rehearsing | None = None,
) -> Plan:
    """The plan with what stands on its further screen; parts that do not apply stay None."""
    compliance = compliance_part(plan, context)
    asked = compliance.items if compliance else ()
    rules_usd = total_usd(item.line for item in asked if item.category not in OF_RENT)
    plan = replace(plan, portfolio=portfolio(runs, services, context, rehearsing, rules_usd))
    plan = with_building(plan, context)
    # The bill has what the rules ask for among its lines, and what own machines take in their building.
    plan = with_money(replace(plan, compliance=compliance), context)
    plan = plan if plan.compliance is None else with_compliance(plan, plan.compliance, context.catalog)
    derivations = (*plan.derivations, *bill_derivations(plan))
    return replace(plan, actions=actions_of(plan), derivations=derivations)
