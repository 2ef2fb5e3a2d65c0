import math
import random

import pytest

from twofold.policy.gate.pace import MEMORY_COUNT, Mean, Pace, Quantile
from twofold.policy.gate.settings import Beliefs

BELIEFS = Beliefs(input_token_s=0.001, output_token_s=0.02, first_token_s=0.05)


def test_a_mean_of_few_is_their_mean_and_of_many_that_of_the_latest() -> None:
    mean = Mean()
    for value in (1.0, 2.0, 6.0):
        mean.add(value)
    assert mean.value == pytest.approx(3.0)
    for _ in range(10 * MEMORY_COUNT):
        mean.add(50.0)
    assert mean.value == pytest.approx(50.0, rel=1e-3)


@pytest.mark.parametrize("fraction", [0.5, 0.8, 0.95])
def test_a_quantile_comes_to_where_that_share_is_smaller(fraction: float) -> None:
    draw, quantile = random.Random(1), Quantile(fraction, 0.0, 0.05, -10.0)
    for _ in range(2000):
        quantile.add(draw.gauss(3.0, 1.0))
    smaller = sum(draw.gauss(3.0, 1.0) < quantile.value for _ in range(4000)) / 4000
    assert smaller == pytest.approx(fraction, abs=0.1)


def test_a_quantile_stays_within_its_bounds_whatever_comes() -> None:
    quantile = Quantile(0.95, 0.0, 0.1, 0.0, 2.0)
    for value in [math.inf] * 100:
        quantile.add(value)
    assert quantile.value == 2.0
    for _ in range(1000):
        quantile.add(-math.inf)
    assert quantile.value == 0.0


def test_beliefs_are_put_right_by_what_attempts_took() -> None:
    pace = Pace(0.95, ("",))
    assert pace.begin_s(BELIEFS, 1000) == pytest.approx(1.05)
    for _ in range(50):
        pace.began(believed_s=1.0, took_s=1.3)
    assert pace.begin_s(BELIEFS, 1000) == pytest.approx(1.3 * 1.05)
    for _ in range(500):
        pace.began(believed_s=1.0, took_s=1e6)
    assert pace.begin_s(BELIEFS, 1000) == pytest.approx(10 * 1.05)  # no further: one must recover


def test_an_answer_is_expected_to_be_as_long_as_lately_but_not_longer_than_it_may() -> None:
    pace = Pace(0.95, ("",))
    assert pace.write_s(BELIEFS, "", 400) == pytest.approx(8.0)
    for _ in range(20):
        pace.finished("", 101, wrote_s=4.0)
    assert pace.write_s(BELIEFS, "", 400) == pytest.approx(101 * 0.04)
    assert pace.write_s(BELIEFS, "", 50) == pytest.approx(50 * 0.04)


def test_who_waits_behind_n_requests_waits_for_n_places_and_its_own() -> None:  # Little's law
    pace = Pace(0.95, ("",))
    assert pace.wait_s(1000, 1.0, 10) is None
    for _ in range(10):
        pace.freed(tokens=500, held_s=2.0)
    assert pace.wait_s(0, 1.0, 10) == pytest.approx((0.2, 0.2))
    assert pace.wait_s(4000, 1.0, 10) == pytest.approx((9 * 0.2, 3 * 0.2))
    assert pace.wait_s(4000, 0.5, 10) == pytest.approx((9 * 0.4, 3 * 0.4))
    assert pace.wait_s(4000, 1.0, 0) is None


def test_the_margin_covers_the_share_that_it_was_told_to_cover() -> None:
    draw, pace, within = random.Random(2), Pace(0.95, ("",)), []
    for _ in range(3000):
        late_s = draw.gauss(0.5, 1.0)
        within.append(late_s <= pace.late_s("", 0.7))
        pace.waited("", late_s, 0.7)
    assert sum(within[500:]) / len(within[500:]) == pytest.approx(0.95, abs=0.02)
