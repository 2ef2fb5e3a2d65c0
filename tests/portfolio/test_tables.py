"""Who does what of each run, by what was solved: not by hours of machines that do other work as well."""

from collections import Counter
from dataclasses import replace

import pytest

from twofold.portfolio.problem import Campaign, CampaignOption, CapacityOffer, PortfolioProblem
from twofold.portfolio.solve import solve
from twofold.portfolio.solved import PortfolioCase, SolvedPortfolio
from twofold.portfolio.tables import leases, trained_shares

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
def test_the_shares_of_a_run_are_of_its_work_and_sum_to_all_of_it(dense: bool) -> None:
    case = solved("tune2", dense)
    found = {(row.run, row.offer): row.share_fraction for row in trained_shares(case)}
    assert {run for run, _ in found} == {"tune2"}  # a name may end in a digit
    assert sum(found.values()) == pytest.approx(1.0)
    done: Counter[str] = Counter()
    for each in case.answer.placements:
        done[each.option.offer] += 0.5
    for part in case.answer.portions:
        done[part.option.offer] += 0.5 * part.done_fraction
    assert {offer: share for (_, offer), share in found.items()} == pytest.approx(dict(done))
    assert all("tune2" in lease.what for lease in leases(case))


def test_half_of_the_times_of_a_run_is_half_of_its_work_whatever_the_hours() -> None:
    """Hours would say 2,400 of 4,400: machines that are fewer take longer."""
    found = {row.offer: row.share_fraction for row in trained_shares(solved("base", dense=True))}
    assert found == pytest.approx({"own": 0.5, "rented": 0.5})


def test_what_an_offer_does_next_to_nothing_of_is_no_row() -> None:
    case = solved("base", dense=False)
    (first, *others) = case.answer.portions
    least = replace(first, done_fraction=1e-6)
    answer = replace(case.answer, portions=(least, *others))
    kept = trained_shares(replace(case, answer=answer))
    assert all(row.share_fraction > 1e-3 for row in kept)
