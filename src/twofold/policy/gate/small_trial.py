"""A trial for thin traffic: what so few requests can tell, asked of them in as much time as there is.

The usual margins take thousands of requests. Where a release is to be decided by a few dozen, each margin is
as wide as these tell apart, so that an equal release is promoted and a plainly worse one is not; what lies
between is likelier to pass than by the usual trial, and the settings say so.
"""

from math import expm1, sqrt

from twofold.policy.gate.settings import CanarySettings, Stage

SURE = 5.2  # standard deviations: a false alarm of 0.2 % (2.9) and a miss of 1 % (2.3)
TTFT_SPREAD, TPOT_SPREAD = 0.6, 0.3  # of the logs of answers' times
SCORE_SPREAD = 0.1  # of differences of scores on the side
FAILURES = 7.0  # expected of a release that fails by the margin, until it is known
SHARES = (0.25, 0.5)
BLOCKS = 8  # of the whole trial; three of them are the first stage, which says nothing before
REQUESTS_LEAST = 32  # that a trial has at least


def requests_within(rate_per_s: float, seconds: float) -> int:
    """Requests that a release is sent in a small trial of so many seconds.

    Formula  n = rate · seconds / Σ (part of n in a stage / share of that stage)
    """
    first = 3 / BLOCKS
    return int(rate_per_s * seconds / (first / SHARES[0] + (1 - first) / SHARES[1]))


def small_trial(rate_per_s: float, seconds: float) -> CanarySettings:
    """The trial of two stages that so many requests a second decide in about so much time.

    Formula  margin of a mean = SURE · spread · √(2 / n), of failures = FAILURES / n; n requests to it
    """
    usual, count = CanarySettings(), max(REQUESTS_LEAST, requests_within(rate_per_s, seconds))
    block_count = count // BLOCKS
    off = SURE * sqrt(2.0 / count)
    return CanarySettings(
        stages=(Stage(SHARES[0], 3 * block_count), Stage(SHARES[1], count - 3 * block_count)),
        request_limit_count=2 * count,
        ttft_margin_fraction=max(usual.ttft_margin_fraction, expm1(off * TTFT_SPREAD)),
        tpot_margin_fraction=max(usual.tpot_margin_fraction, expm1(off * TPOT_SPREAD)),
        failure_margin_fraction=max(usual.failure_margin_fraction, FAILURES / count),
        quality_margin_fraction=max(usual.quality_margin_fraction, off * SCORE_SPREAD),
        block_count=block_count,
    )
