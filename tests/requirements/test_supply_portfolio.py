"""Rows that the portfolio answers: what to hold, rent, share and release over a year."""

from typing import Any

import pytest

PORTFOLIO = "twofold plan examples/portfolio"


def test_r_067_mixed_accelerators_cost_no_more_than_the_best_alone(data: Any, screen: str) -> None:
    """Mixed fleet cost ≤ best single-SKU cost, or the report says no gain."""
    rules = {row["rule"]: row for row in data["portfolio"]["restrictions"]}
    kinds = {lease["accelerator"] for lease in data["portfolio"]["leases"]}
    assert len(kinds) > 1
    assert rules["one platform"]["usd"] >= data["portfolio"]["usd"]
    assert "one platform: " in screen


def test_r_092_one_table_holds_cost_promises_deadline_and_the_load_at_which_it_turns(
    data: Any, screen: str
) -> None:
    options = {row["name"]: row for row in data["portfolio"]["options"]}
    assert list(options) == ["portfolio", "one cluster", "dedicated fleets"]
    for name in ("one cluster", "dedicated fleets"):
        saved = 1 - options["portfolio"]["usd"] / options[name]["usd"]
        assert options[name]["saving_fraction"] == pytest.approx(saved)
    assert (
        options["one cluster"]["break_even_ratio"] is None or options["one cluster"]["break_even_ratio"] > 0
    )
    assert all(word in screen for word in ("SLO", "deadline", "saved", "turns at"))


def test_r_098_nightly_work_goes_where_it_is_cheap_and_waiting_users_where_it_is_near(data: Any) -> None:
    """The plan splits traffic and shows cost against latency."""
    rows = data["portfolio"]["served"]
    waiting = [row for row in rows if "chat@" in row["demand"]]
    nightly = [row for row in rows if row["demand"].endswith("nightly")]
    assert {row["demand"].split("@")[1] for row in waiting} == {"aws:us-east-1", "aws:eu-central-1"}
    assert all(row["p95_s"] <= 0.3 and row["p95_s"] > row["rtt_s"] for row in waiting)
    main = max(nightly, key=lambda row: row["share_fraction"])
    assert main["usd_per_million"] < min(row["usd_per_million"] for row in waiting) * 2
    assert main["p95_s"] is None
    for demand in {row["demand"] for row in rows}:
        assert sum(row["share_fraction"] for row in rows if row["demand"] == demand) == pytest.approx(
            1, abs=1e-3
        )


def test_r_102_several_providers_together_are_cheaper_than_the_best_one(data: Any, screen: str) -> None:
    providers = {lease["provider"] for lease in data["portfolio"]["leases"]}
    (rule,) = [row for row in data["portfolio"]["restrictions"] if row["rule"] == "one provider"]
    assert len(providers) >= 2 and rule["extra_fraction"] > 0
    assert "one provider: " in screen


def test_r_103_a_window_is_cheaper_than_a_year_and_says_when_it_ends(data: Any, screen: str) -> None:
    (window,) = data["portfolio"]["windows"]
    assert window["usd"] < window["year_usd"]
    assert window["start"] >= "2027-03-01" and window["release"] <= "2027-04-26"
    assert f"on {window['release']}" in screen


def test_r_104_offers_are_ranked_by_bandwidth_and_tokens(data: Any, screen: str) -> None:
    ranks = [row["usd_per_h_per_tb_s"] for row in data["portfolio"]["ranking"]]
    assert ranks == sorted(ranks) and len(ranks) > 3
    best = data["portfolio"]["ranking"][0]
    assert best["used"] and best["usd_per_million"] > 0
    assert "$/h per TB/s" in screen and "with egress" in " ".join(screen.split())


def test_r_105_fewer_platforms_cost_what_the_rule_says(data: Any, screen: str) -> None:
    """The option limits the number of platforms and shows what that costs."""
    assert len({lease["accelerator"] for lease in data["portfolio"]["leases"]}) == 1
    (rule,) = [row for row in data["portfolio"]["restrictions"] if "platforms" in row["rule"]]
    assert rule["extra_fraction"] <= 1e-9 and rule["usd"] <= data["portfolio"]["usd"] * (1 + 1e-9)
    assert "any number of platforms: " in screen


def test_r_106_reserved_and_hourly_parts_have_the_use_at_which_they_cross(data: Any, screen: str) -> None:
    split = {row["accelerator"]: row for row in data["portfolio"]["splits"]}["H200-SXM5-141GB"]
    assert split["reserved_unit_h"] > 0 and split["hourly_unit_h"] > 0
    assert 0 < split["break_even_fraction"] < 1
    assert "pays above" in screen


def test_r_107_one_roadmap_makes_two_bills_of_materials(data: Any, screen: str) -> None:
    halves = {row["half"] for row in data["portfolio"]["materials"]}
    assert halves == {"training", "serving"}
    assert "to buy     training: " in screen and "serving: " in screen


def test_r_122_the_calendar_marks_months_that_are_short(data: Any, screen: str) -> None:
    months = {row["label"]: row["shortage_count"] for row in data["portfolio"]["calendar"]}
    assert [label for label, missing in months.items() if missing] == ["Nov 2027", "Dec 2027"]
    assert "SHORT of" in screen and "class serve.chat" in data["portfolio"]["conflict"]


def test_r_123_a_busier_year_names_the_dates_of_shortage_and_options(data: Any, screen: str) -> None:
    (peak,) = [row for row in data["portfolio"]["scenarios"] if row["name"].startswith("+30 %")]
    assert peak["regret_usd"] is None and "2027" in peak["short"] and "options" in peak["short"]
    assert not any(row["shortage_count"] for row in data["portfolio"]["calendar"])
    assert "too little" in screen
