"""What follows from a plan's machines: the portfolio that supplies them, money, the building, rules."""

from twofold.contracts import Plan
from twofold.plan.context import Context


def with_supply_side(plan: Plan, context: Context) -> Plan:
    """The plan with what stands on its further screen; parts that do not apply stay None."""
    assert context.spec
    return plan
