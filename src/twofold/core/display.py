"""Numbers as people read them on every screen: two or three digits and the unit that keeps them short."""

from collections.abc import Mapping
from math import ceil, floor
from types import MappingProxyType
from typing import NamedTuple

from twofold.core.estimate import Estimate
from twofold.core.quantity import DAY_S


class Scale(NamedTuple):
    """Numbers from `lowest` on are shown divided by `divisor`, with the label.

    `decimals` None: two digits below ten, whole numbers above; from ten to a hundred `tens_decimals`.
    """

    lowest: float
    divisor: float
    label: str
    decimals: int | None = None
    tens_decimals: int = 0


def _steps(unit: str, prefixes: str = " kMGTPE") -> tuple[Scale, ...]:
    """Decimal prefixes; the next one begins at 1,000."""
    sized = [(prefix.strip(), 1e3**power) for power, prefix in enumerate(prefixes)]
    scales = [Scale(size, size, f"{prefix}{unit}") for prefix, size in sized]
    return (scales[0]._replace(lowest=0.0), *scales[1:])


_TIME = (
    Scale(0.0, 1e-9, "ns"),
    Scale(1e-6, 1e-6, "µs"),
    Scale(1e-3, 1e-3, "ms"),
    Scale(1.0, 1.0, "s"),
    Scale(120.0, 60.0, "min"),
    Scale(7200.0, 3600.0, "h"),
    Scale(2 * DAY_S, DAY_S, "d", None, 1),
)
_MEMORY = tuple(
    Scale(0.0 if power == 0 else 2.0 ** (10 * power), 2.0 ** (10 * power), label)
    for power, label in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))
)
_MONEY = (
    Scale(0.0, 1.0, "$", 4),
    Scale(0.1, 1.0, "$", 2),
    Scale(1e3, 1e3, "k$"),
    Scale(1e5, 1e6, "M$", 2),
    Scale(1e6, 1e6, "M$"),
    Scale(1e9, 1e9, "G$"),
)
_COUNT = (
    Scale(0.0, 1.0, ""),
    Scale(1e4, 1e3, "k"),
    Scale(1e6, 1e6, "M", None, 1),
    Scale(1e9, 1e9, "G", None, 1),
    Scale(1e12, 1e12, "T", None, 1),
)

# By the SI unit that a number inside Twofold is in, as `Estimate.unit` writes it.
SCALES: Mapping[str, tuple[Scale, ...]] = MappingProxyType(
    {
        "s": _TIME,
        "B": _steps("B"),
        "memory B": _MEMORY,
        "USD": _MONEY,
        "USD/h": (Scale(0.0, 1.0, "$/h", 2), Scale(1e3, 1e3, "k$/h")),
        "USD/y": tuple(scale._replace(label=f"{scale.label}/y") for scale in _MONEY),
        "": _COUNT,
        "GPU-h": tuple(scale._replace(label=f"{scale.label} GPU-h".strip()) for scale in _COUNT),
        "accelerator-h": tuple(each._replace(label=f"{each.label} accelerator-h".strip()) for each in _COUNT),
        "Wh": _steps("Wh"),
        "gCO2": (Scale(0.0, 1.0, "gCO2"), Scale(1e3, 1e3, "kgCO2"), Scale(1e6, 1e6, "tCO2")),
        "fraction": (Scale(0.0, 0.01, "%"),),
        "1": (Scale(0.0, 1.0, ""),),
        "probability": (Scale(0.0, 0.01, "%"),),  # see `likely`
        "B/s": tuple(scale._replace(tens_decimals=1) for scale in _steps("B/s")),
        "FLOP/s": _steps("FLOP/s"),
        "FLOP": _steps("FLOP"),
        "W": _steps("W"),
        "J": _steps("J"),
        "tok": _steps("tok"),
        "nats/token": (Scale(0.0, 1.0, "nats/token", 3, 3),),
        "tok/s": _steps("tok/s", " kM"),
        "1/s": (Scale(0.0, 1.0, "/s"), Scale(1e4, 1e3, "k/s")),
    }
)
SURE_PROBABILITY = 0.995  # from here on, and as near to nothing, 200 draws tell no more
MORE_DECIMALS = 2  # that numbers which look alike may take to be told apart
_EARLY = {"TB", "PB", "EB"}  # 0.99 TB, not 990 GB: checkpoints and data sets are compared in TB


def format_si(value: float, unit: str) -> str:
    """A number in SI units as people read it: `8.6 s`, `0.99 TB`, `41 %`. An unknown unit stays behind it."""
    if unit == "probability":
        return likely(value)
    scale = scale_of(value, unit)
    return _labelled(_digits(value, scale), scale)


