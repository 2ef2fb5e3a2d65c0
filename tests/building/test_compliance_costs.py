"""The bill of rules: lines for each driver, totals to the cent, and an uplift that falls with size."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.building.compliance_costs import CLAIM, Rent, bill_of, totals_of, uncharged, uplift_at, uplift_of
from twofold.building.compliance_system import RuledSystem, keys_of, logs_of
from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import ComplianceFigure, HardwarePrice
from twofold.contracts.results.compliance import ComplianceItem
from twofold.contracts.results.ledger import total_usd
from twofold.contracts.spec.supply import ComplianceSpec

CATALOG = load_catalog()
RENT = Rent("run", 1000.0, 8.0, 6.0, 2.0, "gov", "commercial", "anybody", "2026-07-20")
System = Callable[..., RuledSystem]


def bill(system: RuledSystem, *rents: Rent) -> tuple[ComplianceItem, ...]:
    keys = keys_of(system, CATALOG)
    return bill_of(system, keys, logs_of(system, "content", None, CATALOG), rents, CATALOG)


def line(items: tuple[ComplianceItem, ...], name: str) -> ComplianceItem:
    return next(item for item in items if item.name == name)


def test_every_line_is_a_quantity_at_a_price_with_a_source_and_a_date(ruled: System) -> None:
    for item in bill(ruled("il5"), RENT):
        assert item.line.total_usd == pytest.approx(item.line.quantity * item.line.unit_usd, abs=0.01)
        assert item.line.source, item.name
        assert item.line.date, item.name
        assert item.low_usd <= item.line.total_usd <= item.high_usd


@pytest.mark.parametrize("regime", ["fedramp-moderate", "fedramp-high", "il5", "air-gapped"])
def test_the_total_is_the_sum_of_the_lines_to_the_cent(ruled: System, regime: str) -> None:
    items = bill(ruled(regime), RENT)
    first, rent_usd, later = totals_of(items)
    assert first.value == total_usd(item.line for item in items)
    assert rent_usd == pytest.approx(6000.0)
    assert later.value == total_usd(item.line for item in items if item.recurs == "year")
    assert first.low < first.value < first.high


def test_dearer_rent_is_what_is_paid_over_the_open_shop(ruled: System) -> None:
    items = bill(ruled("il5"), RENT)
    assert line(items, "provider of run").line.total_usd == pytest.approx(4000.0)
    assert line(items, "region of run").line.total_usd == pytest.approx(2000.0)
    same = Rent("run", 1000.0, 2.0, 2.0, 2.0, "a", "a", "a", "2026")
    assert not [item for item in bill(ruled("il5"), same) if item.category in {"provider", "region"}]


@settings(max_examples=20, deadline=None)
@given(factor=st.integers(2, 50))
def test_what_is_bought_for_nodes_grows_with_them_and_the_assessor_does_not(
    ruled: System, factor: int
) -> None:
    few, many = (bill(ruled("fedramp-high", nodes=4 * count)) for count in (1, factor))
    node = "endpoint protection and scanning"
    assert line(many, node).line.total_usd == pytest.approx(factor * line(few, node).line.total_usd)
    fixed = "first assessment, high"
    assert line(many, fixed).line.total_usd == line(few, fixed).line.total_usd


def test_own_machines_buy_what_rented_ones_rent(ruled: System) -> None:
    rented, owned = bill(ruled("il5")), bill(ruled("il5", rented=False))
    names = [{item.name for item in items} for items in (rented, owned)]
    assert "hardware security module, rented" in names[0] - names[1]
    assert "hardware security module, bought" in names[1] - names[0]
    assert "dedicated tenancy" in names[0] - names[1]


def test_what_one_provider_charges_is_no_cost_of_another(ruled: System) -> None:
    aws, other = ruled("il5", sites=2), ruled("il5", sites=2, provider="azure")
    mixed = replace(aws, providers=("aws", "azure"))
    assert line(bill(aws), "dedicated tenancy").line.quantity == 2.0
    assert line(bill(mixed), "dedicated tenancy").line.quantity == 1.0
    assert "dedicated tenancy" not in {item.name for item in bill(other)}
    assert uncharged(aws, CATALOG) == ()
    assert all("dedicated tenancy" in text and "azure" in text for text in uncharged(other, CATALOG))
    assert len(uncharged(mixed, CATALOG)) == 1


def test_spares_of_a_closed_room_cost_what_its_own_nodes_cost(ruled: System) -> None:
    known = line(bill(ruled("air-gapped", rented=False, node="DGX-H100")), "spare node on site")
    unknown = line(bill(ruled("air-gapped", rented=False, node="a box")), "spare node on site")
    listed = {row.name: row.usd for row in CATALOG.rows(HardwarePrice)}
    assert known.line.unit_usd == listed["DGX-H100"]
    assert "hardware_prices" in known.line.source
    assert unknown.line.unit_usd != known.line.unit_usd
    assert "spare node on site" not in {item.name for item in bill(ruled("il5", rented=False))}


def test_the_uplift_falls_with_size_and_is_told_against_the_claim(ruled: System) -> None:
    spec = ComplianceSpec(regime="fedramp-high")
    uplifts = [uplift_at(size, ruled("fedramp-high"), spec, RENT, CATALOG) for size in (64, 512, 4096)]
    fractions = [uplift.uplift_fraction.value for uplift in uplifts]
    assert fractions[0] > fractions[1] > fractions[2] > (8.0 - 6.0) / 6.0  # never below the dearer region
    low, high = CLAIM
    words = ["below" if value < low else "above" if value > high else "within" for value in fractions]
    assert [uplift.claim for uplift in uplifts] == words
    assert uplifts[0].base_usd == pytest.approx(64 * 8760 * 6.0)


def test_another_provider_is_in_the_bill_and_not_in_the_uplift(ruled: System) -> None:
    cheap = Rent("run", 1000.0, 8.0, 6.0, 6.0, "gov", "commercial", "commercial", "2026-07-20")
    with_line, without = (uplift_of(8, 1e6, bill(ruled("il5"), rent), CATALOG) for rent in (RENT, cheap))
    assert with_line.uplift_fraction.value == pytest.approx(without.uplift_fraction.value)


def test_what_is_paid_once_is_spread_over_its_years(ruled: System) -> None:
    once = line(bill(ruled("il5")), "first assessment, high")
    years = next(row.value for row in CATALOG.rows(ComplianceFigure) if row.category == "spread")
    fraction = uplift_of(8, 1e6, (once,), CATALOG).uplift_fraction.value
    assert fraction == pytest.approx(once.line.total_usd / years / 1e6, abs=1e-6)
