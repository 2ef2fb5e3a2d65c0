from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Model
from twofold.training.job import TrainingJob
from twofold.training.layouts import Layouts, Recompute, enumerate_layouts, layouts_of
from twofold.training.memory import memory
from twofold.training.recompute import kept_activation_bytes, kept_bytes, score_bytes

WHOLE = layouts_of([(1, 1, 1, 1, 1, 1, 0, 1, 0, 0)])


def test_a_7b_model_lists_14_and_14_and_84_gb(make_job, stack) -> None:
    job = make_job("llama-2-7b", batch=1, sequence=4096)
    held = memory(job.workload, WHOLE, stack)
    billions = job.model.parameters / 1e9
    assert held.weights_bytes[0] / 1e9 == pytest.approx(2 * billions)
    assert held.gradients_bytes[0] / 1e9 == pytest.approx(2 * billions)
    assert held.optimizer_bytes[0] / 1e9 == pytest.approx(12 * billions)
    assert [round(part[0] / 1e9) for part in (held.weights_bytes, held.optimizer_bytes)] == [
        13,
        81,
    ]  # of 6.74 B


def test_parts_sum_to_the_total_and_the_range_holds_it(make_job, make_cluster, stack) -> None:
    layouts, _ = enumerate_layouts(make_job("deepseek-v3", sequence=4096), make_cluster(count=256))
    held = memory(make_job("deepseek-v3", sequence=4096).workload, layouts, stack)
    names = [f.name for f in fields(held) if f.name.endswith("_bytes")]
    parts = [getattr(held, name) for name in names if name != "reclaimable_bytes"]  # given back when short
    assert np.allclose(sum(parts), held.total_bytes)
    assert all(np.all(part >= 0) for part in parts)
    assert np.all((held.low_bytes <= held.total_bytes) & (held.total_bytes <= held.high_bytes))


# Korthikanti et al. 2022, table 2: bytes per layer over s·b·h, with a GPT whose FFN is 4·h wide.
@pytest.mark.parametrize(
    ("tp", "sequence_parallel", "factor"),
    [(1, 0, 34), (8, 0, 10 + 24 / 8), (8, 1, 34 / 8)],
    ids=["alone", "tensor", "tensor and sequence"],
)
def test_activations_are_those_of_korthikantis_table(
    make_job, stack, tp: int, sequence_parallel: int, factor: float
) -> None:
    job = make_job("gpt3-175b", batch=1, sequence=2048)
    layouts = layouts_of([(tp, 1, 1, 1, 1, 1, 1, 1, 0, sequence_parallel)])
    work = job.workload
    sbh = job.sequence_tokens * job.model.hidden
    kept = sum(each[0] for each in kept_bytes(work, layouts).values())
    assert kept == pytest.approx(factor * sbh, rel=1e-6)
    scores = 5 * job.model.heads * job.sequence_tokens / job.model.hidden / tp * sbh
    unfused = replace(stack, softmax_passes_factor=7.0)
    assert score_bytes(work, layouts, unfused)[0] == pytest.approx(scores)
    assert score_bytes(work, layouts, stack)[0] == 0.0  # flash attention keeps none


def test_full_recomputation_keeps_the_input_alone(make_job, stack) -> None:  # same table: 2·s·b·h
    job = make_job("gpt3-175b", batch=1, sequence=2048)
    layouts = layouts_of([(1, 1, 1, 1, 1, 1, 1, 1, 2, 0)])
    kept = kept_activation_bytes(job.workload, layouts, stack)
    assert kept[0] == pytest.approx(2 * 2048 * job.model.hidden)


def _one(layouts: Layouts, **changes: int) -> Layouts:
    return replace(layouts, **{name: np.array([value]) for name, value in changes.items()})


@given(mode=st.sampled_from([0, 1, 2]))
def test_more_recomputation_never_holds_more(make_job, stack, mode: int) -> None:
    job = make_job("llama-3.1-8b", batch=8)
    order = (Recompute.NONE, Recompute.SELECTIVE, Recompute.MLP, Recompute.FULL)
    held = [memory(job.workload, _one(WHOLE, recompute=each), stack).activations_bytes for each in order]
    assert held[mode + 1] < held[mode] if order[mode + 1] != Recompute.SELECTIVE else held[1] == held[0]


@given(dp=st.sampled_from([2, 8, 64]), stage=st.sampled_from([1, 2, 3]))
def test_each_zero_stage_divides_one_more_part(make_job, stack, dp: int, stage: int) -> None:
    job = make_job("llama-3.1-8b", batch=64)
    whole = memory(job.workload, _one(WHOLE, dp=dp), stack)
    cut = memory(job.workload, _one(WHOLE, dp=dp, zero_stage=stage), stack)
    for part, since in (("optimizer_bytes", 1), ("gradients_bytes", 2), ("weights_bytes", 3)):
        shares = dp if stage >= since else 1
        assert getattr(cut, part)[0] * shares == pytest.approx(getattr(whole, part)[0])


