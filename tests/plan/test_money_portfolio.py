"""The portfolio's first year against the bill's: as many hours, to the cent."""

from collections.abc import Callable

import pytest

from twofold.contracts import Plan, total_usd

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
