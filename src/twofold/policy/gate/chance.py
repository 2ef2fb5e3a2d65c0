"""Chance without a generator: a hash of a seed and a name or number, the same at every replay."""

import zlib
from typing import Final

_MASK = (1 << 64) - 1
GOLDEN: Final = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: multiples of it lie far apart


def mixed(seed: int, key: int) -> int:
    """64 bits that look drawn at random, from a seed and a number."""
    return scrambled((key + 1) * GOLDEN + seed * 0xD1342543DE82EF95)


def scrambled(bits: int) -> int:
    """The lowest 64 bits of a number, each of them made to depend on all.

    Source  splitmix64's mixer, Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators"
    """
    bits &= _MASK
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & _MASK
    return bits ^ bits >> 31


def uniform_fraction(seed: int, key: int) -> float:
    """A number in [0, 1) from a seed and a number."""
    return (mixed(seed, key) >> 11) * 2.0**-53


def number_of(text: str) -> int:
    """A number for a name, to be mixed."""
    data = text.encode()
    return zlib.crc32(data) << 32 | zlib.adler32(data)
