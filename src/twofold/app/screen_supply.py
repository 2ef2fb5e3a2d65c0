"""A plan's further screen: portfolio, money, building and rules, each a block of lines."""

from twofold.contracts import Plan


def supply_blocks(plan: Plan) -> list[list[str]]:
    """One block for each part that the plan has."""
    assert plan.schema
    return []
