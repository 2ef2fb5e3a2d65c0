"""What a plan says to do, of its own figures, honest about what nobody rehearsed or gave a range for."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.contracts.results.ledger import total_usd
from twofold.contracts.results.plan import Action, Plan
from twofold.contracts.results.serving import MissedGoal, ReplicaNeed
from twofold.core.estimate import Estimate
from twofold.planner.actions import actions_of

Planned = Callable[[str], Plan]
SERVE = """
name: s
model: llama-3.1-8b
serving:
  quantisation: [fp8, bf16]
  classes:
    chat:
      traffic: {rate: 50 /s, peak: 3x, input: {mean: 500 tok}, output: {mean: 200 tok, p95: 500 tok}}
      slo: {ttft_p95: 500 ms, tpot_p95: 50 ms}
"""
SHOP = "supply: {shop: {accelerators: [H100-SXM]}}"
OWN = "supply: {own: {node: DGX-H100, count: 2}}"


@pytest.fixture(scope="module")
def plan(planned: Planned) -> Plan:
    return planned(SERVE + SHOP)


def kinds(plan: Plan) -> dict[str, Action]:
    """The first of each kind."""
    return {each.kind: each for each in reversed(actions_of(plan))}


def texts(plan: Plan, kind: str) -> str:
    """All of one kind."""
    return " | ".join(each.text for each in actions_of(plan) if each.kind == kind)


def test_what_is_to_be_rented_is_what_is_described_and_billed(plan: Plan) -> None:
    """It was a portfolio of other machines, which no section described and no rehearsal tried."""
    machine, told = plan.serving[0].machine, kinds(plan)
    assert plan.money and machine.price and plan.leasing and machine.held_fraction < 1.0
    count = f"{machine.node_count} × {machine.accelerators_per_node} {machine.accelerator}"
    assert told["rent"].text == f"{count} fp8, {machine.price.provider} on demand"
    assert told["rent"].name == "serve"
    rented = [line for line in plan.money.lines if line.category in ("rent", "support")]
    assert told["rent"].usd == pytest.approx(total_usd(rented))
    assert told["cost"].usd == plan.money.total_usd
    assert plan.leasing.usd == pytest.approx(plan.money.total_usd, rel=0.01)  # no run, so no storage


def test_a_premium_for_being_simple_is_said(plan: Plan) -> None:
    assert plan.leasing
    least = replace(plan.leasing, cheapest_usd=plan.leasing.usd)
    assert "over the cheapest" not in kinds(replace(plan, leasing=least))["cost"].text
    dearer = replace(least, cheapest_usd=plan.leasing.usd / 1.06)
    told = kinds(replace(plan, leasing=dearer))["cost"].text
    assert "6 % over the cheapest, for 1 kind of machine, 1 provider, 1 lease" in told


def test_other_ways_are_called_so_with_their_difference(plan: Plan) -> None:
    assert plan.leasing and plan.money
    usd = plan.leasing.usd
    alone = replace(plan, leasing=replace(plan.leasing, cheapest_usd=usd))
    assert "% less" not in texts(alone, "or")
    mixed = replace(plan.leasing, cheapest_usd=0.8 * usd, cheapest_text="2 providers; serve on 3 × 8 H100")
    told = texts(replace(plan, leasing=mixed), "or")
    assert "| 20 % less, " in told and told.endswith("/y; not taken: 2 providers; serve on 3 × 8 H100")
    (service,) = plan.money.services
    assert service.api
    hosted = replace(
        service.api, api_usd_per_year=10.0, own_usd_per_year=25.0, provider="host", same_model=True
    )
    money = replace(plan.money, services=(replace(service, api=hosted),))
    told = kinds(replace(alone, money=money))["or"].text
    assert told.startswith("hosted API of host for serve")
    assert told.endswith("10.00 $/y, 2.5 × cheaper; not taken: no latency promised")


def test_many_interruptions_are_told_in_plain_numbers(planned: Planned) -> None:
    """150 of them were `1.5e+02`."""
    plan = planned("model: llama-3.1-8b\ntraining: {tokens: 1 Gtok, on: 1x8xH100-SXM}\n")
    (run,) = plan.training
    often = replace(run.run, interruptions=Estimate(73.0, 36.0, 150.0, "interruptions"))
    alone = replace(plan, training=(replace(run, run=often),))
    assert "73 interruptions [36–150] f, goodput" in texts(alone, "risk")


def test_nothing_is_called_sure_before_it_is_rehearsed(plan: Plan) -> None:
    assert "not rehearsed" in texts(plan, "risk")
    assert kinds(plan)["next"].text == "twofold plan SPEC --rehearse"
    rehearsed = replace(plan, rehearsed=True)
    assert "rehearsed" not in texts(rehearsed, "risk") and "--rehearse" not in texts(rehearsed, "next")
    for zones, scenario in ((1, "replica-crash"), (2, "zone-loss")):  # there is no other zone to go to
        serving = tuple(replace(each, zones=zones) for each in plan.serving)
        seen = kinds(replace(plan, rehearsed=True, serving=serving))
        assert seen["next"].text == f"twofold simulate SPEC --scenario {scenario}"


def test_what_grew_in_its_rehearsal_is_simulated_as_it_grew(plan: Plan) -> None:
    """A spec alone is planned as it was before: another fleet would be tried next."""
    (service,) = plan.serving
    miss = MissedGoal("chat", "tpot_p95", 0.041, 0.04)
    need = ReplicaNeed("chat", "H100", None, 3, 3, 4, 3, (miss,), (miss,), None, None, 0.0)
    grown = replace(plan, rehearsed=True, serving=(replace(service, replica_needs=(need,)),))
    follow = [each.text for each in actions_of(grown) if each.kind == "next"]
    assert follow == [
        "twofold plan SPEC --rehearse --out plan.json",
        "twofold simulate plan.json --scenario replica-crash",
    ]


def test_machines_of_ones_own_are_used_and_cost_their_energy_once(planned: Planned) -> None:
    """Where `on:` named them they were rented a second time, and cost nothing at all in the portfolio."""
    plan = planned(SERVE.replace("  classes:", "  on: 1xH100-SXM\n  classes:") + OWN)
    actions = kinds(plan)
    assert "rent" not in actions and plan.leasing is None
    assert "H100" in actions["use"].text and "your own" in actions["use"].text
    assert actions["use"].usd == actions["cost"].usd
    assert plan.serving[0].machine.price is None and plan.money
    assert {line.category for line in plan.money.lines} == {"energy"}


def test_three_risks_at_most_are_told_each_with_what_settles_it(plan: Plan) -> None:
    first, *rest = plan.serving[0].classes[0].slos
    unsure = replace(plan.serving[0].classes[0], slos=(replace(first, holds_probability=0.55), *rest))
    price = plan.serving[0].machine.price
    assert price
    asked = replace(price, gate="ask lambda for a quote: 512 GPUs, self-service stops at 8")
    machine = replace(plan.serving[0].machine, price=asked)
    shaky = replace(plan.serving[0], classes=(unsure,), flip_fraction=0.4, machine=machine)
    risks = [each.text for each in actions_of(replace(plan, serving=(shaky,))) if each.kind == "risk"]
    assert len(risks) == 3 and all(": " in text for text in risks)
    assert risks[0].startswith("serve.chat TTFT p95 may be ")
    assert risks[0].endswith(": measure one node for an hour")
    assert risks[1] == "serve: 512 GPUs, self-service stops at 8: ask lambda for a quote"


def test_zones_of_a_marketplace_are_assumed_and_said(planned: Planned) -> None:
    header, told = SERVE.replace("quantisation:", "zones: 2\n  quantisation:"), "2 zones are assumed of "
    for provider, is_market in (("primeintellect", True), ("nebius", False)):
        shop = f"supply: {{shop: {{providers: [{provider}]}}}}"
        assert (told + provider in texts(planned(header + shop), "risk")) == is_market
        assert told not in texts(planned(SERVE + shop), "risk")
