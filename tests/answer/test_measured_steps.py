from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.answer.measured_steps import Basis, MeasuredSteps, figure_at, measured_steps, step_at
from twofold.core.errors import InputError
from twofold.perf.known import spread_factor

RANKER = measured_steps([(8, 0.40), (16, 0.22), (64, 0.08)])

COUNTS = st.lists(st.integers(1, 4096), min_size=2, max_size=6, unique=True).map(sorted)


def lawful(counts: list[int], shares: list[float]) -> list[float]:
    """Steps that fall as accelerators are added, and never faster than their number grows."""
    seconds = [100.0]
    for (near, far), share in zip(pairwise(counts), shares, strict=False):
        seconds.append(seconds[-1] * (near / far) ** share)
    return seconds


@given(counts=COUNTS, seconds=st.lists(st.floats(1e-3, 1e3), min_size=6, max_size=6))
def test_measured_counts_give_their_rows_back(counts, seconds):
    steps = measured_steps(list(zip(counts, seconds, strict=False)))
    for count, each in zip(counts, seconds, strict=False):
        found = step_at(steps, count)
        assert found and found.value == each and found.basis is Basis.MEASURED


@given(counts=COUNTS, shares=st.lists(st.floats(0, 1), min_size=5, max_size=5), at=st.floats(0, 1))
def test_a_step_between_two_rows_lies_between_them_and_within_its_range(counts, shares, at):
    seconds = lawful(counts, shares)
    count = round(counts[0] + at * (counts[-1] - counts[0]))
    found = figure_at(counts, seconds, count)
    assert found and found.low <= found.value <= found.high
    lower = max(s for n, s in zip(counts, seconds, strict=True) if n >= count or n == counts[-1])
    upper = min(s for n, s in zip(counts, seconds, strict=True) if n <= count or n == counts[0])
    assert lower * (1 - 1e-9) <= found.value <= upper * (1 + 1e-9)
    assert lower * (1 - 1e-9) <= found.low and found.high <= upper * (1 + 1e-9)


@given(
    counts=COUNTS,
    shares=st.lists(st.floats(0, 1), min_size=5, max_size=5),
    first=st.integers(1, 8192),
    more=st.integers(1, 4096),
)
def test_more_accelerators_never_make_a_step_slower_nor_do_more_than_their_share(counts, shares, first, more):
    seconds = lawful(counts, shares)
    near, far = (figure_at(counts, seconds, count) for count in (first, first + more))
    if near and far:
        assert far.value <= near.value * (1 + 1e-9)
        assert far.value * (first + more) >= near.value * first * (1 - 1e-9)


@given(
    counts=COUNTS,
    shares=st.lists(st.floats(0, 1), min_size=5, max_size=5),
    left_out=st.integers(0, 5),
)
def test_the_range_without_a_row_holds_that_row(counts, shares, left_out):
    """Brute force: leave each row out; whatever lawful step it had, the range drawn without it holds it."""
    seconds = lawful(counts, shares)
    at = left_out % len(counts)
    rest = [pair for index, pair in enumerate(zip(counts, seconds, strict=True)) if index != at]
    found = figure_at([n for n, _ in rest], [s for _, s in rest], counts[at])
    if found:
        assert found.low * (1 - 1e-9) <= seconds[at] <= found.high * (1 + 1e-9)


def test_a_step_half_way_in_log_is_the_geometric_mean():
    assert figure_at((4, 16), (1.0, 0.25), 8).value == pytest.approx(0.5)


def test_nothing_is_said_beyond_twice_the_measured_counts():
    assert [step_at(RANKER, count) is None for count in (3, 4, 128, 129)] == [True, False, False, True]


def test_beyond_the_rows_the_range_goes_from_no_gain_to_a_perfect_one():
    found = figure_at(RANKER.counts, RANKER.step_s, 128)
    assert found and found.basis is Basis.BEYOND
    assert (found.low, found.high) == (pytest.approx(0.04), pytest.approx(0.08))
    alone = figure_at((8,), (1.0,), 16)
    assert alone and (alone.low, alone.high) == (0.5, 1.0) and alone.value == pytest.approx(0.5**0.5)


def test_rows_that_grow_slower_hold_their_middle():
    found = figure_at((8, 32), (1.0, 1.2), 16)  # more accelerators, slower: no law holds, the rows do
    assert found and found.low <= found.value <= found.high and 1.0 <= found.value <= 1.2


def test_one_row_a_count_has_the_assumed_spread():
    found = step_at(RANKER, 8)
    assert found and RANKER.repeats_count == 0
    assert found.high / found.value == pytest.approx(spread_factor([[1.0]]))


def test_repeats_give_their_median_and_their_spread():
    close = measured_steps([(8, 1.0), (8, 1.01), (8, 0.99), (16, 0.5), (16, 0.505)])
    wide = measured_steps([(8, 1.0), (8, 1.2), (8, 0.8), (16, 0.5), (16, 0.6)])
    assert close.step_s == (1.0, 0.5025) and close.repeats_count == 3
    assert 1.0 < close.spread_factor < 1.05 < wide.spread_factor
    assert measured_steps([(8, 1.0), (8, 1.0)]).spread_factor == 1.0


@given(scale=st.floats(1e-3, 1e3))
def test_the_spread_does_not_depend_on_the_unit(scale):
    rows = [(8, 1.0), (8, 1.1), (16, 0.6), (16, 0.5)]
    scaled = measured_steps([(count, seconds * scale) for count, seconds in rows])
    assert scaled.spread_factor == pytest.approx(measured_steps(rows).spread_factor)


@pytest.mark.parametrize("rows", [[], [(0, 1.0)], [(1, -1.0)], [(1, float("nan"))], [(1, float("inf"))]])
def test_rows_that_cannot_be_are_refused(rows):
    with pytest.raises(InputError, match="measured steps"):
        measured_steps(rows)


def test_a_curve_is_plain_data():
    assert MeasuredSteps((8,), (1.0,), 1.08, 0) == measured_steps([(8, 1.0)])
