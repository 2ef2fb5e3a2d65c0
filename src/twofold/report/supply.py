"""A plan's further screen: portfolio, money, building and rules, each a block of lines."""

from twofold.contracts.results import Plan
from twofold.report.building import building_block
from twofold.report.compliance import compliance_lines
from twofold.report.money import money_lines
from twofold.report.portfolio import portfolio_lines


def supply_blocks(plan: Plan) -> list[list[str]]:
    """One block for each part that the plan has."""
    bill = plan.money.portfolio if plan.money else None
    blocks = [portfolio_lines(plan.portfolio, bill)] if plan.portfolio else []
    blocks += [money_lines(plan.money)] if plan.money else []
    blocks += [building_block(plan.building)] if plan.building else []
    blocks += [compliance_lines(plan.compliance)] if plan.compliance else []
    return blocks
