import pytest

from twofold.policy.gate import ClassKind, ClassSettings, DegradationSettings
from twofold.policy.gate.degrade import Ladder, is_shed, shortened_tokens, smaller_model

CHAT = ClassSettings("chat", output_fraction_min=0.5, smaller_model="small")
PLAIN = ClassSettings("plain")
BULK = ClassSettings("bulk", ClassKind.BULK)


@pytest.fixture
def ladder() -> Ladder:
    return Ladder(DegradationSettings(raise_after_s=5.0, lower_after_s=30.0))


def press(ladder: Ladder, pressed: bool = True) -> None:
    for _ in range(200):
        ladder.arrived(pressed)


def levels(ladder: Ladder, held: int, in_flight: int, from_s: int, until_s: int) -> list[int]:
    """The level after each second, with requests that press all the while."""
    seen = []
    for now_s in range(from_s, until_s):
        press(ladder, held > 0)
        ladder.tick(held, in_flight, 10, float(now_s))
        seen.append(ladder.level)
    return seen


def test_it_climbs_one_level_for_each_time_of_pressure_and_no_further_than_it_may(ladder: Ladder) -> None:
    seen = levels(ladder, held=5, in_flight=10, from_s=0, until_s=40)
    assert seen[:19] == [0] * 5 + [1] * 6 + [2] * 6 + [3] * 2 and seen[-1] == 3


def test_it_comes_down_one_level_for_each_time_of_calm(ladder: Ladder) -> None:
    levels(ladder, held=5, in_flight=10, from_s=0, until_s=40)
    seen = levels(ladder, held=0, in_flight=3, from_s=40, until_s=140)
    assert [seen.count(level) for level in (3, 2, 1)] == [30, 31, 31] and seen[-1] == 0


def test_a_fleet_that_is_just_full_neither_climbs_nor_comes_down(ladder: Ladder) -> None:
    levels(ladder, held=5, in_flight=10, from_s=0, until_s=7)
    assert set(levels(ladder, held=0, in_flight=9, from_s=7, until_s=300)) == {1}


def test_pressure_that_flickers_changes_nothing(ladder: Ladder) -> None:
    for now_s in range(0, 200, 4):
        press(ladder)
        assert not ladder.tick(5, 10, 10, float(now_s))
        press(ladder, pressed=False)
        assert not ladder.tick(0, 10, 10, now_s + 2.0)


def test_a_leap_of_the_clock_is_one_step_at_most(ladder: Ladder) -> None:
    press(ladder)
    assert not ladder.tick(5, 10, 10, 0.0)
    assert ladder.tick(5, 10, 10, 1e9) and ladder.level == 1
    press(ladder)
    assert not ladder.tick(5, 10, 10, 1e9)


def test_after_a_step_only_what_came_since_is_pressure(ladder: Ladder) -> None:
    assert levels(ladder, held=5, in_flight=10, from_s=0, until_s=6)[-1] == 1
    assert not any(ladder.tick(5, 10, 10, float(now_s)) for now_s in range(6, 100))
    assert levels(ladder, held=5, in_flight=10, from_s=100, until_s=107)[-1] == 2


def test_what_a_level_does_each_class_must_permit() -> None:
    assert [is_shed(level, BULK) for level in range(4)] == [False, True, True, True]
    assert not any(is_shed(level, CHAT) for level in range(4))
    assert [shortened_tokens(level, CHAT, 101) for level in range(4)] == [101, 101, 50, 50]
    assert shortened_tokens(3, CHAT, 1) == 1 and shortened_tokens(3, CHAT, 0) == 0
    assert [shortened_tokens(level, PLAIN, 101) for level in range(4)] == [101] * 4
    assert [smaller_model(level, CHAT) for level in range(4)] == ["", "", "", "small"]
    assert smaller_model(3, PLAIN) == ""
