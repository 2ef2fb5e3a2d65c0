"""Who does what of each run, by what was solved: not by hours of machines that do other work as well."""

import pytest

from twofold.portfolio.problem import Campaign, CampaignOption, CapacityOffer, PortfolioProblem
from twofold.portfolio.solve import solve
from twofold.portfolio.solved import PortfolioCase, SolvedPortfolio
from twofold.portfolio.tables import leases

WHERE = ("prov", "machines", "H100-SXM5-80GB", 8, "")


def solved(name: str, dense: bool) -> SolvedPortfolio:
    """A run that takes place twice at once; one's own machines have room for one of them."""
    own = CapacityOffer("own", *WHERE, "owned", "owned", 0.0, 52, 4, 0.0, 0.0, 0.0, 0.0, "spec", "2026")
    rented = CapacityOffer(
        "rented",
        *WHERE,
        "on_demand",
        "virtual",
        10.0,
        0,
        None,
        0.0,
        0.0,
        0.0,
        0.0,
        "a list",
        "2026",
    )
    options = (CampaignOption("own", 4, 600.0), CampaignOption("rented", 2, 1000.0))
    runs = tuple(Campaign(f"{name} {number}", 0, 6, options, dense=dense) for number in (1, 2))
    problem = PortfolioProblem((own, rented), (), (), runs, (), week_count=8)
    answer = solve(problem)
    assert answer is not None
    return SolvedPortfolio(PortfolioCase(problem), answer)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "may pause"])
def test_a_name_may_end_in_a_digit(dense: bool) -> None:
    assert all("tune2" in lease.what for lease in leases(solved("tune2", dense)))
