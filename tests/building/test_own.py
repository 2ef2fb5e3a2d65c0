"""Machines of one's own where they do less than was planned: they stand all the same."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.answer.context import Context
from twofold.answer.uncertainty import draw_factors
from twofold.building.own import OwnYear, billed, own_year_lines, own_years
from twofold.catalog.catalog import Catalog
from twofold.contracts.results.ledger import UnitCost, total_usd
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import parse_spec
from twofold.money.bill import bill_lines
from twofold.perf.constants import Constants

Planned = Callable[[str], Plan]
TWO_PLACES = """
name: own
model: llama-3.2-1b
training: {kind: finetune, tokens: 1 Gtok, deadline: 14 d, on: 8xH100-SXM}
supply:
  own:
    - {node: DGX-A100-80, count: 1, region: aws:eu-central-1}
    - {node: DGX-H100, count: 4, region: aws:us-east-1}
"""
TARIFF = UnitCost(0.1, "a list")
HOST = OwnYear("base", "2 × DGX-H100", 2, 100.0, 60.0, 1.2, "air", TARIFF, 1200.0, 300.0, "base")
GUEST = OwnYear("serve", "2 × DGX-H100", 0, 0.0, 20.0, 1.2, "air", TARIFF, 0.0, 0.0, "base")
shares = st.floats(0.0, 1.0)


def context_of(text: str, catalog: Catalog, constants: Constants) -> Context:
    return Context(parse_spec(text, "own.yaml"), catalog, constants, draw_factors(constants, 2, 0), None)


@settings(max_examples=30)
@given(host=shares, guest=shares)
def test_each_pays_for_its_own_time_and_all_of_it_is_the_buildings_year(host: float, guest: float) -> None:
    years = {"base": replace(HOST, time_fraction=host), "serve": replace(GUEST, time_fraction=guest)}
    found = billed(years)
    assert sum(each.it_j for each in found.values()) == pytest.approx(180.0)
    assert sum(each.demand_usd for each in found.values()) == pytest.approx(HOST.demand_usd)
    assert found["base"].it_j == pytest.approx(60.0 + 100.0 * host)
    assert found["base"].demand_usd == pytest.approx(900.0 + 300.0 * host)
    assert found["serve"].it_j == pytest.approx(20.0 + 100.0 * min(guest, 1.0 - host))
    assert ("idle, base" in found) == (host + guest < 1.0)


def test_who_stays_pays_for_the_machines_of_a_run_that_is_over() -> None:
    found = billed({"base": HOST, "serve": GUEST}, ["base"])
    assert set(found) == {"serve"}
    assert found["serve"].it_j == 120.0 and found["serve"].demand_usd == HOST.demand_usd


def test_machines_pay_the_tariff_of_the_place_where_they_stand(
    planned: Planned, catalog: Catalog, constants: Constants
) -> None:
    """All paid that of the first place in the spec, whichever machines stood there."""
    plan = planned(TWO_PLACES)
    (own,) = own_years(plan, context_of(TWO_PLACES, catalog, constants)).values()
    assert plan.building and plan.money and plan.money.owning
    assert "aws:us-east-1" in own.tariff.source and plan.building.year.place == "aws:us-east-1"
    tariffs = {own.tariff.usd, plan.building.year.electricity_usd_per_kwh, plan.money.lines[0].unit_usd}
    tariffs |= {line.unit_usd for line in plan.money.owning.lines if line.what.startswith("power")}
    assert tariffs == {catalog.region("aws:us-east-1").electricity_usd_per_kwh}


def test_a_run_pays_for_its_own_days_and_its_nodes_rest_without_a_bill(
    planned: Planned, catalog: Catalog, constants: Constants
) -> None:
    """Four nodes for a week were billed a year of rest: four times what one node was for four weeks."""
    fixed = TWO_PLACES.replace("1 Gtok", "20 Gtok")
    energies = []
    for count in (1, 4):
        text = fixed.replace("8xH100-SXM", f"{count}x8xH100-SXM")
        plan, context = planned(text), context_of(text, catalog, constants)
        (own,) = own_years(plan, context).values()
        billed_usd, later_usd = (total_usd(bill_lines(plan, context, later=each)) for each in (False, True))
        assert plan.building and later_usd == 0.0
        whole = total_usd(line for line in plan.building.bill if line.category == "energy")
        assert whole == pytest.approx(total_usd(own_year_lines(own)), abs=0.05) and whole > 3.0 * billed_usd
        assert plan.money and plan.money.total_usd == billed_usd
        assert any(note.startswith("idle") for note in plan.money.notes)
        energies.append(sum(line.quantity for line in plan.money.lines if line.unit == "kWh"))
    assert energies[1] < 1.5 * energies[0]
