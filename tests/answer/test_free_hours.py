"""Laws of a calendar of machines: nothing is held twice or begins too soon, and more is never later."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.answer.free_hours import HOUR_S, Course, Hours, Yielding, course_of, courses_of, without

days = st.lists(st.integers(0, 8), min_size=24, max_size=24)
yields = st.builds(Yielding, st.floats(0.0, 600.0), st.floats(0.0, 1800.0))
works = st.floats(60.0, 40 * HOUR_S)
HORIZON_DAYS = 60
KIND = "H100-SXM5-80GB", "DGX-H100"


def calendar(day: list[int]) -> Hours:
    return np.tile(np.array(day, np.int64), HORIZON_DAYS)


@st.composite
def competitors(draw: st.DrawFn) -> list[tuple[int, int, float, Yielding]]:
    """Runs in their order: accelerators, first hour, work, what yielding takes."""
    one = st.tuples(st.integers(1, 8), st.integers(0, 100), works, yields)
    return draw(st.lists(one, min_size=1, max_size=4))


def placed(free: Hours, runs: list[tuple[int, int, float, Yielding]]) -> tuple[list[Course | None], Hours]:
    found: list[Course | None] = []
    for wanted, first_h, work_s, yielding in runs:
        courses, left = courses_of({KIND: free}, {KIND: wanted}, [first_h], work_s, yielding)
        free = left[KIND]
        found.append(courses[0] if courses else None)
    return found, free


@given(day=days, runs=competitors())
def test_never_more_is_held_than_there_is_and_nothing_begins_before_it_may(
    day: list[int], runs: list[tuple[int, int, float, Yielding]]
) -> None:
    courses, left = placed(calendar(day), runs)
    assert left.min() >= 0
    held = np.zeros(len(left))
    for course, (wanted, first_h, work_s, _) in zip(courses, runs, strict=True):
        if course:
            used = course.used_s(work_s)
            assert all(first_h * HOUR_S <= begin < end for begin, end in used)
            for begin, end in used:
                held[int(begin // HOUR_S) : int(-(-end // HOUR_S))] += wanted
            assert float(course.date_of(work_s)) >= min(work_s, course.work_s[-1]) * (1.0 - 1e-12)
    assert np.all(held <= calendar(day))


@given(
    day=days, wanted=st.integers(1, 8), more=days, first_h=st.integers(0, 40), yielding=yields, work_s=works
)
def test_more_nodes_never_make_a_date_later(
    day: list[int], wanted: int, more: list[int], first_h: int, yielding: Yielding, work_s: float
) -> None:
    few, many = calendar(day), calendar(day) + calendar(more)
    before, after = (course_of(free, wanted, first_h, yielding) for free in (few, many))
    if before and work_s <= before.work_s[-1]:
        assert after and float(after.date_of(work_s)) <= float(before.date_of(work_s)) + 1e-6


@given(day=days, runs=competitors(), last=st.tuples(st.integers(1, 8), st.integers(0, 100), works, yields))
def test_what_comes_later_moves_nothing_that_came_before(
    day: list[int], runs: list[tuple[int, int, float, Yielding]], last: tuple[int, int, float, Yielding]
) -> None:
    assert placed(calendar(day), runs)[0] == placed(calendar(day), [*runs, last])[0][:-1]


@given(work_s=works, first_h=st.integers(0, 40), yielding=yields)
def test_alone_a_run_takes_its_own_time(work_s: float, first_h: int, yielding: Yielding) -> None:
    course = course_of(calendar([8] * 24), 8, first_h, yielding)
    assert course and float(course.date_of(work_s)) == pytest.approx(work_s)


def test_a_run_in_valleys_writes_and_restarts_each_time_it_yields() -> None:
    """Free from 0 to 6 h: 5.9 h of work the first night, 5.8 h each further one."""
    day = [8] * 6 + [0] * 18
    course = course_of(calendar(day), 8, 0, Yielding(0.1 * HOUR_S, 0.1 * HOUR_S))
    assert course
    assert float(course.date_of(5.0 * HOUR_S)) == pytest.approx(5.0 * HOUR_S)
    assert float(course.date_of((5.9 + 2.0) * HOUR_S)) == pytest.approx((24 + 0.1 + 2.0) * HOUR_S)
    assert course.used_s(7.0 * HOUR_S) == [(0.0, 6 * HOUR_S), (24 * HOUR_S, pytest.approx(25.2 * HOUR_S))]
    assert course_of(calendar([8] + [0] * 23), 8, 0, Yielding(1800.0, 1800.0)) is None


def test_an_hour_that_is_begun_is_held_whole() -> None:
    left = without(np.full(5, 4, np.int64), 3, [(0.5 * HOUR_S, 2.2 * HOUR_S)])
    assert left.tolist() == [1, 1, 1, 4, 4]
