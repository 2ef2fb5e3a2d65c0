"""The requirement rows of area `bottleneck`: what binds, where rooflines bend, where more stops paying."""

import re
from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[[str], Any]


def test_r_165_every_plan_names_what_binds_it_and_the_gain_of_20_percent_more(
    plans: dict[str, Any], ask: Ask
) -> None:
    for name, plan in plans.items():
        halves = (*plan["training"], *plan["serving"])
        screen = ask(f"twofold plan examples/{name} --full").out
        assert len(re.findall(r"^  bound by  ", screen, re.MULTILINE)) == len(halves)
        for half in halves:
            gains = [bound["gain_fraction"] for bound in half["bounds"]]
            assert gains and gains == sorted(gains, reverse=True), half["name"]
            assert gains[0] > 0, half["name"]
    (run,) = plans["assistant"]["training"]
    assert run["bounds"][0]["resource"] == "compute"
    share = sum(
        part["share_fraction"]
        for part in run["step_parts"]
        if part["name"] in ("compute", "recompute", "head")
    )
    assert run["bounds"][0]["gain_fraction"] <= share * (1 - 1 / 1.2) + 0.01  # no more than its share


@pytest.mark.parametrize(("device", "ridge"), [("8xH100-SXM", 295), ("8xH200", 206)])
def test_r_166_rooflines_bend_at_295_and_206_flop_per_byte(
    device: str, ridge: int, command: str, ask: Ask
) -> None:
    """Dense bf16 peak over memory bandwidth, both as the vendor states them."""
    line = command.replace("8xH200", device)
    data, screen = ask(f"{line} --json").data, ask(line).out
    assert round(data["ridge_flops_per_byte"]) == ridge
    assert f"{ridge} FLOP/B" in screen and "╱" in screen
    points = {point["name"]: point for point in data["points"]}
    for kind in ("training", "prefill", "decode"):
        assert any(name.startswith(kind) for name in points)
    for point in points.values():
        roof = min(data["peak_flops_per_s"], point["flops_per_byte"] * data["memory_bytes_per_s"])
        assert point["flops_per_s"] == pytest.approx(roof)
        assert point["bound"] == (
            "compute" if point["flops_per_byte"] >= data["ridge_flops_per_byte"] else "memory bandwidth"
        )
    assert points["decode, batch 1"]["flops_per_byte"] == pytest.approx(1, rel=0.2)
    measured = data["measured"]  # and what was timed on this part, under the roof on both sides of the ridge
    sides = [point["flops_per_byte"] >= data["ridge_flops_per_byte"] for point in measured]
    assert len(measured) >= 8 and {True, False} == set(sides) and sides == sorted(sides)
    for point in measured:
        roof = min(data["peak_flops_per_s"], point["flops_per_byte"] * data["memory_bytes_per_s"])
        assert point["flops_per_s"] == pytest.approx(roof * point["roof_fraction"])
        assert 0.3 < point["roof_fraction"] < 1 and point["source"]
    plotted = [line for line in screen.splitlines() if "│" in line]
    assert sum(line.count("•") for line in plotted) >= 8
    assert all(f"•  {point['name']}" in screen for point in measured)


def test_r_167_bandwidth_and_capacity_are_told_apart(data: Any, screen: str, command: str, ask: Ask) -> None:
    assert data["batch_limit"] == "bandwidth" and "limited by bandwidth" in screen
    line = command.replace("4xH200", "2xH100-SXM").replace("--concurrency 64", "--concurrency 16")
    tight = ask(f"{line} --json").data
    assert tight["batch_limit"] == "capacity" and "limited by capacity" in ask(line).out
    assert tight["max_sequences"]["value"] < data["max_sequences"]["value"]


def test_r_169_strong_scaling_marks_where_efficiency_falls_below_half(data: Any, screen: str) -> None:
    rungs = [rung for rung in data["ladders"][1]["rungs"] if "efficiency_fraction" in rung["values"]]
    counts = [rung["values"]["accelerator_count"] for rung in rungs]
    below = [rung["values"]["efficiency_fraction"]["value"] < 0.5 for rung in rungs]
    assert counts == sorted(counts) and True in below and False in below
    first = below.index(True)
    assert all(below[first:])
    assert [rung["note"].startswith("below 50 %") for rung in rungs].index(True) == first
    assert f"efficiency falls below 50 % at {counts[first]:,} accelerators" in screen
