"""A plan under rules: every kind of plan has its part, money agrees with the plan, and nothing else moves."""

from collections.abc import Callable

import pytest

from twofold.answer.paths import is_estimate, leaves
from twofold.contracts.results.compliance import Compliance
from twofold.contracts.results.ledger import total_usd
from twofold.contracts.results.plan import Plan
from twofold.core.data import to_data

Planned = Callable[[str], Plan]
SERVING = """model: llama-3.1-8b
serving:
  classes:
    chat:
      traffic: {rate: 2 /s, peak: 3x, input: {mean: 500 tok}, output: {mean: 100 tok}}
      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}
supply: {shop: {accelerators: [H100-SXM], terms: [on_demand]}}
"""
TRAINING = """model: llama-3.1-8b
training: {tokens: 1 Gtok, on: 2x8xH100-SXM, repeats: every 4 weeks}
supply: {shop: {terms: [on_demand]}}
"""
OWN = TRAINING.replace("2x8xH100-SXM", "{node: DGX-H100, count: 2}")


def rules_of(plan: Plan) -> Compliance:
    assert plan.compliance is not None
    return plan.compliance


@pytest.fixture(scope="module")
def serving(planned: Planned) -> Plan:
    return planned(f"{SERVING}compliance: {{regime: fedramp-high, recorded: attribution}}\n")


@pytest.fixture(scope="module")
def training(planned: Planned) -> Plan:
    return planned(f"{TRAINING}compliance: fedramp-moderate\n")


def test_a_plan_without_rules_has_no_such_part(planned: Planned) -> None:
    assert planned(TRAINING).compliance is None


def test_what_is_chosen_stands_in_an_authorised_region(serving: Plan) -> None:
    price = serving.serving[0].machine.price
    assert price is not None
    places = {place.where for place in rules_of(serving).permitted}
    assert f"{price.provider}:{price.region}" in places


def test_the_base_and_the_dearer_rent_add_up_to_what_the_plan_rents(serving: Plan) -> None:
    rules, money = rules_of(serving), serving.money
    assert money is not None
    rented = total_usd(line for line in money.lines if line.category in ("rent", "support"))
    assert rules.uplift is not None
    region = total_usd(item.line for item in rules.items if item.category == "region")
    assert rules.uplift.base_usd + region == pytest.approx(rented, rel=1e-6)


def test_requests_of_the_plan_are_those_that_are_recorded(serving: Plan) -> None:
    logs = rules_of(serving).logs
    assert logs.requests_per_s == pytest.approx(2.0)
    assert logs.budget_s == pytest.approx(0.05 * 2.0)  # of the first token, not of the time per token
    assert {enclave.name for enclave in rules_of(serving).enclaves} == {"serving", "management"}


def test_a_plan_that_only_trains_has_its_bill_too(training: Plan) -> None:
    rules = rules_of(training)
    assert rules.logs.bytes_per_request is None
    assert {enclave.name for enclave in rules.enclaves} == {"training", "management"}
    assert rules.first_year_usd.value > rules.later_year_usd.value > 0
    run = training.training[0].run
    hours = run.accelerator_h.value * 365 / 28  # every four weeks
    rented = [item for item in rules.items if item.category in ("provider", "region")]
    assert all(item.line.quantity == pytest.approx(hours) for item in rented)


def test_machines_of_ones_own_have_no_dearer_rent_and_inherit_nothing(planned: Planned) -> None:
    rules = rules_of(planned(f"{OWN}compliance: air-gapped\n"))
    assert rules.rent_usd == 0.0
    assert rules.transfer is not None
    assert {enclave.place for enclave in rules.enclaves} == {"owned"}
    assert not [control for control in rules.controls if control.status == "inherited"]
    assert rules.uplift is not None  # against the servers' price over their years
    assert rules.permitted == ()


def test_every_estimate_of_the_part_is_derived_from_leaves(serving: Plan) -> None:
    data = to_data(serving)
    wanted = {path for path, leaf in leaves(data) if is_estimate(leaf) and path.startswith("compliance.")}
    rows = {row.path: row for row in serving.derivations if row.path.startswith("compliance.")}
    assert wanted <= set(rows) <= {path for path, _ in leaves(data)}
    for row in rows.values():
        assert row.inputs
        assert all(item.reference or item.path in rows for item in row.inputs), row.path


def test_notes_about_rules_stand_with_the_plans_own(training: Plan) -> None:
    assert set(rules_of(training).notes) <= set(training.warnings)
