"""Machines of one's own where they do less than was planned: they stand all the same."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.answer.context import Context
from twofold.answer.uncertainty import draw_factors
from twofold.building.own import OwnYear, at_work, own_year_lines, own_years
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
def test_less_work_takes_less_down_to_what_machines_draw_at_rest(host: float, guest: float) -> None:
    years = {"base": HOST, "serve": GUEST}
    found = at_work(years, {"base": host, "serve": guest})
    assert sum(each.it_j for each in found.values()) == pytest.approx(100 + 60 * host + 20 * guest)
    peaks = found["base"].demand_usd
    assert peaks == pytest.approx(300 + 900 * max(host, guest)) and found["serve"].demand_usd == 0
    assert at_work(years, {}) == years


def test_a_guest_that_works_keeps_the_peaks_of_machines_that_their_host_leaves() -> None:
    years = {"base": HOST, "serve": GUEST}
    assert at_work(years, {"base": 0.0})["base"].demand_usd == HOST.demand_usd
    assert at_work(years, {"base": 0.0, "serve": 0.0})["base"].demand_usd == HOST.demand_rest_usd


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


def test_machines_of_a_run_that_is_over_draw_at_rest_in_later_years(
    planned: Planned, catalog: Catalog, constants: Constants
) -> None:
    """A later year had no line for them at all, though they stand."""
    plan, context = planned(TWO_PLACES), context_of(TWO_PLACES, catalog, constants)
    (own,) = own_years(plan, context).values()
    first, later = (total_usd(bill_lines(plan, context, later=each)) for each in (False, True))
    assert first == total_usd(own_year_lines(own))
    rests = replace(own, work_j=0.0, demand_usd=own.demand_rest_usd)
    assert 0 < later == total_usd(own_year_lines(rests)) < first
