"""What is said about a portfolio is checked first: one that breaks its own rules is our bug."""

from dataclasses import replace
from typing import Any

import pytest

from twofold.core import TwofoldError
from twofold.portfolio.problem import Campaign, CampaignOption, CapacityOffer, PortfolioProblem
from twofold.portfolio.report import portfolio_of
from twofold.portfolio.solve import solve
from twofold.portfolio.solved import PortfolioCase, SolvedPortfolio


def test_an_answer_that_breaks_a_rule_is_an_error_of_ours_with_the_rule_in_words() -> None:
    where = ("prov", "machines", "H100-SXM5-80GB", 8, "", "on_demand", "virtual")
    offer = CapacityOffer("machines", *where, 10.0, 0, None, 0.0, 0.0, 0.0, 0.0, "a list", "2026", "vendor")
    run = Campaign("base", 2, 8, (CampaignOption("machines", 4, 600.0),))
    problem = PortfolioProblem((offer,), (), (), (run,), ())
    answer = solve(problem)
    assert answer is not None
    broken = SolvedPortfolio(PortfolioCase(problem), replace(answer, placements=()))
    context: Any = None  # never reached
    with pytest.raises(TwofoldError, match=r"our bug.*base: placed 0 times") as caught:
        portfolio_of(broken, context)
    assert (caught.value.code, caught.value.exit_code) == ("E-internal", 1)
