"""A budget that is a little too small: figures that differ, and one that fits."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import MissedGoal, ReplicaNeed
from twofold.core.display import format_enough
from twofold.core.errors import InfeasibleError
from twofold.money.first_year import check_budget

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


@pytest.mark.parametrize(("grown_usd", "fits"), [(900.0, True), (100.0, False)])
def test_what_a_rehearsal_let_grow_beyond_the_budget_names_the_goal_that_would_fit(
    planned: Callable[[str], Plan], grown_usd: float, fits: bool
) -> None:
    """As it was before, where that is within the budget: else no looser goal helps."""
    plan = planned(CLOSE.replace("BUDGET", ""))
    assert plan.first_year_usd
    miss = MissedGoal("chat", "tpot_p95", 0.0513, 0.05)
    need = ReplicaNeed("chat", "H100", "cudo", 1, 1, 2, 1, (miss,), (miss,), None, None, grown_usd)
    (service,) = plan.serving
    said = f"rehearsed: 1 × 1 H100 without spares misses chat {miss.text} at the peak; planned: 2 × 1 H100"
    grown = replace(service, replica_needs=(need,), warnings=(*service.warnings, said))
    with pytest.raises(InfeasibleError) as refused:
        check_budget(replace(plan, serving=(grown,)), plan.first_year_usd.value - 500.0)
    lines = dict(refused.value.lines)
    assert "misses chat TPOT p95 (51 of 50 ms)" in lines["rehearsed"]
    assert ("TPOT p95 ≤ 51.3 ms for `chat`" in lines["would fit"]) == fits
