"""The unit of a computed answer."""

from typing import get_type_hints

import pytest

from twofold.verdicts import unit_of_expression
from twofold.verdicts.answer_units import QUANTITY_UNITS
from twofold.verdicts.quantities import QUANTITIES


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("catalog('L4').tdp_w", "W"),
        ("catalog('L4').tdp_w / catalog('H100').tdp_w", ""),
        ("2 * train('llama-3.1-8b', '8xH100').step_s", "s"),
        ("checkpoint('llama-3.1-8b') / GB", "GB"),
        ("max(rtt('a', 'b'), 1)", "s"),
        ("list_price('L4')", "USD/accelerator-h"),
        ("collective_s('all_reduce', 1 * GB, '8xH100')", "s"),
        ("catalog('L4').tdp_w in 1..2", ""),
        ("catalog('L4').tdp_w - rtt('a', 'b')", ""),
    ],
)
def test_units_follow_names_and_arithmetic(text: str, unit: str) -> None:
    assert unit_of_expression(text) == unit


def test_units_are_of_quantities_that_are_numbers() -> None:
    for name in QUANTITY_UNITS:
        assert get_type_hints(QUANTITIES[name].function)["return"] in (float, float | None), name
