"""The decision: 25 lines for four runs and services, 100 columns, and no machine that is not described."""

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.report.test_plan import scaled
from twofold.contracts.results.plan import Action, Confidence, MeasureFirst, Plan, Rung
from twofold.contracts.results.serving import MissedGoal, Rehearsal, RehearsedFigure, ReplicaNeed
from twofold.planner.actions import actions_of
from twofold.report.decision import HALVES, LINES, decision_lines
from twofold.report.lines import WIDTH

once = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
factors = st.floats(1e-4, 1e4)
names = st.text("abcdefgh-", min_size=1, max_size=64)


def decided(plan: Plan) -> list[str]:
    return decision_lines(replace(plan, actions=actions_of(plan)), "my.yaml")


def words(plan: Plan) -> str:
    """The screen on one line, however its pieces wrap."""
    return " ".join(" ".join(decided(plan)).replace(" · ", " ").split())


@once
@given(
    st.integers(0, 7), st.integers(0, 7), st.integers(1, 9), st.lists(names, min_size=14, max_size=14),
    factors, factors,
)  # fmt: skip
def test_25_lines_hold_four_halves_and_one_more_each_further_one(
    plan: Plan, runs: int, services: int, classes: int, called: list[str], time: float, money: float
) -> None:
    if not runs + services:
        return
    run, service, (first, _) = plan.training[0], plan.serving[0], plan.serving[0].classes
    slow = replace(
        first, slos=tuple(replace(slo, predicted=scaled(slo.predicted, time)) for slo in first.slos)
    )
    several = tuple(replace(slow, name=f"{called[0]}{each}") for each in range(classes))
    cost = service.cost_usd_per_year
    big = replace(
        plan,
        name=called[1],
        training=tuple(replace(run, name=f"{called[each]}r") for each in range(runs)),
        serving=tuple(
            replace(
                service, name=f"{called[7 + each]}s", classes=several, cost_usd_per_year=scaled(cost, money)
            )
            for each in range(services)
        ),
        defaults=tuple((f"serving.{name}.classes.chat.traffic.peak", "2x") for name in called),
    )
    lines = decided(big)
    assert len(lines) <= LINES + max(0, runs + services - HALVES)
    assert max(map(len, lines)) <= WIDTH
    assert not any("more" in line for line in lines)
    heads = [line[:12].strip() for line in lines]
    assert [each for each in heads if each.isupper()] == ["DO THIS", "RISKS", "ASSUMED", "NEXT", "MARKS"]
    told = [line for line in lines if "H100-SXM5-80GB" in line or "H200-SXM-141GB" in line]
    assert len(told) == runs + services


@pytest.mark.parametrize("name", ["assistant", "finetune", "laptop", "moe", "portfolio"])
def test_every_machine_of_an_example_is_one_that_is_described(examples: dict[str, Plan], name: str) -> None:
    plan = examples[name]
    lines = decision_lines(plan)
    assert len(lines) <= LINES and max(map(len, lines)) <= WIDTH
    described = {
        f"{half.machine.node_count} × {half.machine.accelerators_per_node} {half.machine.accelerator}"
        for half in plan.halves
    }
    text = "\n".join(lines[: next(at for at, line in enumerate(lines) if line.startswith("RISKS"))])
    assert set(re.findall(r"\d+ × \d+ [A-Z][\w-]+", text)) == described
    for half in plan.halves:
        for each in getattr(half, "classes", ()):
            assert f"{each.name} " in text and f"{each.replica_count} × " in text


def need_of(**changed: object) -> ReplicaNeed:
    """21 chat replicas are planned, and 24 are the fewest that hold."""
    missed = MissedGoal("chat", "tpot_p95", 0.0412, 0.040)
    made = ReplicaNeed(
        pool="chat",
        accelerator="H200-SXM-141GB",
        provider=None,
        closed_form_count=21,
        full_load_count=19,
        holding_count=24,
        missing_count=23,
        planned_missed=(missed,),
        missed=(missed,),
        predicted_s=0.036,
        simulated_s=0.039,
        usd_per_year=1.1e5,
    )
    return replace(made, **changed)  # type: ignore[arg-type]  # its own fields


