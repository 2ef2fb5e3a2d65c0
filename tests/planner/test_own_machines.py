"""Machines of one's own: what `on:` names binds on every screen, and they are there from the first week."""

from collections.abc import Callable

import pytest

from twofold.contracts.results.plan import Confidence, Plan
from twofold.core.quantity import DAY_S
from twofold.report.decision import decision_lines

Planned = Callable[[str], Plan]
OWN = """
name: own
model: llama-2-7b
training: {kind: pretrain, tokens: 200 Gtok, sequence: 4096 tok, global_batch: 512 seq, deadline: 60 d}
supply: {own: {node: DGX-H100, count: 4}}
"""
SERVED = """
serving:
  model: llama-3.1-8b
  on: 1xH200-SXM
  classes: {chat: {traffic: {rate: 1 /s, input: 900 tok, output: 200 tok}, slo: {ttft_p95: 2 s}}}
"""


def test_no_mix_of_leases_is_shown_where_nothing_is_leased(planned: Planned) -> None:
    assert planned(OWN).portfolio is None
    assert planned(OWN.replace("60 d", "60 d, on: 4x8xH100-SXM")).portfolio is None


def test_what_on_names_is_in_the_mix_from_the_first_week(planned: Planned) -> None:
    """It said `2 × 8 … weeks 5–7` of a run that was told to use four."""
    plan = planned(OWN.replace("60 d", "60 d, on: 4x8xH100-SXM") + SERVED)
    assert plan.portfolio
    (mine,) = [each for each in plan.portfolio.leases if each.term == "owned"]
    assert mine.units == 4 and mine.start_week == 0


def test_what_a_day_is_worth_decides_the_size_on_own_machines(planned: Planned) -> None:
    """On one's own a year costs the same: the fewest hours win, and any value of a day takes more nodes."""
    runs = [planned(OWN.replace("60 d", f"60 d{key}")).training[0] for key in ("", ", time_value: 1 k$/d")]
    assert [run.machine.node_count for run in runs] == [1, 4]
    assert runs[1].run.total_s.value < 0.3 * runs[0].run.total_s.value


@pytest.mark.parametrize("value_usd", [0, 100, 10_000, 1_000_000])
def test_rent_and_the_value_of_its_days_are_least_together(planned: Planned, value_usd: int) -> None:
    text = OWN.replace("60 d", f"60 d, time_value: {value_usd} $/d").partition("supply")[0]
    run = planned(f"{text}supply: {{shop: {{accelerators: [H100-SXM]}}}}").training[0]
    assert run.cost_usd
    planned_usd = run.cost_usd.value + value_usd * run.run.total_s.value / DAY_S
    for point in run.front:
        if point.feasible and point.cost_usd is not None:
            assert planned_usd <= 1.001 * (point.cost_usd + value_usd * point.wall_s / DAY_S)


def test_more_of_ones_own_nodes_are_taken_where_they_make_a_date_sure(planned: Planned) -> None:
    """Two of four nodes ended 51.6 of 60 d with 79.6 %, printed as 80 % beside `not by replicas`."""
    text = OWN.replace("llama-2-7b", "llama-3.1-8b").replace("200 Gtok", "600 Gtok").replace("4096", "8192")
    half, sure = (planned(f"{text}confidence: {asked}\n") for asked in ("50 %", "80 %"))
    assert [plan.training[0].machine.node_count for plan in (half, sure)] == [2, 4]
    assert not sure.confidence.not_reached and sure.training[0].run.deadline_holds_probability >= 0.8
    top = next(rung for rung in half.ladder if rung.confidence == 0.95)
    assert (top.accelerator_count, top.binds) == (32, "")
    assert "95 %: 32 accelerators" in "\n".join(decision_lines(half))


def test_what_ones_own_nodes_do_not_make_sure_is_not_rented_for_it(planned: Planned) -> None:
    text = OWN.replace("llama-2-7b", "llama-3.1-8b").replace("200 Gtok", "600 Gtok").replace("4096", "8192")
    few = planned(text.replace("count: 4", "count: 2"))
    (run,), (goal,) = few.training, few.confidence.not_reached.values()
    assert run.cost_usd is None and run.machine.node_count == 2 and goal < 0.8
    lines = "\n".join(decision_lines(few))
    assert (
        Confidence.NOT_BY_MACHINES in lines
        and f"~ {goal:.1%}".replace("%", " %") in lines
        and "~ 80 %" not in lines
    )
