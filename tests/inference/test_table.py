import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.inference.iteration import iteration_s
from twofold.inference.table import ServiceTable


@pytest.fixture(scope="module")
def replica(replica_of):
    return replica_of("llama-3.1-8b", "H100-SXM", tp=1.0, rank_batch=512.0)


@pytest.fixture(scope="module")
def table(replica):
    return ServiceTable.of(replica)


@given(prefill=st.floats(16, 8192), decode=st.floats(0, 512), context=st.floats(0, 60000))
@settings(max_examples=60, deadline=None)
def test_interpolation_stays_close_to_the_model(replica, table, prefill, decode, context):
    exact = float(iteration_s(replica, prefill, prefill / 2, decode, context).total_s)
    assert float(table.step_s(prefill, decode, context)) == pytest.approx(exact, rel=0.06)


def test_grid_points_are_exact(replica, table):
    exact = iteration_s(replica, 0.0, 0.0, table.decode_sequences, 2048.0).total_s
    assert np.allclose(table.step_s(0.0, table.decode_sequences, 2048.0), exact)


@given(prefill=st.floats(64, 8192), behind=st.floats(0.05, 8), decode=st.floats(0, 512))
@settings(max_examples=60, deadline=None)
def test_short_prompts_and_late_chunks_stay_close_to_the_model(replica, table, prefill, behind, decode):
    attended = max(32.0, prefill * behind)
    exact = float(iteration_s(replica, prefill, attended, decode, 1000.0).total_s)
    assert float(table.step_s(prefill, decode, 1000.0, attended)) == pytest.approx(exact, rel=0.08)


def test_a_prompt_of_its_own_is_what_is_taken_where_nothing_is_said(table):
    prompts = table.prefill_tokens[1:-1]
    assert np.allclose(table.step_s(prompts, 8.0, 100.0, prompts / 2), table.step_s(prompts, 8.0, 100.0))


def test_reads_broadcast(table):
    assert np.shape(table.step_s(np.zeros((3, 1)), np.ones(4), 100.0)) == (3, 4)


def test_every_data_parallel_rank_carries_its_own_chunk(replica_of):
    replica = replica_of("deepseek-r1", "H200", "fp8", tp=1.0, ep=8.0, dp=8.0, chunk_tokens=2048.0)
    table, prompts = ServiceTable.of(replica), 8 * 2048.0
    exact = float(iteration_s(replica, prompts, 1024.0, 64.0, 1024.0).total_s)
    assert float(table.step_s(prompts, 64.0, 1024.0)) == pytest.approx(exact, rel=0.06)
    on_one = float(iteration_s(replica, prompts, prompts / 2, 64.0, 1024.0).total_s)
    assert exact < 0.6 * on_one
    # What they attend to counts on each of them, not eight times on one.
    late = float(iteration_s(replica, prompts, 16384.0 - 1024.0, 64.0, 1024.0).total_s)
    assert float(table.step_s(prompts, 64.0, 1024.0, 16384.0 - 1024.0)) < late
