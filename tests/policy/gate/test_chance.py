import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.gate.chance import GOLDEN, mixed, number_of, scrambled, uniform_fraction


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_chance_is_repeated_and_stays_in_its_range(seed: int, key: int) -> None:
    assert mixed(seed, key) == mixed(seed, key) and 0 <= mixed(seed, key) < 2**64
    assert 0 <= uniform_fraction(seed, key) < 1


def test_neighbouring_keys_and_seeds_are_spread_evenly_and_are_not_alike() -> None:
    count = 4000
    by_key = [uniform_fraction(7, key) for key in range(count)]
    by_seed = [uniform_fraction(seed, 7) for seed in range(count)]
    for draws in (by_key, by_seed):
        mean = sum(draws) / count
        assert abs(mean - 0.5) < 4 * math.sqrt(1 / 12 / count)
        tenths = [sum(int(draw * 10) == tenth for draw in draws) for tenth in range(10)]
        assert sum((seen - count / 10) ** 2 / (count / 10) for seen in tenths) < 33  # chi-square, 9: 1e-4
        together = sum((a - mean) * (b - mean) for a, b in itertools.pairwise(draws)) / count
        assert abs(together) < 4 / 12 / math.sqrt(count)


def test_the_mixer_gives_the_first_numbers_of_splitmix64_from_seed_0() -> None:
    assert [scrambled(GOLDEN * n) for n in (1, 2)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_names_have_numbers_of_their_own() -> None:
    assert len({number_of(f"session-{number}") for number in range(10_000)}) == 10_000
