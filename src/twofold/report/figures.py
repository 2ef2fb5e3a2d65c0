"""What screens add to core's way of writing numbers: exactness, sums whose terms add up, shares of 100 %."""

from collections.abc import Sequence
from math import floor, log10
from types import MappingProxyType

from twofold.catalog.catalog import load_catalog
from twofold.core.display import format_estimate, format_si, likely, scale_of
from twofold.core.errors import UnknownNameError
from twofold.core.estimate import Estimate, Source

NO_GPU = {"cpu", "gaudi", "inferentia", "lpu", "tpu", "trainium", "wafer"}  # families of the catalogue
LETTERS = MappingProxyType(
    {
        Source.MEASURED: "measured here",
        Source.FITTED: "fitted on published measurements",
        Source.VENDOR: "a vendor's figure",
        Source.ASSUMED: "assumed",
    }
)


def ranged(estimate: Estimate | None, unit: str = "") -> str:
    """`8.6 s [7.9–9.5] f`; without brackets when it is exact. `unit` shows the same number on another scale.

    What is absent is a dash.

    >>> ranged(Estimate(8.6, 7.9, 9.5, "s")), ranged(Estimate(4.0, 4.0, 4.0, "s"))
    ('8.6 s [7.9–9.5] f', '4 s f')
    """
    if estimate is None:
        return "–"
    shown = Estimate(estimate.value, estimate.low, estimate.high, unit or estimate.unit, estimate.source)
    if shown.low == shown.high:
        return f"{format_si(shown.value, shown.unit)} {shown.source}"
    return format_estimate(shown)


def percent(fraction: float) -> str:
    """A share that has no range of its own: `14 %`, `0.4 %`."""
    value = 100 * fraction
    return f"{value:,.0f} %" if abs(value) >= 10 else f"{round(value, 1):g} %"


def chance(met: bool, probability: float | None, asked: float | None = None) -> str:
    """`✓ 84 %`: whether a goal is met by the middle of what is predicted, and how probably it holds.

    `~ 71 %` where its middle is, and it is `asked` to hold more surely.
    """
    mark = "✗" if not met else "~" if asked and probability is not None and probability < asked else "✓"
    return mark if probability is None else f"{mark} {likely(probability, asked)}"


def share(fraction: float) -> str:
    """A share that is not all is not shown as 100 %."""
    return f"{100 * fraction:.2f} %" if 0.995 <= fraction < 1 else percent(fraction)


def success_goal(fraction: float) -> str:
    """`success ≥ 99.9 %`: of the requests, whole answers."""
    return f"success ≥ {100 * fraction:.8g} %"


def answered(fraction: float) -> str:
    """A share so near to all that what it lacks is what counts: 100 % only if it is all.

    >>> answered(1.0), answered(0.99962), answered(0.9999999), answered(0.9712)
    ('100 %', '99.962 %', '99.999990 %', '97.1 %')
    """
    failed = 100 * (1.0 - fraction)
    if failed < 1e-9:
        return "100 %"
    return f"{100 * fraction:.{min(max(1, 1 - floor(log10(failed))), 9)}f} %"


def watt_hours(energy: Estimate) -> str:
    """Joules as they are billed: `230 MWh [207–253] f`."""
    low, value, high = (number / 3600 for number in (energy.low, energy.value, energy.high))
    return ranged(Estimate(value, low, high, "Wh", energy.source))


def summed(parts: Sequence[tuple[str, float]], total: Estimate) -> str:
    """`16.6 d compute + 0.2 d failures = 16.8 d [15–19] f`: the terms add up to the total as it is shown.

    A term that would be shown as nothing is written in its own unit: `3.0 h compute + 43 s failures = 3.0 h`.
    """
    texts, unit = in_unit_of(total.value, total.unit, [value for _, value in parts])
    terms = []
    for text, (label, value) in zip(texts, parts, strict=True):
        lost = value > 0 and not text.strip("0.")
        terms.append(f"{format_si(value, total.unit) if lost else f'{text} {unit}'} {label}")
    return f"{' + '.join(terms)} = {ranged(total)}"


def hours_unit(accelerator: str) -> str:
    """What hours of a device are called: `GPU-h`, or `accelerator-h` of what is none, or not known to be."""
    try:
        family = load_catalog().accelerator(accelerator).family
    except UnknownNameError:
        return "accelerator-h"
    return "accelerator-h" if family in NO_GPU else "GPU-h"


def in_unit_of(total: float, unit: str, values: Sequence[float]) -> tuple[list[str], str]:
    """The parts of a total in the unit and decimals that the total is shown with, and that unit."""
    scale = scale_of(total, unit)
    digits = format_si(total, unit).split(" ")[0]
    decimals = len(digits.partition(".")[2])
    return apportioned([value / scale.divisor for value in values], decimals), scale.label


def shares(parts: Sequence[tuple[str, float]]) -> list[str]:
    """`compute 74 %`, … of the parts' own sum, 100 % together."""
    whole = sum(value for _, value in parts) or 1.0
    texts = apportioned([100 * value / whole for _, value in parts], 0)
    return [f"{label} {text} %" for text, (label, _) in zip(texts, parts, strict=True)]


def apportioned(values: Sequence[float], decimals: int) -> list[str]:
    """The values at so many decimals, rounded so that what is shown adds up to the rounded sum.

    Largest remainder: each is rounded down, and the units missing in the sum go to the largest remainders.

    >>> apportioned([1.4, 1.4, 1.2], 0)
    ['2', '1', '1']
    """
    unit = 10.0**-decimals
    floors = [floor(value / unit + 1e-9) for value in values]
    missing = round(sum(values) / unit) - sum(floors)
    by_remainder = sorted(range(len(values)), key=lambda i: floors[i] - values[i] / unit)
    for index in by_remainder[: max(missing, 0)]:
        floors[index] += 1
    return [f"{count * unit:,.{decimals}f}" for count in floors]
