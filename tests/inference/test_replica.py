import csv
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.inference.iteration import iteration_s
from twofold.inference.replica import CacheOptions, Engine, capacity, engine, max_sequences
from twofold.perf.constants import load_constants
from twofold.perf.formats import bytes_per_weight
from twofold.perf.software import engine_software

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


@pytest.mark.parametrize(
    ("name", "version", "era"),
    [
        ("vllm", "0.6.x (autumn 2024)", "0.4+"),
        ("vllm", "2024, unstated", "2024"),
        ("vllm", "0.11.x", "0.4+"),
        ("vllm", "0.18.0", "0.12+"),
        ("vllm", "0.2-0.3 era, modified", "0.3-"),
        ("trtllm", "0.9.0", "0.9-"),
        ("trtllm", "1.0.0rc3", "0.10+"),
        ("trtllm", "1.2.0rc6.post3", "1.1+"),
        ("sglang", "0.5.9", "0.5+"),
        ("trtllm", "gpt-oss-dev", "1.1+"),
        ("triton", "2.0", ""),
        ("vllm", "", "0.12+"),
    ],
)
def test_a_version_belongs_to_an_era_and_an_unreadable_one_to_the_newest(name, version, era):
    assert engine_software(name).era_of(version) == era


def test_an_unknown_engine_takes_the_constants_of_all(constants):
    unknown = engine(constants, "some-engine", "3.1")
    assert unknown.host_step_s == constants.get("serving_host_step_s")


def test_old_eager_software_costs_more_host_time_than_new(constants):
    old, new = (engine(constants, "vllm", version) for version in ("0.2", "0.15.1"))
    assert old.host_factor > 3 * new.host_factor
    assert old.eager_fraction > new.eager_fraction


def test_formats_of_activations_follow_the_device(cluster_of):
    hopper, blackwell = cluster_of("H100-SXM").device, cluster_of("B200").device
    assert hopper.default_activation_format("mxfp4") == "bf16"
    assert blackwell.default_activation_format("mxfp4") == "mxfp8"
    assert hopper.default_activation_format("int4") == "bf16"
    assert hopper.default_activation_format("fp8") == "fp8"


@pytest.fixture(scope="module")
def vllm() -> Engine:
    return engine(load_constants(), "vllm", "0.15.0", family="hopper")


def changed(old: Engine, new: Engine) -> set[str]:
    return {f.name for f in fields(Engine) if getattr(old, f.name) != getattr(new, f.name)}


def test_no_factor_changes_nothing(vllm: Engine) -> None:
    assert vllm.scaled({"compute": 2.0}) == vllm


def test_a_faster_host_shortens_the_engines_own_times_alone(vllm: Engine) -> None:
    faster = vllm.scaled({"host": 2.0})
    assert faster.host_step_s == vllm.host_step_s / 2
    assert all(name.endswith("_s") for name in changed(vllm, faster))


def test_a_faster_prefill_leaves_decoding_alone(vllm: Engine) -> None:
    faster = vllm.scaled({"prefill": 1.1})
    assert faster.prefill_factor == pytest.approx(vllm.prefill_factor / 1.1)
    assert changed(vllm, faster) == {"prefill_factor", "prefill_layer_s"}


def test_faster_communication_is_that_alone(vllm: Engine) -> None:
    assert changed(vllm, vllm.scaled({"communication": 2.0})) == {"communication_factor"}


def test_a_group_that_does_not_divide_the_experts_holds_copies(replica_of) -> None:
    wide = {
        ranks: replica_of("deepseek-v3", "H800-SXM5-80GB", "fp8", ep=ranks, dp=ranks)
        for ranks in (128.0, 144.0)
    }
    held = {ranks: capacity(replica).weights_bytes for ranks, replica in wide.items()}
    assert held[144.0] == pytest.approx(held[128.0])  # two of 256 experts on each rank, either way


def test_engines_limit_the_batch_of_each_data_parallel_rank(replica_of) -> None:
    lone = replica_of("deepseek-v3", "H200-SXM5-141GB", "fp8", tp=8.0, ep=8.0, rank_batch=64.0)
    assert lone.max_batch == 64
    assert replace(lone, tp=1.0, dp=8.0).max_batch == 512


def test_the_host_serves_the_sequences_of_its_own_rank(replica_of) -> None:
    def host_s(ranks: float, sequences: float) -> float:
        replica = replica_of("deepseek-v3", "H200-SXM5-141GB", "fp8", ep=ranks, dp=ranks)
        many, none = (float(iteration_s(replica, 0.0, 0.0, each, 1000.0).host_s) for each in (sequences, 0.0))
        return many - none

    assert host_s(16.0, 16.0 * 32.0) == pytest.approx(host_s(8.0, 8.0 * 32.0), rel=1e-6)
