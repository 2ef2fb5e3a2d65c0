"""The block PORTFOLIO is as wide as a screen, and says what is missing."""

from dataclasses import replace
from typing import Any

from twofold.contracts.results.holdings import (
    FleetOption,
    Lease,
    MonthDemand,
    Portfolio,
    YearScenario,
)
from twofold.report.portfolio import portfolio_lines, portfolio_tables

LEASE = Lease(
    "us h200 on_demand",
    "us",
    "H200-SXM5-141GB",
    8,
    "on_demand",
    "serving",
    "chat",
    3,
    0,
    52,
    "",
    9000.0,
    0.9,
    1e5,
)


def portfolio(**changes: Any) -> Portfolio:
    empty = dict.fromkeys(
        [
            "served",
            "calendar",
            "options",
            "materials",
            "ranking",
            "windows",
            "splits",
            "restrictions",
            "scenarios",
            "conflict",
            "items",
            "notes",
        ],
        (),
    )
    values = {
        "start": "", "weeks": 52, "usd": 1e5, "bound_usd": 9.9e4, "gap_fraction": 0.01, "finished": True,
        "offers_count": 12, "kept_count": 3, "owed_usd": 0.0, "leases": (LEASE,),
    }  # fmt: skip
    return Portfolio(**(values | empty | changes))


def test_every_line_fits_the_screen() -> None:
    option = FleetOption(
        "one cluster", "64 × 8 H100-SXM5-80GB, all year at list price", 1e7, "met", "on time", 0.5, 2.0
    )
    lines = portfolio_lines(portfolio(options=(option,) * 3, notes=("time was up " * 12,)))
    assert max(map(len, lines)) <= 100


def test_months_that_are_short_are_marked_and_equal_months_stand_together() -> None:
    months = tuple(MonthDemand(name, 0, 40, 64, 0, "") for name in ("Jan", "Feb", "Mar"))
    text = " ".join(
        portfolio_lines(portfolio(calendar=(*months, MonthDemand("Apr", 0, 72, 64, 8, "chat short"))))
    )
    assert "Jan–Mar 0 + 40" in text and "Apr 0 + 72 SHORT of 8" in text


def test_a_contradiction_is_said() -> None:
    assert "cannot all be met: budget" in " ".join(portfolio_lines(portfolio(conflict=("budget",))))


def test_what_leaves_a_run_out_is_compared_with_nothing() -> None:
    """A mix without the run was "47 % cheaper" than fleets with it."""
    fleets = tuple(FleetOption(name, "", 1e6, "met", "on time", 0.5, None) for name in ("portfolio", "apart"))
    whole, short = (
        " ".join(portfolio_lines(portfolio(conflict=conflict, options=fleets)))
        for conflict in ((), ("run pretrain",))
    )
    assert "cheaper" in whole and "in fractions of units" in whole
    assert "cheaper" not in short and "in fractions of units" not in short


def test_a_year_that_is_too_much_is_told_with_its_months() -> None:
    year = YearScenario("peak season", None, None, None, "Nov: 8 accelerators; options: more of us")
    assert "peak season: too little, Nov: 8 accelerators" in " ".join(
        portfolio_lines(portfolio(scenarios=(year,)))
    )


def test_what_does_not_decide_stands_in_the_tables_of_details() -> None:
    calm = MonthDemand("Jan", 0, 40, 64, 0, "")
    fine = YearScenario("hours +25 % dearer", 2e5, 2e5, 0.0, "")
    part = portfolio(calendar=(calm,), scenarios=(fine,))
    assert not [line for line in portfolio_lines(part) if "calendar" in line or "dearer" in line]
    text = "\n".join(portfolio_tables(part)[0])
    assert "Jan 0 + 40" in text and "hours +25 % dearer: 0.20 M$, no regret" in text


def test_leases_of_a_run_that_repeats_stand_together_with_their_sum() -> None:
    runs = tuple(
        replace(LEASE, what=f"monthly {number}", start_week=4 * number, release="back", usd=1e3)
        for number in (1, 2, 3)
    )
    (row,) = (line for line in portfolio_lines(portfolio(leases=runs)) if "monthly" in line)
    assert "weeks 5, 9, 13" in row and "3.0 k$" in row


def test_runs_whose_names_end_in_a_digit_keep_their_rows() -> None:
    leases = tuple(replace(LEASE, what=name, release="2027-01-01") for name in ("tune1", "tune2"))
    text = "\n".join(portfolio_lines(portfolio(leases=leases)))
    assert "tune1" in text and "tune2" in text


def test_it_is_called_another_way_and_not_held_against_whole_replicas() -> None:
    """It said by how much it was cheaper, of capacity that knows neither confidence nor whole replicas."""
    head = " ".join(portfolio_lines(portfolio())[:2])
    assert head.startswith("INSTEAD      a mix of leases") and "in fractions of units" in head
    assert "less" not in head
