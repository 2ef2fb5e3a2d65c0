"""The requirement rows of area `cost`: bills, tokens, hosted against own, owned against rented, levers."""

from itertools import pairwise
from typing import Any

import pytest

HOURS_PER_YEAR, YEARS = 8760.0, 5


def cents(lines: list[dict[str, Any]]) -> int:
    return sum(round(line["total_usd"] * 100) for line in lines)


def test_r_109_the_volume_from_which_ones_own_fleet_costs_less_than_an_api_is_printed(
    data: Any, screen: str
) -> None:
    """A run and a fleet against the cheapest dated price of the same model for the same mix of tokens."""
    api = data["money"]["services"][0]["api"]
    assert api["same_model"] and api["model"] == "llama-3.1-405b" and api["date"].startswith("2026")
    volume, fixed = api["break_even_mtok_per_month"], api["once_usd"] / (YEARS * 12)
    slope = api["own_usd_per_year"] / (api["mtok_per_month"] * 12)
    own = max(api["least_own_usd_per_month"], slope * volume) + fixed
    assert own == pytest.approx(api["usd_per_mtok"] * volume, rel=1e-6)
    run = [line for line in data["money"]["lines"] if line["what"].startswith("finetune:")]
    assert api["once_usd"] == pytest.approx(cents(run) / 100)  # with its discount, tax, support and storage
    own_lines = [line for line in data["money"]["lines"] if line["what"].startswith("serve:")]
    assert api["own_usd_per_year"] == pytest.approx(cents(own_lines) / 100)
    saved = (api["api_usd_per_year"] - api["own_usd_per_year"]) / 12
    assert api["pays_back_months"] == pytest.approx(api["once_usd"] / saved)
    assert api["pays_back_date"] > "2026-11-21"
    assert "own is cheaper from" in screen


def test_r_129_owning_adds_up_from_capital_energy_network_storage_staff_and_cooling(data: Any) -> None:
    owning = data["money"]["owning"]
    lines = owning["lines"]
    kinds = {line["category"] for line in lines}
    assert {"capex", "energy", "cooling", "storage", "staff", "facility", "financing"} <= kinds
    assert any(line["what"].startswith("network") for line in lines)
    assert cents(lines) == round(owning["owned_usd"] * 100)
    assert all(line["source"] and line["date"] for line in lines)
    for line in lines:
        gross = line["quantity"] * line["unit_usd"]
        assert line["total_usd"] == pytest.approx(gross - line["discount_usd"] + line["tax_usd"], abs=0.011)
    assert {"training", "serving"} <= {row["name"].rsplit(", ", 1)[1] for row in owning["crossings"]}


def test_r_130_training_over_serving_stands_beside_what_is_claimed(data: Any, screen: str) -> None:
    rows = {row["name"]: row for row in data["money"]["ratios"]}
    claims = {"per accelerator, bought": (3, 5), "whole build": (5, 10), "lifetime": (1.5, 3)}
    assert {name: (row["claimed_low"], row["claimed_high"]) for name, row in rows.items()} == claims
    for name, row in rows.items():
        pair = row["training_usd"], row["serving_usd"]
        over, under = pair[::-1] if name == "lifetime" else pair
        assert row["ratio"] == pytest.approx(over / under)
        side = "below" if row["ratio"] < row["claimed_low"] else "above"
        assert row["verdict"] in (side, "within") and row["inputs"]
        assert (row["verdict"] == "within") == (row["claimed_low"] <= row["ratio"] <= row["claimed_high"])
    assert "hall" not in rows["per accelerator, bought"]["inputs"]  # servers and network alone
    assert "claimed:" in screen


def test_r_131_a_query_and_a_thousand_tokens_of_each_size_carry_their_promise(data: Any) -> None:
    services = data["money"]["services"]
    assert [service["name"] for service in services] == ["small", "middle", "large"]
    prices = []
    for service in services:
        (chat,) = service["classes"]
        assert "TTFT p95 ≤ 1.5 s" in chat["slo"] and "TPOT p95 ≤ 60 ms" in chat["slo"]
        tokens = chat["tokens_per_day"] / chat["queries_per_day"]
        for end in ("low", "value", "high"):
            per_query = chat["usd_per_query"][end]
            assert chat["usd_per_1k_tokens"][end] == pytest.approx(per_query * 1e3 / tokens)
            assert chat["usd_per_mtok"][end] == pytest.approx(per_query * 1e6 / tokens)
        yearly = next(each for each in data["serving"] if each["name"] == service["name"])
        spent = chat["usd_per_query"]["value"] * chat["queries_per_day"] * 365
        assert spent == pytest.approx(yearly["cost_usd_per_year"]["value"], rel=1e-6)
        prices.append(chat["usd_per_1k_tokens"]["value"])
    assert prices == sorted(prices) and prices[-1] > 5 * prices[0]


