"""A replica's start: one answer for plans and estimates, whose parts add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.answer.question import given as machines_in
from twofold.answer.quick_serve import ServingQuestion, choose, read_rate_bytes_per_s
from twofold.answer.serve_answer import estimate_serving
from twofold.answer.serving_replica import cold_start
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import Catalog
from twofold.inference.fleet import WARM_UP_RANGE_S
from twofold.perf.constants import Constants


@pytest.fixture(scope="module")
def question(catalog: Catalog, constants: Constants) -> ServingQuestion:
    machines = machines_in("1xH100-SXM", catalog, constants)
    return ServingQuestion(catalog.model("llama-3.1-8b"), machines, 500, 100, concurrency=4)


@given(rate=st.floats(1e8, 1e11))
def test_parts_add_up_and_faster_reading_starts_sooner(
    question: ServingQuestion, constants: Constants, rate: float
) -> None:
    replica, draws = choose(question, constants).replica, draw_factors(constants)
    start, parts = cold_start(replica, rate, draws, constants)
    assert sum(part.value.value for part in parts) == pytest.approx(start.value)
    assert sum(part.share_fraction for part in parts) == pytest.approx(1.0)
    assert cold_start(replica, 2 * rate, draws, constants)[0].value < start.value
    assert parts[1].value.low == pytest.approx(WARM_UP_RANGE_S[0], rel=0.01)
    assert parts[1].value.high == pytest.approx(WARM_UP_RANGE_S[1], rel=0.01)


def test_an_estimate_reads_at_what_a_plan_does_unless_told(
    question: ServingQuestion, catalog: Catalog, constants: Constants
) -> None:
    answer, rate = estimate_serving(question, constants), read_rate_bytes_per_s(catalog)
    assert answer.cold_start_parts[0].value.value == pytest.approx(answer.weights_bytes / rate)
