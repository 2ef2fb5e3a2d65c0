"""The requirement row of area `metrics`: communication that nothing hides."""

from collections.abc import Callable
from typing import Any

import pytest

COMMUNICATION = {"TP", "CP", "EP", "PP", "DP"}


def test_r_145_every_plan_shows_its_exposed_communication(
    plans: dict[str, Any], ask: Callable[[str], Any]
) -> None:
    """On the plan's own screen; the summary page of many plans is report's."""
    for name, plan in plans.items():
        halves = (*plan["training"], *plan["serving"])
        screen = " ".join(ask(f"twofold plan examples/{name} --full").out.split())
        assert screen.count("exposed communication ") == len(halves), name
        for run in plan["training"]:
            parts = [part["share_fraction"] for part in run["step_parts"] if part["name"] in COMMUNICATION]
            assert run["communication_exposed_fraction"] == pytest.approx(sum(parts), abs=1e-9)
        for half in halves:
            assert 0 <= half["communication_exposed_fraction"] < 1
    assert plans["moe"]["training"][0]["communication_exposed_fraction"] > 0.02
