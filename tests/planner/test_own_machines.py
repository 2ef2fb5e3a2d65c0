"""Machines of one's own: what `on:` names binds on every screen, and they are there from the first week."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from twofold.contracts.results.plan import Confidence, Plan
from twofold.core.display import format_seconds, format_usd
from twofold.core.errors import InfeasibleError
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


RUN = "tokens: {tokens} Gtok, global_batch: 256 seq, deadline: {days} d"
SHARED = """
name: shared
model: llama-3.1-8b
training:
  - {name: first, RUN_1, priority: 1}
  - {name: second, RUN_2}
supply: {own: [{node: DGX-H100, count: 1}], shop: {accelerators: [SHOP]}}
"""
NIGHTS = """
name: nights
model: llama-3.1-8b
training:
  {name: tune, kind: finetune, tokens: 8 Gtok, sequence: 4096 tok, global_batch: 64 seq, deadline: 7 d,
    repeats: every 2 weeks}
serving:
  classes:
    chat: {traffic: {rate: 60 /s, peak: 3x}, slo: {ttft_p95: 500 ms, tpot_p95: 40 ms}}
supply: {own: [{node: DGX-H100, count: 2}]}
"""


def two_runs(days: float, shop: str) -> str:
    runs = SHARED.replace("RUN_1", RUN.format(tokens=5, days=30)).replace(
        "RUN_2", RUN.format(tokens=50, days=days)
    )
    return runs.replace("SHOP", shop)


def test_one_run_after_the_other_where_both_want_the_same_nodes(planned: Planned) -> None:
    plan = planned(two_runs(30, "H100-SXM"))
    first, second = plan.training
    assert [run.machine.price for run in plan.training] == [None, None]
    assert first.run.done_s is None and first.run.ends_s == first.run.total_s
    assert (
        second.run.done_s and second.calendar.startswith("waits ") and second.calendar.endswith(" for first")
    )
    waited_s = second.run.done_s.value - second.run.total_s.value
    assert first.run.total_s.value < waited_s <= first.run.total_s.high + 3600
    lines = "\n".join(decision_lines(plan))
    assert f"done {second.run.done_s.value / DAY_S:.1f} of 30.0 d" in lines and second.calendar in lines
    assert "training.second.run.done_s" in {each.path for each in plan.derivations}


def test_a_run_that_ends_too_late_beside_others_is_rented_and_says_what_would_fit(planned: Planned) -> None:
    plan = planned(two_runs(9.5, "H100-SXM"))
    first, second = plan.training
    assert first.machine.price is None and second.machine.price
    (risk,) = (each.text for each in plan.actions if "so it rents" in each.text)
    assert risk.startswith("second ends too late on your own machines beside first, so it rents: 1 more node")
    more = planned(two_runs(9.5, "H100-SXM").replace("count: 1", "count: 2"))
    assert more.training[1].machine.price is None
    assert more.training[1].run.deadline_holds_probability >= 0.8


def test_what_fits_neither_on_own_machines_nor_for_rent_is_refused_with_what_would(planned: Planned) -> None:
    with pytest.raises(InfeasibleError) as caught:
        planned(two_runs(9.5, "L4"))
    error = caught.value
    assert error.whose == "second" and "beside first" in error.message
    (fits,) = (text for label, text in error.lines if label == "would fit")
    assert fits.startswith("1 more node · a deadline of ")


def test_a_higher_priority_ends_as_if_alone_and_moves_the_other(planned: Planned) -> None:
    text = two_runs(30, "H100-SXM")
    swapped = planned(
        text.replace(", priority: 1", "").replace("30 d}\nsupply", "30 d, priority: 2}\nsupply")
    )
    first, second = swapped.training
    assert second.run.done_s is None and first.run.done_s and "for second" in first.calendar


def test_a_run_works_in_the_hours_that_a_service_leaves(planned: Planned) -> None:
    plan = planned(NIGHTS)
    (run,), (service,) = plan.training, plan.serving
    assert run.machine.price is None and service.machine.price is None
    assert run.calendar.startswith("in serve's valleys, ") and run.calendar.endswith(" h a day")
    assert run.run.done_s and run.run.done_s.value > run.run.total_s.value
    assert run.run.deadline_holds_probability >= 0.8
    lone = planned(NIGHTS.replace("count: 2", "count: 9")).training[0]
    assert lone.calendar == "" and lone.run.total_s == run.run.total_s
    assert lone.run.energy_j == run.run.energy_j


def test_a_service_that_others_leave_too_little_rents(planned: Planned) -> None:
    both = (
        NIGHTS.partition("training")[0]
        + """
serving:
  - {name: a, classes: {chat: {traffic: {rate: 60 /s, peak: 3x}, slo: {ttft_p95: 500 ms, tpot_p95: 40 ms}}}}
  - {name: b, classes: {chat: {traffic: {rate: 60 /s, peak: 3x}, slo: {ttft_p95: 500 ms, tpot_p95: 40 ms}}}}
