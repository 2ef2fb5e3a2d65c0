"""A plan's further screen: portfolio, money, building and rules, each a block of lines."""

from twofold.app.screen_building import building_block
from twofold.app.screen_compliance import compliance_lines
from twofold.app.screen_money import money_lines
from twofold.app.screen_portfolio import portfolio_lines
from twofold.contracts import Plan


def supply_blocks(plan: Plan) -> list[list[str]]:
    """One block for each part that the plan has."""
    bill = plan.money.portfolio if plan.money else None
    blocks = [portfolio_lines(plan.portfolio, bill)] if plan.portfolio else []
    blocks += [money_lines(plan.money)] if plan.money else []
    blocks += [building_block(plan.building)] if plan.building else []
    blocks += [compliance_lines(plan.compliance)] if plan.compliance else []
    return blocks
