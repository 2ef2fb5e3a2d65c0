"""From numbers to places: linear and logarithmic scales with ticks that people read."""

from dataclasses import dataclass
from math import ceil, floor, isclose, isfinite, log10

from twofold.charts.chart import Axis
from twofold.core.display import format_si, scale_of

LEAST = 1e-30  # that a logarithmic axis goes down to
MARGIN = 0.04  # of the span, kept free at each end
NICE = (1.0, 2.0, 2.5, 5.0)
TICKS_TOLD = 6  # at most, where a scale is judged by its numbers
SHORT = 8.0  # a logarithmic axis below this ratio has the ticks of a plain one
TIMES = (1.0, 2.0, 5.0)  # of a power of ten, on a logarithmic axis


@dataclass(frozen=True, slots=True)
class Scale:
    """A monotone map of an axis' numbers to places between `start` and `end`."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float
    whole: bool = False  # it counts things: no tick is half a machine

    def place(self, value: float) -> float:
        """Where a number stands; beyond the axis it stays at its end."""
        if self.axis.log:
            if value <= LEAST:
                return self.start
            fraction = log10(value / self.low) / log10(self.high / self.low)
        else:
            fraction = (value - self.low) / (self.high - self.low)
        return self.start + min(max(fraction, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """At most `most` round numbers inside the axis."""
        if self.axis.log and self.high > SHORT * self.low:
            found = _log_ticks(self.low, self.high, most)
            return [each for each in found if self.is_told(each)] or found
        return _ticks(self, most)

    def is_told(self, value: float) -> bool:
        """Whether a number's text is the number itself, not one that it was rounded to."""
        if self.whole and not isclose(value, round(value), abs_tol=1e-9):
            return False
        digits = self.text(value).partition(" ")[0].replace(",", "")
        try:
            told = float(digits) * scale_of(value, self.axis.unit).divisor
        except ValueError:
            return False
        return isclose(told, value, rel_tol=1e-9, abs_tol=1e-9 * max(abs(self.low), abs(self.high)))

    def text(self, value: float) -> str:
        """A number as every screen writes it."""
        return format_si(value, self.axis.unit)


def scale_to(axis: Axis, values: list[float], start: float, end: float) -> Scale:
    """A scale that holds all values; a single one stands in its middle. An axis in logarithms has no 0."""
    whole = axis.unit == "" and all(float(each).is_integer() for each in values)
    if axis.log:
        values = [each for each in values if each > LEAST] or [1.0]
        low, high = min(values), max(values)
        room = (high / low) ** MARGIN if high > low else 2.0
        return Scale(axis, low / room, high * room, start, end, whole)
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low == high:
        low, high = (min(0.0, 2.0 * low), max(0.0, 2.0 * high)) if low else (0.0, 1.0)
    room = MARGIN * (high - low)
    # Nothing below 0 where no number is.
    found = Scale(axis, low - room if low < 0.0 else max(0.0, low - room), high + room, start, end, whole)
    if len(found.ticks(TICKS_TOLD)) < 2 and low > 0.0:  # one number on an axis tells no length: from 0 on
        return Scale(axis, 0.0, high + room, start, end, whole)
    return found


def _ticks(scale: Scale, most: int) -> list[float]:
    """Round in the unit that the largest number is written in, so that labels are short."""
    unit = scale_of(max(abs(scale.low), abs(scale.high)), scale.axis.unit).divisor
    low, high = scale.low / unit, scale.high / unit
    raw = (high - low) / max(most - 1, 1)
    if not isfinite(raw) or raw <= 0.0:
        return [scale.low]
    power = 10.0 ** floor(log10(raw))
    steps = (nice * power * more for more in (1.0, 10.0) for nice in NICE)
    tried = [_multiples(scale, step, unit, most) for step in steps if step >= raw * (1 - 1e-9)]
    # Where labels round, as 12.5 to 12, the next longer step.
    return next((each for each in tried if each and all(map(scale.is_told, each))), tried[0])


def _multiples(scale: Scale, step: float, unit: float, most: int) -> list[float]:
    first = ceil(scale.low / unit / step - 1e-9)
    found = [(first + index) * step * unit for index in range(most + 1)]
    return [value for value in found if value <= scale.high * (1 + 1e-9)][:most]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    for times in (TIMES, (1.0, 3.0), (1.0,)):
        found = [
            each * 10.0**power for power in powers for each in times if low <= each * 10.0**power <= high
        ]
        if found and len(found) <= most:
            return found
    every = ceil(len(powers) / most)
    return [10.0**power for power in powers if low <= 10.0**power <= high][::every] or [low]
