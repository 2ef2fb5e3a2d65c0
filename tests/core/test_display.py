"""Numbers on screens: the look of EXAMPLE's page, and laws that hold for every number."""

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twofold.core.display import (
    format_apart,
    format_bytes,
    format_count,
    format_enough,
    format_estimate,
    format_memory,
    format_range,
    format_seconds,
    format_si,
    format_usd,
)
from twofold.core.estimate import Estimate, Source
from twofold.core.quantity import parse_quantity


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (format_seconds(8.6), "8.6 s"),
        (format_seconds(0.031), "31 ms"),
        (format_seconds(0.38), "380 ms"),
        (format_seconds(60), "60 s"),
        (format_seconds(109 * 60), "109 min"),
        (format_seconds(4.1 * 3600), "4.1 h"),
        (format_seconds(17 * 86400), "17.0 d"),
        (format_seconds(190 * 86400), "190 d"),
        (format_seconds(0), "0 s"),
        (format_memory(44 * 2**30), "44 GiB"),
        (format_memory(9.6 * 2**30), "9.6 GiB"),
        (format_bytes(0.99e12), "0.99 TB"),
        (format_si(16.5e9, "B/s"), "16.5 GB/s"),
        (format_usd(0.61e6), "0.61 M$"),
        (format_usd(2.1e6), "2.1 M$"),
        (format_usd(0.0032), "0.0032 $"),
        (format_count(254_000), "254 k"),
        (format_count(30.8e6), "30.8 M"),
        (format_count(512), "512"),
        (format_si(0.41, "fraction"), "41 %"),
        (format_range(8.6, 7.9, 9.5, "s"), "8.6 s [7.9–9.5]"),
        (format_range(0.61e6, 0.56e6, 0.69e6, "USD"), "0.61 M$ [0.56–0.69]"),
        (format_range(0.41, 0.37, 0.45, "fraction"), "41 % [37–45]"),
        (format_range(4, 2, 8, ""), "4 [2–8]"),
        (format_range(0.998, 0.997, 0.999, "fraction"), "99.8 % [99.7–99.9]"),
        (format_range(1.0, 0.9999999, 1.0, "fraction"), "100 %"),
        (format_estimate(Estimate(8.6, 7.9, 9.5, "s", Source.FITTED)), "8.6 s [7.9–9.5] f"),
    ],
)
def test_the_look_of_the_example_page(text: str, shown: str) -> None:
    assert text == shown


@given(
    value=st.floats(min_value=1e-9, max_value=1e9), unit=st.sampled_from(["s", "USD", "B/s", "FLOP/s", "W"])
)
def test_a_shown_number_is_near_its_value(value: float, unit: str) -> None:
    number, label = re.fullmatch(r"([\d.,e+-]+) (\S+)", format_si(value, unit)).groups()  # type: ignore[union-attr]
    dimension = {"s": "time", "USD": "money", "B/s": "bytes/s", "FLOP/s": "FLOP/s", "W": "power"}[unit]
    shown = parse_quantity(f"{number} {label}", dimension)
    assert math.isclose(shown, value, rel_tol=0.06, abs_tol=5.1e-5)


@example(value=999.5e9, unit="W")  # shown in TW
@given(value=st.floats(min_value=1e-3, max_value=1e12), unit=st.sampled_from(["USD", "W"]))
def test_what_is_shown_to_be_enough_is_enough_and_hardly_more(value: float, unit: str) -> None:
    dimension = {"USD": "money", "W": "power"}[unit]
    shown = parse_quantity(format_enough(value, unit), dimension)
    assert value * (1 - 1e-12) <= shown <= value * 1.06 + 1e-4


@given(value=st.floats(min_value=0, max_value=1e18), factor=st.floats(min_value=1.2, max_value=10))
def test_a_longer_time_is_never_shown_as_a_shorter_one(value: float, factor: float) -> None:
    def shown(seconds: float) -> float:
        return parse_quantity(format_seconds(seconds), "time")

    assert shown(value * factor) >= shown(value)


@given(value=st.floats())
def test_no_number_breaks_a_screen(value: float) -> None:
    assert format_seconds(value)
    assert format_si(value, "an unknown unit").endswith("an unknown unit")


@given(st.floats(1e-4, 1e5), st.floats(1.01, 100.0))
def test_a_value_and_the_limit_that_it_misses_never_look_alike(limit: float, ratio: float) -> None:
    shown, limit_text = format_apart(limit * ratio, limit, "s")
    assert shown != limit_text


def test_a_value_far_from_its_limit_keeps_its_few_digits() -> None:
    assert format_apart(23.193, 15.0, "s") == ("23 s", "15 s")
