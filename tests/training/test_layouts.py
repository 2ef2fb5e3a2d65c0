import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.training.layouts import REASONS, Limits, Recompute, enumerate_layouts, layouts_of


def test_a_layout_reads_as_engineers_write_it() -> None:
    layout = layouts_of([(8, 1, 1, 4, 5, 16, 1, 1, 1, 1)])
    assert layout.describe() == "TP 8 · PP 4 ×5 · DP 16 · micro-batch 1 · selective recompute · ZeRO-1"


def test_70b_on_64_has_at_least_twenty_layouts(make_job, make_cluster) -> None:
    layouts, refused = enumerate_layouts(make_job(), make_cluster())
    assert len(layouts) >= 20
    assert set(refused) <= set(REASONS)


@settings(max_examples=25, deadline=None)
@given(count=st.sampled_from([1, 2, 6, 8, 24, 64, 96]), batch=st.sampled_from([1, 24, 96, 512]))
def test_every_layout_is_valid(make_job, make_cluster, count: int, batch: int) -> None:
    job = make_job("mixtral-8x7b", batch=batch)
    g, _ = enumerate_layouts(job, make_cluster(count=count))
    assert np.all(g.tp * g.cp * g.pp * g.dp == count)
    assert np.all(job.model.heads % g.tp == 0)
    assert np.all(batch % (g.dp * g.micro_batch) == 0)
    assert np.all((g.tp * g.cp * g.dp) % g.ep == 0) and np.all(job.model.experts % g.ep == 0)
    assert np.all((g.vpp == 1) | (batch // (g.dp * g.micro_batch) % g.pp == 0))


def test_every_refused_combination_breaks_the_rule_it_is_counted_under(
    make_job, make_cluster
) -> None:  # INV-3
    job, cluster = make_job(batch=48), make_cluster(count=24)
    layouts, refused = enumerate_layouts(job, cluster)
    limits = Limits(micro_batch_max=1, vpp_max=1, zero_stages=(1,), recompute=(Recompute.NONE,))
    few, few_refused = enumerate_layouts(job, cluster, limits)
    by_hand = {"devices": 0, "batch": 0, "kept": 0}
    for tp, cp, pp in itertools.product((1, 2, 3, 4, 6, 8), (1, 2), (1, 2, 3, 4, 6, 8, 12, 24)):
        if 24 % (tp * cp * pp):
            by_hand["devices"] += 1
        elif tp not in (3, 6) and 48 % (24 // (tp * cp * pp)) == 0:
            by_hand["kept"] += 1
    assert few_refused["devices"] == by_hand["devices"]
    assert few_refused["heads"] == sum(
        1
        for tp, cp, pp in itertools.product((3, 6), (1, 2), (1, 2, 3, 4, 6, 8, 12, 24))
        if 24 % (tp * cp * pp) == 0
    )
    assert len(few) == by_hand["kept"] - few_refused.get("layers", 0)
    assert len(layouts) > len(few) and sum(refused.values()) > sum(few_refused.values())


def test_a_pipeline_counts_embedding_and_head_as_layers_when_it_interleaves(make_job, make_cluster) -> None:
    # Llama 3 trained 126 layers on 16 stages of 8, the first and the last one short.
    layouts, _ = enumerate_layouts(make_job("llama-3.1-405b", batch=2048), make_cluster(count=16384))
    assert np.any((layouts.pp == 16) & (layouts.vpp == 8))


@pytest.mark.parametrize("count", [1, 7])
def test_odd_clusters_still_have_layouts(make_job, make_cluster, count: int) -> None:
    layouts, _ = enumerate_layouts(make_job("llama-3.1-8b", batch=7 * 8), make_cluster(count=count))
    assert len(layouts)


def test_a_framework_is_offered_the_shardings_that_it_can_run(make_job, make_cluster) -> None:
    def stages(framework: str) -> set[int]:
        job = make_job("llama-3.1-8b", batch=64, framework=framework)
        return set(enumerate_layouts(job, make_cluster(count=8))[0].zero_stage.tolist())

    assert (stages("pytorch-fsdp"), stages("megatron-core")) == ({2, 3}, {1, 3})
