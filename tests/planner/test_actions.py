"""What a plan says to do, of its own figures, honest about what nobody rehearsed or gave a range for."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.contracts.results.holdings import RehearsedMachine
from twofold.contracts.results.ledger import UnitCost, line_item, total_usd
from twofold.contracts.results.plan import Action, Plan
from twofold.money.portfolio import answers_all
from twofold.planner.actions import actions_of
from twofold.report.lines import WIDTH
from twofold.report.plan import action_lines

Planned = Callable[[str], Plan]
SERVE = """
name: s
model: llama-3.1-8b
serving:
  quantisation: [fp8, bf16]
  classes:
    chat:
      traffic: {rate: 5 /s, peak: 2x, input: {mean: 500 tok}, output: {mean: 200 tok, p95: 500 tok}}
      slo: {ttft_p95: 500 ms, tpot_p95: 50 ms}
"""
SHOP = "supply: {shop: {accelerators: [H100-SXM]}}"
OWN = "supply: {own: {node: DGX-H100, count: 2}}"


@pytest.fixture(scope="module")
def plan(planned: Planned) -> Plan:
    return planned(SERVE + SHOP)


def kinds(plan: Plan) -> dict[str, Action]:
    return {each.kind: each for each in plan.actions}


def test_what_is_recommended_is_the_cheaper_of_portfolio_and_fleets(plan: Plan) -> None:
    assert plan.money and plan.money.portfolio and plan.portfolio
    bill = plan.money.portfolio
    assert bill.answers and bill.total_usd < plan.money.total_usd
    assert kinds(plan)["cost"].usd == bill.total_usd
    dearest = max(plan.portfolio.leases, key=lambda lease: lease.usd)
    assert dearest.provider in kinds(plan)["rent"].text
    dear = replace(plan.money, portfolio=replace(bill, total_usd=2 * plan.money.total_usd))
    fleets = replace(plan, money=dear)
    assert {each.kind: each for each in actions_of(fleets)}["cost"].usd == plan.money.total_usd


def test_nothing_is_called_sure_before_it_is_rehearsed(plan: Plan) -> None:
    assert "not rehearsed" in kinds(plan)["risk"].text
    assert kinds(plan)["next"].text == "twofold plan SPEC --rehearse"
    rehearsed = {each.kind: each for each in actions_of(replace(plan, rehearsed=True))}
    assert "the portfolio was not" in rehearsed["risk"].text and "--rehearse" not in rehearsed["next"].text


def seen_on(plan: Plan, verdict: str, serves: bool = True) -> RehearsedMachine:
    """What the twin said of the machine that answers most in a portfolio."""
    assert plan.portfolio
    part = plan.portfolio.leases[0].accelerator
    return RehearsedMachine("s", ("chat",), part, 1, verdict, 1.0, serves, f"s.chat on 1 × {part}: {verdict}")


def rehearsed(plan: Plan, *rows: RehearsedMachine) -> Plan:
    """The plan with a portfolio that was rehearsed, and what follows for what it answers."""
    assert plan.money and plan.money.portfolio and plan.portfolio
    seen = replace(plan.portfolio, rounds=("round 1: 9 k$ of machines",), rehearsed=rows)
    bill = replace(plan.money.portfolio, answers=answers_all(seen))
    return replace(plan, rehearsed=True, portfolio=seen, money=replace(plan.money, portfolio=bill))


def test_a_portfolio_that_serves_on_a_machine_that_misses_is_not_recommended(plan: Plan) -> None:
    """Whatever else its lines say; one that it no longer serves on, or whose rate was corrected, may miss."""
    assert plan.money and plan.money.portfolio
    missing = rehearsed(plan, seen_on(plan, "holds"), seen_on(plan, "misses"))
    told = {each.kind: each for each in actions_of(missing)}
    assert told["cost"].usd == plan.money.total_usd and ": misses" in told["risk"].text
    for row in (seen_on(plan, "misses", serves=False), seen_on(plan, "corrected"), seen_on(plan, "holds")):
        told = {each.kind: each for each in actions_of(rehearsed(plan, row))}
        assert told["cost"].usd == plan.money.portfolio.total_usd
        assert "rehearsed" not in told["risk"].text and "misses" not in told["risk"].text


def test_machines_that_came_with_the_last_correction_are_a_risk(plan: Plan) -> None:
    told = {each.kind: each for each in actions_of(rehearsed(plan, seen_on(plan, "unseen")))}
    assert "not rehearsed: s.chat on 1 × " in told["risk"].text


def test_machines_that_the_fleets_have_not_leave_no_risk_out_unsaid(plan: Plan) -> None:
    """Where one of several leases was of another accelerator, nothing of that service was said at all."""
    assert plan.portfolio
    known = "s: ranges below are of other machines".replace("s:", f"{plan.serving[0].name}:")
    assert known not in kinds(plan)["risk"].text and "80 % range" in kinds(plan)["risk"].text
    first = plan.portfolio.leases[0]
    other = replace(first, accelerator="L40S", offer="another")
    for leases, told in (((first, other), False), ((replace(first, accelerator="L40S"),), True)):
        assert plan.money and plan.money.portfolio
        rent, *others = plan.money.portfolio.lines
        bill = replace(plan.money.portfolio, lines=(*[rent] * len(leases), *others))
        changed = replace(
            plan,
            portfolio=replace(plan.portfolio, leases=leases),
            money=replace(plan.money, portfolio=bill),
        )
        risk = {each.kind: each for each in actions_of(changed)}["risk"].text
        assert (known in risk, "80 % range" in risk) == (told, not told)


def test_the_steps_take_what_the_bill_has_for_them_with_tax(plan: Plan) -> None:
    """Rent was that of 52 weeks without tax, beside a cost of 8,760 h with it."""
    assert plan.money and plan.money.portfolio and plan.portfolio
    lines = plan.money.portfolio.lines
    taxed = tuple(replace(line, tax_usd=1.0, total_usd=line.total_usd + 1.0) for line in lines)
    bill = replace(plan.money.portfolio, lines=taxed)
    told = {each.kind: each for each in actions_of(replace(plan, money=replace(plan.money, portfolio=bill)))}
    rents = [line for line in taxed if line.category in ("rent", "support")]
    steps = [told[kind].usd for kind in ("rent", "then") if kind in told]
    assert sum(steps) == pytest.approx(total_usd(rents)) and rents  # type: ignore[arg-type]
    dear = replace(plan.money, portfolio=replace(bill, answers=False))
    fleets = {each.kind: each for each in actions_of(replace(plan, money=dear))}
    assert fleets["rent"].usd == total_usd(
        line for line in plan.money.lines if line.category in ("rent", "support")
    )


def test_what_the_portfolio_leaves_out_is_rented_and_counted_too(plan: Plan) -> None:
    assert plan.money and plan.money.portfolio and plan.portfolio
    left = replace(plan.serving[0], name="left")
    line = replace(plan.money.portfolio.lines[0], what="left: machines", category="rent")
    bill = replace(plan.money.portfolio, lines=(*plan.money.portfolio.lines, line))
    both = replace(plan, serving=(*plan.serving, left), money=replace(plan.money, portfolio=bill))
    told, alone = ({each.kind: each for each in actions_of(each)} for each in (both, plan))
    assert told["rent"].text.endswith(" for left") and told["rent"].usd and alone["rent"].usd
    assert told["rent"].usd - alone["rent"].usd == pytest.approx(line.total_usd)


def test_hosted_interfaces_are_used_and_the_risk_is_theirs(plan: Plan) -> None:
    assert plan.portfolio
    lease = replace(plan.portfolio.leases[0], accelerators_per_unit=0, term="api", provider="host")
    asked = line_item("serve.chat: requests to host", "api", 3.0, "million requests", UnitCost(2.0, "a list"))
    assert plan.money and plan.money.portfolio
    money = replace(plan.money, portfolio=replace(plan.money.portfolio, lines=(asked,)))
    hosted = replace(plan, money=money, portfolio=replace(plan.portfolio, leases=(lease,)))
    told = {each.kind: each for each in actions_of(hosted)}
    assert told["use"].usd == 6.0 and "host's hosted interface for serve.chat" in told["use"].text
    assert "no latency is promised for serve.chat" in told["risk"].text and "closest" not in told["risk"].text
    assert "rent" not in told


def test_machines_of_ones_own_are_used_and_cost_their_energy_once(planned: Planned) -> None:
    """Where `on:` named them they were rented a second time, and cost nothing at all in the portfolio."""
    named = SERVE.replace("  classes:", "  on: 1xH100-SXM\n  classes:")
    plan = planned(named + OWN)
    actions = kinds(plan)
    assert "rent" not in actions
    assert "H100" in actions["use"].text and "your own" in actions["use"].text
    assert actions["use"].usd == actions["cost"].usd
    assert plan.serving[0].machine.price is None and plan.money and plan.money.portfolio and plan.portfolio
    (lease,) = plan.portfolio.leases
    assert (lease.term, lease.usd, lease.release) == ("owned", 0.0, "") and lease.units < 2
    for lines in (plan.money.lines, plan.money.portfolio.lines):
        assert {line.category for line in lines} == {"energy"}
    assert plan.money.portfolio.total_usd == pytest.approx(plan.money.total_usd, abs=0.01)


def test_own_machines_that_nothing_works_on_stand_in_a_step_with_what_they_draw(plan: Plan) -> None:
    """Their energy was in the cost, and in no step of it."""
    assert plan.money and plan.money.portfolio
    rests = line_item("s: energy of 2 × DGX-H100", "energy", 1000.0, "kWh", UnitCost(0.1, "a list"))
    bill = replace(plan.money.portfolio, lines=(*plan.money.portfolio.lines, rests))
    told = {each.kind: each for each in actions_of(replace(plan, money=replace(plan.money, portfolio=bill)))}
    assert told["use"].usd == rests.total_usd and "at rest" in told["use"].text
    assert "use" not in kinds(plan)


@pytest.mark.parametrize("count", [1, 30])
def test_the_block_has_six_lines_at_most_and_ends_in_a_command(plan: Plan, count: int) -> None:
    first, *rest = plan.actions
    long = replace(plan, actions=(replace(first, text=" · ".join([first.text] * count)), *rest))
    lines = action_lines(long, "my.yaml")
    assert 4 <= len(lines) <= 6 and max(map(len, lines)) <= WIDTH
    assert lines[0].startswith("DO THIS") and lines[-1].split()[1:] == [
        "twofold",
        "plan",
        "my.yaml",
        "--rehearse",
    ]
