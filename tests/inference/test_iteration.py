from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.inference.iteration import Iteration, _hidden_s, _Tokens, iteration_s, tokens_per_step
from twofold.inference.slo import relieved
from twofold.perf.attention import attention_decode_s
from twofold.perf.formats import bytes_per_weight

LAYOUTS = st.sampled_from(
    ["llama-3.1-8b", "mixtral-8x7b", "deepseek-r1", "gpt-oss-120b", "nemotron-nano-9b-v2", "mamba2-2.7b"]
)


@given(model=LAYOUTS, prefill=st.floats(0, 8192), decode=st.floats(0, 512), context=st.floats(16, 32768))
@settings(max_examples=40, deadline=None)
def test_parts_sum_to_the_step_and_none_is_negative(replica_of, model, prefill, decode, context):
    step = iteration_s(replica_of(model), prefill, prefill / 2, decode, context)
    parts = [getattr(step, field.name) for field in fields(Iteration)]
    assert all(np.all(part >= 0) for part in parts)
    assert step.total_s == pytest.approx(sum(parts))


@given(
    model=LAYOUTS,
    decode=st.floats(1, 512),
    context=st.floats(64, 16384),
    resource=st.sampled_from(["bandwidth", "compute", "link", "host"]),
)
@settings(max_examples=40, deadline=None)
def test_more_of_any_resource_never_slows_a_step(replica_of, model, decode, context, resource):
    replica = replica_of(model)
    before = iteration_s(replica, 2048.0, 1024.0, decode, context).total_s
    assert iteration_s(relieved(replica, resource), 2048.0, 1024.0, decode, context).total_s <= before * (
        1 + 1e-9
    )


@given(model=LAYOUTS, decode=st.floats(1, 256), more=st.floats(1, 4), context=st.floats(64, 8192))
@settings(max_examples=40, deadline=None)
def test_more_sequences_longer_contexts_and_more_prefill_never_speed_a_step(
    replica_of, model, decode, more, context
):
    replica = replica_of(model)
    base = iteration_s(replica, 512.0, 256.0, decode, context).total_s
    assert iteration_s(replica, 512.0, 256.0, decode * more, context).total_s >= base * (1 - 1e-9)
    assert iteration_s(replica, 512.0, 256.0, decode, context * more).total_s >= base * (1 - 1e-9)
    assert iteration_s(replica, 512.0 * more, 256.0, decode, context).total_s >= base * (1 - 1e-9)


def test_slow_arithmetic_holds_up_prompts_and_not_a_lone_answer(replica_of):
    tuned = replica_of("llama-3.1-8b", "H100-SXM", tp=1.0)
    untuned = replace(tuned, engine=replace(tuned.engine, arithmetic_factor=4.0))

    def slower(*load):
        return float(iteration_s(untuned, *load).total_s / iteration_s(tuned, *load).total_s)

    assert slower(8192.0, 4096.0, 0.0, 0.0) > 3.0
    assert slower(0.0, 0.0, 1.0, 1000.0) == pytest.approx(1.0, rel=0.02)


def test_a_cache_that_query_heads_do_not_share_is_read_once_for_each(replica_of):
    shared = replica_of("llama-3.1-8b", "H100-SXM", tp=1.0)  # 32 query heads on 8 of keys and values
    alone = replace(shared, engine=replace(shared.engine, unshared_kv_fraction=1.0))
    read = [float(iteration_s(each, 0.0, 0.0, 256.0, 8000.0).attention_s) for each in (shared, alone)]
    assert read[1] == pytest.approx(4.0 * read[0], rel=0.15)


def test_a_sweep_gives_what_single_calls_give(replica_of):
    batch, tp = np.array([1.0, 16.0, 256.0]), np.array([1.0, 2.0, 8.0])
    swept = iteration_s(replica_of("mixtral-8x7b", tp=tp), 1024.0, 512.0, batch, 2000.0).total_s
    for index in range(3):
        alone = iteration_s(replica_of("mixtral-8x7b", tp=tp[index]), 1024.0, 512.0, batch[index], 2000.0)
        assert swept[index] == pytest.approx(float(alone.total_s))


