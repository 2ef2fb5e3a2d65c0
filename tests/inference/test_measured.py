import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core import InputError
from twofold.inference import measured_latency, measured_rate_limit, measured_service

EMBEDDER = measured_service([(1, 0.004), (8, 0.008), (8, 0.009), (32, 0.020)])


def test_rows_of_one_size_give_their_median():
    assert EMBEDDER.batch_sizes == (1, 8, 32)
    assert EMBEDDER.service_s[1] == pytest.approx(0.0085)


def test_an_idle_server_answers_in_its_smallest_service_time():
    assert measured_latency(EMBEDDER, 0.01).mean_s == pytest.approx(0.004, rel=0.01)


@given(rate=st.floats(1, 1500), more=st.floats(1, 1.05))
def test_more_load_never_answers_sooner(rate, more):
    assert measured_latency(EMBEDDER, rate * more).p95_s >= measured_latency(EMBEDDER, rate).p95_s * 0.999


def test_the_largest_batch_sets_the_most_that_is_served():
    assert math.isinf(measured_latency(EMBEDDER, 32 / 0.020).mean_s)
    assert 0 < measured_rate_limit(EMBEDDER, 0.05) < 32 / 0.020


def test_a_target_below_the_service_time_leaves_no_rate():
    assert measured_rate_limit(EMBEDDER, 0.001) == 0


@pytest.mark.parametrize("rows", [[], [(0, 1.0)], [(1, -1.0)], [(1, math.nan)]])
def test_rows_that_cannot_be_are_refused(rows):
    with pytest.raises(InputError, match="measured workload"):
        measured_service(rows)
