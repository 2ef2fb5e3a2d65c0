"""Chance that belongs to a request and not to the order of events: the same one in every run of a seed.

So two policies that are compared meet the same failing requests and the same waits, whatever they do.
"""

from enum import IntEnum

from twofold.policy.gate import GOLDEN, scrambled


class Purpose(IntEnum):
    """What a draw is for; draws of different purposes are independent."""

    ERROR = 1
    QUALITY = 2
    BACKOFF = 3
    CRASH = 4


def unit(seed: int, purpose: Purpose, number: int, turn: int = 0) -> float:
    """A number in (0, 1) that depends on nothing but its arguments."""
    state = scrambled(seed + GOLDEN * purpose)
    state = scrambled(state + GOLDEN * (number + 1))
    state = scrambled(state + GOLDEN * (turn + 1))
    return ((state >> 11) + 0.5) / (1 << 53)


def score(seed: int, number: int, mean: float, spread: float) -> float:
    """What an answer is worth, from 0 to 1: of exactly this mean, and this spread if 0 and 1 allow it.

    Some answers are right or wrong, the others all worth the mean: a normal number that is cut off at 1 would
    hide a third of a drop.
    """
    widest = mean * (1.0 - mean)
    if not widest or unit(seed, Purpose.QUALITY, number) >= spread**2 / widest:
        return mean
    return float(unit(seed, Purpose.QUALITY, number, 1) < mean)
