import numpy as np
import pytest

from twofold.core import InputError
from twofold.training import TrainingJob, Workload


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
