"""Runs beside each other: means over seeds with their intervals, and two scenarios paired."""

from collections.abc import Sequence
from math import isclose, sqrt
from statistics import fmean, stdev

from twofold.contracts.results import Comparison, Difference, Simulation
from twofold.rehearse.figure_table import flat_figures

# Student's t at 97.5 %, by degrees of freedom; what is beyond is taken at the last.
STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160)
ROUNDING = 1e-9  # of a figure: what sums in another order differ by


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95 % confidence interval; of one value, the value alone.

    Formula  mean ± t(n−1, 97.5 %)·s/√n
    """
    middle = fmean(values)
    if len(values) < 2:
        return middle, middle, middle
    half = STUDENT_T[min(len(values) - 1, len(STUDENT_T)) - 1] * stdev(values) / sqrt(len(values))
    return middle, middle - half, middle + half


def compared(first: Sequence[Simulation], second: Sequence[Simulation]) -> Comparison:
    """Figures of two scenarios over the same seeds, with intervals of the paired differences B − A.

    Why      Both see the same requests and the same chance, so that what they share cancels.
    """
    a, b = [flat_figures(each) for each in first], [flat_figures(each) for each in second]
    differences = []
    for name in a[0]:
        known = [(x[name], y[name]) for x, y in zip(a, b, strict=True) if name in x and name in y]
        if len(known) < min(2, len(a)):
            continue
        gaps = mean_interval([0.0 if isclose(x, y, rel_tol=ROUNDING) else y - x for x, y in known])
        differences.append(Difference(name, fmean(x for x, _ in known), fmean(y for _, y in known), *gaps))
    seeds = tuple(each.seed for each in first)
    return Comparison(first[0].scenario, second[0].scenario, seeds, tuple(differences))
