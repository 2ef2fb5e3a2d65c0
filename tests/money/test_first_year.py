"""A budget that is a little too small: figures that differ, and one that fits."""

from collections.abc import Callable

from twofold.contracts.results.plan import Plan
from twofold.core.display import format_enough
from twofold.core.errors import InfeasibleError

CLOSE = """
name: flat
model: llama-3.1-8b
serving:
  name: desk
  zones: 1
  availability: 99 %
  classes:
    chat:
      traffic: {rate: 20 /s, peak: 1x, input: {mean: 400 tok, p95: 1200 tok}, output: {mean: 80 tok}}
      slo: {ttft_p95: 600 ms, tpot_p95: 50 ms}
supply: {BUDGETeconomics: {tax: 2 %}, shop: {accelerators: [H100-SXM], providers: [cudo]}}
"""


def test_a_budget_that_is_a_little_too_small_is_told_apart_from_one_that_fits(
    planned: Callable[[str], Plan], refused: Callable[[str], InfeasibleError]
) -> None:
    error = refused(CLOSE.replace("BUDGET", "budget: 16 k$, "))
    lines = dict(error.lines)
    assert error.message.endswith("16.0 k$") and lines["needs"].startswith("16.3 k$ in the first year")
    assert "portfolio" not in lines  # there is none within the budget: what it leaves out is no offer
    fits = lines["would fit"].split(" · ")[0].removeprefix("a budget of ")
    plan = planned(CLOSE.replace("BUDGET", f"budget: {fits}, "))
    assert plan.first_year_usd and fits == format_enough(plan.first_year_usd.value, "USD")
