"""Spares are what costs least where an hour down has a price, or what goals ask for; screens say which."""

from collections.abc import Callable

import pytest

from twofold.contracts.results.plan import Plan
from twofold.report.decision import decision_lines
from twofold.report.money import money_lines

Planned = Callable[[str], Plan]
SPEC = """
name: spares
model: llama-3.1-8b
serving:
  AVAILABLE
  classes:
    chat: {traffic: {rate: 200 /s, input: 900 tok, output: 200 tok}, slo: {ttft_p95: 1 s}}
supply: {shop: {accelerators: [H100-SXM]}, economics: {PRICE}}
"""


def spec(price: str = "", available: str = "") -> str:
    downtime = f"downtime_cost: {price} $/h" if price else ""
    return SPEC.replace("PRICE", downtime).replace("AVAILABLE", available)


@pytest.mark.parametrize("price", ["2000", "50000", "1000000"])
def test_what_is_planned_is_what_the_table_calls_best(planned: Planned, price: str) -> None:
    plan = planned(spec(price, "availability: 90 %"))
    (best,) = (step for step in plan.money.services[0].spares if step.best)
    assert best.planned and plan.serving[0].spare_count == best.spare_count > 0
    assert "an hour down" in plan.serving[0].spare_reason and "an hour down" in "\n".join(
        decision_lines(plan)
    )


def test_a_dearer_hour_takes_no_fewer_spares_and_a_goal_is_kept(planned: Planned) -> None:
    counts = [planned(spec(price)).serving[0].spare_count for price in ("", "1", "50000", "1000000")]
    assert counts == sorted(counts) and counts[0] == counts[1] < counts[-1]
    cheap = planned(spec("1"))
    assert "99.9 % available" in cheap.serving[0].spare_reason
    assert "its goals ask for them" in " ".join("\n".join(money_lines(cheap.money)).split())


def test_an_hour_that_nobody_priced_buys_nothing_and_says_so(planned: Planned) -> None:
    plan = planned(spec(available="availability: 90 %"))
    text = " ".join("\n".join(money_lines(plan.money)).split())
    assert plan.serving[0].spare_count < next(
        each.spare_count for each in plan.money.services[0].spares if each.best
    )
    assert "write `downtime_cost` to plan by it" in text
