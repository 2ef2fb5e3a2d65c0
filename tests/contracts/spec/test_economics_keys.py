"""Terms of money in a spec."""

import pytest

from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.supply import Economics
from twofold.core.errors import InputError

SPEC = """
model: llama-3.1-8b
training: {{tokens: 1 Gtok}}
supply: {{economics: {{{}}}}}
"""


def terms(text: str) -> Economics:
    return parse_spec(SPEC.format(text), "twofold.yaml").supply.economics


def test_nothing_said_is_list_price_in_dollars_without_tax() -> None:
    found = terms("")
    assert (found.discount_fraction, found.tax_fraction, found.currency, found.exchange_ratio) == (
        0.0,
        0.0,
        "USD",
        1.0,
    )
    assert found.downtime_usd_per_h is None and found.staff_count is None


def test_what_is_said_is_read_in_its_units() -> None:
    found = terms("discount: 12 %, tax: 19 %, downtime_cost: 2 k$/h, years: 3, staff: 0, salary: 90 k$")
    assert found.discount_fraction == pytest.approx(0.12)
    assert (found.downtime_usd_per_h, found.years, found.staff_count, found.salary_usd) == (
        2000.0,
        3,
        0,
        90e3,
    )


@pytest.mark.parametrize(
    "text",
    [
        "currency: EUR",
        "currency: florins, exchange: 2x",
        "discount: 120 %",
        "years: 0",
        "years: 50",
        "tax: 19",
    ],
)
def test_a_currency_without_a_rate_and_terms_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        terms(text)