def test_a_lone_decode_step_reads_all_weights_at_less_than_the_memory_s_rate(replica_of):
    replica = replica_of("llama-3.1-8b", "H100-SXM", tp=1.0)
    floor_s = 8.03e9 * 2 / 3.35e12
    assert floor_s < iteration_s(replica, 0.0, 0.0, 1.0, 128.0).total_s < 2 * floor_s


def test_long_prefill_runs_at_a_believable_share_of_peak(replica_of):
    replica = replica_of("llama-3.1-70b", "H100-SXM", tp=8.0)
    seconds = iteration_s(replica, 8192.0, 4096.0, 0.0, 0.0).total_s
    assert 0.3 < 2 * 70e9 * 8192 / 8 / seconds / 989e12 < 0.8


def test_ungated_experts_in_a_latent_read_their_own_weights_and_no_more(replica_of):
    replica = replica_of("nemotron-3-super-120b-a12b", "H100-SXM", tp=1.0)
    # Layers · experts · matrices · latent · width · bytes, at the vendor's bandwidth.
    whole_s = 40 * 512 * 2 * 1024 * 2688 * 2.0 / 3.35e12
    seconds = iteration_s(replica, 0.0, 0.0, 2048.0, 128.0).moe_s  # so many tokens touch every expert
    assert whole_s < seconds < 3 * whole_s


def test_tensor_parallelism_communicates_and_one_rank_does_not(replica_of):
    assert iteration_s(replica_of("llama-3.1-8b", tp=1.0), 0.0, 0.0, 8.0, 512.0).communication_s == 0
    assert iteration_s(replica_of("llama-3.1-8b", tp=4.0), 0.0, 0.0, 8.0, 512.0).communication_s > 0


def test_prefill_without_a_graph_has_a_floor_per_layer(replica_of):
    replica = replica_of("llama-3.1-8b", "B200", tp=8.0)
    short = iteration_s(replica, 16.0, 8.0, 0.0, 0.0).total_s
    assert short >= replica.engine.prefill_layer_s * 32


def test_cache_reads_scale_with_the_context(replica_of):
    device = replica_of().cluster.device
    short, long = (attention_decode_s(device, 64.0, c, 8.0, 1.0, 128.0, "bf16") for c in (65536.0, 131072.0))
    assert long / short == pytest.approx(2.0, rel=0.1)


def test_drafts_that_are_never_accepted_gain_nothing(replica_of):
    replica = replica_of(draft_tokens=3.0, draft_accept_fraction=0.0)
    assert tokens_per_step(replica) == pytest.approx(1.0)
    assert tokens_per_step(replace(replica, draft_accept_fraction=1.0)) == pytest.approx(4.0)
    assert (
        iteration_s(replica, 0.0, 0.0, 64.0, 1000.0).total_s
        > iteration_s(replica_of(), 0.0, 0.0, 64.0, 1000.0).total_s
    )


def test_data_parallel_attention_exchanges_instead_of_reducing(replica_of):
    spread = replica_of("deepseek-r1", "H200", "fp8_block", tp=1.0, ep=8.0, dp=8.0)
    sliced = replica_of("deepseek-r1", "H200", "fp8_block", tp=8.0)
    many = 2048.0
    assert (
        iteration_s(spread, 0.0, 0.0, many, 2000.0).attention_s
        < iteration_s(sliced, 0.0, 0.0, many, 2000.0).attention_s
    )


def test_an_engine_that_packs_sequences_pays_for_their_square(replica_of):
    replica = replica_of("llama-3.1-8b", tp=1.0)
    packed = replace(replica, engine=replace(replica.engine, name="transformers"))
    attention_s = {
        n: float(iteration_s(packed, 0.0, 0.0, float(n), 4096.0).attention_s) for n in (4096, 8192)
    }
    alone_s = {n: float(iteration_s(replica, 0.0, 0.0, float(n), 4096.0).attention_s) for n in (4096, 8192)}
    assert alone_s[8192] < 2.1 * alone_s[4096]
    assert attention_s[8192] > 3.5 * attention_s[4096]


def test_weights_of_32_bits_have_a_head_and_activations_of_32_bits(replica_of):
    narrow = replica_of("llama-3.1-8b")
    wide = replace(narrow, weights_format="fp32", activation_format="fp32")
    one, other = (iteration_s(each, 0.0, 0.0, 8.0, 128.0) for each in (narrow, wide))
    assert other.elementwise_s == pytest.approx(2 * one.elementwise_s)
    assert other.gemm_s > 1.8 * one.gemm_s  # at few rows, weights are read: the head's too


