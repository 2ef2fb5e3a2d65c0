"""Text with a unit becomes one SI float, and back. How numbers look on a screen is `display`'s."""

import re
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from math import isfinite
from types import MappingProxyType

from twofold.core.errors import QuantityError, UnitError

FEW_MS = 100  # fewer may have been seconds
LENGTH_LIMIT = 64  # no quantity that a person writes is longer
# For every floor: a year of 365 days, as prices, tariffs and availabilities count.
DAY_S = 86_400.0
YEAR_H = 8760.0
YEAR_S = YEAR_H * 3600.0
J_PER_KWH = 3.6e6


class Dimension(StrEnum):
    """What a quantity measures. Its SI unit inside Twofold is the unit of factor 1 in `UNITS`."""

    BYTES = "bytes"
    TOKENS = "tokens"
    SEQUENCES = "sequences"
    TIME = "time"
    RATE = "rate"
    TOKEN_RATE = "tokens per time"
    MONEY = "money"
    MONEY_PER_HOUR = "money per hour"
    MONEY_PER_DAY = "money per day"
    MONEY_PER_ENERGY = "money per energy"
    FLOPS = "FLOP/s"
    BANDWIDTH = "bytes/s"
    POWER = "power"
    ENERGY = "energy"
    FRACTION = "fraction"
    MULTIPLIER = "multiplier"


