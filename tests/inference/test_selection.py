from dataclasses import replace

import numpy as np
import pytest

from twofold.catalog import Accelerator
from twofold.inference import (
    Lengths,
    Slo,
    TrafficClass,
    cache_switches,
    chips_needed,
    communication_bytes_per_token,
    hardware_table,
    max_sequences,
    regimes,
)

CHAT = TrafficClass("chat", Lengths(1000.0, 200.0, 0.5, 0.5), 10.0, Slo({"ttft_p95": 1.0, "tpot_p95": 0.08}))


@pytest.mark.parametrize("model", ["llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b"])
def test_hardware_is_ranked_by_the_cost_of_a_token_with_its_bottleneck(variant_of, offer_of, model):
    table = hardware_table(
        variant_of(model), CHAT, [offer_of("H100-SXM", 2.5), offer_of("L40S", 0.9), offer_of("L4", 0.5)]
    )
    costs = [row.usd_per_1k_output_tokens for row in table if not row.reason]
    assert costs == sorted(costs)
    assert costs
    for row in table:
        assert row.reason or row.bound_by in {"bandwidth", "compute", "capacity", "link", "host"}


def test_a_server_cpu_is_an_option_for_a_model_of_a_billion(variant_of, offer_of):
    patient = TrafficClass("edge", Lengths(128.0, 64.0), 0.2, Slo({"tpot_p95": 0.2}))
    (row,) = hardware_table(variant_of("llama-3.2-1b"), patient, [offer_of("Xeon 8480C", 0.05, ("int8",))])
    assert not row.reason
    assert row.output_tokens_per_s_per_accelerator > 1
    assert row.usd_per_1k_output_tokens > 0


@pytest.mark.parametrize("model", ["llama-3.1-70b", "llama-3.1-405b"])
def test_tensor_parallelism_buys_latency_and_pipelines_do_not(replica_of, model):
    layouts = {"tp": np.array([2.0, 4.0, 8.0, 2.0, 2.0]), "pp": np.array([1.0, 1.0, 1.0, 2.0, 4.0])}
    swept = replace(replica_of(model, "H200", "fp8"), **layouts)
    tpot_s = regimes.at_batch(swept, CHAT.lengths, 1.0).tpot.mean_s
    tokens_per_s = regimes.max_throughput(swept, CHAT.lengths).output_tokens_per_s
    sent = communication_bytes_per_token(swept)
    assert tpot_s[0] > tpot_s[1] > tpot_s[2]
    assert tpot_s[4] >= 0.99 * tpot_s[0]
    assert tokens_per_s[4] > tokens_per_s[0]
    assert sent[4] < sent[2]


def test_expert_exchange_appears_in_the_bytes_of_a_token(replica_of):
    spread = replica_of("deepseek-r1", "H200", "fp8_block", tp=1.0, ep=8.0, dp=8.0)
    # 58 expert layers, a token to 8 ranks of which 7 are others, 7168 wide, 8 bits there and 16 back.
    assert communication_bytes_per_token(spread) == pytest.approx(58 * 7 / 8 * 8 * 7168 * 3, rel=0.01)


def test_long_contexts_cost_cache_time_and_users(replica_of):
    replica, context = (
        replica_of("llama-3.1-70b", "H200", "fp8", tp=4.0),
        np.array([8192.0, 32768.0, 131072.0]),
    )
    assert replica.shape.kv_bytes(replica.kv_format, context) == pytest.approx(327680 * context)
    assert (np.diff(regimes.at_batch(replica, Lengths(context - 256.0, 256.0), 1.0).ttft.mean_s) > 0).all()
    users = max_sequences(replica, context)
    assert (np.diff(users) < 0).all() and users[-1] > 1


def test_parts_without_much_memory_are_counted_honestly(catalog, variant_of):
    groq = next(
        part
        for part in catalog.rows(Accelerator)
        if "groq" in part.name.lower() or "groq" in part.vendor.lower()
    )
    assert chips_needed(variant_of("llama-3.1-70b").shape, "int8", groq.memory_bytes) > 250


def test_every_cache_switch_is_listed_with_its_figure(replica_of):
    found = cache_switches(replica_of("llama-3.1-8b", "H100-SXM", tp=1.0), 8192, 7000)
    assert found["contiguous"] < found["paged"] < found["8-bit cache"]
    assert found["half the prompt shared"] > found["paged"] < found["offloaded to the host"]
