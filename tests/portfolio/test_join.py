"""What a portfolio is asked, from the spec."""

import pytest

from twofold.contracts.spec import Supply
from twofold.portfolio.join import budget_for_machines


def test_the_budget_pays_what_rules_ask_for_and_tax_before_machines() -> None:
    plain = Supply.model_validate({"budget": "120 k$"})
    taxed = Supply.model_validate({"budget": "120 k$", "economics": {"tax": "20 %"}})
    assert budget_for_machines(Supply(), 5.0) is None
    assert budget_for_machines(plain, 0.0) == pytest.approx(120e3)
    assert budget_for_machines(taxed, 0.0) == pytest.approx(100e3)
    assert budget_for_machines(taxed, 60e3) == pytest.approx(50e3)
    assert budget_for_machines(plain, 200e3) == 0.0
