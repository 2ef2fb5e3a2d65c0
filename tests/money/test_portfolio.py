"""The portfolio's first year against the bill's: as many hours, to the cent."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from twofold.answer.context import Context
from twofold.answer.uncertainty import draw_factors
from twofold.building.own import own_years
from twofold.catalog.catalog import Catalog
from twofold.contracts.results.holdings import TrainedShare
from twofold.contracts.results.ledger import LineItem, UnitCost, line_item, total_usd
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import parse_spec
from twofold.money.portfolio import portfolio_bill
from twofold.perf.constants import Constants

Planned = Callable[[str], Plan]
FLAT = """
name: flat
model: llama-3.1-8b
serving:
  name: desk
  zones: 1
  availability: 99 %
  classes:
    chat:
      traffic: {rate: 20 /s, peak: 1x, input: {mean: 400 tok, p95: 1200 tok}, output: {mean: 80 tok}}
      slo: {ttft_p95: 600 ms, tpot_p95: 50 ms}
"""
SHOP = (
    "supply: {economics: {discount: 7 %, tax: 19 %}, shop: {accelerators: [H100-SXM], providers: [PROVIDER]}}"
)


@pytest.mark.parametrize("provider", ["cudo", "aws"], ids=["rent alone", "with egress"])
def test_the_same_machine_at_the_same_price_saves_nothing(planned: Planned, provider: str) -> None:
    """A year of 52 weeks lacks a day: it made a portfolio 0.27 % cheaper than the fleet that it is."""
    plan = planned(FLAT + SHOP.replace("PROVIDER", provider))
    assert plan.money and plan.money.portfolio and plan.portfolio
    bill, item = plan.money.portfolio, plan.portfolio.items[0]
    (lease,) = plan.portfolio.leases
    assert (lease.units, lease.weeks, item.quantity) == (1, 52, 52 * 168)
    rent = next(line for line in bill.lines if line.category == "rent")
    assert rent.quantity == pytest.approx(8760)
    assert (rent.discount_usd, rent.tax_usd) == pytest.approx(
        tuple(each * 8760 / 8736 for each in (item.discount_usd, item.tax_usd)), abs=0.02
    )
    assert bill.total_usd == total_usd(bill.lines) == pytest.approx(plan.money.total_usd, abs=0.02)
    assert not bill.difference
    assert "no portfolio of leases answers all for less" in plan.actions[1].text


def test_a_run_that_goes_back_is_paid_for_its_own_hours(planned: Planned) -> None:
    plan = planned(
        "name: run\nmodel: llama-3.2-1b\n"
        "training: {name: tune, kind: finetune, tokens: 1 Gtok, deadline: 14 d, on: 1x8xH100-SXM}\n"
        "supply: {shop: {accelerators: [H100-SXM], providers: [aws]}}\n"
    )
    assert plan.money and plan.money.portfolio and plan.portfolio
    assert [lease.use for lease in plan.portfolio.leases] == ["training"]
    bill = plan.money.portfolio
    assert set(plan.portfolio.items) <= set(bill.lines)
    # The same machine at the same price: what is kept and moved is the same, so that nothing is saved.
    assert {line.category for line in bill.lines} == {"rent", "support", "storage", "egress"}
    assert bill.total_usd == pytest.approx(plan.money.total_usd, rel=1e-6) and not bill.difference


def test_own_machines_take_the_energy_of_the_work_that_they_do(
    planned: Planned, catalog: Catalog, constants: Constants
) -> None:
    """It was all hours of those machines, others' work too, over hours of machines rented for runs alone."""
    text = (
        "name: own\nmodel: llama-3.2-1b\ntraining: {kind: finetune, tokens: 1 Gtok, deadline: 14 d}\n"
        "supply: {own: [{node: DGX-H100, count: 4, region: aws:us-east-1}]}\n"
    )
    plan = planned(text)
    assert plan.portfolio and plan.money
    context = Context(parse_spec(text, "own.yaml"), catalog, constants, draw_factors(constants, 2, 0), None)
    (own,) = own_years(plan, context).values()
    (lease,) = plan.portfolio.leases
    assert [row.share_fraction for row in plan.portfolio.trained] == pytest.approx([1.0])
    # Machines in turn: most of what they do is for somebody else, and some of the run is done on others'.
    busy = replace(lease, use="both", what=f"serve.chat, {lease.what}", unit_h=1e6, used_fraction=1.0)
    rented = replace(busy, term="on_demand", offer="rented", accelerators_per_unit=1)

    def spent(share: float) -> tuple[float, float]:
        """kWh, and USD for the peaks."""
        assert plan.portfolio and plan.money
        rows = (TrainedShare("finetune", lease.offer, share), TrainedShare("finetune", "rented", 1 - share))
        portfolio = replace(plan.portfolio, leases=(busy, rented), trained=rows, items=_rent(rented.what))
        bill = portfolio_bill(replace(plan, portfolio=portfolio), plan.money.lines, context)
        assert bill
        found = [line for line in bill.lines if line.category == "energy"]
        peaks = total_usd(line for line in found if line.unit == "month")
        return sum(line.quantity for line in found if line.unit == "kWh"), peaks

    for share in (0.0, 0.25, 1.0):
        kwh, peaks_usd = spent(share)
        assert kwh == pytest.approx((own.rest_j + share * own.work_j) * own.pue_ratio / 3.6e6)
        more_usd = own.demand_usd - own.demand_rest_usd
        assert peaks_usd == pytest.approx(own.demand_rest_usd + share * more_usd, abs=0.01)
    assert 0 < own.demand_rest_usd < own.demand_usd


def _rent(what: str) -> tuple[LineItem, ...]:
    return (line_item(f"{what}: machines", "rent", 1.0, "unit-h", UnitCost(1.0, "a list")),)
