"""The units of claims: what one of each is in SI, how a computed value is written in it, and what words mean.

Words such as "far" or "nearly" have one threshold each, in `thresholds.csv`: it stands apart from every
claim, so that none is chosen after its figure was seen.
"""

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from twofold.core.quantity import DAY_S, YEAR_S

Value = float | str | bool | None
"""What a quantity may be: a number in SI units, a name, a yes or no; None where there is no such thing."""

# What predicates may write behind a number: `40 * kW`.
NAMED: Mapping[str, float] = MappingProxyType(
    {
        "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "GiB": 2.0**30, "Gbit": 1e9 / 8,
        "kW": 1e3, "ms": 1e-3, "hour": 3600.0, "day": DAY_S, "year": YEAR_S,
        "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12,
    }
)  # fmt: skip
# Units of claims that are not here are counts or ratios: one of them is 1.
SI_FACTOR: Mapping[str, float] = MappingProxyType(
    {
        **NAMED,
        "%": 1e-2,
        "h": 3600.0,
        "GB/s": 1e9,
        "Gb/s": 1e9 / 8,
        "TB/s": 1e12,
        "MB/token": 1e6,
        "kB/request": 1e3,
        "TFLOPS": 1e12,
        "$M": 1e6,
        "ms/1000 km": 1e-9,
    }
)


@cache
def thresholds() -> Mapping[str, float]:
    """What words of claims mean, by the names that predicates use: `far`, `nearly`."""
    with (Path(__file__).parent / "thresholds.csv").open(encoding="utf-8", newline="") as handle:
        return MappingProxyType({row["name"]: float(row["value"]) for row in csv.DictReader(handle)})


LABELS = {"x": "×", "fraction": ""}


def in_unit(value: Value, unit: str) -> Value:
    """A number of SI units as a number of `unit`; names, yes and no stay.

    >>> in_unit(72.0, "W"), in_unit(4.8e12, "TB/s"), in_unit("L4", "W")
    (72.0, 4.8, 'L4')
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return value / SI_FACTOR.get(unit, 1.0)


def shown(value: Value, unit: str) -> str:
    """A value as a sentence says it: `72 W`, `1.8 ×`, `yes`, `none`.

    >>> shown(0.153, "%"), shown(1234567.0, "GPU"), shown(True, "")
    ('15.3 %', '1,234,567 GPU', 'yes')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    number = in_unit(value, unit)
    if isinstance(number, str):
        return number
    assert number is not None
    label = LABELS.get(unit, unit)
    return f"{digits(number)} {label}".strip()


def digits(number: float) -> str:
    """Three significant digits, with all of those before the point.

    >>> digits(0.01234), digits(3.0), digits(12345.6)
    ('0.0123', '3', '12,346')
    """
    if abs(number) >= 1000:
        return f"{number:,.0f}" if abs(number) < 1e12 else f"{number:.3g}"
    if number and abs(number) < 1e-3:
        return f"{number:.2g}"
    first_digit = int(f"{abs(number):.2e}".split("e")[1])  # its power of ten
    decimals = 0 if number == 0 else max(0, 2 - first_digit)
    text = f"{number:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
