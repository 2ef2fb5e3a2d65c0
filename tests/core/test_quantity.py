"""Laws of quantities: text becomes one number and comes back; all else is refused with a hint."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core.errors import QuantityError, UnitError
from twofold.core.quantity import UNITS, Dimension, format_quantity, natural_quantity, parse_quantity

DIMENSIONS = st.sampled_from(list(Dimension))
SIZES = st.floats(min_value=1e-9, max_value=1e20) | st.just(0.0)


@given(dimension=DIMENSIONS, size=SIZES, data=st.data())
def test_what_is_written_in_any_unit_reads_back(
    dimension: Dimension, size: float, data: st.DataObject
) -> None:
    unit = data.draw(st.sampled_from(tuple(UNITS[dimension])))
    read = parse_quantity(format_quantity(size, unit), dimension)
    assert math.isclose(read, size, rel_tol=1e-14)


@given(dimension=DIMENSIONS, size=SIZES)
def test_the_natural_text_reads_back_exactly(dimension: Dimension, size: float) -> None:
    assert parse_quantity(natural_quantity(size, dimension), dimension) == size


@given(number=st.floats(min_value=1e-6, max_value=1e12))
def test_a_unit_scales_its_number(number: float) -> None:
    small, large = parse_quantity(f"{number!r} GB", "bytes"), parse_quantity(f"{number!r} TB", "bytes")
    assert math.isclose(large, 1000 * small, rel_tol=1e-15)
    assert math.isclose(parse_quantity(f"{number!r} GiB", "bytes"), number * 2**30, rel_tol=1e-15)


@given(text=st.text(max_size=80), dimension=DIMENSIONS)
def test_any_text_is_a_finite_number_or_a_coded_error(text: str, dimension: Dimension) -> None:
    try:
        number = parse_quantity(text, dimension)
    except QuantityError as error:
        assert error.code in ("E-unit", "E-quantity")
    else:
        assert math.isfinite(number)
        assert number >= 0


@given(number=st.integers(min_value=1, max_value=10**9), dimension=DIMENSIONS)
def test_the_hint_for_a_bare_number_is_a_text_that_parses(number: int, dimension: Dimension) -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantity(str(number), dimension)
    written = caught.value.hint.removeprefix("write `").removesuffix("`")
    assert parse_quantity(written, dimension) >= 0


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("80 GB", "bytes", 80e9),
        ("80 GiB", "bytes", 80 * 2**30),
        ("700 Gtok", "tokens", 7e11),
        ("512 seq", "sequences", 512),
        ("500 ms", "time", 0.5),
        ("30 d", "time", 2_592_000),
        ("8 weeks", "time", 4_838_400),
        ("40 /s", "rate", 40),
        ("120 req/min", "rate", 2),
        ("$4M", "money", 4e6),
        ("4 M$", "money", 4e6),
        ("61 kUSD", "money", 61_000),
        ("$2.10/h", "money per hour", 2.1),
        ("989 TFLOP/s", "FLOP/s", 989e12),
        ("3.35 TB/s", "bytes/s", 3.35e12),
        ("400 Gb/s", "bytes/s", 50e9),
        ("700 W", "power", 700),
        ("1 kWh", "energy", 3.6e6),
        ("99.9 %", "fraction", 0.999),
        ("2.5x", "multiplier", 2.5),
        ("1,184 tok", "tokens", 1184),
        ("5 µs", "time", 5e-6),
    ],
)
def test_quantities_that_people_write(text: str, dimension: str, value: float) -> None:
    assert parse_quantity(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "code", "says"),
    [
        ("500", "time", "E-unit", "write `500 s`"),
        ("0.999", "fraction", "E-unit", "write `99.9 %`"),
        ("4000000", "money", "E-unit", "write `$4000000`"),
        ("2.5", "multiplier", "E-unit", "write `2.5x`"),
        ("80 gb", "bytes", "E-unit", "write `80 GB`"),
        ("80 GB", "time", "E-unit", "is a unit of bytes, not of time"),
        ("5 parsecs", "time", "E-unit", "is not a unit of time"),
        ("-5 s", "time", "E-quantity", "is negative"),
        ("inf s", "time", "E-quantity", "is not a finite number"),
        (".nan", "time", "E-quantity", "is not a finite number"),
        ("1e999 s", "time", "E-quantity", "is too large"),
        ("1e308 y", "time", "E-quantity", "is too large"),
        ("soon", "time", "E-quantity", "is not a number with a unit of time"),
        ("", "time", "E-quantity", "write for example `10 s`"),
        ("9" * 100 + " s", "time", "E-quantity", "is not a number"),
    ],
)
def test_what_is_refused_says_what_to_write(text: str, dimension: str, code: str, says: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text, dimension)
    assert caught.value.code == code
    assert says in str(caught.value)


def test_a_hint_uses_the_unit_that_the_caller_names() -> None:
    with pytest.raises(UnitError, match="write `500 ms`"):
        parse_quantity("500", Dimension.TIME, "ms")
    with pytest.raises(UnitError, match="write `1 s` or `1 ms`"):
        parse_quantity("1", Dimension.TIME, "ms")


@pytest.mark.parametrize(
    ("text", "dimension", "says"),
    [("4k", "tokens", "write `4 ktok`"), ("80G", "bytes", "write `80 GB`"), ("3m", "time", "min, h, d")],
)
def test_a_prefix_alone_is_offered_with_its_unit(text: str, dimension: str, says: str) -> None:
    with pytest.raises(UnitError, match=says):
        parse_quantity(text, dimension)
