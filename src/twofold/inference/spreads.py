"""How far lengths spread: log-normal as their mean and 95th percentile say, cut where no trace goes on."""

from math import exp, log, sqrt
from statistics import NormalDist

NORMAL_P95 = 1.6448536
# The longest prompt over the 95th percentile: 3.4 in Azure's conversations of 2023, 2.9 in Mooncake's, 1.0 in
# Azure's code. A log-normal without an end would send prompts that no published trace has.
LONGEST_RATIO = 3.5
HALVINGS = 50
NORMAL = NormalDist()


def spread_of(p95_ratio: float) -> float:
    """Standard deviation over mean of lengths whose 95th percentile is `p95_ratio` times their mean.

    Formula  ln r = 1.645·σ − σ²/2, the smaller root; then `cut_spread(σ)`
    Limits   r ≤ 1 is no spread; beyond e^(1.645²/2) = 3.87 no log-normal has it, and σ stays 1.645.

    >>> round(spread_of(4083 / 1155), 2), spread_of(1.0)
    (1.54, 0.0)
    """
    return cut_spread(sigma_of(p95_ratio))


def sigma_of(p95_ratio: float) -> float:
    """The deviation of the logarithm of what has this 95th percentile over its mean, as `spread_of`."""
    if p95_ratio <= 1.0:
        return 0.0
    return NORMAL_P95 - sqrt(max(0.0, NORMAL_P95**2 - 2.0 * log(p95_ratio)))


def cut_spread(sigma: float) -> float:
    """Standard deviation over mean of a log-normal of mean 1 whose lengths stop at LONGEST_RATIO × p95.

    Formula  E[min(X, c)^k] = e^(kμ + k²σ²/2)·Φ((ln c − μ)/σ − kσ) + c^k·(1 − Φ((ln c − μ)/σ)), μ = −σ²/2,
             ln c = μ + 1.645·σ + ln LONGEST_RATIO; √(E₂/E₁² − 1)
    Why      The second moment of a wide log-normal is that of prompts which nobody sends: without the cut a
             queue of them needs many times the machines.
    """
    if sigma <= 0.0:
        return 0.0
    middle = -(sigma**2) / 2.0
    end = middle + NORMAL_P95 * sigma + log(LONGEST_RATIO)
    at = (end - middle) / sigma
    first, second = (
        exp(k * middle + (k * sigma) ** 2 / 2.0) * NORMAL.cdf(at - k * sigma)
        + exp(k * end) * (1.0 - NORMAL.cdf(at))
        for k in (1, 2)
    )
    return sqrt(max(0.0, second / first**2 - 1.0))


def p95_ratio_of(spread_ratio: float) -> float:
    """The 95th percentile over the mean that has this spread: the inverse of `spread_of`, by halving σ."""
    low, high = 0.0, NORMAL_P95
    for _ in range(HALVINGS):
        sigma = (low + high) / 2.0
        low, high = (sigma, high) if cut_spread(sigma) < spread_ratio else (low, sigma)
    sigma = (low + high) / 2.0 if spread_ratio > 0.0 else 0.0
    return exp(NORMAL_P95 * sigma - sigma**2 / 2.0)


def p95_and_longest(mean_tokens: float, spread_ratio: float) -> tuple[float, float]:
    """Of lengths with this mean and spread the 95th percentile, and the longest."""
    p95_tokens = mean_tokens * p95_ratio_of(spread_ratio)
    return p95_tokens, max(LONGEST_RATIO * p95_tokens, mean_tokens)
