"""A bill adds up to the cent."""

from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.results.ledger import UnitCost, line_item, total_usd

AMOUNTS = st.floats(0.0, 1e7)


@given(AMOUNTS, st.floats(0.0, 100.0), st.floats(0.0, 1.0), st.floats(0.0, 0.3))
def test_a_line_is_its_gross_less_discount_plus_tax(
    quantity: float, unit_usd: float, discount: float, tax: float
) -> None:
    line = line_item(
        "a",
        "rent",
        quantity,
        "h",
        UnitCost(unit_usd, "a quote"),
        discount_fraction=discount,
        tax_fraction=tax,
    )
    gross = quantity * unit_usd
    assert abs(line.total_usd - gross * (1.0 - discount) * (1.0 + tax)) <= 0.03
    assert round(line.total_usd * 100.0) / 100.0 == line.total_usd


@given(st.lists(AMOUNTS, max_size=30))
def test_a_bill_is_its_lines_in_any_order(amounts: list[float]) -> None:
    lines = [line_item("a", "rent", amount, "h", UnitCost(1.0, "a quote")) for amount in amounts]
    assert total_usd(lines) == total_usd(reversed(lines))
    assert round(total_usd(lines) * 100) == sum(round(line.total_usd * 100) for line in lines)