_DECIMAL = {"": "1", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12", "P": "1e15", "E": "1e18"}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}


def _prefixed(unit: str, prefixes: str = "kMGT", factor: str = "1") -> dict[str, Decimal]:
    """The unit alone and behind each decimal prefix."""
    return {prefix + unit: Decimal(_DECIMAL[prefix]) * Decimal(factor) for prefix in ("", *prefixes)}


def _binary(unit: str) -> dict[str, Decimal]:
    return {prefix + unit: Decimal(factor) for prefix, factor in _BINARY.items()}


def _exactly(**factors: str) -> dict[str, Decimal]:
    return {unit: Decimal(factor) for unit, factor in factors.items()}


_TIME = _exactly(
    s="1", ms="1e-3", us="1e-6", ns="1e-9", min="60", h="3600", d="86400", w="604800", y="31536000"
)
_TIME |= _exactly(second="1", seconds="1", minute="60", minutes="60", hour="3600", hours="3600")
_TIME |= _exactly(day="86400", days="86400", week="604800", weeks="604800", year="31536000", years="31536000")
_TIME |= {"\u00b5s": Decimal("1e-6"), "\u03bcs": Decimal("1e-6")}  # micro sign and Greek mu look the same
_PER = {"s": Decimal(1), "min": Decimal(1) / 60, "h": Decimal(1) / 3600, "d": Decimal(1) / 86400}

# The first unit of a dimension has factor 1: what the number inside is in.
UNITS: Mapping[Dimension, Mapping[str, Decimal]] = MappingProxyType(
    {
        Dimension.BYTES: _prefixed("B", "kMGTPE") | {"KB": Decimal("1e3")} | _binary("B"),
        Dimension.TOKENS: _prefixed("tok") | _prefixed("token", "") | _prefixed("tokens", ""),
        Dimension.SEQUENCES: _prefixed("seq")
        | _prefixed("sequence", "")
        | _prefixed("sequences", "")
        | _prefixed("sample", "")
        | _prefixed("samples"),
        Dimension.TIME: _TIME,
        Dimension.RATE: {f"{what}/{time}": factor for what in ("", "req") for time, factor in _PER.items()},
        Dimension.TOKEN_RATE: _prefixed("tok/s") | {f"tok/{time}": factor for time, factor in _PER.items()},
        Dimension.MONEY: _prefixed("$", "kMG") | {"B$": Decimal("1e9")} | _prefixed("USD", "kMG"),
        Dimension.MONEY_PER_HOUR: _prefixed("$/h", "kM") | _prefixed("USD/h", "kM"),
        Dimension.MONEY_PER_DAY: _prefixed("$/d", "kM") | _prefixed("USD/d", "kM"),
        # Inside in $/kWh, as every tariff is written.
        Dimension.MONEY_PER_ENERGY: _exactly(
            **{"$/kWh": "1", "$/MWh": "1e-3", "USD/kWh": "1", "USD/MWh": "1e-3"}
        ),
        Dimension.FLOPS: _prefixed("FLOP/s", "kMGTPE") | _prefixed("FLOPS", "kMGTPE"),
        Dimension.BANDWIDTH: _prefixed("B/s", "kMGT")
        | _binary("B/s")
        | _prefixed("b/s", "kMGT", "0.125")
        | _prefixed("bit/s", "kMGT", "0.125")
        | _prefixed("bps", "kMGT", "0.125"),
        Dimension.POWER: _prefixed("W", "kMGT"),
        Dimension.ENERGY: _prefixed("J", "kMGT") | _prefixed("Wh", "kMGT", "3600"),
        Dimension.FRACTION: {"%": Decimal("0.01")},
        Dimension.MULTIPLIER: {"x": Decimal(1), "×": Decimal(1)},
    }
)

# What a hint writes behind a bare number, where the caller names nothing better.
_SUGGESTED = {
    Dimension.BYTES: "GB",
    Dimension.TOKENS: "tok",
    Dimension.TIME: "s",
    Dimension.FLOPS: "TFLOP/s",
    Dimension.BANDWIDTH: "GB/s",
}
_NUMBER = r"(?P<sign>[+-]?)(?P<number>(?:\d{1,3}(?:,\d{3})+|[\d_]+)?(?:\.\d+)?(?:[eE][+-]?\d{1,9})?)"
_PATTERN = re.compile(rf"(?P<dollar>\$?)\s*{_NUMBER}\s*(?P<unit>[^\d\s.,+-].*)?", re.ASCII)


def parse_quantity(text: str, dimension: Dimension | str, suggest: str = "") -> float:
    """The quantity in the dimension's SI unit.

    A bare number, or a unit of another dimension, is a UnitError whose hint is the text to write, in the unit
    `suggest`; a negative, infinite, NaN or unreadable number is a QuantityError.

    >>> parse_quantity("80 GiB", "bytes"), parse_quantity("99.9 %", "fraction")
    (85899345920.0, 0.999)
    """
    dimension = Dimension(dimension)
    suggested = suggest or suggested_unit(dimension)
    match = _PATTERN.fullmatch(text.strip()) if len(text) <= LENGTH_LIMIT else None
    number = _number(match, text, dimension, suggested)
    assert match
    unit = (match["unit"] or "").strip()
    if match["dollar"]:  # `$4M` is 4 `M$`, `$2.10/h` is 2.10 `$/h`
        scale, slash, time = unit.partition("/")
        unit = f"{scale.strip()}${slash}{time}"
    if not unit:
        meant = f"`{_bare_as(number, dimension, suggested)}`"
        if suggested == "ms" and 0 < number < FEW_MS:
            meant = f"`{_bare_as(number, dimension, 's')}` or {meant}"
        raise UnitError(f"`{text}` needs a unit", hint=f"write {meant}")
    factor = UNITS[dimension].get(unit)
    if factor is None:
        raise _wrong_unit(text, match["number"], unit, dimension, suggested)
    value = float(number * factor)
    if not isfinite(value):
        raise QuantityError(f"`{text}` is too large")
    return value


def format_quantity(value: float, unit: str) -> str:
    """The number in `unit`, with all its digits: `parse_quantity` reads the same float back.

    >>> format_quantity(85899345920.0, "GiB"), format_quantity(0.999, "%")
    ('80 GiB', '99.9 %')
    """
    factor = next(table[unit] for table in UNITS.values() if unit in table)
    number = Decimal(repr(float(value))) / factor
    plain = f"{number:f}" if 1e-4 <= abs(number) < 1e15 or not number else f"{number:e}"
    digits = plain.rstrip("0").rstrip(".") if "." in plain and "e" not in plain else plain
    return f"{digits}{unit}" if unit in UNITS[Dimension.MULTIPLIER] else f"{digits} {unit}"


def natural_quantity(value: float, dimension: Dimension | str) -> str:
    """The shortest text that reads back as exactly this number: `2592000.0` seconds are `30 d`."""
    dimension = Dimension(dimension)
    texts = [format_quantity(value, unit) for unit in UNITS[dimension]]
    exact = [text for text in texts if parse_quantity(text, dimension) == value]
    return min(exact, key=len) if exact else texts[0]


def suggested_unit(dimension: Dimension) -> str:
    """The unit that a hint writes behind a bare number of this dimension."""
    return _SUGGESTED.get(dimension, next(iter(UNITS[dimension])) if dimension != Dimension.FRACTION else "%")


def _number(match: re.Match[str] | None, text: str, dimension: Dimension, suggested: str) -> Decimal:
    digits = match["number"].replace(",", "").replace("_", "") if match else ""
    hint = f"write for example `{_bare_as(Decimal(10), dimension, suggested)}`"
    if not match or not re.search(r"\d", digits) or digits[0] in "eE":
        if re.match(r"\s*\$?\s*[+-]?\.?(inf|nan)", text, re.IGNORECASE):
            raise QuantityError(f"`{_shortened(text)}` is not a finite number", hint=hint)
        what = f"`{_shortened(text)}` is not a number with a unit of {dimension.value}"
        raise QuantityError(what, hint=hint)
    if match["sign"] == "-":
        raise QuantityError(f"`{text}` is negative", hint=hint)
    if not isfinite(float(digits)):
        raise QuantityError(f"`{text}` is too large", hint=hint)
    return Decimal(digits) if float(digits) else Decimal(0)


def _bare_as(number: Decimal, dimension: Dimension, suggested: str) -> str:
    """What a bare number most likely meant. A fraction below 1 meant that part of the whole."""
    if dimension == Dimension.FRACTION and 0 < number <= 1:
        number = number * 100
    if suggested.startswith("$"):
        return f"${_plain(number)}{suggested[1:]}"
    return f"{_plain(number)}{suggested}" if suggested == "x" else f"{_plain(number)} {suggested}"


def _plain(number: Decimal) -> str:
    text = f"{number:f}" if abs(number) < Decimal("1e15") else f"{number:e}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _wrong_unit(text: str, number: str, unit: str, dimension: Dimension, suggested: str) -> UnitError:
    """Says what the unit measures if it measures anything, and names a unit that is right here."""
    shown = [known for known in UNITS[dimension] if known.isascii()][:12]
    same = [known for known in UNITS[dimension] if known.lower() == unit.lower()]
    if same:
        what = f"`{text}`: `{unit}` is not a unit of {dimension.value}"
        return UnitError(what, hint=f"write `{number} {same[0]}`")
    prefixed = f"{unit}{next(iter(UNITS[dimension]))}"
    if prefixed in UNITS[dimension] and dimension != Dimension.TIME:  # `4k` of tokens; `3m` may be minutes
        what = f"`{text}`: `{unit}` is not a unit of {dimension.value}"
        return UnitError(what, hint=f"write `{number} {prefixed}`")
    measures = [str(other) for other, table in UNITS.items() if unit in table]
    is_unit = f"is a unit of {measures[0]}, not of" if measures else "is not a unit of"
    example = _bare_as(Decimal(10), dimension, suggested)
    return UnitError(
        f"`{_shortened(text)}`: `{_shortened(unit)}` {is_unit} {dimension.value}",
        hint=f"units: {', '.join(shown)}; for example `{example}`",
    )


def _shortened(text: str) -> str:
    return text if len(text) <= LENGTH_LIMIT else text[: LENGTH_LIMIT - 1] + "…"
