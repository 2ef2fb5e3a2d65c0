import numpy as np
import pytest

from twofold.core.errors import InputError
from twofold.training.job import TrainingJob, Workload


def test_a_lora_run_needs_a_rank_and_no_other_run_has_one(make_job) -> None:
    model = make_job().model
    with pytest.raises(InputError, match="needs a rank"):
        TrainingJob(model, "lora", 4096, 8)
    with pytest.raises(InputError, match="needs a rank"):
        TrainingJob(model, "pretrain", 4096, 8, lora_rank=16)


def test_a_batch_of_nothing_is_refused(make_job) -> None:
    with pytest.raises(InputError, match="at least one sequence"):
        TrainingJob(make_job().model, "pretrain", 4096, 0)


def test_the_bytes_of_a_parameter_follow_precision_and_optimiser(make_job) -> None:
    half, full = make_job().workload, make_job(precision="fp32").workload
    assert (half.weight_bytes, half.optimizer_bytes) == (2, 12)  # fp32 master copy, two fp32 moments
    assert (full.weight_bytes, full.optimizer_bytes) == (4, 8)  # its own master copy
    assert make_job(optimizer="sgd").workload.optimizer_bytes == 8


def test_latent_attention_has_its_own_head_sizes(make_job) -> None:
    work = make_job("deepseek-v3", sequence=4096).workload
    assert (work.head_dim, work.v_head_dim, work.mla_kv_rank) == (192, 128, 512)


def test_stacked_workloads_keep_their_order(make_job) -> None:
    both = Workload.stacked([make_job("llama-3.1-8b").workload, make_job("llama-3.1-70b").workload])
    assert np.array_equal(both.layers, [32, 80])


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "mixtral-8x7b", "deepseek-v3"]
)
def test_the_shape_explains_the_published_parameters(make_job, name: str) -> None:
    work = make_job(name).workload
    rest = float(work.layers * work.other_parameters)
    assert rest < 0.02 * work.parameters_count
    total = float(work.layers * (work.dense_parameters + work.expert_parameters))
    tables = work.embedding_count * work.vocab * work.hidden
    assert total + tables == pytest.approx(work.parameters_count, rel=0.01)


def test_a_dense_model_trains_at_six_flops_per_weight_plus_attention(make_job) -> None:
    job = make_job("llama-3.1-405b")
    flops = float(job.workload.model_flops_per_token)
    assert flops == pytest.approx(6 * 405e9, rel=0.05)
    longer = float(make_job("llama-3.1-405b", sequence=131072).workload.model_flops_per_token)
    assert longer > 1.2 * flops


def test_llama_3_405b_took_3_8e25_flops(make_job) -> None:
    # Llama 3 (2024), section 3.2: 3.8 × 10^25 FLOPs on 15.6 T tokens.
    flops = float(make_job("llama-3.1-405b").workload.model_flops_per_token) * 15.6e12
    assert flops == pytest.approx(3.8e25, rel=0.05)


def test_an_expert_model_works_with_its_active_weights_alone(make_job) -> None:
    job = make_job("deepseek-v3", sequence=4096)
    flops = float(job.workload.model_flops_per_token)
    assert flops == pytest.approx(6 * job.model.parameters_active, rel=0.15)


def test_adapters_are_a_small_share_of_the_model(make_job) -> None:
    adapters = float(make_job("llama-3.1-8b", lora_rank=16).workload.trained_parameters)
    # Rank 16 on all seven matrices of Llama-3.1-8B: 42 M, as common fine-tuning tools print.
    assert adapters == pytest.approx(42e6, rel=0.05)


def test_frozen_weights_save_a_third_of_the_flops(make_job) -> None:
    full, lora = (
        float(job.workload.model_flops_per_token)
        for job in (
            make_job("llama-3.1-8b", sequence=512),
            make_job("llama-3.1-8b", sequence=512, lora_rank=16),
        )
    )
    assert lora / full == pytest.approx(2 / 3, abs=0.02)