supply: {own: [{node: DGX-H100, count: 2}]}
"""
    )
    plan = planned(both)
    assert [service.machine.price is None for service in plan.serving] == [True, False]
    assert any("b: a holds your own machines, so it rents" in each.text for each in plan.actions)


@pytest.mark.parametrize("days", [12, 20, 40])
def test_more_nodes_end_no_run_later(planned: Planned, days: float) -> None:
    def dates(count: int) -> list[float]:
        plan = planned(two_runs(days, "H100-SXM").replace("count: 1", f"count: {count}"))
        return [run.run.ends_s.value for run in plan.training]

    few, many = dates(1), dates(2)
    assert all(late <= soon * 1.001 for late, soon in zip(many, few, strict=True))


def test_the_decision_says_why_your_machines_stand_idle(planned: Planned) -> None:
    plan = planned(
        "model: llama-2-7b\n"
        "training: {tokens: 200 Gtok, sequence: 4096 tok, global_batch: 512 seq, on: 4x8xH100-SXM}\n"
        "supply: {own: {node: DGX-H100, count: 2}}\n"
    )
    said = "`on:` names 32 × H100-SXM5-80GB, you have 16, so all of them are rented: name no more"
    assert f"pretrain: {said}" in [each.text for each in plan.actions if each.kind == "risk"]


def test_sizes_of_ones_own_say_date_energy_money_and_what_the_days_are_worth(planned: Planned) -> None:
    plan = planned(OWN.replace("60 d", "60 d, time_value: 1 k$/d"))
    (run,), (text,) = plan.training, (each.text for each in plan.actions if each.kind == "or")
    most = run.machine.accelerator_count
    own = [point for point in run.front if point.cost_usd is None and point.feasible]
    sizes = [point for point in own if point.accelerator_count < most]
    assert sizes and text.startswith("pretrain on 8 of them in ") and "later, which costs " in text
    for point in sizes:
        later_s = point.wall_s - run.run.ends_s.value
        assert f"{point.accelerator_count} of them in {format_seconds(point.wall_s)}" in text
        assert f"{format_seconds(later_s)} later, which costs {format_usd(later_s / DAY_S * 1000)}" in text
        assert point.accelerator_h < 1.2 * run.run.accelerator_h.value


def test_sizes_of_ones_own_end_when_the_hours_that_others_leave_say(planned: Planned) -> None:
    (run,) = planned(NIGHTS).training
    own = {point.accelerator_count: point for point in run.front if point.cost_usd is None}
    assert run.run.done_s and own[8].wall_s == run.run.done_s.value
    assert all(each.wall_s >= 3599 * each.accelerator_h / count for count, each in own.items())


def test_machines_that_two_want_by_day_are_said_to_be_free_by_night(planned: Planned) -> None:
    """26 of 32 for a service at its peak and 8 for a run stood beside each other without a word."""
    plan = planned(
        "model: qwen2.5-7b\n"
        "training: {kind: finetune, samples: 200 kseq, repeats: 2 weeks, sequence: 4096 tok,\n"
        "  global_batch: 128 seq, deadline: 12 h}\n"
        "serving: {classes: {c: {traffic: {rate: 300 /s}, slo: {ttft_p95: 1 s}}}}\n"
        "supply: {own: [{node: DGX-H100, count: 4}]}\n"
    )
    (run,), (service,) = plan.training, plan.serving
    assert run.machine.accelerator_count + service.machine.accelerator_count > 32
    assert run.calendar == "in hours that serve leaves free"
    assert run.calendar in "\n".join(decision_lines(plan))


def test_another_size_of_ones_own_costs_what_its_site_keeps_ready_too(planned: Planned) -> None:
    plan = planned(OWN)
    lines = [each for each in plan.money.lines if each.category == "energy"] if plan.money else []
    ready = sum(each.total_usd for each in lines if each.unit != "kWh")
    assert ready > 1.0
    (text,) = (each.text for each in plan.actions if each.kind == "or" and "of them in" in each.text)
    assert " $ for peaks" in text


def test_a_run_without_a_date_takes_what_a_service_leaves(planned: Planned) -> None:
    """It was tried on all sixteen nodes alone, found none of them free all day, and rented for 309 k$."""
    plan = planned(
        "model: llama-3.1-8b\n"
        "training: {tokens: 3000 Gtok, sequence: 8192 tok, global_batch: 512 seq}\n"
        "serving: {classes: {chat: {traffic: {rate: 10 /s}, slo: {ttft_p95: 500 ms, tpot_p95: 40 ms}}}}\n"
        "supply: {own: [{node: DGX-H100, count: 16}]}\n"
    )
    (run,) = plan.training
    assert run.machine.price is None and run.machine.node_count == 8


def test_a_run_that_repeats_before_it_is_over_does_not_hold_one_node_twice(planned: Planned) -> None:
    """52 times 9.9 days stood on one node in a year."""
    (run,) = planned(
        "model: llama-3.1-8b\n"
        "training: {kind: finetune, tokens: 60 Gtok, sequence: 4096 tok, global_batch: 64 seq,\n"
        "  deadline: 21 d, repeats: every 1 weeks}\n"
        "supply: {own: [{node: DGX-H100, count: 1}]}\n"
    ).training
    assert run.machine.price is not None


def test_another_size_is_dated_by_machines_of_its_own_kind(planned: Planned) -> None:
    """Thirty-two A100 took the date of thirty-two H100 in the way beside, twice as late as half of them."""
    tune = "kind: finetune, sequence: 4096 tok, global_batch: 64 seq, deadline: 20 d, on: 4x8xH100-SXM"
    plan = planned(
        "model: llama-3.1-8b\n"
        "training:\n"
        "  - {name: pre, tokens: 100 Gtok, sequence: 8192 tok, global_batch: 512 seq, deadline: 90 d}\n"
        f"  - {{name: tune, tokens: 8 Gtok, priority: 3, {tune}}}\n"
        f"  - {{name: tunb, tokens: 60 Gtok, priority: 2, {tune}}}\n"
        "supply: {own: [{node: DGX-H100, count: 4}, {node: DGX-A100-80, count: 4}]}\n"
    )
    pre = next(run for run in plan.training if run.name == "pre")
    named = f" {pre.machine.accelerator}"
    own = [each for each in pre.front if named in each.what and each.feasible and each.cost_usd is None]
    by_size = sorted(own, key=lambda each: each.accelerator_count)
    assert len(by_size) >= 2
    assert all(more.wall_s <= few.wall_s * 1.001 for few, more in pairwise(by_size))
