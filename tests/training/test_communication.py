from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.training.communication import (
    context_parallel_s,
    data_parallel_s,
    expert_parallel_s,
    handoff_s,
    tensor_parallel_s,
)
from twofold.training.layouts import layouts_of

GRADIENTS = (2.0, 1e8)  # bytes per trained parameter, and of one collective
ALONE = layouts_of([(1, 1, 1, 1, 1, 1, 0, 1, 0, 0)])


def experts_s(work, layouts, network, dispatch_bytes=2.0):
    """The experts' exchange of software that dispatches in 16 bits."""
    return expert_parallel_s(work, layouts, network, dispatch_bytes)


def test_one_device_talks_to_nobody(make_job, make_cluster) -> None:
    work, network = make_job("mixtral-8x7b").workload, make_cluster().network
    for exchange in (tensor_parallel_s, context_parallel_s, experts_s, handoff_s):
        assert np.all(exchange(work, ALONE, network) == 0), exchange.__name__
    assert data_parallel_s(work, ALONE, network, *GRADIENTS) == 0


def test_large_gradients_take_the_ring_time(make_job, make_cluster) -> None:
    # 8 nodes, each rank with its own card: (d−1)/d · S/8 over one card, (a−1)/a · S over the links.
    job, cluster = make_job("llama-3.1-8b"), make_cluster(count=64)
    layouts = layouts_of([(1, 1, 1, 1, 1, 64, 0, 1, 0, 0)])
    seconds = data_parallel_s(job.workload, layouts, cluster.network, *GRADIENTS)
    sent = 2 * job.model.parameters
    outer_s = 2 * 7 / 8 * sent / 8 / cluster.network.nic_bytes_per_s
    inner_s = 2 * 7 / 8 * sent / cluster.network.link_bytes_per_s
    assert max(outer_s, inner_s) <= seconds[0] <= 1.1 * (outer_s + inner_s)


@given(stage=st.sampled_from([0, 1, 3]), factor=st.floats(1.1, 10))
def test_a_faster_fabric_never_slows_an_exchange(make_job, make_cluster, stage: int, factor: float) -> None:
    work, slow = make_job("mixtral-8x7b").workload, make_cluster().network
    fast = replace(
        slow, nic_bytes_per_s=slow.nic_bytes_per_s * factor, link_bytes_per_s=slow.link_bytes_per_s * factor
    )
    layouts = layouts_of([(2, 2, 8, 2, 1, 8, stage, 1, 0, 1)])
    for exchange in (tensor_parallel_s, context_parallel_s, experts_s, handoff_s):
        assert exchange(work, layouts, fast) <= exchange(work, layouts, slow)
    assert data_parallel_s(work, layouts, fast, *GRADIENTS) < data_parallel_s(work, layouts, slow, *GRADIENTS)


def test_zero_3_pays_per_micro_batch(make_job, make_cluster) -> None:
    work, network = make_job("llama-3.1-8b", batch=512).workload, make_cluster().network
    few = layouts_of([(1, 1, 1, 1, 1, 64, 3, 8, 0, 0)])
    many = layouts_of([(1, 1, 1, 1, 1, 64, 3, 1, 0, 0)])
    assert data_parallel_s(work, many, network, *GRADIENTS) == pytest.approx(
        8 * data_parallel_s(work, few, network, *GRADIENTS)
    )


def test_full_recomputation_repeats_the_forward_sums(make_job, make_cluster) -> None:
    work, network = make_job().workload, make_cluster().network
    kept = layouts_of([(8, 1, 1, 1, 1, 8, 1, 1, 0, 1)])
    repeated = layouts_of([(8, 1, 1, 1, 1, 8, 1, 1, 2, 1)])
    assert tensor_parallel_s(work, repeated, network) == pytest.approx(
        1.5 * tensor_parallel_s(work, kept, network)
    )


def test_experts_beyond_the_domain_cost_the_fabric(make_job, make_cluster) -> None:
    work, network = make_job("deepseek-v3", sequence=4096).workload, make_cluster(count=256).network
    near = layouts_of([(1, 1, 8, 1, 1, 256, 1, 1, 0, 0)])
    far = layouts_of([(1, 1, 64, 1, 1, 256, 1, 1, 0, 0)])
    assert experts_s(work, far, network) > 2 * experts_s(work, near, network)


def test_small_buckets_cost_more_the_more_nodes_there_are(make_job, make_cluster) -> None:
    network, work = make_cluster().network, make_job().workload
    few, many = (layouts_of([(1, 1, 1, 1, 1, dp, 1, 1, 0, 0)]) for dp in (16, 1024))
    large, small = 1e9, 1e7

    def seconds(layouts, bucket_bytes):  # type: ignore[no-untyped-def]
        return float(data_parallel_s(work, layouts, network, 2.0, bucket_bytes)[0])

    assert seconds(few, small) > seconds(few, large)
    assert seconds(many, small) - seconds(many, large) > 4 * (seconds(few, small) - seconds(few, large))


def test_a_token_reaches_no_more_nodes_than_its_groups_do(make_job, make_cluster) -> None:
    """DeepSeek-V3, section 2.1.2: of 8 groups a token chooses 4, on 8 nodes 4 of them, on 16 at most 8."""
    work, network = make_job("deepseek-v3").workload, make_cluster(count=512).network
    free = replace(work, expert_groups=0.0, expert_groups_topk=0.0)
    for nodes, least, most in ((2, 1.0, 1.0), (8, 0.65, 0.75), (16, 0.8, 0.9)):
        layouts = layouts_of([(1, 1, 8 * nodes, 1, 1, 8 * nodes, 0, 1, 0, 0)])
        ratio = experts_s(work, layouts, network)[0] / experts_s(free, layouts, network)[0]
        assert least <= ratio <= most, nodes


def test_dispatch_in_8_bits_saves_a_quarter_of_the_experts_bytes_in_training_of_8_bits(
    make_job, make_cluster
) -> None:
    network, layouts = make_cluster(count=64).network, layouts_of([(1, 1, 64, 1, 1, 64, 0, 1, 0, 0)])
    for precision, saved in (("fp8", 0.75), ("bf16", 1.0)):
        work = make_job("deepseek-v3", precision=precision).workload
        ratio = experts_s(work, layouts, network, 1.0) / experts_s(work, layouts, network)
        assert ratio[0] == pytest.approx(saved, rel=0.01)
