"""The block PORTFOLIO is as wide as a screen, and says what is missing."""

from typing import Any

from twofold.app.screen_portfolio import portfolio_lines
from twofold.contracts import FleetOption, Lease, MonthDemand, Portfolio, YearScenario

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


def test_the_gap_and_a_contradiction_are_said() -> None:
    assert "at most 1 % above the cheapest" in " ".join(portfolio_lines(portfolio()))
    assert "the cheapest" in portfolio_lines(portfolio(gap_fraction=0.0))[0]
    assert "cannot all be met: budget" in " ".join(portfolio_lines(portfolio(conflict=("budget",))))


def test_a_year_that_is_too_much_is_told_with_its_months() -> None:
    year = YearScenario("peak season", None, None, None, "Nov: 8 accelerators; options: more of us")
    assert "peak season: too little, Nov: 8 accelerators" in " ".join(
        portfolio_lines(portfolio(scenarios=(year,)))
    )