OVER = MissedGoal("documents", "success", 0.9966, 0.999)
NEEDS = (
    (need_of(), "rehearsed: 21 miss TPOT p95 (41 of 40 ms), 24 hold, 23 do not: +0.11 M$/y"),
    (
        need_of(planned_missed=(OVER,), missing_count=21, usd_per_year=0.0),
        "rehearsed: 21 miss success (99.7 of 99.9 %) of documents, 24 hold: costs the same",
    ),
    (
        need_of(holding_count=19, missing_count=17, planned_missed=(), usd_per_year=-2e5),
        "rehearsed: 19 of the 21 would do: −0.20 M$/y",
    ),
    (
        need_of(holding_count=None, missing_count=42, usd_per_year=None),
        "rehearsed: 21 miss TPOT p95 (41 of 40 ms), nor do 42 hold",
    ),
    (
        need_of(holding_count=None, missing_count=42, usd_per_year=None, accelerator="L4"),
        "rehearsed: 21 L4 miss TPOT p95 (41 of 40 ms), nor do 42 hold: now H200-SXM-141GB",
    ),
)


@pytest.mark.parametrize(("need", "said"), NEEDS)
def test_the_twin_says_below_its_class_where_it_asks_for_other_replicas(
    plan: Plan, need: ReplicaNeed, said: str
) -> None:
    service = replace(plan.serving[0], replica_needs=(need,))
    lines = decided(replace(plan, serving=(service,)))
    assert len(lines) <= LINES and max(map(len, lines)) <= WIDTH
    assert said in words(replace(plan, serving=(service,)))
    at = next(number for number, line in enumerate(lines) if "rehearsed: " in line)
    assert any(line.split()[0] == "chat" for line in lines[at - 3 : at])
    held = replace(service, replica_needs=(replace(need, holding_count=21, planned_missed=()),))
    assert "would do" not in words(replace(plan, serving=(held,)))


@once
@given(st.integers(1, 9999), st.integers(1, 9999), factors, names)
def test_no_need_of_the_twin_leaves_the_screen(
    plan: Plan, asked: int, holds: int, size: float, called: str
) -> None:
    goal = MissedGoal(called, "ttft_p95", 0.6 * size, 0.5 * size)
    missed = (goal, replace(goal, metric="tpot_p95", value=None)) if holds > asked else ()
    need = need_of(
        closed_form_count=asked, holding_count=holds, planned_missed=missed, usd_per_year=1e5 * size
    )
    service = replace(plan.serving[0], replica_needs=(need,))
    lines = decided(replace(plan, serving=(service,)))
    assert len(lines) <= LINES and max(map(len, lines)) <= WIDTH


def test_marks_say_at_least_the_confidence_or_half_or_less(plan: Plan) -> None:
    first, *_ = plan.serving[0].classes
    goals = tuple(
        replace(first.slos[0], metric=metric, met=met, holds_probability=share)
        for metric, met, share in (("ttft_p95", True, 0.9), ("tpot_p95", True, 0.6), ("e2e_p95", False, 0.2))
    )
    service = replace(plan.serving[0], classes=(replace(first, slos=goals),))
    sure = Confidence(0.8, 0.15, {"serve.chat E2E p95": 0.2})
    text = words(replace(plan, training=(), serving=(service,), confidence=sure))
    assert "✓ 90 %" in text and "~ 60 %" in text and "✗ 20 %" in text
    assert "each goal ≥ 20 %, all 15 % sure of 80 % asked" in text
    assert "not by replicas: measure, or another machine" in text
    assert "✓ ≥ 80 % ~ ≥ 50 % ✗ less" in text


def test_rehearsed_work_of_a_day_keeps_up_or_says_when_it_ends(plan: Plan) -> None:
    first, *_ = plan.serving[0].classes
    for value_s, met, said in ((21600.0, True, "✓ twin keeps up"), (32400.0, False, "✗ twin 9.0 h")):
        seen = RehearsedFigure("finish_within", value_s, None, None, True, met)
        goal = replace(first.slos[0], metric="finish_within", limit_s=21600.0, met=met, rehearsed=seen)
        service = replace(plan.serving[0], classes=(replace(first, slos=(goal,)),))
        assert said in words(replace(plan, training=(), serving=(service,), rehearsed=True))