def test_a_step_without_captured_graphs_is_no_faster_than_its_launches(replica_of):
    replica = replica_of("llama-3.1-8b")
    eager = replace(replica, engine=replace(replica.engine, eager_fraction=1.0))
    floor_s = float(replica.engine.prefill_layer_s * replica.shape.layers)
    assert float(iteration_s(eager, 0.0, 0.0, 1.0, 128.0).total_s) >= floor_s
    assert float(iteration_s(replica, 0.0, 0.0, 1.0, 128.0).total_s) < floor_s


def halved(replica_of, engine="sglang", **sizes):
    shared = replica_of("deepseek-r1", "H100-SXM", tp=1.0, **sizes)
    return replace(shared, engine=replace(shared.engine, name=engine), halved_fraction=1.0)


def scheduled_s(layers, dense, experts, dispatch, combine):
    """Two halves on one stream of work and one of traffic, each in the order that engines give them."""
    work_s = sent_s = 0.0
    ready = {"A": 0.0, "B": 0.0}
    for _ in range(layers):
        for work, traffic in ((dense, dispatch), (experts, combine)):
            for half in "AB":
                work_s = max(work_s, ready[half]) + work
                sent_s = max(sent_s, work_s) + traffic
                ready[half] = sent_s
    return max(ready.values())


@given(parts=st.tuples(*[st.floats(0.01, 10.0)] * 4))
@settings(max_examples=50, deadline=None)
def test_traffic_hides_as_a_schedule_of_two_streams_hides_it(replica_of, parts):
    dense, experts, dispatch, combine = parts
    replica = halved(replica_of, ep=64.0, dp=64.0)
    layers = int(replica.shape.moe_layers)
    sent = bytes_per_weight(replica.activation_format)
    combine = dispatch * 2.0 / sent  # of one exchange
    tokens = _Tokens(0.0, 1.0, 1.0, 1.0, 0.0, 0.0)
    whole = replica.shape.layers * 2.0 * dense, layers * 2.0 * experts, layers * 2.0 * (dispatch + combine)
    hidden = _hidden_s(replica, tokens, *whole)
    alone = layers * 2.0 * (dense + experts + dispatch + combine)
    assert alone - hidden == pytest.approx(scheduled_s(layers, dense, experts, dispatch, combine), rel=0.03)


def test_two_halves_hide_traffic_between_experts_where_there_is_enough_of_it(replica_of):
    replica = halved(replica_of, ep=64.0, dp=64.0)
    whole = replace(replica, halved_fraction=0.0)

    def gain(sequences, engine="sglang"):
        both = (replace(each, engine=replace(each.engine, name=engine)) for each in (whole, replica))
        one, two = (iteration_s(each, 0.0, 0.0, 64.0 * sequences, 2000.0) for each in both)
        return float(one.total_s / two.total_s), float(one.communication_s - two.communication_s)

    ratio, hidden_s = gain(256.0)
    assert 1.1 < ratio < 2.0 and hidden_s > 0
    assert gain(4.0)[0] < 1.0  # weights are read twice, and little is hidden
    assert gain(31.0, "vllm") == (1.0, 0.0) != gain(32.0, "vllm")  # its own threshold
    assert gain(256.0, "trtllm") == (1.0, 0.0)
    alone = replace(replica, ep=1.0, dp=1.0)  # nothing is exchanged
    for each in (alone, replace(alone, halved_fraction=0.0)):
        assert iteration_s(each, 0.0, 0.0, 256.0, 2000.0).total_s == pytest.approx(
            iteration_s(alone, 0.0, 0.0, 256.0, 2000.0).total_s
        )


def test_kernels_that_send_prompts_take_processors_from_what_they_hide_behind(replica_of):
    replica = halved(replica_of, ep=8.0, dp=8.0)
    free = replace(replica, engine=replace(replica.engine, exchange_processor_fraction=0.0))
    loads = ((8 * 8192.0, 2048.0, 0.0, 0.0), True), ((0.0, 0.0, 8 * 128.0, 2000.0), False)
    for load, slower in loads:
        taken, left = (float(iteration_s(each, *load).total_s) for each in (replica, free))
        assert (taken > left) is slower