def test_r_132_spend_over_requests_a_day_crosses_the_run_on_a_day(data: Any) -> None:
    (run,) = data["money"]["runs"]
    cost = data["training"][0]["cost_usd"]["value"]
    curve = run["curve"]
    assert run["served_by"] == "serve" and len(curve) >= 5
    for step in curve:
        assert step["crossing_days"] == pytest.approx(cost / (step["serving_usd_per_year"] / 365))
    for earlier, later in pairwise(curve):
        assert later["requests_per_day"] > earlier["requests_per_day"]
        assert later["serving_usd_per_year"] >= earlier["serving_usd_per_year"]
        assert later["crossing_days"] <= earlier["crossing_days"]
    assert run["crossing_date"] > "2026-11-21"


def test_r_133_levers_are_ranked_by_what_they_save(data: Any) -> None:
    levers = data["money"]["detail"]["levers"]
    savings = [row["saves_usd_per_year"] for row in levers]
    assert savings == sorted(savings, reverse=True)
    found = {row["name"] for row in levers}
    assert {"quantise", "batch", "cache", "speculate", "distil", "source", "utilise"} <= found
    assert {"input", "checkpoint", "layout"} <= found
    assert {row["pulled"] for row in levers} == {"in use", "open"}
    assert all(row["how"] for row in levers)
    by_name = {(row["name"], row["of"], row["pulled"]): row for row in levers}
    assert by_name["quantise", "serve", "in use"]["saves_usd_per_year"] > 0
    assert by_name["batch", "serve", "in use"]["saves_fraction"] > 0.2


def test_r_134_the_spares_that_cost_least_with_their_outages_are_marked(data: Any) -> None:
    service = data["money"]["services"][0]
    steps = service["spares"]
    assert service["downtime_usd_per_h"] == 20_000 and "spec" in service["downtime_source"]
    for step in steps:
        hours = (1 - step["available_fraction"]) * HOURS_PER_YEAR
        assert step["outage_h_per_year"] == pytest.approx(hours)
        assert step["outage_usd_per_year"] == pytest.approx(hours * 20_000)
        both = step["fleet_usd_per_year"] + step["outage_usd_per_year"]
        assert step["total_usd_per_year"] == pytest.approx(both)
    (best,) = (step for step in steps if step["best"])
    assert best["total_usd_per_year"] == min(step["total_usd_per_year"] for step in steps)
    assert sum(step["planned"] for step in steps) == 1
    worth = [nine["worth_usd_per_year"] for nine in service["nines"]]
    assert worth == sorted(worth, reverse=True) and worth[0] == pytest.approx(78.84 * 20_000)


def test_r_135_an_input_that_is_too_large_becomes_a_smaller_shape_with_the_same_promise(
    data: Any,
) -> None:
    shapes = {row["name"]: row for row in data["money"]["detail"]["shapes"]}
    assert set(shapes) == {"finetune", "serve"}
    for row in shapes.values():
        assert row["freed_accelerator_count"] > 0
    assert shapes["finetune"]["freed_accelerator_count"] == 24
    served = data["serving"][0]
    freed = shapes["serve"]["freed_accelerator_count"]
    assert freed < served["machine"]["accelerator_count"]
    assert shapes["serve"]["saves_usd_per_year"] == pytest.approx(
        served["cost_usd_per_year"]["value"] * freed / served["machine"]["accelerator_count"]
    )
    assert "of 10.0 d" in shapes["finetune"]["keeps"]


def test_r_136_the_same_plan_is_shown_owned_and_rented_with_its_cash(data: Any) -> None:
    owning, cash = data["money"]["owning"], data["money"]["owning"]["cash"]
    assert [row["year"] for row in cash] == list(range(1, owning["years"] + 1))
    for name in ("owned", "rented"):
        spent = sum(round(row[f"{name}_usd"] * 100) for row in cash)
        assert spent == round(owning[f"{name}_usd"] * 100)
        assert owning[f"{name}_present_usd"] < owning[f"{name}_usd"]
    for row in cash:
        parts = row["capex_usd"] + row["financing_usd"] + row["opex_usd"] - row["resale_usd"]
        assert row["owned_usd"] == pytest.approx(parts, abs=0.011)
    assert all(row["resale_usd"] == 0 for row in cash[:-1])
    (run,) = data["training"]  # it does not repeat: paid for in the first year alone
    bill = data["money"]["lines"]
    later = cents([line for line in bill if not line["what"].startswith(f"{run['name']}: ")])
    rented = [round(row["rented_usd"] * 100) for row in cash]
    assert rented == [cents(bill), *[later] * (owning["years"] - 1)] and later < cents(bill)