def test_a_rehearsed_plan_says_in_which_world_its_figures_are_and_explains_no_mark_that_it_lacks(
    plan: Plan,
) -> None:
    first, *_ = plan.serving[0].classes
    seen = RehearsedFigure("ttft_p95_s", 0.3, None, None, True, True)
    goals = tuple(replace(slo, met=True, rehearsed=seen) for slo in first.slos)
    tried = (Rehearsal("4 × 8 H100", 32, True, True, ()),)
    service = replace(plan.serving[0], classes=(replace(first, slos=goals),), rehearsals=tried)
    sure = Confidence(0.8, 0.7, {})
    made = replace(plan, training=(), serving=(service,), rehearsed=True, confidence=sure, ladder=())
    text = words(made)
    assert "TWIN steps as slow as 80 % sure asks; `simulate` has middle ones ✓ held ✗ missed" in text
    assert "✓ ≥ 80 %" not in text and "MARKS [80 % range] m measured" in text
    assert "TWIN ✓ held ✗ missed at the peak" in words(replace(made, confidence=None))
    assert "✓ ≥ 80 % ~ ≥ 50 % ✗ less" in words(replace(made, training=plan.training))  # it has a deadline
    assert "TWIN" not in words(plan)


def test_leases_that_do_not_fit_are_left_out_whole(plan: Plan) -> None:
    leases = "; ".join(f"base{each} on 8 × 8 H200-SXM5-141GB, lakeside on demand" for each in range(5))
    other = Action("or", f"7 % less; not taken: 2 kinds of machines; {leases}", "", None)
    lines = decision_lines(replace(plan, actions=(*plan.actions, other)), "my.yaml")
    at = next(number for number, line in enumerate(lines) if line.startswith("  or"))
    told = " ".join(" ".join(lines[at : at + 2]).split())
    assert re.search(r"(machines|lakeside on demand) …", told), told


def test_the_ladder_is_one_line_with_what_measuring_would_save(plan: Plan) -> None:
    rungs = (
        Rung("serve", 0.5, 12, 56, 1.04e6, 0.5, ""),
        Rung("serve", 0.8, 14, 64, 1.2e6, 0.8, ""),
        Rung("serve", 0.95, 20, 88, 1.9e6, 0.88, "not by replicas: measure, or another machine"),
    )
    first = MeasureFirst("serve", "TTFT p95 on one node", 14, 9.0, 1.7e5)
    alone = replace(
        plan, training=(), ladder=rungs, measure_first=(first,), confidence=Confidence(0.8, 0.7, {})
    )
    text = words(alone)
    assert "SURE 50 %: 12 replicas, ≈ 1.0 M$ 80 %: this 95 %: not by replicas" in text
    assert "measure first: TTFT p95 on one node, 14 → 9 replicas expected, worth 0.17 M$/y" in text


def test_a_goal_that_nobody_wrote_is_told_before_what_decides_less(plan: Plan) -> None:
    defaults = (
        ("supply.economics.years", "5"),
        ("serving.serve.classes.chat.slo.success", "99.9 %"),
        ("serving.serve.classes.chat.slo.ttft_p95", "500 ms"),
        ("serving.serve.classes.chat.traffic.peak", "2x"),
        ("serving.serve.classes.batch.traffic.peak", "2x"),
    )
    text = words(replace(plan, defaults=defaults))
    assert "slo ttft p95 500 ms (chat) peak 2x (chat, batch) success 99.9 % (chat)" in text
    assert "years" not in text and "are yours" not in text
    assert "goals, lengths and peaks are yours" in words(replace(plan, defaults=()))


def test_the_users_file_stands_in_commands_and_not_in_the_users_names(examples: dict[str, Plan]) -> None:
    actions = (
        Action("next", "plan SPEC --rehearse", "", None, ""),
        Action("also", "SPECTRA first", "", None),
    )
    told = replace(examples["laptop"], actions=actions).told_for("'a dir/my spec.yaml'")
    assert [each.text for each in told.actions] == ["plan 'a dir/my spec.yaml' --rehearse", "SPECTRA first"]
