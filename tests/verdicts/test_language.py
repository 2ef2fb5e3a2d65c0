"""The language of predicates computes what it says and reaches nothing but what it was given."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core.errors import TwofoldError, UnknownNameError, ValueRefusedError
from twofold.verdicts.language import (
    QUANTITY_UNITS,
    evaluate,
    judge_expression,
    names_in,
    parse,
    subject,
    unit_of_expression,
)
from twofold.verdicts.quantities import QUANTITIES

FINITE = st.floats(-1e9, 1e9)


@dataclass(frozen=True, slots=True)
class Card:
    tdp_w: float
    name: str


def call(name: str, arguments: Any, _: Any) -> Any:
    if name == "card":
        return Card(72.0, arguments[0])
    if name == "nothing":
        return None
    raise UnknownNameError(name)


def value(text: str, **variables: Any) -> Any:
    return evaluate(parse(text), variables, call)


@given(FINITE, FINITE, FINITE)
def test_a_range_is_closed_and_has_both_ends(x: float, low: float, high: float) -> None:
    assert value("x in low..high", x=x, low=low, high=high) == (low <= x <= high)


@given(FINITE, FINITE)
def test_a_missing_end_is_open(x: float, end: float) -> None:
    assert value("x in low..high", x=x, low=end, high=None) == (x >= end)
    assert value("x in low..high", x=x, low=None, high=end) == (x <= end)


@given(FINITE, FINITE)
def test_not_turns_every_comparison_round(x: float, y: float) -> None:
    assert value("not x < y", x=x, y=y) == (not value("x < y", x=x, y=y))
    assert value("x in 0..y", x=x, y=y) != value("x not in 0..y", x=x, y=y)


def test_percentages_units_and_arithmetic_read_as_written() -> None:
    assert value("15%") == 0.15
    assert value("0.2 in 15%..30%")
    assert value("40 * kW") == 40e3
    assert value("2 * (3 + 1) - 1") == 7
    assert value("max(1, 2) / min(4, 8)") == 0.5


def test_texts_are_not_touched() -> None:
    assert value("'15% in 1..2'") == "15% in 1..2"
    assert value("'a' in ['a', 'b']")
    assert value("'X-8' in adapter", adapter="ConnectX-8")


def test_what_does_not_exist_stays_so_and_never_holds() -> None:
    assert value("nothing().tdp_w * 2") is None
    assert not value("nothing() > 0")
    assert not value("nothing() <= 0")
    assert not value("nothing() in 0..1")
    assert value("1 / 0") is None


@pytest.mark.parametrize(
    "text",
    ["nothing() != 1", "1 != nothing()", "nothing() not in ['a']", "nothing() not in 0..1",
     "not nothing() > 0", "not (nothing() > 0)", "nothing() == nothing()", "0 < nothing() < 1"],
)  # fmt: skip
def test_a_comparison_with_what_does_not_exist_is_neither_true_nor_false(text: str) -> None:
    assert value(text) is None
    assert not judge_expression(parse(text), {}, call)[0]


def test_and_and_or_are_decided_by_the_part_that_exists() -> None:
    assert value("nothing() > 0 or 2 > 1") is True
    assert value("nothing() > 0 and 1 > 2") is False
    assert value("nothing() > 0 and 2 > 1") is None
    assert value("nothing() > 0 or 1 > 2") is None


def test_a_comparison_is_about_its_left_side() -> None:
    judged = judge_expression(parse("card('L4').tdp_w in 300..450 and 1 < 2"), {}, call)
    assert judged == (False, 72.0)
    assert names_in(subject(parse("not a > b"))) == {"a"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "x = 1",
        "import os",
        "lambda: 1",
        "[a for a in b]",
        "{1: 2}",
        "f'{x}'",
        "(1).__class__",
        "card('a').__class__",
        "card('a')._name",
        "card('a').name.upper()",
        "card('a')('b')",
        "2 ** 9",
        "1 if 2 else 3",
        "x[0]",
        "b'a'",
        "None",
        "card(*a)",
        "-" * 100 + "1",
        "1 + " * 1000 + "1",
    ],
)
def test_what_is_not_of_the_language_is_refused(text: str) -> None:
    with pytest.raises(TwofoldError):
        value(text)


@pytest.mark.parametrize("text", ["'a' * 1000000000", "'a' < 1", "card('a') + 1", "card('a') < 2", "1 - 'a'"])
def test_texts_and_rows_are_no_numbers(text: str) -> None:
    with pytest.raises(ValueRefusedError):
        value(text)


def test_an_unknown_name_says_what_was_meant() -> None:
    with pytest.raises(UnknownNameError) as refused:
        value("lo + 1", low=1)
    assert "`low`" in refused.value.hint
    with pytest.raises(UnknownNameError, match="has no figure"):
        value("card('a').weight")


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_an_error_of_ours(text: str) -> None:
    with suppress(TwofoldError):
        value(text)


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
