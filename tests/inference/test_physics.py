"""What the datasheet leaves possible: counted by hand, and never above what the models answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.inference import regimes
from twofold.inference.iteration import iteration_s
from twofold.inference.physics import bounds_of, least_step_s
from twofold.inference.replica import Replica
from twofold.inference.steady import Lengths

MODELS = st.sampled_from(["llama-3.1-8b", "mixtral-8x7b", "deepseek-r1", "gpt-oss-120b"])


def test_a_lone_token_reads_the_weights_once(replica_of):
    replica = replica_of("llama-3.1-8b")
    read_bytes = 2 * (8.03e9 - 128_256 * 4096)  # all but the input's table, in 16 bits
    least_s = least_step_s(replica, 1.0, 0.0)
    assert least_s == pytest.approx(
        read_bytes / replica.cluster.device.memory_bytes_per_s / replica.tp, rel=0.01
    )


def test_a_cache_and_further_experts_are_read_on_top(replica_of):
    dense, experts = replica_of("llama-3.1-8b"), replica_of("mixtral-8x7b")
    more_s = least_step_s(dense, 8.0, 4096.0) - least_step_s(dense, 8.0, 0.0)
    bandwidth = dense.cluster.device.memory_bytes_per_s * dense.tp
    assert more_s == pytest.approx(8 * 4096 * 131_072 / bandwidth, rel=0.01)
    assert least_step_s(experts, 8.0, 0.0) > 2 * least_step_s(experts, 1.0, 0.0)


@given(model=MODELS, sequences=st.floats(1, 512), context=st.floats(1, 16384), more=st.floats(1, 4))
@settings(max_examples=40, deadline=None)
def test_more_to_do_never_takes_less_and_no_step_is_below(
    replica_of, model: str, sequences: float, context: float, more: float
) -> None:
    replica: Replica = replica_of(model)
    least_s = least_step_s(replica, sequences, context)
    assert least_step_s(replica, sequences * more, context) >= least_s * (1 - 1e-9)
    assert least_step_s(replica, sequences, context * more) >= least_s * (1 - 1e-9)
    assert iteration_s(replica, 0.0, 0.0, sequences, context).total_s >= least_s


@given(model=MODELS, clients=st.integers(1, 512), answer=st.floats(2, 2000), prompt=st.floats(16, 8000))
@settings(max_examples=25, deadline=None)
def test_no_closed_loop_is_beyond_its_bounds(
    replica_of, model: str, clients: int, answer: float, prompt: float
) -> None:
    replica, lengths = replica_of(model), Lengths(prompt, answer)
    found = regimes.closed_loop(replica, lengths, clients)
    bounds = bounds_of(replica, lengths, found.batch_sequences, clients)
    for metric in ("ttft", "tpot", "e2e"):
        assert np.all(getattr(found, metric).mean_s >= bounds[metric])
    assert np.all(found.output_tokens_per_s <= bounds["output"] * (1 + 1e-9))