@given(tp=st.sampled_from([1, 2, 4, 8]), pp=st.sampled_from([1, 2, 4, 8]), mb=st.sampled_from([1, 2, 4]))
def test_cutting_the_model_never_holds_more(make_job, stack, tp: int, pp: int, mb: int) -> None:
    job = make_job(batch=64)
    layouts = _one(WHOLE, tp=tp, pp=pp, micro_batch=mb, sequence_parallel=1, zero_stage=1)
    total = memory(job.workload, layouts, stack).total_bytes
    assert memory(job.workload, _one(layouts, tp=2 * tp), stack).total_bytes < total
    assert memory(job.workload, _one(layouts, micro_batch=2 * mb), stack).total_bytes > total


def test_interleaving_holds_korthikantis_share_more(make_job, stack) -> None:
    # L·(1 + (p−1)/(p·m)) layers' activations instead of L: section 4.2.3, with many micro-batches.
    job = make_job(batch=512)
    plain = memory(job.workload, layouts_of([(8, 1, 1, 8, 1, 1, 1, 1, 0, 1)]), stack).activations_bytes
    woven = memory(job.workload, layouts_of([(8, 1, 1, 8, 5, 1, 1, 1, 0, 1)]), stack).activations_bytes
    assert woven / plain == pytest.approx(1 + 7 / (8 * 5))


def test_adapters_hold_weights_but_hardly_any_states(make_job, stack) -> None:
    full = memory(make_job("llama-3.1-8b", batch=1).workload, WHOLE, stack)
    lora = memory(make_job("llama-3.1-8b", batch=1, lora_rank=16).workload, WHOLE, stack)
    assert lora.weights_bytes == full.weights_bytes
    assert lora.optimizer_bytes < 0.01 * full.optimizer_bytes


def test_states_in_host_memory_leave_the_device(make_job, stack) -> None:
    held = memory(make_job("llama-3.1-8b", batch=1, optimizer_place="host").workload, WHOLE, stack)
    assert held.optimizer_bytes == 0


def test_spreading_experts_divides_them_and_not_the_rest(make_job, stack) -> None:
    job = make_job("mixtral-8x7b", batch=8, sequence=4096)
    layouts = _one(WHOLE, dp=8, zero_stage=0)
    whole, spread = memory(job.workload, layouts, stack), memory(job.workload, _one(layouts, ep=8), stack)
    experts = 32 * 8 * 3 * 4096 * 14336 * 2
    assert whole.weights_bytes - spread.weights_bytes == pytest.approx(experts * 7 / 8)


def test_memory_grows_with_every_model_of_the_catalogue(stack) -> None:
    for model in load_catalog().rows(Model):
        if model.arch in ("dense", "moe", "hybrid"):
            held = memory(TrainingJob(model, "pretrain", 2048, 8).workload, WHOLE, stack)
            assert held.total_bytes[0] > 16 * 0.9 * model.parameters, model.name


def test_filling_stage_cost_factor_puts_more_layers_before_the_head(make_job, stack) -> None:
    # nanotron: 80 layers and a head worth 1.2 of them: over 2 stages the 41st crosses the half.
    job, by_cost = make_job(batch=512), replace(stack, stage_cost_factor=1.0)
    for pp, layers in ((2, 41), (16, 6)):
        layouts = layouts_of([(8, 1, 1, pp, 1, 1, 1, 1, 0, 1)])
        even, filled = (memory(job.workload, layouts, each).activations_bytes for each in (stack, by_cost))
        assert filled / even == pytest.approx(layers / np.ceil(80 / pp))


def test_sixteen_bit_gradients_are_copied_at_the_step_into_memory_that_can_be_reclaimed(
    make_job, stack
) -> None:
    job = make_job("llama-3.1-8b", batch=8)
    copied = memory(job.workload, WHOLE, replace(stack, gradient_memory_bytes=2.0))
    assert 0 < copied.reclaimable_bytes <= 2 * copied.gradients_bytes
    accumulated = memory(job.workload, WHOLE, replace(stack, gradient_memory_bytes=4.0))
    assert accumulated.reclaimable_bytes == 0
    assert accumulated.gradients_bytes == copied.gradients_bytes
    assert accumulated.beside_bytes == pytest.approx(accumulated.gradients_bytes)  # two more bytes a weight


def test_what_tensors_hold_is_less_than_the_allocator_and_that_less_than_the_device(
    make_job, make_cluster, stack
) -> None:
    job = make_job("mixtral-8x7b", batch=256, sequence=4096)
    layouts, _ = enumerate_layouts(job, make_cluster(count=64))
    held = memory(job.workload, layouts, stack)
    assert np.all(held.allocated_bytes <= held.reserved_bytes)
    assert np.all(held.reserved_bytes <= held.device_bytes)
    assert np.all(held.total_bytes <= held.device_bytes)


@given(vocab=st.sampled_from([32_000, 128_256, 512_000]), mb=st.sampled_from([1, 4, 16]))
def test_the_loss_and_the_backward_pass_of_a_layer_never_count_together(
    make_job, stack, vocab: int, mb: int
) -> None:
    job = make_job("llama-3.1-8b", batch=64)
    job = replace(job, model=replace(job.model, vocab=vocab))
    held = memory(job.workload, _one(WHOLE, micro_batch=mb, recompute=2), stack)
    small = memory(job.workload, _one(WHOLE, micro_batch=mb, recompute=2), replace(stack, logits_bytes=0.0))
    assert held.total_bytes >= small.total_bytes
    assert held.logits_bytes == 0 or held.beside_bytes < small.beside_bytes
