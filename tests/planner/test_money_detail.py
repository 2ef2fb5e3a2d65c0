"""What `--money` adds: levers, shapes, tornado, Monte-Carlo and the value of measuring."""

from math import inf

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.contracts.results.ledger import MoneyDetail, total_usd
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import parse_spec
from twofold.money.detail import Billed, detailed_money
from twofold.perf.constants import load_constants
from twofold.planner.build import build_plan

SPEC = """
name: both
model: llama-3.1-8b
training:
  kind: finetune
  samples: 100000 seq
  sequence: 2048 tok
  global_batch: 64 seq
  deadline: 5 d
  on: 4x8xH100-SXM
serving:
  quantisation: [fp8, bf16]
  on: 2xL40S
  classes:
    chat:
      traffic: {rate: 20 /s, peak: 2x, input: {mean: 500 tok}, output: {mean: 200 tok, p95: 500 tok}}
      slo: {ttft_p95: 800 ms, tpot_p95: 60 ms}
supply: {budget: 200 k$}
"""
OWN = """
name: own
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  classes:
    chat:
      traffic: {rate: 5 /s, peak: 2x, input: {mean: 500 tok}, output: {mean: 200 tok, p95: 500 tok}}
      slo: {ttft_p95: 500 ms, tpot_p95: 50 ms}
supply: {own: {node: DGX-H100, count: 8}}
"""


def detailed(text: str) -> Plan:
    spec, catalog, constants = parse_spec(text, "twofold.yaml"), load_catalog(), load_constants()
    made = build_plan(spec, catalog, constants, spec_digest="0")
    return detailed_money(made.plan, made.runs, made.services, made.context)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return detailed(SPEC)


@pytest.fixture(scope="module")
def detail(plan: Plan) -> MoneyDetail:
    assert plan.money and plan.money.detail
    return plan.money.detail


def test_a_budget_in_rent_at_list_price_is_billed_at_the_budget_even_where_rent_is_free() -> None:
    terms = Billed(0.9, 100.0)
    assert terms.billed(terms.listed(1000.0)) == pytest.approx(1000.0)
    assert (Billed(0.0, 100.0).listed(1000.0), Billed(0.0, 100.0).listed(10.0)) == (inf, -inf)


def test_levers_come_by_saving_and_none_saves_more_than_there_is(detail: MoneyDetail) -> None:
    savings = [row.saves_usd_per_year for row in detail.levers]
    assert savings == sorted(savings, reverse=True)
    assert all(row.saves_fraction <= 1 for row in detail.levers)
    assert {row.of for row in detail.levers} == {"finetune", "serve"}


def test_what_is_in_use_saves_something(detail: MoneyDetail) -> None:
    for row in detail.levers:
        if row.pulled == "in use":
            assert row.saves_usd_per_year >= 0, row


def test_the_cadence_loses_what_the_run_says_that_it_loses(plan: Plan, detail: MoneyDetail) -> None:
    (lever,) = (each for each in detail.levers if each.name == "checkpoint")
    lost, usual = (float(each.split()[-1]) for each in lever.how.split(" %")[:2])
    assert lost == pytest.approx(100 * (1 - plan.training[0].run.goodput_fraction.value), rel=0.06)
    assert usual > lost


def test_shapes_that_are_too_large_become_smaller(detail: MoneyDetail) -> None:
    shapes = {shape.name: shape for shape in detail.shapes}
    assert shapes["finetune"].freed_accelerator_count > 0
    assert "of 5.0 d" in shapes["finetune"].keeps
    assert shapes["serve"].freed_accelerator_count > 0
    assert shapes["serve"].saves_usd_per_year and shapes["serve"].saves_usd_per_year > 0


def test_the_tornado_has_ten_bars_longest_first_around_the_first_year(
    plan: Plan, detail: MoneyDetail
) -> None:
    assert plan.first_year_usd
    swings = [abs(row.at_high_usd - row.at_low_usd) for row in detail.swings]
    assert len(swings) == 10 and swings == sorted(swings, reverse=True)
    for row in detail.swings:
        ends = sorted((row.at_low_usd, row.at_high_usd))
        assert ends[0] <= plan.first_year_usd.value * 1.001 and ends[1] >= plan.first_year_usd.value * 0.999
    price = next(row for row in detail.swings if row.name == "price")
    assert plan.money
    rent = total_usd(line for line in plan.money.lines if line.category in ("rent", "support"))
    fixed = plan.first_year_usd.value - rent
    ratio = (price.at_high_usd - fixed) / (price.at_low_usd - fixed)
    assert ratio == pytest.approx(price.high_factor / price.low_factor)


def test_the_draws_agree_with_the_plans_own_range(plan: Plan, detail: MoneyDetail) -> None:
    first = plan.first_year_usd
    assert first and detail.draw_count == 5000
    assert detail.low_usd < first.value < detail.high_usd
    assert detail.median_usd == pytest.approx(first.value, rel=0.15)
    width = (detail.high_usd - detail.low_usd) / (first.high - first.low)
    assert 0.6 < width < 1.6
    assert detail.over_budget_fraction is not None and 0 <= detail.over_budget_fraction <= 1


def test_the_best_measurement_stands_first_and_none_widens(detail: MoneyDetail) -> None:
    gains = [row.before_usd - row.after_usd for row in detail.measuring]
    assert gains == sorted(gains, reverse=True) and gains[-1] >= 0 < gains[0]
    assert all(row.command and row.pins for row in detail.measuring)


def test_owned_machines_have_no_levers_of_money_but_a_smaller_shape() -> None:
    money = detailed(OWN).money
    assert money and money.detail
    assert money.detail.levers == () and money.detail.draw_count == 0
    (shape,) = money.detail.shapes
    assert shape.name == "own" and shape.freed_accelerator_count > 0
    assert shape.saves_usd_per_year is None
