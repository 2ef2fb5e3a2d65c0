import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.inference import (
    CacheOptions,
    capacity,
    max_sequences,
)
from twofold.perf import bytes_per_weight

TRUTH = Path(__file__).parents[3] / "shared" / "truth" / "inference_memory.csv"


@pytest.mark.parametrize(
    ("model", "bytes_per_token"),
    [  # published: 2·layers·kv heads·width·2 B; DeepSeek-V2/V3: (512 + 64)·layers·2 B
        ("llama-3.1-70b", 327_680),
        ("llama-3.1-8b", 131_072),
        ("llama-2-7b", 524_288),
        ("mixtral-8x7b", 131_072),
        ("deepseek-r1", 70_272),
        ("llama-3.1-405b", 516_096),
    ],
)
def test_cache_of_one_token_is_what_is_published(replica_of, model, bytes_per_token):
    assert replica_of(model).shape.kv_bytes_per_token("bf16") == bytes_per_token


def test_thirty_two_users_of_8k_tokens_take_86_gb_on_llama_70b(replica_of):
    assert 32 * replica_of().shape.kv_bytes("bf16", 8192) == pytest.approx(86e9, rel=0.01)


def test_a_window_caps_the_cache_of_its_layers(replica_of):
    shape = replica_of("gpt-oss-120b").shape  # a window of 128 on every second layer
    per_layer = shape.kv_bytes_per_token("bf16") / shape.softmax_layers
    assert shape.kv_bytes("bf16", 100_000) == pytest.approx(18 * per_layer * (100_000 + 128))


def test_a_linear_layer_keeps_a_state_that_no_context_grows(replica_of):
    shape = replica_of("nemotron-nano-9b-v2").shape
    grown = shape.kv_bytes("bf16", 20_000) - shape.kv_bytes("bf16", 10_000)
    assert grown == pytest.approx(10_000 * shape.kv_bytes_per_token("bf16"))
    # 27 Mamba-2 layers (the other blocks are FFNs and attention) of 128 heads × 80 × 128 numbers each.
    assert shape.kv_bytes("bf16", 0) == 27 * 128 * 80 * 128 * 2


@pytest.mark.parametrize("weights_format", ["fp8", "fp8_block", "int8", "int4", "nvfp4", "mxfp4"])
def test_quantised_weights_count_their_scales_and_keep_embeddings_wide(replica_of, weights_format):
    shape = replica_of().shape
    parts = shape.weights_bytes(weights_format)
    inner = parts.total_bytes - parts.embedding_bytes
    weights = (shape.weights_bytes("bf16").total_bytes - parts.embedding_bytes) / 2
    assert parts.embedding_bytes == shape.weights_bytes("bf16").embedding_bytes
    assert inner / weights == pytest.approx(bytes_per_weight(weights_format))


def test_four_bit_experts_leave_attention_in_sixteen_bits(replica_of):
    total = replica_of("gpt-oss-120b").shape.weights_bytes("mxfp4").total_bytes
    assert total == pytest.approx(65e9, rel=0.03)  # the published checkpoint: 65 GB


def test_the_engine_logs_of_vllm_are_met(replica_of, catalog):
    if not TRUTH.exists():
        pytest.skip("needs ../shared/truth/inference_memory.csv")
    with TRUTH.open() as handle:
        rows = [
            row for row in csv.DictReader(handle) if "Scout" not in row["model"]
        ]  # that one has a vision tower
    for row in rows:
        name = catalog.model(row["model"]).name
        part = catalog.benchmark_accelerator(row["gpu"]).name
        layout = {"tp": float(row["tp"]), "chunk_tokens": float(row["max_num_batched_tokens"])}
        tokens = capacity(replica_of(name, part, **layout)).kv_tokens
        assert tokens == pytest.approx(float(row["kv_tokens"]), rel=0.02)


def test_buffers_follow_the_prefill_chunk(replica_of):
    small, large = (capacity(replica_of(chunk_tokens=tokens)) for tokens in (2048.0, 16384.0))
    assert large.buffers_bytes > small.buffers_bytes
    assert small.kv_bytes - large.kv_bytes == pytest.approx(large.buffers_bytes - small.buffers_bytes)


def test_the_parts_of_a_device_sum_to_what_is_usable(replica_of):
    held = capacity(replica_of("mixtral-8x7b", "H100-SXM", "fp8", adapter_weights=1e9))
    parts = held.weights_bytes + held.buffers_bytes + held.adapter_bytes + held.kv_bytes
    assert parts == pytest.approx(held.usable_bytes)


def test_each_cache_switch_moves_concurrency_as_it_should(replica_of):
    replica = replica_of("llama-3.1-8b", "H100-SXM", tp=1.0)
    base = max_sequences(replica, 4096, 3000)

    def with_cache(**options):
        return max_sequences(replace(replica, cache=CacheOptions(**options)), 4096, 3000)

    assert with_cache(block_tokens=131072.0) < base
    assert with_cache(shared_prefix_fraction=0.5) > base
    assert with_cache(offload_bytes=100e9) > base
    assert max_sequences(replace(replica, kv_format="fp8"), 4096, 3000) == pytest.approx(2 * base)


@given(tp=st.sampled_from([1.0, 2.0, 4.0, 8.0]), pp=st.sampled_from([1.0, 2.0, 4.0]))
def test_more_accelerators_never_hold_fewer_tokens(replica_of, tp, pp):
    here = capacity(replica_of("llama-3.1-8b", tp=tp, pp=pp))
    more = capacity(replica_of("llama-3.1-8b", tp=2 * tp, pp=pp))
    assert more.kv_tokens >= here.kv_tokens


def test_a_latent_cache_is_copied_on_every_rank_of_tensor_parallelism(replica_of):
    wide = replica_of("deepseek-r1", "B200", "fp8_block", tp=8.0, kv_format="fp8")
    spread = replica_of("deepseek-r1", "B200", "fp8_block", tp=1.0, ep=8.0, dp=8.0, kv_format="fp8")
    assert capacity(spread).kv_tokens > 4 * capacity(wide).kv_tokens
