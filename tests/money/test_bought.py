"""Owned and rented: what adds up, and where they cross."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.results.ledger import UnitCost, line_item, total_usd
from twofold.money.bought import (
    Bought,
    OwningTerms,
    annuity_fraction,
    cash_flow,
    crossing_utilisation,
    once_usd,
    owned_lines,
    present_usd,
)


def terms(years: int = 5, rate: float = 0.08, life: float = 5.5) -> OwningTerms:
    return OwningTerms(
        years=years,
        life_years=life,
        cost_of_capital_fraction=rate,
        electricity=UnitCost(0.08, "tariff", "2025"),
        pue_ratio=1.2,
        pue_source="a hall",
        hall=UnitCost(184.0, "colocation", "2025"),
        maintenance_fraction=0.05,
        maintenance_source="a contract",
        staff_count=1.5,
        salary=UnitCost(220000.0, "salaries", "2025"),
    )


def machines(nodes: int = 64, usd: float = 330000.0) -> Bought:
    return Bought(
        what=f"{nodes} servers",
        node_count=nodes,
        accelerator_count=8 * nodes,
        node=UnitCost(usd, "hardware_prices.csv DGX-H100", "2025"),
        network=UnitCost(20000.0, "network.csv", "2026"),
        storage_tb=100.0,
        storage_tb_month=UnitCost(25.0, "storage.csv"),
        provisioned_w=nodes * 10200.0,
        it_j_per_year=nodes * 7000.0 * 8760 * 3600,
    )


@given(st.integers(1, 200), st.floats(1e3, 4e6), st.integers(1, 8), st.floats(0.0, 0.2))
def test_every_line_adds_up_and_the_years_are_the_same_money(
    nodes: int, usd: float, years: int, rate: float
) -> None:
    held = terms(years, rate)
    owned = owned_lines([machines(nodes, usd)], held)
    rented = [line_item("rent", "rent", 1000.3, "h", UnitCost(2.01, "an offer", "2026"))]
    rows = cash_flow(owned, rented, held)
    assert len(rows) == years
    assert round(sum(round(row.owned_usd * 100) for row in rows)) == round(total_usd(owned) * 100)
    assert round(sum(row.rented_usd for row in rows), 2) == round(total_usd(rented) * years, 2)
    for row in rows:
        parts = row.capex_usd + row.financing_usd + row.opex_usd - row.resale_usd
        assert row.owned_usd == pytest.approx(parts, abs=0.006)


def test_owning_lists_capital_energy_network_storage_staff_and_cooling() -> None:
    lines = owned_lines([machines()], terms())
    assert {"capex", "energy", "cooling", "storage", "staff", "financing", "facility"} <= {
        line.category for line in lines
    }
    assert any("network" in line.what for line in lines)
    assert all(line.source for line in lines)
    power, cooling = (
        next(line.total_usd for line in lines if line.category == each) for each in ("energy", "cooling")
    )
    assert cooling == pytest.approx(0.2 * power, rel=1e-6)


def test_what_is_held_to_the_end_of_its_life_is_worth_nothing() -> None:
    assert all(line.total_usd > 0 for line in owned_lines([machines()], terms(years=6)))
    left = [line.total_usd for line in owned_lines([machines()], terms(years=2)) if line.total_usd < 0]
    assert left == [pytest.approx(-64 * 330000 * (1 - 2 / 5.5), abs=0.01)]


def test_a_loan_of_payments_is_worth_what_was_borrowed() -> None:
    payment = 1000.0 * annuity_fraction(0.07, 4)
    assert present_usd([payment] * 4, 0.07) == pytest.approx(1000.0)
    assert annuity_fraction(0.0, 4) == 0.25


@given(st.floats(1e3, 1e8), st.integers(1, 4096), st.floats(0.1, 20.0))
def test_at_the_crossing_renting_by_the_hour_costs_what_owning_does(
    owned: float, count: int, price: float
) -> None:
    share = crossing_utilisation(owned, count, price)
    assert share * 8760 * count * price == pytest.approx(owned)


def test_energy_of_what_does_not_repeat_is_paid_once_whatever_the_years() -> None:
    def energy(years: int, once: float) -> float:
        lines = owned_lines([replace(machines(), it_j_once=once)], terms(years))
        return total_usd(line for line in lines if line.category == "energy")

    assert energy(5, 3.6e12) - energy(5, 0.0) == pytest.approx(1e6 * 0.08, abs=0.02)
    assert energy(1, 3.6e12) - energy(1, 0.0) == pytest.approx(1e6 * 0.08, abs=0.02)


def test_energy_of_what_does_not_repeat_is_paid_in_the_first_year() -> None:
    held, once = terms(3), replace(machines(), it_j_once=3.6e12)
    lines, rent = owned_lines([once], held), [line_item("run", "rent", 1.0, "h", UnitCost(2.0, "an offer"))]
    first, second, third = (
        row.opex_usd for row in cash_flow(lines, rent, held, owned_once_usd=once_usd([once], held))
    )
    assert first - second == pytest.approx(1e6 * 0.08 * 1.2, abs=0.02)
    assert second == pytest.approx(third, abs=0.02)
    assert first + second + third == pytest.approx(
        total_usd(line for line in lines if line.category not in ("capex", "financing")), abs=0.006
    )


def test_what_is_rented_once_is_in_the_first_year_alone() -> None:
    once, always = (
        line_item(name, "rent", 100.0, "h", UnitCost(2.0, "an offer", "2026")) for name in ("run", "fleet")
    )
    held = terms(3)
    rows = cash_flow(owned_lines([machines()], held), [once, always], held, [always])
    assert [row.rented_usd for row in rows] == [400.0, 200.0, 200.0]
