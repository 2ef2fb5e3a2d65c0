"""Attention counts the pairs it should, reads the cache it should, and more of either is never faster."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.perf.attention import attended_pairs, attention_decode_s, attention_prefill_s, mla_decode_s
from twofold.perf.types import Device

shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
tokens = st.integers(1, 300)


@given(query=st.integers(1, 60), context=st.integers(0, 60), window=st.integers(0, 80))
def test_pairs_agree_with_a_drawn_mask(query: int, context: int, window: int) -> None:
    rows, columns = np.indices((query, query + context))
    position = rows + context
    seen = columns <= position
    if window:
        seen &= columns > position - window
    assert float(attended_pairs(query, context, window)) == seen.sum()


@shared
@given(query=tokens, context=tokens, heads=st.sampled_from([8, 16, 64]), batch=st.integers(1, 64))
def test_more_work_is_never_faster(h100: Device, query: int, context: int, heads: int, batch: int) -> None:
    def seconds(query: int, context: int, heads: int, batch: int) -> float:
        return float(attention_prefill_s(h100, batch, query, context, heads, 8, 128, "bf16"))

    base = seconds(query, context, heads, batch)
    assert seconds(query * 2, context, heads, batch) >= base
    assert seconds(query, context * 2, heads, batch) >= base
    assert seconds(query, context, heads * 2, batch) >= base
    assert seconds(query, context, heads, batch * 2) >= base


@shared
@given(context=st.integers(1, 10**6), window=st.integers(1, 10**6))
def test_a_window_never_slows_down_and_a_wide_one_changes_nothing(
    h100: Device, context: int, window: int
) -> None:
    shape = (h100, 16, context, 32, 8, 128, "bf16")
    assert attention_decode_s(*shape, window=window) <= attention_decode_s(*shape)
    assert attention_decode_s(*shape, window=context + window) == attention_decode_s(*shape)


def test_chunks_of_a_prompt_count_the_pairs_of_the_whole() -> None:
    chunks = sum(float(attended_pairs(512, start)) for start in range(0, 4096, 512))
    assert chunks == float(attended_pairs(4096, 0))


def test_long_prefill_runs_near_half_of_peak(h100: Device) -> None:
    seconds = float(attention_prefill_s(h100, 1, 65536, 0, 32, 8, 128, "bf16"))
    reached = 4 * 32 * 128 * 65536**2 / 2 / seconds / 989.4e12  # FlashAttention-3 paper: 0.5–0.75, causal
    assert 0.4 <= reached <= 0.75


def test_a_short_prompt_pays_for_whole_tiles_which_a_processors_are_small(
    make_device: Callable[[str], Device],
) -> None:
    def ratio(device: Device) -> float:
        a, b = (float(attention_prefill_s(device, 64, each, 0, 16, 16, 64, "fp32")) for each in (96, 128))
        return a / b

    processor = make_device("CPU-4-core-AVX2")
    assert ratio(replace(processor, attention_tile_queries=128.0)) > 0.95
    assert ratio(processor) < 0.7  # of nearly (96 / 128)², rounded up to 32


def test_decode_reads_the_cache_once(h100: Device) -> None:
    """Doubling context adds exactly the doubled bytes; queries that share a KV head add next to nothing."""
    one, two, three = (
        float(attention_decode_s(h100, 64, c, 8, 1, 128, "bf16")) for c in (50e3, 100e3, 150e3)
    )
    assert three - two == pytest.approx(two - one)
    cache_bytes = 2 * 64 * 50e3 * 128 * 2
    read_s = cache_bytes / (3.35e12 * float(h100.decode_efficiency_fraction))
    assert two - one == pytest.approx(read_s, rel=0.02)  # the products hide behind the reads
    assert float(attention_decode_s(h100, 64, 50e3, 1, 1, 128, "bf16")) == pytest.approx(one, rel=0.02)


def test_a_model_without_heads_has_nothing_to_attend_to(h100: Device) -> None:
    none, some = (float(attention_decode_s(h100, 8, 1000, heads, heads, 64, "bf16")) for heads in (0, 1))
    assert none == pytest.approx(float(h100.decode_floor_s)) and none < some


def test_a_narrow_cache_is_read_faster(h100: Device) -> None:
    assert attention_decode_s(h100, 64, 1e5, 8, 8, 128, "fp8") < attention_decode_s(
        h100, 64, 1e5, 8, 8, 128, "bf16"
    )


def test_latent_decode_goes_from_bandwidth_to_compute_with_its_heads(h100: Device) -> None:
    few, some, many = (float(mla_decode_s(h100, 64, 32768, heads, 512, 64, "bf16")) for heads in (4, 8, 128))
    assert some == pytest.approx(few, rel=0.05)
    assert many > 1.4 * few


def test_a_latent_cache_reads_less_than_one_of_heads(h100: Device) -> None:
    latent = mla_decode_s(h100, 32, 65536, 16, 512, 64, "bf16")
    assert latent < attention_decode_s(h100, 32, 65536, 16, 16, 128, "bf16")
