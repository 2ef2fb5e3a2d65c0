from collections.abc import Callable

from twofold.contracts import Plan

EDGE = """
name: edge
serving:
  model: llama-2-13b
  quantisation: [fp8]
  classes:
    chat:
      traffic: {rate: 8 /s, peak: 2x, input: {mean: 700 tok}, output: {mean: 250 tok}}
      slo: {ttft_p95: 600 ms, tpot_p95: 3 ms}
"""


def test_a_goal_at_the_edge_of_physics_does_not_multiply_the_cost_without_end(
    planned: Callable[[str], Plan],
) -> None:
    (service,) = planned(EDGE).serving
    cost, (chat,) = service.cost_usd_per_year, service.classes
    assert cost and cost.high > 2 * cost.value  # many draws miss the goal, and the range says so
    assert cost.high < 15 * cost.value
    assert chat.holds_until_per_s.low > chat.holds_until_per_s.value / 15
