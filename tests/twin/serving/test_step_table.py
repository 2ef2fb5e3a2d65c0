from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.step_tables import linear as linear_table
from twofold.inference.table import ServiceTable
from twofold.twin.serving.step_table import StepTable, steps_to_gain


def made_table() -> ServiceTable:
    """A grid of rising step times, bent in every axis."""
    prefill, decode = np.array([0.0, 1.0, 16.0, 256.0]), np.array([0.0, 1.0, 4.0, 64.0])
    context, attended = np.array([0.0, 64.0, 128.0, 1024.0]), np.array([0.0, 8.0, 512.0])
    p, d, k = np.meshgrid(prefill, decode, context, indexing="ij")
    grid = 0.01 * (p > 0) + 1e-5 * p + 1e-4 * np.sqrt(d) + 1e-9 * d * k**1.2 + 0.005
    further = 1e-8 * np.multiply.outer(prefill, np.sqrt(attended))
    return ServiceTable(prefill, decode, context, grid, attended, further, 1e6, 1.0, 64.0, 256.0)


@pytest.fixture(scope="module")
def table() -> ServiceTable:
    return made_table()


@pytest.fixture(scope="module")
def plain(table: ServiceTable) -> StepTable:
    return StepTable.from_service_table(table)


@given(
    prefill=st.integers(1, 600),
    attended=st.floats(0.5, 2000),
    sequences=st.integers(0, 100),
    context=st.floats(0, 4000),
)
def test_plain_floats_say_what_the_service_table_says(table, plain, prefill, attended, sequences, context):
    exact = float(table.step_s(prefill, sequences, context, attended))
    assert plain.mixed_s(prefill, attended, sequences, context) == pytest.approx(exact, rel=1e-12)
    decode = float(table.step_s(0.0, sequences, context))
    assert plain.decode_s(sequences, context, 1) == pytest.approx(decode, rel=1e-12)


@given(
    sequences=st.integers(1, 100),
    context=st.floats(0, 1200),
    count=st.integers(1, 1500),
    gained=st.sampled_from([1.0, 1.7, 3.0]),
)
@settings(max_examples=50, deadline=None)
def test_many_steps_take_as_long_as_one_after_another(plain, sequences, context, count, gained):
    singles = sum(plain.decode_s(sequences, context + step * gained, 1, gained) for step in range(count))
    assert plain.decode_s(sequences, context, count, gained) == pytest.approx(singles, rel=1e-10)


@given(
    sequences=st.integers(1, 100),
    context=st.floats(0, 1200),
    most=st.integers(1, 1500),
    share=st.floats(0.0, 1.2),
    gained=st.sampled_from([1.0, 1.7]),
)
@settings(max_examples=100, deadline=None)
def test_as_many_steps_as_fit_and_no_more(plain, sequences, context, most, share, gained):
    budget_s = share * plain.decode_s(sequences, context, most, gained)
    done, seconds, next_s = plain.cut(sequences, context, budget_s, most, gained)
    assert 0 <= done <= most
    if done:
        assert seconds == pytest.approx(plain.decode_s(sequences, context, done, gained), rel=1e-12)
        assert seconds <= budget_s * (1 + 1e-12)
    if done < most:
        assert seconds + next_s > budget_s * (1 - 1e-12)
    assert next_s == pytest.approx(plain.decode_s(sequences, context + done * gained, 1), rel=1e-12)


def test_a_linear_table_is_its_formula():
    linear = linear_table(0.01, 2e-5, 1e-4, 3e-9)
    assert linear.mixed_s(500, 9e9, 8, 1000.0) == pytest.approx(0.01 + 0.01 + 8e-4 + 8 * 1000 * 3e-9)
    assert linear.decode_s(8, 1000.0, 1) == pytest.approx(0.01 + 8e-4 + 8 * 1000 * 3e-9)


@given(tokens=st.integers(1, 10_000), gained=st.floats(1.0, 5.0))
def test_steps_gain_the_tokens_and_one_fewer_do_not(tokens, gained):
    steps = steps_to_gain(tokens, gained)
    assert floor(steps * gained) >= tokens > floor((steps - 1) * gained)
