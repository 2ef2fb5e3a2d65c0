from dataclasses import replace

import numpy as np
import pytest

from twofold.training.compute import head_s, kernels_for, layer_compute, layer_kernels
from twofold.training.layouts import layouts_of

WHOLE = layouts_of([(1, 1, 1, 1, 1, 1, 0, 1, 0, 0)])


def _parts(job, cluster, stack, layouts):  # type: ignore[no-untyped-def]
    return layer_compute(_alone(job, cluster, layouts), stack)


def _alone(job, cluster, layouts):  # type: ignore[no-untyped-def]
    work = job.workload
    return layer_kernels(work, layouts, kernels_for(work, cluster.device, job.precision))


def test_backward_is_about_twice_forward(make_job, make_cluster, stack) -> None:
    layer = _parts(make_job(), make_cluster(), stack, WHOLE)
    assert layer.gemm.backward_s / layer.gemm.forward_s == pytest.approx(2.0, rel=0.05)
    assert layer.attention.backward_s / layer.attention.forward_s == pytest.approx(2.5)


def test_no_layer_beats_the_peak(make_job, make_cluster, stack) -> None:
    cluster = make_cluster()
    for name in ("llama-3.1-8b", "llama-3.1-405b", "mixtral-8x7b", "deepseek-v3"):
        job = make_job(name, sequence=4096)
        work = job.workload
        head = head_s(_alone(job, cluster, WHOLE), stack)
        layer = _parts(job, cluster, stack, WHOLE)
        busy_s = (
            job.model.layers * (layer.whole.forward_s + layer.whole.backward_s)
            + head.forward_s
            + head.backward_s
        )
        flops = float(work.model_flops_per_token) * job.sequence_tokens
        assert flops / float(np.ravel(busy_s)[0]) < cluster.device.peak_flops_per_s["bf16"], name


def test_tensor_ranks_share_the_work_but_not_perfectly(make_job, make_cluster, stack) -> None:
    alone = _parts(make_job(), make_cluster(), stack, WHOLE)
    eighth = _parts(make_job(), make_cluster(), stack, layouts_of([(8, 1, 1, 1, 1, 1, 0, 1, 0, 1)]))
    assert 1 / 8 <= eighth.gemm.forward_s / alone.gemm.forward_s < 1 / 5


def test_narrow_formats_are_faster_where_the_device_has_them(make_job, make_cluster, stack) -> None:
    def forward_s(precision: str, name: str) -> float:
        return float(
            _parts(make_job(precision=precision), make_cluster(name), stack, WHOLE).gemm.forward_s[0]
        )

    assert forward_s("fp8", "H100-80GB") < 0.8 * forward_s("bf16", "H100-80GB")
    assert forward_s("fp8", "A100-80GB") == forward_s("bf16", "A100-80GB")  # no fp8 units: falls back


def test_frozen_weights_need_no_gradient_of_their_own(make_job, make_cluster, stack) -> None:
    full = _parts(make_job("llama-3.1-8b"), make_cluster(), stack, WHOLE)
    lora = _parts(make_job("llama-3.1-8b", lora_rank=8), make_cluster(), stack, WHOLE)
    assert lora.gemm.backward_s / full.gemm.backward_s == pytest.approx(0.5, abs=0.05)


def test_context_ranks_split_attention_evenly(make_job, make_cluster, stack) -> None:
    job = make_job(sequence=131072)
    alone = _parts(job, make_cluster(), stack, WHOLE)
    shared = _parts(job, make_cluster(), stack, layouts_of([(1, 8, 1, 1, 1, 1, 0, 1, 0, 0)]))
    assert alone.attention.forward_s / shared.attention.forward_s == pytest.approx(8, rel=0.15)


def test_a_window_cuts_attention(make_job, make_cluster, stack) -> None:
    job = make_job("gemma-3-27b", sequence=32768, batch=64)
    everywhere = replace(job, model=replace(job.model, sliding_layers=0))
    windowed, whole = (_parts(j, make_cluster(), stack, WHOLE).attention.forward_s for j in (job, everywhere))
    assert windowed < 0.5 * whole


def test_scans_of_linear_mixers_take_time_that_tensor_ranks_share(make_job, make_cluster, stack) -> None:
    job = make_job("nemotron-h-56b", batch=64)
    without = replace(job, model=replace(job.model, linear_heads=0))
    scans = [
        _parts(job, make_cluster(), stack, layouts).elementwise.forward_s
        - _parts(without, make_cluster(), stack, layouts).elementwise.forward_s
        for layouts in (WHOLE, layouts_of([(8, 1, 1, 1, 1, 1, 0, 1, 0, 1)]))
    ]
    assert scans[0] > 0 and scans[0] / scans[1] == pytest.approx(8)


def test_busier_experts_slow_a_layer_in_proportion(make_job, make_cluster, stack) -> None:
    job, uneven = make_job("mixtral-8x7b"), replace(stack, routing_imbalance_ratio=1.5)
    even = replace(stack, routing_imbalance_ratio=1.0)
    slow, fast = (_parts(job, make_cluster(), s, WHOLE).experts.forward_s for s in (uneven, even))
    assert slow / fast == pytest.approx(1.5)
