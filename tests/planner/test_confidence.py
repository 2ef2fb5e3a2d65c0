"""`confidence` sizes fleets and runs so that each goal holds that surely; what that cannot buy is said."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sure_specs import SERVE, TRAIN, Planned
from twofold.catalog.catalog import Catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.defaults import defaults_used
from twofold.contracts.spec.reader import parse_spec
from twofold.core.errors import InputErrors
from twofold.money.detail import detailed_money
from twofold.perf.constants import Constants
from twofold.planner.actions import LESS_SURE
from twofold.planner.build import build_plan
from twofold.report.plan import plan_lines


def with_confidence(text: str, asked: str) -> str:
    return f"{text}confidence: {asked}\n"


def in_the_middle(text: str) -> str:
    return with_confidence(text, "50 %")


def chances(plan: Plan) -> dict[str, float]:
    """The probability of each goal, as its figure has it."""
    found = {
        f"{service.name}.{each.name} {slo.metric}": slo.holds_probability or 0.0
        for service in plan.serving
        for each in service.classes
        for slo in each.slos
    }
    return found | {run.name: run.run.deadline_holds_probability or 0.0 for run in plan.training}


def test_each_goal_holds_with_what_is_asked_and_costs_no_less(planned: Planned) -> None:
    usual, sure = planned(in_the_middle(SERVE)), planned(with_confidence(SERVE, "80 %"))
    assert min(chances(usual).values()) < 0.8 <= min(chances(sure).values())
    assert sure.confidence and sure.confidence.not_reached == {}
    costs = [plan.serving[0].cost_usd_per_year for plan in (usual, sure)]
    assert costs[0] and costs[1] and costs[0].value < costs[1].value
    lines = "\n".join(plan_lines(sure))
    assert "CONFIDENCE   80 % asked · every goal holds with it · all at once with " in lines
    assert "f ~" not in lines


def test_all_goals_together_hold_as_rarely_as_the_rarest_or_more_rarely(planned: Planned) -> None:
    for asked in ("60 %", "80 %"):
        plan = planned(with_confidence(SERVE, asked))
        assert plan.confidence
        missed = [1.0 - each for each in chances(plan).values()]
        assert 1.0 - sum(missed) - 1e-9 <= plan.confidence.joint_probability <= 1.0 - max(missed) + 1e-9


def test_what_all_replicas_err_by_alike_is_not_bought(planned: Planned) -> None:
    """A lone request already takes half of the promised time, and the range is twice its middle wide."""
    tight = SERVE.replace("ttft_p95: 2 s", "ttft_p95: 800 ms")
    usual, sure = planned(in_the_middle(tight)), planned(with_confidence(tight, "95 %"))
    assert sure.confidence
    named = sure.confidence.not_reached
    assert "serve.chat TTFT p95" in named and named["serve.chat TTFT p95"] < 0.95
    assert sure.serving[0].replica_count <= 3 * usual.serving[0].replica_count
    lines = "\n".join(plan_lines(sure))
    assert "not by replicas: measure, or another machine" in lines and "f ~" in lines


def test_a_goal_that_cannot_be_reached_leaves_the_others_their_margin(planned: Planned) -> None:
    tight = SERVE.replace("ttft_p95: 2 s", "ttft_p95: 800 ms")
    plan = planned(with_confidence(tight, "80 %"))
    assert plan.confidence
    found = chances(plan)
    assert list(plan.confidence.not_reached) == ["serve.chat TTFT p95"]
    assert min(each for name, each in found.items() if "ttft" not in name) >= 0.8


def test_a_run_ends_by_its_date_with_what_is_asked(planned: Planned) -> None:
    near = TRAIN.replace("tokens: 20 Gtok", "name: pretrain, kind: lora, tokens: 20 Gtok").replace(
        "21.5 h", "16.2 h"
    )
    usual, sure = planned(in_the_middle(near)), planned(with_confidence(near, "80 %"))
    assert chances(usual)["pretrain"] < 0.8 <= chances(sure)["pretrain"]
    assert sure.training[0].machine.accelerator_count > usual.training[0].machine.accelerator_count
    assert sure.training[0].deadline_s == usual.training[0].deadline_s
    given = TRAIN.replace("deadline: 21.5 h", "deadline: 21.5 h, on: 4x8xH100-SXM")
    fixed, kept = planned(with_confidence(given, "80 %")), planned(in_the_middle(given))
    assert fixed.confidence and list(fixed.confidence.not_reached) == ["pretrain deadline"]
    assert fixed.training[0].machine == kept.training[0].machine


def test_fewer_nodes_are_enough_only_where_the_date_holds_as_surely(
    catalog: Catalog, constants: Constants
) -> None:
    given = TRAIN.replace("deadline: 21.5 h", "deadline: 21.5 h, on: 8x8xH100-SXM")
    enough = []
    for text in (in_the_middle(given), with_confidence(given, "80 %")):
        made = build_plan(parse_spec(text, "spec.yaml"), catalog, constants, spec_digest="0" * 64)
        detail = detailed_money(made.plan, made.runs, made.services, made.context).money
        assert detail and detail.detail
        enough.append(detail.detail.shapes[0].enough)
    assert enough == ["4 × 8 H100-SXM5-80GB", "6 × 8 H100-SXM5-80GB"]


def test_four_in_five_is_what_nothing_asked_means(planned: Planned) -> None:
    spec = parse_spec(SERVE, "spec.yaml")
    assert {each.path: each.text for each in defaults_used(spec)}["confidence"] == "80 %"
    assert spec == parse_spec(with_confidence(SERVE, "80 %"), "spec.yaml")
    sure = planned(SERVE).confidence
    assert sure and sure.asked_fraction == 0.8


def test_half_asks_for_the_middle_and_finds_nothing_short(planned: Planned) -> None:
    half = planned(in_the_middle(SERVE))
    assert half.confidence and half.confidence.not_reached == {}
    assert all(slo.met for each in half.serving[0].classes for slo in each.slos)


@given(asked=st.floats(0.51, 0.97), rate=st.floats(5.0, 60.0))
@settings(max_examples=10, deadline=None)
def test_more_confidence_takes_no_fewer_replicas_or_says_what_it_left(
    catalog: Catalog, constants: Constants, asked: float, rate: float
) -> None:
    def sizes(fraction: float) -> tuple[int, Plan]:
        text = with_confidence(
            SERVE.replace("rate: 20 /s", f"rate: {rate:.3f} /s"), f"{100 * fraction:.2f} %"
        )
        plan = build_plan(parse_spec(text, "spec.yaml"), catalog, constants, spec_digest="0" * 64).plan
        return plan.serving[0].replica_count, plan

    (few, _), (many, sure) = sizes(0.5), sizes(asked)
    assert few <= many
    assert sure.confidence
    below = {name for name, chance in chances(sure).items() if chance < asked}
    assert len(below) == len(sure.confidence.not_reached)


@pytest.mark.parametrize("bad", ["120 %", "30 %", "0.8", "sure", "100 %"])
def test_a_confidence_that_cannot_be_is_refused_where_it_stands(bad: str) -> None:
    with pytest.raises(InputErrors) as caught:
        parse_spec(with_confidence(TRAIN, bad), "spec.yaml")
    (error,) = caught.value.errors
    assert str(error.place) == "spec.yaml:6:13" and "`confidence: " in error.message


def test_machines_that_no_number_makes_sure_enough_are_not_taken(planned: Planned) -> None:
    """Where another machine reaches the confidence it is taken, and what is less sure is an alternative."""
    text = """
