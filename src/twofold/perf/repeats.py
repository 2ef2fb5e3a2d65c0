"""How far a further measurement may lie from those that were taken: the spread of repeated rows."""

from collections.abc import Iterable, Sequence
from math import exp, log, sqrt
from statistics import NormalDist, fmean

UPPER_DECILE = 0.9  # an 80 % range ends at the first and the last decile
# What one row of each kind leaves unknown: the same application on equal GPUs of one cluster varies by 8 % on
# average. Sinha et al. 2022, "Not All GPUs Are Created Equal", SC22.
ASSUMED_SPREAD_FRACTION = 0.08


def spread_factor(groups: Iterable[Sequence[float]]) -> float:
    """The 80 % factor by which a further time may differ from the middle of its group.

    Formula  exp(t · σ · √(1 + 1/n)), t Student's last decile at the repeats' degrees of freedom
    Why      Errors of times are ratios. σ is pooled over the groups: each has few repeats.
    Units    groups of repeated times, any one unit.
    Source   prediction interval of a normal sample with unknown variance.
    Limits   no repeats: the assumed spread; equal repeats: 1.
    """
    rows = [[log(seconds) for seconds in times] for times in groups]
    freedom = sum(len(logs) - 1 for logs in rows)
    if freedom == 0:
        return 1.0 + ASSUMED_SPREAD_FRACTION
    square = sum((each - fmean(logs)) ** 2 for logs in rows for each in logs)
    per_group = sum(map(len, rows)) / len(rows)
    return exp(student_quantile(UPPER_DECILE, freedom) * sqrt(square / freedom * (1.0 + 1.0 / per_group)))


def student_quantile(fraction: float, freedom: int) -> float:
    """Student's quantile from the normal one.

    Formula  z + (z³+z)/4ν + (5z⁵+16z³+3z)/96ν² + (3z⁷+19z⁵+17z³−15z)/384ν³
    Source   Abramowitz & Stegun 1964, 26.7.5.
    Limits   many degrees of freedom ν: the normal quantile; at ν = 1 and the last decile 4 % too small.

    >>> round(student_quantile(0.9, 5), 2)
    1.48
    """
    z = NormalDist().inv_cdf(fraction)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