def likely(probability: float, asked: float | None = None) -> str:
    """A probability as far as draws tell it; one below what is `asked` is not rounded up to it.

    >>> likely(0.838), likely(0.796, 0.8), likely(0.79999, 0.8), likely(0.9999), likely(0.0)
    ('84 %', '79.6 %', '79.9 %', '>99 %', '<1 %')
    """
    if probability >= SURE_PROBABILITY:
        return ">99 %"
    if probability <= 1 - SURE_PROBABILITY:
        return "<1 %"
    text = f"{100 * probability:.0f} %"
    short = asked is not None and probability < asked and float(text[:-2]) >= 100 * asked - 1e-9
    return f"{floor(1000 * probability) / 10:.1f} %" if short else text


def format_range(value: float, low: float, high: float, unit: str) -> str:
    """The value and its range, all in the value's unit: `8.6 s [7.9–9.5]`.

    A range that its digits would hide gets more: `99.8 % [99.7–99.9]`; one that they still hide is not shown.
    """
    scale = scale_of(value, unit)
    numbers = (value, low, high)
    fewest = [_digits(number, scale) for number in numbers]
    decimals = len(fewest[0].partition(".")[2])
    finer = (
        [f"{number / scale.divisor:,.{decimals + more}f}" for number in numbers]
        for more in range(1, 1 + MORE_DECIMALS)
    )
    for texts in (fewest, *finer):
        if low == high or texts[1] != texts[2]:
            return f"{_labelled(texts[0], scale)} [{texts[1]}–{texts[2]}]"
    return _labelled(fewest[0], scale)


def format_apart(value: float, limit: float, unit: str) -> tuple[str, str]:
    """A value and the limit that it is held against, with digits enough to tell which is larger.

    >>> format_apart(0.00543, 0.0054, "s"), format_apart(23.2, 15.0, "s")
    (('5.43 ms', '5.40 ms'), ('23 s', '15 s'))
    """
    shown = format_si(value, unit), format_si(limit, unit)
    scale = scale_of(limit, unit)
    for decimals in range(1, 2 + MORE_DECIMALS):
        if value == limit or shown[0] != shown[1]:
            break
        numbers = (f"{number / scale.divisor:,.{decimals}f}" for number in (value, limit))
        first, second = (_labelled(digits, scale) for digits in numbers)
        shown = first, second
    return shown


def format_enough(value: float, unit: str) -> str:
    """A limit that would do: never shown as less than it is, with a digit more where rounding would.

    >>> format_enough(16_275, "USD"), format_enough(15_911, "USD"), format_enough(16_700, "W")
    ('16.3 k$', '16 k$', '17 kW')
    """
    scale = scale_of(value, unit)
    digits = _digits(value, scale)
    if float(digits.replace(",", "")) * scale.divisor < value:
        decimals = len(digits.partition(".")[2]) + (scale.decimals is None)
        digits = f"{ceil(value / scale.divisor * 10**decimals) / 10**decimals:,.{decimals}f}"
    return _labelled(digits, scale)


def format_estimate(estimate: Estimate) -> str:
    """An estimate with its range and its source letter: `8.6 s [7.9–9.5] f`."""
    text = format_range(estimate.value, estimate.low, estimate.high, estimate.unit)
    return f"{text} {estimate.source.value}"


def format_seconds(value_s: float) -> str:
    """`31 ms`, `8.6 s`, `109 min`, `17.0 d`."""
    return format_si(value_s, "s")


def format_bytes(value_bytes: float) -> str:
    """Decimal, as disks and links count: `0.99 TB`."""
    return format_si(value_bytes, "B")


def format_memory(value_bytes: float) -> str:
    """Binary, as device memory counts: `44 GiB`."""
    return format_si(value_bytes, "memory B")


def format_usd(value_usd: float) -> str:
    """`0.61 M$`, `12 k$`, `2.10 $`, `0.0032 $`."""
    return format_si(value_usd, "USD")


def format_count(value: float) -> str:
    """`512`, `254 k`, `30.8 M`."""
    return format_si(value, "")


def scale_of(value: float, unit: str) -> Scale:
    """The scale that shows a number of this unit shortest."""
    scales = SCALES.get(unit, (Scale(0.0, 1.0, unit),))
    size = abs(value)
    if size == 0:
        return next((scale for scale in scales if scale.divisor == 1.0), scales[0])
    fitting = [scale for scale in scales if size >= scale.lowest * (0.9 if scale.label in _EARLY else 0.9995)]
    return fitting[-1] if fitting else scales[0]  # NaN fits nowhere


def _digits(value: float, scale: Scale) -> str:
    number = value / scale.divisor
    size = abs(number)
    if number == 0 or (scale.divisor == 1.0 and not scale.decimals and float(number).is_integer()):
        return f"{number:,.0f}"
    if scale.decimals is not None:
        return f"{number:,.{scale.decimals}f}"
    if size >= 9.95:
        return f"{number:,.{scale.tens_decimals if size < 99.95 else 0}f}"
    return f"{number:.1f}" if size >= 0.995 else f"{number:.2g}"


def _labelled(digits: str, scale: Scale) -> str:
    return f"{digits} {scale.label}" if scale.label else digits