name: s
model: llama-3.1-8b
serving:
  classes:
    chat:
      traffic:
        {rate: 2 /s, peak: 2x, input: {mean: 500 tok, p95: 1500 tok}, output: {mean: 200 tok, p95: 500 tok}}
      slo: {ttft_p95: 300 ms, tpot_p95: 40 ms}
"""
    (alone,) = planned(f"{text}  on: 1xA30\n").serving
    free = planned(text)
    assert planned(f"{text}  on: 1xA30\n").confidence.not_reached and alone.cost_usd_per_year
    assert not free.confidence.not_reached and free.serving[0].machine.accelerator != "A30"
    (less_sure,) = (each.text for each in free.actions if LESS_SURE in each.text)
    assert less_sure.startswith("serve on A30: ")
    assert free.serving[0].cost_usd_per_year.value > alone.cost_usd_per_year.value


def test_a_first_token_that_a_full_queue_makes_late_is_bought_by_replicas(planned: Planned) -> None:
    """Its quantile was 14 s for 1 s, so that it was given up; two replicas more keep it."""
    plan = planned(
        "model: qwen2.5-7b\n"
        "serving: {classes: {c: {traffic: {rate: 300 /s}, slo: {ttft_p95: 1 s}}}}\n"
        "supply: {own: [{node: DGX-H100, count: 4}]}\n"
    )
    (slo,) = plan.serving[0].classes[0].slos
    assert plan.confidence and not plan.confidence.not_reached
    assert slo.holds_probability and slo.holds_probability >= 0.8
