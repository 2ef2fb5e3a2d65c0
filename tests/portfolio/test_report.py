"""What is said about a portfolio is checked first: one that breaks its own rules is our bug."""

from dataclasses import replace
from typing import Any

import pytest

from twofold.contracts.results.ledger import LineItem
from twofold.core.errors import TwofoldError
from twofold.portfolio.check import paid_usd
from twofold.portfolio.problem import Campaign, CampaignOption, CapacityOffer, PortfolioProblem
from twofold.portfolio.report import bill, portfolio_of
from twofold.portfolio.solve import solve
from twofold.portfolio.solved import PortfolioCase, SolvedPortfolio
from twofold.portfolio.tables import leases


def test_an_answer_that_breaks_a_rule_is_an_error_of_ours_with_the_rule_in_words() -> None:
    where = ("prov", "machines", "H100-SXM5-80GB", 8, "", "on_demand", "virtual")
    offer = CapacityOffer("machines", *where, 10.0, 0, None, 0.0, 0.0, 0.0, 0.0, "a list", "2026")
    run = Campaign("base", 2, 8, (CampaignOption("machines", 4, 600.0),))
    problem = PortfolioProblem((offer,), (), (), (run,), ())
    answer = solve(problem)
    assert answer is not None
    broken = SolvedPortfolio(PortfolioCase(problem), replace(answer, placements=()))
    context: Any = None  # never reached
    with pytest.raises(TwofoldError, match=r"our bug.*base: placed 0 times") as caught:
        portfolio_of(broken, context)
    assert (caught.value.code, caught.value.exit_code) == ("E-internal", 1)


TAX = 0.19


def solved() -> SolvedPortfolio:
    where = ("prov", "machines", "H100-SXM5-80GB", 8, "", "on_demand", "virtual")
    offer = CapacityOffer("machines", *where, 10.0, 0, None, 0.0, 0.0, 0.05, 0.1, "a list", "2026")
    run = Campaign("base", 2, 8, (CampaignOption("machines", 4, 600.0, extra_usd=50.0),))
    problem = PortfolioProblem((offer,), (), (), (run,), ())
    answer = solve(problem)
    assert answer is not None
    return SolvedPortfolio(PortfolioCase(problem), answer)


def lines(case: SolvedPortfolio, tax_fraction: float) -> tuple[LineItem, ...]:
    return bill(case, leases(case), tax_fraction)


def test_before_tax_the_lines_are_what_the_portfolio_costs() -> None:
    case = solved()
    paid = paid_usd(case.problem, case.answer)
    assert paid == pytest.approx(24000 * 0.9 * 1.05 + 50)
    assert sum(line.total_usd for line in lines(case, 0.0)) == pytest.approx(paid)


def test_tax_is_on_every_line_after_discount_and_once() -> None:
    case = solved()
    taxed, bare = lines(case, TAX), lines(case, 0.0)
    assert taxed[1].source == "machines: economics.csv support"
    assert {line.category for line in taxed} == {"rent", "support", "egress"}
    for with_tax, without in zip(taxed, bare, strict=True):
        assert with_tax.tax_usd == pytest.approx(TAX * without.total_usd, abs=0.01)
        assert replace(with_tax, tax_usd=0.0, total_usd=without.total_usd) == without
